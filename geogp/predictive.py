"""The distribution of a new observation, or of the surface, at each of N places.

On a working scale u the distribution is Gaussian or Student-t with a location, a scale and degrees of
freedom; the target y is an increasing function of u. Quantiles, exceedance probabilities and densities go
through that function exactly; only the mean and the CRPS under a curved transform need quadrature.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, gammaln, ndtr, ndtri, stdtr, stdtrit

from geogp.transforms import Identity, Transform

Array = NDArray[np.float64]

#: Gauss-Legendre nodes on (0, 1) for means and CRPS under a curved transform.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS


@dataclass(frozen=True)
class Predictive:
    """Location-scale distributions at N places, on the scale of y after `transform.inverse`.

    location, scale : (N,) on the working scale u; scale > 0 is the Student-t's own scale, not its sd
    degrees_of_freedom : (N,), or None for a Gaussian
    transform : increasing map y -> u
    """

    location: Array
    scale: Array
    degrees_of_freedom: Array | None = None
    transform: Transform = Identity()

    def __len__(self) -> int:
        return len(self.location)

    def rows(self, index: NDArray) -> "Predictive":
        """The same distributions at some of the places."""
        df = None if self.degrees_of_freedom is None else self.degrees_of_freedom[index]
        return replace(self, location=self.location[index], scale=self.scale[index], degrees_of_freedom=df)

    # -- the standard distribution -----------------------------------------------------------------

    def _cdf(self, u: Array) -> Array:
        return ndtr(u) if self.degrees_of_freedom is None else stdtr(self.degrees_of_freedom, u)

    def _quantile(self, p: ArrayLike) -> Array:
        return ndtri(p) if self.degrees_of_freedom is None else stdtrit(self.degrees_of_freedom, p)

    # -- what callers ask --------------------------------------------------------------------------

    def quantile(self, p: float) -> Array:
        """The p-quantile of y: (N,). Exact for any increasing transform.

        Examples
        --------
        >>> Predictive(np.zeros(1), np.ones(1)).quantile(0.975).round(3)
        array([1.96])
        """
        return self.transform.inverse(self.location + self.scale * self._quantile(p))

    def median(self) -> Array:
        """(N,)"""
        return self.transform.inverse(self.location)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Central interval that holds y with probability `level`: (lower, upper), each (N,)."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie between 0 and 1; got {level}: use 0.95 for a 95% interval.")
        tail = 0.5 * (1.0 - level)
        return self.quantile(tail), self.quantile(1.0 - tail)

    def sd(self) -> Array:
        """Standard deviation of y: (N,). Student-t: scale * sqrt(nu / (nu - 2))."""
        if isinstance(self.transform, Identity):
            return self.scale * self._sd_factor()
        y = self._nodes()
        mean = y @ _WEIGHTS
        return np.sqrt(np.maximum(np.square(y - mean[:, None]) @ _WEIGHTS, 0.0))

    def mean(self) -> Array:
        """(N,)"""
        return self.location.copy() if isinstance(self.transform, Identity) else self._nodes() @ _WEIGHTS

    def mean_of(self, function: Callable[[Array], Array], bounds: tuple[float, float]) -> Array:
        """Mean of an increasing function of y, e.g. the speed whose logarithm y is: (N,).

        y is held within `bounds`: the power of a Student-t has no mean, and speeds have a physical limit;
        the bounds are the range of the training targets. 64-point Gauss-Legendre on the quantiles.
        """
        return function(np.clip(self._nodes(), *bounds)) @ _WEIGHTS

    def cdf(self, y: ArrayLike) -> Array:
        """P(Y <= y): (N,)."""
        return self._cdf((self.transform.forward(np.asarray(y, float)) - self.location) / self.scale)

    def exceedance(self, threshold: float) -> Array:
        """P(Y > threshold): (N,)."""
        u = (self.transform.forward(np.asarray(threshold, float)) - self.location) / self.scale
        return self._cdf(-u)

    def log_density(self, y: Array) -> Array:
        """Log density of y, the transform's Jacobian included: (N,)."""
        u = (self.transform.forward(y) - self.location) / self.scale
        jacobian = self.transform.log_derivative(y) - np.log(self.scale)
        nu = self.degrees_of_freedom
        if nu is None:
            return -0.5 * u * u - 0.5 * math.log(2 * math.pi) + jacobian
        constant = gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * np.log(nu * math.pi)
        return constant - 0.5 * (nu + 1) * np.log1p(u * u / nu) + jacobian

    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score, in the unit of y: (N,).

        Closed form without a transform (Gaussian: Gneiting and Raftery 2007, eq. 21; Student-t: Jordan et
        al. 2019, appendix A.1); with one, the quantile form 2 * integral of the pinball loss (same, eq. 5).
        """
        if not isinstance(self.transform, Identity):
            return self.crps_of(lambda v: v, y)
        u = (y - self.location) / self.scale
        F = self._cdf(u)
        nu = self.degrees_of_freedom
        if nu is None:
            density = np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)
            return self.scale * (u * (2 * F - 1) + 2 * density - 1 / math.sqrt(math.pi))
        log_density = (
            gammaln(0.5 * (nu + 1))
            - gammaln(0.5 * nu)
            - 0.5 * np.log(nu * math.pi)
            - 0.5 * (nu + 1) * np.log1p(u * u / nu)
        )
        ratio = np.exp(betaln(0.5, nu - 0.5) - 2.0 * betaln(0.5, 0.5 * nu))
        first = u * (2 * F - 1) + 2.0 * np.exp(log_density) * (nu + u * u) / (nu - 1)
        return self.scale * (first - 2.0 * np.sqrt(nu) / (nu - 1) * ratio)

    def crps_of(
        self, function: Callable[[Array], Array], y: Array, bounds: tuple[float, float] | None = None
    ) -> Array:
        """CRPS of an increasing function of y, e.g. of the speed whose logarithm y is: (N,), in its unit.

        The quantile form (Jordan et al. 2019, eq. 5) cut where the pinball loss has its kink, at F(y):
        2 integral_0^F p (v - q(p)) dp + 2 integral_F^1 (1 - p) (q(p) - v) dp with v = function(y), each by
        64-point Gauss-Legendre. With `bounds` the distribution is held within them, as in `mean_of`: the
        power of a Student-t has no mean, so its CRPS would be infinite.

        Examples
        --------
        >>> gaussian = Predictive(np.zeros(1), np.ones(1))
        >>> y = np.array([0.3])
        >>> bool(abs(gaussian.crps_of(lambda v: v, y) - gaussian.crps(y))[0] < 1e-4)
        True
        """
        low, high = (-np.inf, np.inf) if bounds is None else bounds
        F = np.where(y >= high, 1.0, np.where(y < low, 0.0, self.cdf(y)))[:, None]
        v = function(y)[:, None]
        below, above = F * _NODES, (1.0 - F) * _NODES  # p, and 1 - p by the symmetry of both families
        q_below = function(np.clip(self._at(self._standard(below)), low, high))
        q_above = function(np.clip(self._at(-self._standard(above)), low, high))
        left = F[:, 0] * ((below * (v - q_below)) @ _WEIGHTS)
        right = (1.0 - F[:, 0]) * ((above * (q_above - v)) @ _WEIGHTS)
        return 2.0 * (left + right)

    def _standard(self, p: Array) -> Array:
        """Standard quantiles of p (N, K), held off 0 and 1."""
        p = np.clip(p, 1e-300, 1.0)
        return ndtri(p) if self.degrees_of_freedom is None else stdtrit(self.degrees_of_freedom[:, None], p)

    def _at(self, u: Array) -> Array:
        """y at standard quantiles u (N, K)."""
        return self.transform.inverse(self.location[:, None] + self.scale[:, None] * u)

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Independent draws at each place: (N, n_samples). Joint draws: `GPRegressor.sample_y`."""
        p = rng.random((len(self), n_samples))
        if self.degrees_of_freedom is None:
            u = ndtri(p)
        else:
            u = stdtrit(self.degrees_of_freedom[:, None], p)
        return self.transform.inverse(self.location[:, None] + self.scale[:, None] * u)

    def _sd_factor(self) -> Array | float:
        nu = self.degrees_of_freedom
        return 1.0 if nu is None else np.sqrt(nu / (nu - 2.0))

    def _nodes(self) -> Array:
        """Quantiles of y at the quadrature nodes: (N, 64)."""
        if self.degrees_of_freedom is None:
            u = np.broadcast_to(ndtri(_NODES), (len(self), len(_NODES)))
        else:
            u = stdtrit(self.degrees_of_freedom[:, None], _NODES[None, :])
        return self.transform.inverse(self.location[:, None] + self.scale[:, None] * u)

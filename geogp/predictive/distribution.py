"""The distribution of a new observation, or of the surface, at each of N places.

On a working scale u the distribution is Gaussian or Student-t with a location, a scale and degrees of
freedom, its two halves may be stretched differently, and a Gaussian may stand beside it as a second peak; the target y
is an increasing function of u. Quantiles, exceedance probabilities and densities go through that function exactly;
only the mean and the CRPS under a curved transform need quadrature, and a Student-t through an exponential has neither:
see `Predictive.center`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, ndtr, ndtri, stdtr

from geogp.densities import standard_log_density
from geogp.errors import InvalidInput, check_level, number_of
from geogp.predictive.peaks import Peak, crps_between, zero_between
from geogp.predictive.tails import mean_of_half, standard_moments, student_tail
from geogp.transforms import Identity, Transform, Warped

Array = NDArray[np.float64]

#: Gauss-Legendre nodes on (0, 1) for the CRPS under a curved transform.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS
_HALF_NODES, _HALF_WEIGHTS = np.polynomial.legendre.leggauss(32)
_HALF_NODES, _HALF_WEIGHTS = 0.5 * (_HALF_NODES + 1.0), 0.5 * _HALF_WEIGHTS
#: For means: probabilities ½ exp(-(eˣ - 1)) of a tail, x even steps of the same rule, down to 1e-300.
_TAIL = 0.5 * np.exp(-np.expm1(math.log(690.0) * _NODES))
_TAIL_WEIGHTS = math.log(690.0) * _WEIGHTS * np.exp(math.log(690.0) * _NODES) * _TAIL
#: For means within bounds: nodes on (0, 1) of either half, places at a time, and the mass of a tail that is left out.
_MEAN_NODES, _MEAN_WEIGHTS = np.polynomial.legendre.leggauss(16)
_MEAN_NODES, _MEAN_WEIGHTS = 0.5 * (_MEAN_NODES + 1.0), 0.5 * _MEAN_WEIGHTS
_TURN, _LEAST_MASS = 1 << 14, 1e-9
#: Every Student-t here has more degrees of freedom; with so many, what grows faster than u² may have no mean.
LEAST_DF = 2.0
#: For the CRPS of two peaks under a curved transform: probabilities of either peak at which the integrand is looked at.
_LEVELS = 1.0 / (1.0 + np.exp(-np.linspace(-16.0, 16.0, 48)))
#: Of an interval whose half-width is the sd of a Gaussian.
ONE_SD = 0.6826894921370859


@dataclass(frozen=True)
class Predictive:
    """Location-scale distributions at N places, on the scale of y after `transform.inverse`.

    location, scale : (N,) on the working scale u; scale > 0 is the Student-t's own scale, not its sd
    degrees_of_freedom : (N,), or None for a Gaussian
    transform : increasing map y -> u
    log_skewness : (N,) log γ, or None for 0: beyond the location the scale is γ times, before it 1/γ times,
        with the masses that make the density continuous (Fernández and Steel 1998, eq. 1); the location is
        then the mode
    least : what y cannot fall below, e.g. 0 of a count: quantiles, probabilities and draws are held there; mean, sd,
        density and the closed-form CRPS are those of the distribution as it is
    peak : what else a value may come from, or None: all the above is then that of the first peak, and y a mixture's
    """

    location: Float[np.ndarray, " N"]
    scale: Float[np.ndarray, " N"]
    degrees_of_freedom: Float[np.ndarray, " N"] | None = None
    transform: Transform = Identity()
    log_skewness: Float[np.ndarray, " N"] | None = None
    least: float = -math.inf
    peak: Peak | None = None

    def __len__(self) -> int:
        return len(self.location)

    def rows(self, index: NDArray) -> "Predictive":
        """The same distributions at some of the places."""
        df = None if self.degrees_of_freedom is None else self.degrees_of_freedom[index]
        skew = None if self.log_skewness is None else self.log_skewness[index]
        return replace(
            self,
            location=self.location[index],
            scale=self.scale[index],
            degrees_of_freedom=df,
            log_skewness=skew,
            transform=self.transform.rows(index) if isinstance(self.transform, Warped) else self.transform,
            peak=None if self.peak is None else self.peak.rows(index),
        )

    # -- two peaks -----------------------------------------------------------------------------------

    def _peaks(self) -> tuple["Predictive", "Predictive", Array]:
        """The first peak, the second, and the share (N,) of the second."""
        assert self.peak is not None
        second = Predictive(self.peak.location, self.peak.scale, None, self.transform, None, self.least)
        return replace(self, peak=None), second, self.peak.share

    def _mixed(self, of: Callable[["Predictive"], Array]) -> Array:
        """What is a mean over y, (N,), from what it is for either peak."""
        first, second, share = self._peaks()
        with np.errstate(invalid="ignore", over="ignore"):
            other = np.where(share > 0.0, of(second), 0.0)
        return (1.0 - share) * of(first) + share * other

    def _working(self, p: ArrayLike, *, upper: bool = False) -> Array:
        """The p-quantile, or the (1 - p)-quantile, on the working scale: shapes as of `_standard`."""
        column = (slice(None), None) if np.ndim(p) == 2 else slice(None)
        first = self.location[column] + self.scale[column] * self._standard(p, upper=upper)
        if self.peak is None:
            return first
        shape = first.shape
        row = np.broadcast_to(np.arange(len(self))[column], shape).ravel()
        p = np.broadcast_to(np.clip(p, 1e-300, 1.0), shape).ravel()
        out = first.ravel()
        some = self.peak.share[row] > 0.0
        if some.any():
            out[some] = self.rows(row[some])._between(out[some], p[some], upper)
        return out.reshape(shape)

    def _between(self, start: Array, p: Array, upper: bool) -> Array:
        """Quantiles of two peaks (N,): they lie between those of the first, `start`, and of the second."""
        assert self.peak is not None
        other = self.peak.location + self.peak.scale * (-ndtri(p) if upper else ndtri(p))
        plain, sign = replace(self, transform=Identity()), -1.0 if upper else 1.0
        return zero_between(
            start,
            other,
            lambda u, rows: sign * (plain.rows(rows)._mass(u, upper=upper) - p[rows]),
            lambda u, rows: np.exp(plain.rows(rows).log_density(u)),
        )

    def _mass(self, u: Array, *, upper: bool = False) -> Array:
        """P(U <= u), or P(U > u), on the working scale: (N,), accurate in both tails."""
        first = self._below((u - self.location) / self.scale, upper=upper)
        if self.peak is None:
            return first
        z = (u - self.peak.location) / self.peak.scale
        return (1.0 - self.peak.share) * first + self.peak.share * ndtr(-z if upper else z)

    # -- the standard distribution: location 0, scale 1 ----------------------------------------------

    def _halves(self) -> tuple[Array | float, Array | float]:
        """Scales before and beyond the location."""
        if self.log_skewness is None:
            return 1.0, 1.0
        return np.exp(-self.log_skewness), np.exp(self.log_skewness)

    def _tail(self, u: Array) -> Array:
        """P(U <= u) of the symmetric base at u <= 0."""
        return ndtr(u) if self.degrees_of_freedom is None else stdtr(self.degrees_of_freedom, u)

    def _below(self, u: Array, *, upper: bool = False) -> Array:
        """P(U <= u), or P(U > u), accurate in both tails: (N,)."""
        left, right = self._halves()
        if upper:
            left, right, u = right, left, -u
        half = np.where(u < 0.0, left, right)
        outside = 2.0 / (left + right) * half * self._tail(-np.abs(u) / half)
        return np.where(u < 0.0, outside, 1.0 - outside)

    def _standard(self, p: ArrayLike, *, upper: bool = False) -> Array:
        """The p-quantile, or the (1 - p)-quantile: p a scalar or (N,) gives (N,), p (N, K) gives (N, K).

        p is held off 0 and 1.
        """
        p = np.clip(p, 1e-300, 1.0)
        wide = np.ndim(p) == 2
        nu = self.degrees_of_freedom
        if nu is not None and wide:
            nu = nu[:, None]
        left, right = (np.asarray(v)[:, None] if wide and np.ndim(v) else v for v in self._halves())
        if upper:
            left, right = right, left
        share = 0.5 * (left + right)
        tail = ndtri if nu is None else (lambda q: student_tail(nu, q))
        first = p * share < 0.5 * left
        u = tail(np.where(first, p * share / left, (1.0 - p) * share / right))
        u = np.where(first, left, -right) * u
        return -u if upper else u

    def _standard_moments(self) -> tuple[Array | float, Array | float]:
        return standard_moments(self.degrees_of_freedom, self.log_skewness)

    # -- what callers ask --------------------------------------------------------------------------

    def quantile(self, p: float) -> Float[np.ndarray, " N"]:
        """The p-quantile of y: (N,). Exact for any increasing transform.

        Examples
        --------
        >>> Predictive(np.zeros(1), np.ones(1)).quantile(0.975).round(3)
        array([1.96])
        """
        p = number_of(p, "the p of a quantile")
        if not 0.0 <= p <= 1.0:
            raise InvalidInput(f"the p of a quantile must lie between 0 and 1; got {p:g}: use 0.9 for 90%.")
        return np.maximum(self.transform.inverse(self._working(p)), self.least)

    def median(self) -> Float[np.ndarray, " N"]:
        """(N,)"""
        if self.log_skewness is not None or self.peak is not None:
            return self.quantile(0.5)
        return np.maximum(self.transform.inverse(self.location), self.least)

    def interval(self, level: float = 0.95) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
        """Central interval that holds y with probability `level`: (lower, upper), each (N,)."""
        check_level(level)
        tail = 0.5 * (1.0 - level)
        return self.quantile(tail), self.quantile(1.0 - tail)

    @property
    def center(self) -> str:
        """What `central` gives: "mean", or "median" where Student-t tails through a curved transform may have no mean.

        The same at all places: it depends on the kind of distribution alone.
        """
        return "mean" if self._has_moments(1) else "median"

    def central(self) -> Float[np.ndarray, " N"]:
        """The mean, or the median where there may be none (see `center`): (N,)."""
        return self.mean() if self._has_moments(1) else self.median()

    def spread(self) -> Float[np.ndarray, " N"]:
        """The sd, or where there may be none half the width of the central 68.3% interval, a Gaussian's sd: (N,)."""
        if self._has_moments(2):
            return self.sd()
        lower, upper = self.interval(ONE_SD)
        return 0.5 * (upper - lower)

    def _has_moments(self, order: int) -> bool:
        """Whether y has this moment whatever the degrees of freedom."""
        return self.degrees_of_freedom is None or order * max(self.transform.growth) <= LEAST_DF

    def sd(self) -> Float[np.ndarray, " N"]:
        """Standard deviation of y: (N,), infinite where it has none. Student-t: scale * sqrt(nu / (nu - 2))."""
        if self.peak is not None:
            first, second, w = self._peaks()
            with np.errstate(invalid="ignore", over="ignore"):
                apart = (1.0 - w) * np.square(second.mean() - first.mean()) + np.square(second.sd())
            return np.sqrt((1.0 - w) * np.square(first.sd()) + w * np.where(w > 0.0, apart, 0.0))
        if isinstance(self.transform, Identity):
            return self.scale * np.sqrt(self._standard_moments()[1])
        with np.errstate(over="ignore", invalid="ignore"):
            square = sum(np.square(y - self.mean()[:, None]) @ _TAIL_WEIGHTS for y in self._tails())
        return np.sqrt(np.where(self._heavy(2).any(axis=0), np.inf, square))

    def mean(self) -> Float[np.ndarray, " N"]:
        """Mean of y: (N,), infinite where a tail is too heavy to have one, NaN where both are."""
        if self.peak is not None:
            return self._mixed(Predictive.mean)
        if isinstance(self.transform, Identity):
            return self.location + self.scale * self._standard_moments()[0]
        bent = self.transform
        if isinstance(bent, Warped) and isinstance(bent.inner, Identity):
            # Beyond the knots y and the working scale are a constant apart.
            ends = (np.full(len(self), bent.warp.knots[k]) for k in (0, -1))
            mean = self.location + self.scale * self._standard_moments()[0]
            return mean + self._held(lambda y: y - bent.forward(y), *ends)
        out = np.zeros(len(self))
        for y, heavy, end in zip(self._tails(), self._heavy(1), (-np.inf, np.inf)):
            with np.errstate(over="ignore", invalid="ignore"):
                out = out + np.where(heavy, end, y @ _TAIL_WEIGHTS)
        return out

    def mean_of(
        self, function: Callable[[Array], Array], bounds: tuple[float, float]
    ) -> Float[np.ndarray, " N"]:
        """Mean of an increasing function of y, e.g. the speed whose logarithm y is: (N,).

        y is held within `bounds`: the power of a Student-t has no mean, and speeds have a physical limit;
        the bounds are the range of the training targets. Where the middle half of y reaches beyond them, it is held to
        that: else a trend that leaves the data would have its mean outside its own interval.

        Notes
        -----
        Gauss-Legendre with 16 nodes on either side of the location, even in asinh u: a density costs far less than a quantile.
        """
        low = np.full(len(self), max(bounds[0], self.least))
        high = np.full(len(self), bounds[1])
        # A probability costs far less than a quantile.
        under, over = self.cdf(low) > 0.25, self.cdf(high) < 0.75
        if under.any():
            low[under] = np.maximum(np.minimum(bounds[0], self.rows(under).quantile(0.25)), self.least)
        if over.any():
            high[over] = np.maximum(bounds[1], self.rows(over).quantile(0.75))
        out = np.empty(len(self))
        for start in range(0, len(self), _TURN):
            part = np.arange(start, min(start + _TURN, len(self)))
            out[part] = self.rows(part)._held(function, low[part], high[part])
        return out

    def _held(self, function: Callable[[Array], Array], low: Array, high: Array) -> Array:
        """Mean of a function of y held within low and high (N,)."""
        if self.peak is not None:
            return self._mixed(lambda one: one._held(function, low, high))
        far = self._standard(_LEAST_MASS), self._standard(_LEAST_MASS, upper=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = [(self.transform.forward(y) - self.location) / self.scale for y in (low, high)]
        a, b = (np.where(np.isnan(end), edge, np.clip(end, *far)) for end, edge in zip(ends, far))
        at = [function(np.clip(self._at(end[:, None])[:, 0], low, high)) for end in (a, b)]
        out = at[0] * self._below(a) + at[1] * self._below(b, upper=True)
        left, right = self._halves()
        for half, start, stop in (
            (left, np.minimum(a, 0.0), np.minimum(b, 0.0)),
            (right, np.maximum(a, 0.0), np.maximum(b, 0.0)),
        ):
            first, last = np.arcsinh(start / half), np.arcsinh(stop / half)
            s = first[:, None] + (last - first)[:, None] * _MEAN_NODES
            u = np.sinh(s)
            df = None if self.degrees_of_freedom is None else self.degrees_of_freedom[:, None]
            density = np.exp(standard_log_density(u, df)) * np.sqrt(1.0 + u * u)
            y = np.clip(self._at(np.asarray(half)[..., None] * u), low[:, None], high[:, None])
            out += (function(y) * density) @ _MEAN_WEIGHTS * (last - first) * 2.0 * half / (left + right)
        return out

    def cdf(self, y: ArrayLike) -> Float[np.ndarray, " N"]:
        """P(Y <= y): (N,)."""
        y = np.asarray(y, float)
        return np.where(y < self.least, 0.0, self._mass(self.transform.forward(y)))

    def exceedance(self, threshold: float) -> Float[np.ndarray, " N"]:
        """P(Y > threshold): (N,)."""
        threshold = number_of(threshold, "a threshold")
        if not math.isfinite(threshold):
            raise InvalidInput(f"a threshold must be a finite number; got {threshold:g}.")
        u = self.transform.forward(np.asarray(threshold, float))
        return np.where(threshold < self.least, 1.0, self._mass(u, upper=True))

    def log_density(self, y: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Log density of y, the transform's Jacobian included: (N,)."""
        if self.peak is not None:
            first, second, w = self._peaks()
            with np.errstate(divide="ignore"):
                return np.logaddexp(np.log1p(-w) + first.log_density(y), np.log(w) + second.log_density(y))
        u = (self.transform.forward(y) - self.location) / self.scale
        jacobian = self.transform.log_derivative(y) - np.log(self.scale)
        left, right = self._halves()
        halves = np.log(0.5 * (left + right))
        return (
            standard_log_density(u / np.where(u < 0.0, left, right), self.degrees_of_freedom)
            - halves
            + jacobian
        )

    def crps(self, y: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Continuous ranked probability score, in the unit of y: (N,).

        Closed form without a transform (symmetric Gaussian: Gneiting and Raftery 2007, eq. 21; Student-t:
        Jordan et al. 2019, appendix A.1; two halves: the same integrals, half by half); with one, the quantile form
        2 * integral of the pinball loss (same, eq. 5), infinite where y has no mean. Of two peaks the means of either's, less
        w (1 - w) (E|Y₁ - Y₂| - E|Y₁ - Y₁'| / 2 - E|Y₂ - Y₂'| / 2) for a share w of the second.
        """
        if not isinstance(self.transform, Identity):
            return np.where(self._heavy(1).any(axis=0), np.inf, self.crps_of(lambda v: v, y))
        if self.peak is not None:
            w = self.peak.share
            return self._mixed(lambda one: one.crps(y)) - w * (1.0 - w) * self._apart()
        u = (y - self.location) / self.scale
        nu = self.degrees_of_freedom
        left, right = self._halves()
        # With w the scale of the half that y lies in, a = |u| / w, T the base's cdf and G(a) the integral of
        # its first moment beyond a: |u| - 4 w²/(l + r) ∫₀^a T(-s) ds + 4 (l³ + r³)/(l + r)² ∫₀^∞ T(-s)² ds.
        w = np.where(u < 0.0, left, right)
        a = np.abs(u) / w
        T = self._tail(-a)
        if nu is None:
            beyond = np.exp(standard_log_density(a, None))
            squared = (math.sqrt(2.0) - 1.0) / (2.0 * math.sqrt(math.pi))
        else:
            beyond = np.exp(standard_log_density(a, nu)) * (nu + a * a) / (nu - 1.0)
            ratio = np.exp(betaln(0.5, nu - 0.5) - 2.0 * betaln(0.5, 0.5 * nu))
            squared = mean_of_half(nu) - np.sqrt(nu) / (nu - 1.0) * ratio
        first = a * T + mean_of_half(nu) - beyond
        both = (left**3 + right**3) / np.square(left + right)
        return self.scale * (np.abs(u) - 4.0 * w * w / (left + right) * first + 4.0 * both * squared)

    def _apart(self) -> Array:
        """Half of the energy distance of two peaks on the working scale: (N,). E|Y₁ - x| less half of E|Y₁ - Y₁'|, the first peak's
        CRPS at x, over the second's x, by 32-point Gauss-Legendre on either side of where it bends.
        """
        first, second, _ = self._peaks()
        z = np.clip((first.location - second.location) / second.scale, -8.0, 8.0)
        out = -second.scale / math.sqrt(math.pi)
        for low, high in ((np.full(len(self), -8.0), z), (z, np.full(len(self), 8.0))):
            for node, weight in zip(_HALF_NODES, _HALF_WEIGHTS):
                u = low + (high - low) * node
                density = np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
                out = out + weight * (high - low) * density * first.crps(second.location + second.scale * u)
        return out

    def crps_of(
        self,
        function: Callable[[Array], Array],
        y: Float[np.ndarray, " N"],
        bounds: tuple[float, float] | None = None,
    ) -> Float[np.ndarray, " N"]:
        """CRPS of an increasing function of y, e.g. of the speed whose logarithm y is: (N,), in its unit.

        The quantile form (Jordan et al. 2019, eq. 5) cut where the pinball loss has its kink, at F(y):
        2 integral_0^F p (v - q(p)) dp + 2 integral_F^1 (1 - p) (q(p) - v) dp with v = function(y), each by
        64-point Gauss-Legendre. With `bounds` the distribution is held within them, as in `mean_of`: the
        power of a Student-t has no mean, so its CRPS would be infinite. Of two peaks, whose quantiles have to be searched, the
        integral of (F - 1{y <= t})² dt by Simpson's rule between quantiles of either.

        Examples
        --------
        >>> gaussian = Predictive(np.zeros(1), np.ones(1))
        >>> y = np.array([0.3])
        >>> bool(abs(gaussian.crps_of(lambda v: v, y) - gaussian.crps(y))[0] < 1e-4)
        True
        """
        low, high = (-np.inf, np.inf) if bounds is None else bounds
        if self.peak is not None:
            return self._by_intervals(function, np.asarray(y, float), low, high)
        F = np.where(y >= high, 1.0, np.where(y < low, 0.0, self.cdf(y)))[:, None]
        v = function(y)[:, None]
        below, above = F * _NODES, (1.0 - F) * _NODES  # p, and 1 - p
        q_below = function(np.clip(self._at(self._standard(below)), low, high))
        q_above = function(np.clip(self._at(self._standard(above, upper=True)), low, high))
        left = F[:, 0] * ((below * (v - q_below)) @ _WEIGHTS)
        right = (1.0 - F[:, 0]) * ((above * (q_above - v)) @ _WEIGHTS)
        return 2.0 * (left + right)

    def _by_intervals(self, function: Callable[[Array], Array], y: Array, low: float, high: float) -> Array:
        """`crps_of` for two peaks."""
        out = np.empty(len(self))
        for start in range(0, len(self), _TURN):
            part = np.arange(start, min(start + _TURN, len(self)))
            first, second, _ = (told := self.rows(part))._peaks()
            seen = np.clip(y[part], low, high)
            p = np.broadcast_to(_LEVELS, (len(part), len(_LEVELS)))
            t = np.concatenate([one._at(one._standard(p)) for one in (first, second)], axis=1)
            t = np.sort(np.concatenate([np.clip(t, low, high), seen[:, None]], axis=1), axis=1)
            out[part] = crps_between(t, seen, told.cdf, function)
            out[part] += np.abs(function(y[part]) - function(seen))
        return out

    def _at(self, u: Array) -> Array:
        """y at standard quantiles u (N, K)."""
        with np.errstate(over="ignore"):  # far out in a heavy tail
            y = self.transform.inverse(self.location[:, None] + self.scale[:, None] * u)
        return np.maximum(y, self.least)

    def sample(self, n_samples: int, rng: np.random.Generator) -> Float[np.ndarray, "N n_samples"]:
        """Independent draws at each place: (N, n_samples). Joint draws: `GPRegressor.sample_y`."""
        p = rng.random((len(self), n_samples))
        if self.peak is None:
            return self._at(self._standard(p))
        first, second, share = self._peaks()
        other = rng.random(p.shape) < share[:, None]
        return np.where(other, second._at(second._standard(p)), first._at(first._standard(p)))

    def _heavy(self, order: int) -> NDArray[np.bool_]:
        """Whether the lower and the upper tail of y are too heavy for a moment: (2, N)."""
        if self.degrees_of_freedom is None:
            return np.zeros((2, len(self)), dtype=bool)
        return np.stack([order * growth >= self.degrees_of_freedom for growth in self.transform.growth])

    def _tails(self) -> tuple[Array, Array]:
        """Quantiles of y at the probabilities `_TAIL` of the lower and of the upper half: (N, 64) each."""
        p = np.broadcast_to(_TAIL, (len(self), len(_TAIL)))
        with np.errstate(over="ignore"):
            return self._at(self._standard(p)), self._at(self._standard(p, upper=True))

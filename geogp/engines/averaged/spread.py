"""How new observations spread about a Gaussian process of a table, read from its rows, each left out.

    y ~ t_ν(m(x), f (v(x) + σ²) g(x)),   g(x) = (κ + Σ_i w_i(x) z_i²) / (κ + Σ_i w_i(x)),   w_i(x) = exp(-‖(x − x_i) / ρℓ‖² / 2)

with m, v and σ² those of the Gaussian process, and z_i by how many of its sd a row, left out, misses. Without g, where rows do
not surely bear it out, f is on σ² alone. A row that is left out takes no part in its own g.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from geogp.engines.averaged.evidence import squared_distances
from geogp.predictive import student_tail

Array = NDArray[np.float64]

#: 1/ν looked at: 0 for a Gaussian, which has half of the prior, and up to that of 2.5 degrees of freedom; the prior of the
#: others is exponential with this mean.
INVERSE_DF = np.r_[0.0, np.geomspace(0.005, 0.4, 14)]
INVERSE_DF_MEAN = 0.1
#: More degrees of freedom than so many are those of a Gaussian.
GAUSSIAN_FROM = 1000.0
#: Degrees of freedom as good as endless.
GAUSSIAN = 1e6
#: log f looked at, less that which keeps the variance, and the sd of its prior: rows that have chosen a noise miss it by less.
LOGARITHMS, LOGARITHM_SD = np.linspace(-3.0, 1.0, 33), 0.25
#: No row weighs more than so many times its draw's weight when a draw is judged without it.
MOST = 10.0
#: ρ and κ looked at, and the largest z².
REACHES, ROWS = (0.03, 0.05, 0.1, 0.2, 0.4, 0.8), (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
LARGEST = 25.0
#: A spread that differs from place to place, or rows that are weighed, must be worth so much of a logarithm of the density, and
#: so much a row.
WORTH, WORTH_A_ROW = 5.0, 0.01


@dataclass(frozen=True)
class LeftOut:
    """Rows as the others predict them, (n,) each: what they miss, squared, the variance of the surface and of the noise.

    scales : whether the noise is already the squared scale of a Student-t, not its variance
    """

    missed: Array
    surface: Array
    noise: Array
    scales: bool = False

    @classmethod
    def of(
        cls, y: Array, weights: Array, means: Array, surfaces: Array, noises: Array, *, scales: bool = False
    ) -> Self:
        """From what each of k processes, weighed (k,) as all rows bear it out, predicts: (k, n) each.

        A row has had its say in a weight; without it a process counts the more, the less likely it finds the row.
        """
        total = surfaces + noises
        likelihood = -0.5 * (np.square(y - means) / total + np.log(total))
        with np.errstate(over="ignore"):
            w = weights[:, None] * np.minimum(np.exp(likelihood.max(0) - likelihood), MOST)
        w /= w.sum(0)
        mean = (w * means).sum(0)
        return cls(
            np.square(y - mean),
            (w * surfaces).sum(0) + (w * np.square(means - mean)).sum(0),
            (w * noises).sum(0),
            scales,
        )

    def tails(self) -> tuple[float | None, float]:
        """Degrees of freedom, None for Gaussian ones, and f on the noise, the same everywhere."""
        return self._means(self._posterior(1.0, self.surface))

    def _posterior(self, times: Array | float, fixed: Array | float) -> Array:
        """Log posterior of each 1/ν and log f, the squared scale being fixed + f times (surface + noise - fixed): (15, 33)."""
        out = np.empty((len(INVERSE_DF), len(LOGARITHMS)))
        scaled = times * (self.surface + self.noise - fixed)
        for i, a in enumerate(INVERSE_DF):
            for j, f in enumerate(np.exp(self._logarithms()[i])):
                scale2 = fixed + f * scaled
                out[i, j] = _log_density(self.missed / scale2, a) - 0.5 * float(np.log(scale2).sum())
        prior = INVERSE_DF * np.exp(-INVERSE_DF / INVERSE_DF_MEAN)
        prior[0] = prior.sum()
        return out + np.log(prior)[:, None] - 0.5 * np.square(LOGARITHMS / LOGARITHM_SD)

    def _logarithms(self) -> Array:
        """log f looked at: (15, 33)."""
        return LOGARITHMS + (0.0 if self.scales else 1.0) * np.log1p(-2.0 * INVERSE_DF)[:, None]

    def _means(self, posterior: Array) -> tuple[float | None, float]:
        """Degrees of freedom and f."""
        p = np.exp(posterior - posterior.max())
        a = float(p.sum(1) @ INVERSE_DF / p.sum())
        if a * GAUSSIAN_FROM < 1.0:
            return None, float(np.exp(p[0] @ LOGARITHMS / p[0].sum()))
        return 1.0 / a, float(np.exp((p * self._logarithms()).sum() / p.sum()))

    def spread(self, at: Array) -> tuple["Spread", float, float]:
        """What the rows say of the spread of new observations, the highest of the logarithms of its posterior, and the share
        of the rows that lie within their 95% intervals.

        Parameters
        ----------
        at : (n, d) their inputs in units of lengthscales

        Notes
        -----
        Means of log f and of 1/ν over their posterior on a grid. O(500 n), and O(6 n²) for what differs from place to place.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> one, at = np.ones(2000), rng.random((2000, 1))
        >>> for noise in (rng.standard_normal(2000), rng.standard_t(3, 2000)):
        ...     print(LeftOut(np.square(noise), 0.0 * one, one).spread(at)[0].degrees_of_freedom is None)
        True
        False
        """
        z2 = np.minimum(self.missed / (self.surface + self.noise), LARGEST)
        alone = self._posterior(1.0, 0.0).max()
        found, best = None, alone + worth(len(z2))
        distances = squared_distances(at, at)
        for reach in REACHES:
            W = _weights(distances, reach)
            np.fill_diagonal(W, 0.0)
            for few in ROWS:
                near = _near(W, z2, few)
                posterior = self._posterior(near, 0.0)
                if posterior.max() > best:
                    found, best = (posterior, reach, few, near), posterior.max()
        if found is None:
            posterior = self._posterior(1.0, self.surface)
            told = Spread(*self._means(posterior))
            return told, float(posterior.max()), self._held(told, self.surface + told.factor * self.noise)
        posterior, reach, few, near = found
        told = Spread(*self._means(posterior), reach, few, z2)
        return told, float(best), self._held(told, told.factor * near * (self.surface + self.noise))

    def _held(self, spread: "Spread", scale2: Array) -> float:
        end = student_tail(spread.degrees_of_freedom or GAUSSIAN, np.array(0.025))
        return float((self.missed < end**2 * scale2).mean())


def worth(n: int) -> float:
    """So much must the logarithm of the density of n rows gain by another choice."""
    return WORTH + WORTH_A_ROW * n


@dataclass(frozen=True, eq=False)
class Spread:
    """Of new observations.

    degrees_of_freedom : None for Gaussian ones
    factor : f
    reach, rows : ρ and κ; missed : (n,) z² of the rows, None for a spread that is the same everywhere
    """

    degrees_of_freedom: float | None = None
    factor: float = 1.0
    reach: float = 0.0
    rows: float = 0.0
    missed: Array | None = None

    def split(
        self, at: Array, rows: Array, surface: Array, noise: Array, least: Array
    ) -> tuple[Array, Array]:
        """Variance of the surface and what new observations add to their squared scale: (N,) each.

        The surface's is the model's, but where new observations, of half the noise of endless measurements, vary less.

        Parameters
        ----------
        at, rows : (N, d) and (n, d) inputs in units of lengthscales
        surface, noise, least : (N,) variances as the model has them; `least` is the noise of endless measurements
        """
        if self.missed is None:
            return surface, self.factor * noise
        W = _weights(squared_distances(at, rows), self.reach)
        times = self.factor * _near(W, self.missed, self.rows)
        kept = np.minimum(surface, times * (surface + 0.5 * least))
        return kept, times * (surface + noise) - kept

    def facts(self) -> dict[str, Any]:
        """All but `missed`, JSON-able."""
        return {
            "degrees_of_freedom": self.degrees_of_freedom,
            "factor": self.factor,
            "reach": self.reach,
            "rows": self.rows,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any] | None, missed: Array | None) -> Self:
        """What was kept; of fits from before, which kept nothing, the model's own."""
        return cls() if facts is None else cls(**facts, missed=missed)


def _weights(distances: Array, reach: float) -> Array:
    return np.exp(-0.5 * distances / reach**2)


def _near(W: Array, z2: Array, rows: float) -> Array:
    """g of places with such weights (N, n) of rows: (N,)."""
    return (rows + W @ z2) / (rows + W.sum(1))


def _log_density(z2: Array, a: float) -> float:
    """Of all z² (n,) under a Student-t of 1 / a degrees of freedom, less a constant."""
    if a == 0.0:
        return -0.5 * float(z2.sum()) - 0.5 * len(z2) * float(np.log(2.0))
    nu = 1.0 / a
    constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(nu)
    return len(z2) * float(constant) - 0.5 * (nu + 1.0) * float(np.log1p(a * z2).sum())

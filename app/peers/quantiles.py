"""A whole distribution from a handful of predicted quantiles, so that quantile models are scored like others.

Between the given quantiles q_j at probabilities p_j the distribution is a stretched normal: with z_j the
standard normal quantile of p_j, x(z) is linear from (z_j, q_j) to (z_{j+1}, q_{j+1}), and beyond the ends it
goes on with the slope of the last piece times a chosen tail factor. Quantiles are met exactly, the density is
positive everywhere, and density and CRPS have closed forms.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from geogp.predictive import Predictive

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Stretch:
    """y = x(z), increasing and piecewise linear, one map a row: the `transform` of a `QuantilePredictive`.

    knots : (K,) standard normal quantiles; values : (N, K) increasing; slopes : (N, K + 1) of all pieces
    """

    knots: Array
    values: Array
    slopes: Array

    def inverse(self, u: ArrayLike) -> Array:
        """y of z: (N,) of (N,), or (N, S) of (N, S)."""
        u = np.asarray(u, float)
        first, last = self._columns(self.values[:, 0], u), self.knots[-1]
        y = first + self._columns(self.slopes[:, 0], u) * np.minimum(u - self.knots[0], 0.0)
        for j in range(len(self.knots) - 1):
            y = y + self._columns(self.slopes[:, j + 1], u) * (
                np.clip(u, self.knots[j], self.knots[j + 1]) - self.knots[j]
            )
        return y + self._columns(self.slopes[:, -1], u) * np.maximum(u - last, 0.0)

    def forward(self, y: ArrayLike) -> Array:
        """z of y, a scalar or (N,): (N,)."""
        y = np.asarray(y, float)
        v, s = self.values, self.slopes
        u = self.knots[0] + np.minimum(y - v[:, 0], 0.0) / s[:, 0]
        for j in range(len(self.knots) - 1):
            u = u + (np.clip(y, v[:, j], v[:, j + 1]) - v[:, j]) / s[:, j + 1]
        return u + np.maximum(y - v[:, -1], 0.0) / s[:, -1]

    def log_derivative(self, y: ArrayLike) -> Array:
        """log dz/dy: (N,)."""
        piece = (np.asarray(y, float).reshape(-1, 1) >= self.values).sum(1)
        return -np.log(np.take_along_axis(self.slopes, piece[:, None], axis=1)[:, 0])

    @property
    def growth(self) -> tuple[float, float]:
        """Linear beyond the outermost levels."""
        return 1.0, 1.0

    def to_dict(self) -> dict:
        return {"name": "quantiles"}

    def words(self, of: str) -> str:
        return f"normal quantiles of {of}"

    @staticmethod
    def _columns(a: Array, u: Array) -> Array:
        return a[:, None] if u.ndim == 2 else a


@dataclass(frozen=True)
class QuantilePredictive(Predictive):
    """Distributions at N places given by quantiles. Build it with `from_quantiles`."""

    def rows(self, index: NDArray) -> "QuantilePredictive":
        t = self._stretch
        return _build(t.knots, t.values[index], t.slopes[index])

    def rescaled(self, mean: float, sd: float) -> "QuantilePredictive":
        """The distribution of mean + sd * y."""
        t = self._stretch
        return _build(t.knots, mean + sd * t.values, sd * t.slopes)

    def crps(self, y: Array) -> Array:
        """Exact, piece by piece: the integral of F² below y and of (1 - F)² above it. (N,)

        With F(x(z)) = Φ(z): ∫ Φ² dz = A(z) = z Φ² + 2 φ Φ − Φ(√2 z)/√π, and ∫ (1 − Φ)² beyond z is A(−z).
        """
        t = self._stretch
        u = t.forward(y)
        edges = np.concatenate([[-1e12], t.knots, [1e12]])  # stand for infinity: A is 0 and z - 1/√π there
        total = np.zeros(len(u))
        for j in range(len(edges) - 1):
            low, high = edges[j], edges[j + 1]
            cut = np.clip(u, low, high)
            total += t.slopes[:, j] * (_area(cut) - _area(low) + _area(-cut) - _area(-high))
        return total

    @property
    def _stretch(self) -> _Stretch:
        assert isinstance(self.transform, _Stretch)
        return self.transform


def _area(z: ArrayLike) -> Array:
    z = np.asarray(z, float)
    Phi, phi = ndtr(z), np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return z * Phi * Phi + 2.0 * phi * Phi - ndtr(np.sqrt(2.0) * z) / np.sqrt(np.pi)


def _build(knots: Array, values: Array, slopes: Array) -> QuantilePredictive:
    n = len(values)
    return QuantilePredictive(np.zeros(n), np.ones(n), None, _Stretch(knots, values, slopes))


def from_quantiles(
    levels: ArrayLike, values: ArrayLike, *, least_sd: float = 1e-3, tail: float = 1.0
) -> QuantilePredictive:
    """Distributions whose quantiles at `levels` (K,) are `values` (N, K).

    Parameters
    ----------
    levels : increasing, in (0, 1)
    values : crossing quantiles are sorted
    least_sd : smallest slope of a piece (the sd of the normal it is part of), against infinite densities;
        pieces too steep are widened outwards from the middle one
    tail : factor on the slope beyond the outermost levels

    Raises
    ------
    ValueError
        levels that do not increase within (0, 1), or values of another width.

    Examples
    --------
    >>> p = from_quantiles([0.1, 0.5, 0.9], [[-1.0, 0.0, 3.0]])
    >>> p.quantile(0.9).round(6).tolist(), p.median().round(6).tolist()
    ([3.0], [0.0])
    """
    p, q = np.asarray(levels, float), np.sort(np.asarray(values, float), axis=1)
    if not ((p > 0).all() and (p < 1).all() and (np.diff(p) > 0).all()) or q.shape[1] != len(p):
        raise ValueError(
            f"levels must increase within (0, 1), one a column of values; got {p} for {q.shape[1]} columns."
        )
    knots = ndtri(p)
    slopes = np.maximum(np.diff(q, axis=1) / np.diff(knots), least_sd)
    middle = len(p) // 2
    steps = slopes * np.diff(knots)
    out = np.repeat(q[:, middle : middle + 1], len(p), axis=1)
    out[:, middle + 1 :] += np.cumsum(steps[:, middle:], axis=1)
    out[:, :middle] -= np.cumsum(steps[:, :middle][:, ::-1], axis=1)[:, ::-1]
    return _build(knots, out, np.column_stack([tail * slopes[:, 0], slopes, tail * slopes[:, -1]]))


def tuned(levels: ArrayLike, values: ArrayLike, z: Array) -> dict[str, float]:
    """`least_sd` and `tail` of lowest NLL on validation rows (values (N, K), z (N,) standardised)."""
    grid = [(s, t) for s in (1e-3, 0.01, 0.03, 0.1, 0.2) for t in (1.0, 1.5, 2.0, 3.0)]
    nll = [-from_quantiles(levels, values, least_sd=s, tail=t).log_density(z).mean() for s, t in grid]
    s, t = grid[int(np.argmin(nll))]
    return {"least_sd": s, "tail": t}

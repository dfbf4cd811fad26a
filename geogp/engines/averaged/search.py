"""Which kernels and noises a table bears out: the tops of their posterior, and draws about these."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from geogp.engines.averaged.evidence import CORRELATIONS, Evidence

Array = NDArray[np.float64]

#: Lengths, for one column, and noise variances that searches begin with: what is far from one top is near another.
LENGTHS, NOISES = (0.3, 1.5), (0.03, 0.3)
#: Steps of a search, at most.
STEPS = 40
#: So many rows tell where the tops are, and so many how high and where precisely.
ROWS_SEARCHED, ROWS_LEARNED = 128, 1000
#: Tops that differ by less are one; those that are lower than the highest by more are none; at most so many are kept.
SAME, LOWER, TOPS = 0.05, 6.0, 4
#: Below so many rows hyperparameters are averaged over, else they are known.
AVERAGED_BELOW = 400
#: Draws about each top, and how many are kept of all.
DRAWS, KEPT = 16, 24
#: Step of the differences that give the curvature, and the least curvature: no direction is wider than the prior's.
DIFFERENCE, LEAST = 1e-3, 0.2


@dataclass(frozen=True)
class Drawn:
    """Hyperparameters (p,), the correlation they belong to, and their weight; weights sum to one."""

    at: Array
    correlation: str
    weight: float


def drawn(of: Evidence, *, steps: int = STEPS, seed: int = 0) -> list[Drawn]:
    """Hyperparameters that stand for their posterior, the correlation of `of` only one of several.

    Searches from several places find its tops, on some of the rows where they are many; from each top normal draws with
    its curvature, each weighed by how likely it is beside how likely it was drawn; of those, some by their weights. The
    highest top alone where rows are so many that they leave little open.

    Notes
    -----
    O(searches · steps · m³) for m = 128 rows, then O((tops + draws + p) · n³), and O(steps · 1000³) where rows are many.

    References
    ----------
    Tierney and Kadane 1986 (tops and curvatures); Geweke 1989 (weights); Kitagawa 1996 (draws by weights)
    """
    rng = np.random.default_rng(seed)
    n = len(of.y)
    some, more = (np.sort(rng.permutation(n)[:most]) for most in (ROWS_SEARCHED, ROWS_LEARNED))
    tops: list[tuple[float, Array, Evidence]] = []
    for correlation in CORRELATIONS:
        every = Evidence(of.Z[more], of.y[more], _at(of.inverse_counts, more), correlation)
        few = Evidence(of.Z[some], of.y[some], _at(of.inverse_counts, some), correlation)
        for length in LENGTHS:
            for noise in NOISES:
                value, at = _top(few, few.begun_at(length, noise), steps)
                if all(abs(value - v) > SAME or e.correlation != correlation for v, _, e in tops):
                    tops.append((value, at, every))
    tops = _highest(tops, 1.0 if n < AVERAGED_BELOW else n / len(some))
    if n > len(some):
        # Those that only a few rows took for two become one.
        again = [(*_top(every, at, steps), every) for _, at, every in tops]
        tops = []
        for value, at, every in sorted(again, key=lambda top: top[0]):
            if all(abs(value - v) > SAME or e is not every for v, _, e in tops):
                tops.append((value, at, every))
        tops = _highest(tops, 1.0)
    if n >= AVERAGED_BELOW:
        _, at, every = tops[0]
        return [Drawn(at, every.correlation, 1.0)]
    return _resampled(_about(tops, rng), rng)


def _at(values: Array | None, rows: NDArray[np.int64]) -> Array | None:
    return None if values is None else values[rows]


def _top(of: Evidence, start: Array, steps: int) -> tuple[float, Array]:
    found = minimize(of, start, jac=True, method="L-BFGS-B", bounds=of.bounds, options={"maxiter": steps})
    return float(found.fun), found.x


def _highest(tops: list[tuple[float, Array, Evidence]], narrower: float) -> list[tuple[float, Array, Evidence]]:
    """Those not much lower than the highest, the highest first; of all rows the difference is so many times as large."""
    tops = sorted(tops, key=lambda top: top[0])
    return [top for top in tops if top[0] < tops[0][0] + LOWER / narrower][:TOPS]


def _about(tops: list[tuple[float, Array, Evidence]], rng: np.random.Generator) -> list[Drawn]:
    """Normal draws about tops, weighed."""
    out, logarithms = [], []
    for value, top, of in tops:
        low, high = np.array(of.bounds).T
        size, axes = np.linalg.eigh(_curvature(of, top))
        size = np.maximum(size, LEAST)
        for draw in range(DRAWS):
            z = rng.standard_normal(len(top)) if draw else np.zeros(len(top))
            at = np.clip(top + axes @ (z / np.sqrt(size)), low, high)
            density = 0.5 * (float(np.log(size).sum()) - float(z @ z))
            logarithms.append(-(of(at)[0] if draw else value) - density)
            out.append((at, of.correlation))
    weight = np.exp(np.array(logarithms) - max(logarithms))
    # One draw far out would speak for all.
    weight = np.minimum(weight, weight.mean() * math.sqrt(len(weight)))
    weight = weight / weight.sum()
    return [Drawn(at, correlation, float(w)) for (at, correlation), w in zip(out, weight)]


def _curvature(of: Evidence, top: Array) -> Array:
    """Second derivatives (p, p), by differences of the gradient."""
    rows = []
    for step in DIFFERENCE * np.eye(len(top)):
        rows.append((of(top + step)[1] - of(top - step)[1]) / (2.0 * DIFFERENCE))
    H = np.array(rows)
    return 0.5 * (H + H.T)


def _resampled(draws: list[Drawn], rng: np.random.Generator) -> list[Drawn]:
    """`KEPT` of them by their weights, at even distances of these; each once, with how often it was met."""
    at = (np.arange(KEPT) + rng.random()) / KEPT
    # Rounding must not lead beyond the last.
    met = np.searchsorted(np.cumsum([d.weight for d in draws])[:-1], at, side="right")
    numbers, often = np.unique(met, return_counts=True)
    return [Drawn(draws[i].at, draws[i].correlation, m / KEPT) for i, m in zip(numbers.tolist(), often.tolist())]

"""Which kernels and noises a table bears out: the tops of their posterior, and draws about these."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from geogp.engines.averaged.evidence import CORRELATIONS, Evidence
from geogp.field.stages import Stages

Array = NDArray[np.float64]

#: Lengths, for one column, and noise variances that searches begin with: what is far from one top is near another.
LENGTHS, NOISES = (0.3, 1.5), (0.03, 0.3)
#: Steps of a search, at most.
STEPS = 40
#: So many rows tell where the tops are, and so many how high and where precisely.
ROWS_SEARCHED, ROWS_LEARNED = 128, 1000
#: Tops that differ by less are one; those that are lower than the highest by more are none; at most so many are kept,
#: and of many rows so many go on to more.
SAME, LOWER, TOPS, LAST = 0.05, 6.0, 4, 2
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


def drawn(
    of: Evidence, *, steps: int = STEPS, seed: int = 0, stages: Stages | None = None, name: str = ""
) -> list[Drawn]:
    """Hyperparameters that stand for their posterior, the correlation of `of` only one of several.

    Searches from several places find its tops, on some of the rows where they are many; from each top normal draws with
    its curvature, each weighed by how likely it is beside how likely it was drawn; of those, some by their weights. The
    highest top alone where rows are so many that they leave little open.

    stages, name : each search is one of these, under a name that begins so

    Notes
    -----
    O(searches · steps · m³) for m = 128 rows, then O(tops · (steps + draws + p) · n³) below 400 rows, and O(steps · 1000³)
    where rows are many.

    References
    ----------
    Tierney and Kadane 1986 (tops and curvatures); Geweke 1989 (weights); Kitagawa 1996 (draws by weights)
    """
    stages = stages or Stages()
    rng = np.random.default_rng(seed)
    n = len(of.y)
    order = rng.permutation(n)
    some, more, most = (np.sort(order[:m]) for m in (ROWS_SEARCHED, AVERAGED_BELOW, ROWS_LEARNED))
    tops: list[Top] = []
    for correlation in CORRELATIONS:
        every = replace(of, correlation=correlation)
        few = every.among(some)
        for length in LENGTHS:
            for noise in NOISES:
                start = few.begun_at(length, noise)
                tops.append(_top(few, start, steps, stages, f"{name}few {len(tops)}"))
    # Which of them more rows raise, few do not tell.
    tops = _highest(tops, LOWER if n == len(some) else math.inf)
    if n > len(some):
        among = {c: replace(of, correlation=c).among(more) for c in CORRELATIONS}
        of_more = LOWER if n < AVERAGED_BELOW else math.inf
        tops = _highest(
            [
                _top(among[top.of.correlation], top.at, steps, stages, f"{name}more {i}")
                for i, top in enumerate(tops)
            ],
            of_more,
        )
    if n < AVERAGED_BELOW:
        return _resampled(_about(tops, rng, stages), rng)
    if n > len(more):
        among = {c: replace(of, correlation=c).among(most) for c in CORRELATIONS}
        tops = _highest(
            [
                _top(among[top.of.correlation], top.at, steps, stages, f"{name}most {i}")
                for i, top in enumerate(tops[:LAST])
            ],
            LOWER,
        )
    return [Drawn(tops[0].at, tops[0].of.correlation, 1.0)]


@dataclass(frozen=True)
class Top:
    """Where a search has ended: minus the logarithm of the posterior there, hyperparameters, of which evidence."""

    value: float
    at: Array
    of: Evidence


def _top(of: Evidence, start: Array, steps: int, stages: Stages, name: str) -> Top:
    def found() -> dict[str, torch.Tensor]:
        end = minimize(
            of,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=of.bounds,
            options={"maxiter": steps},
            callback=lambda at: stages.tick(),
        )
        return {"value": torch.tensor(float(end.fun), dtype=torch.float64), "at": torch.from_numpy(end.x)}

    end = stages.once(name, found)
    return Top(float(end["value"]), end["at"].numpy(), of)


def _highest(tops: list[Top], lower: float) -> list[Top]:
    """The highest and those not so much lower, each once, the highest first."""
    out: list[Top] = []
    for top in sorted(tops, key=lambda top: top.value):
        new = all(top.of.correlation != t.of.correlation or top.value - t.value > SAME for t in out)
        if new and (not out or top.value < out[0].value + lower):
            out.append(top)
    return out[:TOPS]


def _about(tops: list[Top], rng: np.random.Generator, stages: Stages) -> list[Drawn]:
    """Normal draws about tops, weighed."""
    out, logarithms = [], []
    for top in tops:
        low, high = np.array(top.of.bounds).T
        size, axes = np.linalg.eigh(_curvature(top.of, top.at))
        size = np.maximum(size, LEAST)
        for draw in stages.between(range(DRAWS)):
            z = rng.standard_normal(len(top.at)) if draw else np.zeros(len(top.at))
            at = np.clip(top.at + axes @ (z / np.sqrt(size)), low, high)
            density = 0.5 * (float(np.log(size).sum()) - float(z @ z))
            logarithms.append(-top.of(at)[0] - density)
            out.append((at, top.of.correlation))
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
    return [
        Drawn(draws[i].at, draws[i].correlation, m / KEPT) for i, m in zip(numbers.tolist(), often.tolist())
    ]

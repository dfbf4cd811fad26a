"""Means of a run's surface over areas: what they come to, how sure that is, and which areas are worst."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from app.console import Report
from app.errors import InvalidInput
from app.workflow.weighing import GROUND, AreaPoints
from geogp.areas import Ranks, Surface, batches_of, ranked
from geogp.linalg.workers import Workers, by
from geogp.targets import Target, digits, target
from geogp.transforms import Identity

Array = NDArray[np.float64]

#: Percentiles of the surface within an area.
PERCENTILES = (10, 25, 50, 75, 90)
#: Pairs of points whose covariance is summed at most; beyond them covariances come from the draws.
MOST_PAIRS = 1.5e8
#: More joint draws would fill the memory and say nothing more.
MOST_DRAWS = 1_000_000


def check_draws(n_samples: int) -> None:
    """Refuse too few joint draws, and more than are of use."""
    if n_samples < 2:
        raise InvalidInput(f"--samples must be 2 or more; got {n_samples}.")
    if n_samples > MOST_DRAWS:
        raise InvalidInput(
            f"--samples must be at most {MOST_DRAWS:,}, whose Monte Carlo error is .1% of an sd; got {n_samples:,}."
        )


@dataclass(frozen=True, eq=False)
class Drawn:
    """Joint draws of areas' means: all in the same order of draws.

    latent : (A, S) on the model's scale, None where moments are exact; means : by kind of weights, in the target's unit
    below : by kind and threshold, the share of the area's weight whose surface lies below
    """

    latent: Array | None
    means: Mapping[str, Array]
    below: Mapping[str, Mapping[float, Array]]


@dataclass(frozen=True, eq=False)
class Drawing:
    """All that decides the draws, for whoever draws a batch of them.

    W : by kind, weights of the areas inside; target : its name; thresholds : in its unit -> on the model's scale
    latent : whether means on the model's scale are drawn, too
    """

    found: Surface
    W: Mapping[str, sparse.csr_array]
    target: str
    thresholds: Mapping[float, float]
    latent: bool
    seed: int


def drawn(
    found: Surface,
    points: AreaPoints,
    goal: Target,
    thresholds: Mapping[float, float],
    *,
    exact: bool,
    n_samples: int,
    seed: int,
    workers: Workers | None = None,
    progress: Report | None = None,
) -> Drawn:
    """The draws of all kinds of means over the areas inside.

    Every area sees the same draws of the surface, whoever draws them.

    Parameters
    ----------
    thresholds : in the target's unit -> on the model's scale
    progress : called with (draws done, draws, words)
    """
    W = {kind: points.weights(kind) for kind in points.shares}
    drawing = Drawing(found, W, goal.name, dict(thresholds), not exact, seed)
    A = len(points.inside)
    latent = None if exact else np.empty((A, n_samples))
    means = {kind: np.empty((A, n_samples)) for kind in W}
    below = {kind: {c: np.empty((A, n_samples)) for c in thresholds} for kind in W}
    start = 0
    for some in by(workers, _batch, drawing, batches_of(n_samples)):
        part = slice(start, start := start + some.means[GROUND].shape[1])
        if latent is not None:
            latent[:, part] = some.latent
        for kind in W:
            means[kind][:, part] = some.means[kind]
            for c in thresholds:
                below[kind][c][:, part] = some.below[kind][c]
        if progress is not None:
            progress(start, n_samples, "")
    for kind in W:  # an area may have no point of a kind
        lacking = np.diff(W[kind].indptr) == 0
        for values in (means[kind], *below[kind].values()):
            values[lacking] = np.nan
    return Drawn(latent, means, below)


def _batch(drawing: Drawing, number: int, n_samples: int) -> Drawn:
    """A batch of the draws."""
    W, t = drawing.W, drawing.found.batch(number, n_samples, drawing.seed)
    values = target(drawing.target).from_score(t)
    under = {c: (t < score).astype(np.float64) for c, score in drawing.thresholds.items()}
    return Drawn(
        W[GROUND] @ t if drawing.latent else None,
        {kind: W[kind] @ values for kind in W},
        {kind: {c: W[kind] @ share for c, share in under.items()} for kind in W},
    )


def exactly(found: Surface) -> bool:
    """Whether moments on the model's scale are summed in closed form: where nothing bends it, and points are few."""
    return isinstance(found.transform, Identity) and found.joint.pairs <= MOST_PAIRS


def latent_moments(found: Surface, points: AreaPoints, draws: Drawn) -> tuple[Array, Array]:
    """Mean (A,) and covariance (A, A) of the ground means on the model's scale: exact, or of the draws."""
    W = points.weights()
    if draws.latent is None:
        exact = found.moments(W)
        return exact.mean, exact.covariance
    flat = isinstance(found.transform, Identity)
    return W @ found.location if flat else draws.latent.mean(axis=1), covariance_of(draws.latent)


def covariance_of(values: Array) -> Array:
    """Covariance (A, A) of draws (A, S): `np.cov`, which multiplies by a copy, so that BLAS does not see that half of the
    entries are the other half."""
    away = values - values.mean(axis=1, keepdims=True)
    return (away @ away.T) / (values.shape[1] - 1)


def summaries(
    found: Surface, points: AreaPoints, goal: Target, draws: Drawn, *, level: float
) -> dict[str, Array]:
    """Columns (areas inside,) by name; those of other weights than the ground start with their kind."""
    out: dict[str, Array] = {}
    for kind, mean in draws.means.items():
        start = "" if kind == GROUND else f"{kind}_"
        out |= {f"{start}{name}": v for name, v in of_draws(mean, level).items()}
        percentiles = found.percentiles(points.weights(kind), [p / 100 for p in PERCENTILES])
        out |= {f"{start}p{p}": goal.from_score(v) for p, v in zip(PERCENTILES, percentiles)}
        for c, share in draws.below[kind].items():
            said = of_draws(share, level)
            name = f"{start}share_below_{digits(c)}"
            out |= {name: said.pop("mean"), **{f"{name}_{k}": v for k, v in said.items() if k != "median"}}
    return out


def of_draws(values: Array, level: float) -> dict[str, Array]:
    """mean, sd, median, lower, upper (A,) of draws (A, S).

    The interval has as much of the draws below it as above, but holds its mean: where fewer draws than either side leaves out
    make up a share, 2% of them all of an area and the others nothing, the end reaches to the mean, and the interval holds
    more than `level`.

    Examples
    --------
    >>> rare = np.repeat([[0.0, 1.0]], [490, 10], axis=1)
    >>> {name: float(v[0].round(3)) for name, v in of_draws(rare, 0.95).items() if name != "sd"}
    {'mean': 0.02, 'median': 0.0, 'lower': 0.0, 'upper': 0.02}
    """
    tails = np.array([0.5 * (1 - level), 0.5, 0.5 * (1 + level)])
    lower, median, upper = np.quantile(values, tails, axis=1)
    mean = values.mean(axis=1)
    return {
        "mean": mean,
        "sd": values.std(axis=1, ddof=1),
        "median": median,
        "lower": np.minimum(lower, mean),
        "upper": np.maximum(upper, mean),
    }


def people_below(draws: Drawn, kind: str, people: Array, level: float) -> tuple[dict[str, Array], dict]:
    """Columns with the people (A,) below each threshold, and the same of all areas together."""
    columns: dict[str, Array] = {}
    whole: dict[str, Any] = {"people": float(np.nansum(people))}
    for c, share in draws.below[kind].items():
        count = np.nan_to_num(people)[:, None] * np.where(np.isfinite(share), share, 0.0)
        said, total = of_draws(count, level), of_draws(count.sum(axis=0)[None, :], level)
        name = f"people_below_{digits(c)}"
        columns |= {name: said["mean"], f"{name}_lower": said["lower"], f"{name}_upper": said["upper"]}
        whole[name] = {k: float(total[k][0]) for k in ("mean", "lower", "upper")}
    return columns, whole


def ranks(draws: Drawn, kind: str, goal: Target, worst: int, level: float) -> Ranks:
    """Ranks by the mean of a kind, 1 the worst: the highest where lower is better, else the lowest."""
    return ranked(draws.means[kind], worst, lowest_first=goal.lowest_first, level=level)

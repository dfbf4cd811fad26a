"""Means of a run's surface over areas: by which points they are taken, and what they come to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from shapely.geometry.base import BaseGeometry

from app.errors import InvalidInput
from app.workflow.polygons import Ground, points_in
from geogp.areas import Surface
from geogp.targets import Target
from geogp.transforms import Identity

Array = NDArray[np.float64]

#: Metres between the points of an area where nothing is said, and how many points one area and all may have.
RESOLUTION_M, LEAST, MOST, POINTS = 500.0, 100, 2000, 10_000
#: What was asked for has a bound, too.
MOST_POINTS = 100_000


@dataclass(frozen=True, eq=False)
class AreaPoints:
    """The points that areas are averaged by.

    xy : (n, 2); owner : (n,) the area each belongs to
    area_m2 : (A,) ground averaged over; share_inside : (A,) of each polygon
    """

    xy: Array
    owner: NDArray[np.int64]
    area_m2: Array
    share_inside: Array

    @cached_property
    def inside(self) -> NDArray[np.int64]:
        """The areas that have points."""
        return np.unique(self.owner)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """How many points each area has: (A,)."""
        return np.bincount(self.owner, minlength=len(self.area_m2))

    def weights(self) -> sparse.csr_array:
        """(areas inside, n): equal shares of the points of each area."""
        row = np.searchsorted(self.inside, self.owner)
        share = 1.0 / np.bincount(row)[row]
        return sparse.csr_array(
            (share, (row, np.arange(len(self.owner)))), shape=(len(self.inside), len(self.owner))
        )

    def of_all(self, values: Array) -> Array:
        """Values of the areas inside as (A,), NaN for the others."""
        out = np.full(len(self.area_m2), np.nan)
        out[self.inside] = values
        return out


def points_of(
    shapes: Sequence[BaseGeometry], ground: Ground, resolution_m: float | None, most: int | None
) -> AreaPoints:
    """The points to average polygons by, where the ground has values.

    Parameters
    ----------
    resolution_m : metres between points; None chooses by size
    most : points that the model takes at once; None for as many as one likes

    Raises
    ------
    InvalidInput
        a resolution that takes too many.
    """
    parts = [ground.part(shape) for shape in shapes]
    wanted = _wanted(np.array([0.0 if part is None else part.area for part in parts]), resolution_m, most)
    points, owner = [np.empty((0, 2))], [np.empty(0, dtype=np.int64)]
    area = np.zeros(len(parts))
    for i, part in enumerate(parts):
        if part is not None:
            P = points_in(part, max(1, round(float(wanted[i]))))
            kept = P[ground.reached(P)]
            area[i] = part.area * (len(kept) / len(P))
            points.append(kept)
            owner.append(np.full(len(kept), i))
    whole = np.array([shape.area for shape in shapes])
    return AreaPoints(np.concatenate(points), np.concatenate(owner), area, np.minimum(area / whole, 1.0))


def _wanted(area: Array, resolution_m: float | None, most: int | None) -> Array:
    """How many points each area should have: (A,)."""
    wanted = area / (resolution_m or RESOLUTION_M) ** 2
    limit = MOST_POINTS if most is None else most
    if resolution_m is None:
        wanted = np.clip(wanted, LEAST, MOST) * (area > 0)
        limit = min(limit, max(POINTS, int((area > 0).sum())))
        return wanted * min(1.0, 0.8 * limit / max(wanted.sum(), 1.0))
    if wanted.sum() > limit:
        raise InvalidInput(
            f"--resolution {resolution_m:g} takes {wanted.sum():,.0f} points, and at most {limit:,} are possible; take a "
            "coarser one."
        )
    return wanted


def summaries(
    found: Surface,
    W: sparse.csr_array,
    goal: Target,
    thresholds: Mapping[float, float],
    *,
    level: float,
    n_samples: int,
    seed: int,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Columns (A,) by name, and covariances (A, A) by name, of the means W (A, n) of a surface at n points.

    Parameters
    ----------
    thresholds : in the target's unit -> on the model's scale

    Notes
    -----
    Means and covariances on the model's scale are exact where nothing transforms it; all else is from joint draws.
    """
    below = [_below(score) for score in thresholds.values()]
    draws = found.draws(W, (lambda t: t, goal.from_score, *below), n_samples=n_samples, random_state=seed)
    if isinstance(found.transform, Identity):
        exact = found.moments(W)
        latent_mean, latent = exact.mean, exact.covariance
    else:
        latent_mean, latent = draws[0].mean(axis=1), np.atleast_2d(np.cov(draws[0]))
    tails = np.array([0.5 * (1 - level), 0.5 * (1 + level)])
    lower, upper = np.quantile(draws[1], tails, axis=1)
    columns = {
        "mean": draws[1].mean(axis=1),
        "sd": draws[1].std(axis=1, ddof=1),
        "median": np.median(draws[1], axis=1),
        "lower": lower,
        "upper": upper,
        "latent_mean": latent_mean,
        "latent_sd": np.sqrt(np.maximum(latent.diagonal(), 0.0)),
    }
    for c, share in zip(thresholds, draws[2:]):
        low, high = np.quantile(share, tails, axis=1)
        name = f"share_below_{c:g}"
        columns |= {
            name: share.mean(axis=1),
            f"{name}_sd": share.std(axis=1, ddof=1),
            f"{name}_lower": low,
            f"{name}_upper": high,
        }
    return columns, {"latent_covariance": latent, "covariance": np.atleast_2d(np.cov(draws[1]))}


def _below(score: float) -> Callable[[Array], Any]:
    return lambda t: t < score

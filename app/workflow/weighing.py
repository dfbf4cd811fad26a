"""By which points areas are averaged: their ground, the tiles measured in them, their people; each with its weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy import sparse
from shapely.geometry.base import BaseGeometry

from app.errors import InvalidInput
from app.workflow.polygons import Inside, nothing_inside, points_in_each

Array = NDArray[np.float64]

#: Metres between the points of an area where nothing is said, and how many points one area and all may have.
RESOLUTION_M, LEAST, MOST, POINTS = 500.0, 100, 2000, 10_000
#: However many areas there are, each has so many if the model takes them.
FEWEST = 2
#: What was asked for has a bound, too.
MOST_POINTS = 100_000
#: The kind of weights that every table has.
GROUND, TILES, PEOPLE = "ground", "tiles", "people"


@dataclass(frozen=True, eq=False)
class Places:
    """Weighted places that lie in areas: an area's tiles, or its people.

    xy : (m, 2); owner : (m,) the area of each; weight : (m,) positive
    covered : (A,) the share of each area's ground that their source covers, None where it covers all
    """

    xy: Array
    owner: NDArray[np.int64]
    weight: Array
    covered: Array | None = None

    def total(self, n_areas: int) -> Array:
        """Weight in each area: (A,)."""
        return np.bincount(self.owner, self.weight, minlength=n_areas).astype(np.float64)


@dataclass(frozen=True, eq=False)
class AreaPoints:
    """The points that areas are averaged by.

    xy : (n, 2); owner : (n,) the area each belongs to
    area_m2 : (A,) ground averaged over; share_inside : (A,) of each polygon
    shares : by kind of weights, (n,) the share of its area that each point stands for; 0 for a point of another kind
    """

    xy: Array
    owner: NDArray[np.int64]
    area_m2: Array
    share_inside: Array
    shares: Mapping[str, Array] = field(default_factory=dict)

    @cached_property
    def inside(self) -> NDArray[np.int64]:
        """The areas that have points."""
        return np.unique(self.owner)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """How many points of the ground each area has: (A,)."""
        return np.bincount(self.owner[self.shares[GROUND] > 0], minlength=len(self.area_m2))

    def weights(self, kind: str = GROUND) -> sparse.csr_array:
        """(areas inside, n): rows that sum to one, or to nothing where an area has no such point."""
        row, share = np.searchsorted(self.inside, self.owner), self.shares[kind]
        used = share > 0
        return sparse.csr_array(
            (share[used], (row[used], np.flatnonzero(used))), shape=(len(self.inside), len(self.owner))
        )

    def of_all(self, values: Array) -> Array:
        """Values of the areas inside as (A,), NaN for the others."""
        out = np.full(len(self.area_m2), np.nan)
        out[self.inside] = values
        return out


def points_of(
    inside: Inside,
    resolution_m: float | None,
    most: int | None,
    others: Mapping[str, Places] | None = None,
) -> AreaPoints:
    """The points to average polygons by, where the ground has values.

    Parameters
    ----------
    resolution_m : metres between points; None chooses by size
    most : points that the model takes at once; None for as many as one likes
    others : by kind, further places to average by: as many of each area's are taken as it has points of the ground,
        evenly along a curve through them and by their weights

    Raises
    ------
    InvalidInput
        a resolution that takes too many; polygons without any such place.
    """
    parts, others = inside.parts, others or {}
    kinds = 1 + len(others)
    sizes = np.array([0.0 if part is None else part.area for part in parts])
    wanted = _wanted(sizes, resolution_m, most, kinds)
    P, at = points_in_each(parts, np.maximum(np.round(wanted), 1).astype(np.int64))
    reached = inside.ground.reached(P)
    blocks, own = [P[reached]], at[reached]
    each = np.bincount(own, minlength=len(parts))
    area = sizes * (each / np.maximum(np.bincount(at, minlength=len(parts)), 1))
    shares = {GROUND: 1.0 / each[own]}
    if resolution_m is None:
        most_each = np.maximum(np.ceil(wanted), FEWEST)
    else:
        most_each = np.maximum(np.ceil(wanted), LEAST)
    for kind, places in others.items():
        chosen, share = _chosen(places, most_each)
        n = sum(len(block) for block in blocks)
        shares = {name: np.concatenate([v, np.zeros(len(chosen))]) for name, v in shares.items()}
        shares[kind] = np.concatenate([np.zeros(n), share])
        blocks.append(places.xy[chosen])
        own = np.concatenate([own, places.owner[chosen]])
    if not len(own):
        raise nothing_inside(inside.path)
    return AreaPoints(np.concatenate(blocks), own, area, np.minimum(area / inside.whole_m2, 1.0), shares)


def _wanted(area: Array, resolution_m: float | None, most: int | None, kinds: int) -> Array:
    """How many points of its ground each area should have: (A,)."""
    wanted = area / (resolution_m or RESOLUTION_M) ** 2
    limit = MOST_POINTS if most is None else most
    if resolution_m is None:
        wanted = np.clip(wanted, LEAST, MOST) * (area > 0)
        limit = min(limit, max(POINTS, FEWEST * kinds * int((area > 0).sum())))
        return wanted * min(1.0, 0.8 * limit / max(kinds * wanted.sum(), 1.0))
    if kinds * wanted.sum() > limit:
        raise InvalidInput(
            f"--resolution {resolution_m:g} takes {kinds * wanted.sum():,.0f} points, and at most {limit:,} are possible; take "
            "a coarser one."
        )
    return wanted


def _chosen(places: Places, most: Array) -> tuple[NDArray[np.int64], Array]:
    """At most so many (A,) of each area's places, and the share of the area's weight each stands for.

    Where there are more, systematic sampling: even steps of the weight along a curve through the places, so that
    dense and sparse parts are met in their proportion.
    """
    rows, shares = [np.empty(0, dtype=np.int64)], [np.empty(0)]
    order = np.lexsort((_along_a_curve(places.xy), places.owner))
    starts = np.searchsorted(places.owner[order], np.arange(len(most) + 1))
    for a in range(len(most)):
        mine = order[starts[a] : starts[a + 1]]
        if not len(mine):
            continue
        weight, n = places.weight[mine], int(most[a])
        if len(mine) > n:
            total = np.cumsum(weight)
            at, times = np.unique(
                np.searchsorted(total, (np.arange(n) + 0.5) / n * total[-1]), return_counts=True
            )
            rows.append(mine[at])
            shares.append(times / n)
        else:
            rows.append(mine)
            shares.append(weight / weight.sum())
    return np.concatenate(rows), np.concatenate(shares)


def _along_a_curve(xy: Array) -> NDArray[np.uint64]:
    """Each place's key along a Z-shaped curve, so that places near by the key are near on the ground: (m,)."""
    if not len(xy):
        return np.empty(0, dtype=np.uint64)
    span = max(float(np.ptp(xy, axis=0).max()), 1e-9)
    cell = ((xy - xy.min(axis=0)) / span * (2**16 - 1)).astype(np.uint64)
    key = np.zeros(len(xy), dtype=np.uint64)
    for bit in range(16):
        for axis in range(2):
            key |= ((cell[:, axis] >> np.uint64(bit)) & np.uint64(1)) << np.uint64(2 * bit + axis)
    return key


def places_in(parts: Sequence[BaseGeometry | None], xy: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which places (m, 2) lie in which polygons: pairs (area, row), sorted by area; a place may lie in several."""
    known = np.array([i for i, part in enumerate(parts) if part is not None], dtype=np.int64)
    if not len(known) or not len(xy):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    shapes = np.array([parts[i] for i in known], dtype=object)
    shapely.prepare(shapes)
    area, row = shapely.STRtree(shapely.points(xy)).query(shapes, predicate="intersects")
    order = np.lexsort((row, area))
    return known[area[order]], row[order].astype(np.int64)

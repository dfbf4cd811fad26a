"""Neighbours on all sides: which observations a prediction is conditioned on.

Over a gap the nearest observations all lie on one edge. Half of every conditioning set is therefore the
nearest rows, the other half is dealt out over eight directions (and, for data that recur at one place, the
place's own history counts as one more direction, so that it cannot flood the set).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from geogp.holdout import sampled

Array = NDArray[np.float64]
Index = NDArray[np.int64]

DIRECTIONS = 8
PER_TIER = 24  # candidates asked from each tier: three a direction
PER_TIER_RECURRING = 12  # .. where each place brings its history along
MISSING = -1  # fills a row whose reference has too few observations


@dataclass(frozen=True)
class _Tier:
    """One thinned set of places and its tree."""

    tree: cKDTree
    place: Index


@dataclass(frozen=True)
class NeighbourSearch:
    """Reference rows, grouped by place and thinned at doubling cell sizes. Build it with `build`."""

    X: Array
    scale: Array
    tiers: tuple[_Tier, ...]
    first: Index
    count: Index
    row: Index
    place_space: Array
    time_axis: int | None = None
    history: int = field(default=1)

    @property
    def n_rows(self) -> int:
        return len(self.X)


def build(X: Array, *, scale: Array | None = None, time_axis: int | None = None) -> NeighbourSearch:
    """Search structure over the reference rows, independent of their order and of their units.

    Parameters
    ----------
    X : (N, D) coordinates; all axes but `time_axis` are space
    scale : (D,) lengths that make the axes comparable (the kernel's lengthscales); default: the axes'
        root-mean-square spread, one number for all spatial axes
    time_axis : column that holds time, or None

    Returns
    -------
    NeighbourSearch

    Raises
    ------
    ValueError
        when X is empty or not finite, or a scale is not positive

    Notes
    -----
    O(N log N) time, O(N) memory: the tiers form a geometric series.

    Examples
    --------
    >>> import numpy as np
    >>> search = build(np.random.default_rng(0).normal(size=(500, 2)))
    >>> query(search, np.zeros((3, 2)), 16).shape
    (3, 16)
    """
    X = np.ascontiguousarray(X, dtype=np.float64)
    if X.ndim != 2 or len(X) == 0 or not np.isfinite(X).all():
        raise ValueError(
            f"reference coordinates must be a finite, non-empty (N, D) array; got shape {X.shape}"
        )
    axes = [d for d in range(X.shape[1]) if d != time_axis]
    if scale is None:
        scale = np.ones(X.shape[1])
        scale[axes] = np.sqrt(X[:, axes].var(axis=0).mean()) or 1.0
        if time_axis is not None:
            scale[time_axis] = X[:, time_axis].std() or 1.0
    scale = np.asarray(scale, dtype=np.float64)
    if scale.shape != (X.shape[1],) or not (scale > 0).all():
        raise ValueError(f"scale must hold {X.shape[1]} positive lengths; got {scale}")

    # Rows in lexicographic order (time last): trees and ties then depend on the set, not on the row order.
    keys = [X[:, d] for d in axes] + ([X[:, time_axis]] if time_axis is not None else [])
    row = np.lexsort(keys[::-1])
    space = X[row][:, axes]
    new = np.ones(len(row), dtype=bool)
    new[1:] = (space[1:] != space[:-1]).any(axis=1)
    first = np.flatnonzero(new)
    count = np.diff(np.append(first, len(row)))
    place_space = space[first] / scale[axes]
    return NeighbourSearch(
        X=X,
        scale=scale,
        tiers=tuple(_thin(place_space)),
        first=first,
        count=count,
        row=row,
        place_space=place_space,
        time_axis=time_axis,
        history=int(min(count.max(), 64)),
    )


def _thin(P: Array) -> list[_Tier]:
    """Places at doubling cell sizes, one a cell (the one nearest the cell's centre), down to a few dozen."""
    tiers = [_Tier(cKDTree(P), np.arange(len(P)))]
    if len(P) < 4 * PER_TIER:
        return tiers
    low, extent = P.min(axis=0), float(np.ptp(P, axis=0).max())
    # About nine places a cell at the second tier, where they are as dense as usual.
    size = 3.0 * float(np.median(tiers[0].tree.query(sampled(P), k=[2])[0]))
    kept = np.arange(len(P))
    while len(kept) > 2 * PER_TIER and size < 2.0 * extent:
        cell = np.floor((P[kept] - low) / size)
        off = ((P[kept] - low - (cell + 0.5) * size) ** 2).sum(axis=1)
        order = np.lexsort((off, *cell.T))
        head = np.ones(len(order), dtype=bool)
        head[1:] = (cell[order][1:] != cell[order][:-1]).any(axis=1)
        kept = np.sort(kept[order[head]])
        tiers.append(_Tier(cKDTree(P[kept]), kept))
        size *= 2.0
    return tiers


def query(
    search: NeighbourSearch,
    X: Array,
    k: int,
    *,
    nearest_share: float = 0.5,
    latest: Array | None = None,
    chunk: int = 2048,
) -> Index:
    """Rows of the reference set to condition on, for each of N places.

    Parameters
    ----------
    search : from `build`
    X : (N, D) where to predict, in the reference's coordinates
    k : how many neighbours
    nearest_share : share of k that is simply nearest; the rest is dealt out over the directions
    latest : (N,) only rows whose time is at most this, or None
    chunk : places handled at once; the result does not depend on it

    Returns
    -------
    (N, k) row indices, nearest first in scaled distance; -1 where the reference has too few rows

    Raises
    ------
    ValueError
        when k is not positive or X has other columns than the reference

    Notes
    -----
    O(N k log k) after O(log N) per tree; memory O(chunk * k * directions).
    """
    X = np.ascontiguousarray(X, dtype=np.float64)
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}")
    if X.ndim != 2 or X.shape[1] != search.X.shape[1]:
        raise ValueError(f"places have shape {X.shape}; the reference has {search.X.shape[1]} columns")
    if k >= search.n_rows and latest is None:
        return np.concatenate(
            [_all_rows(search, X[i : i + chunk], k) for i in range(0, max(len(X), 1), chunk)]
        )
    out = np.full((len(X), k), MISSING, dtype=np.int64)
    for start in range(0, len(X), chunk):
        part = slice(start, start + chunk)
        out[part] = _query_chunk(
            search,
            X[part],
            k,
            nearest_share,
            None if latest is None else latest[part],
        )
    return out


def dealt(
    search: NeighbourSearch, X: Array, index: Index, k: int, *, nearest_share: float = 0.5
) -> NDArray[np.bool_]:
    """Which of the rows `index` (N, K) that `query` found for places X (N, D) it would have dealt out over the
    directions, had it been asked for k of them: (N, K)."""
    axes = [d for d in range(search.X.shape[1]) if d != search.time_axis]
    offset = search.X[index][..., axes] / search.scale[axes] - (X[:, axes] / search.scale[axes])[:, None]
    d2 = (offset**2).sum(axis=-1)
    group = _direction(offset, d2)
    if search.time_axis is not None:
        t = search.time_axis
        d2 = d2 + ((search.X[index, t] - X[:, None, t]) / search.scale[t]) ** 2
    d2[index == MISSING] = np.inf
    column = np.broadcast_to(np.arange(index.shape[1]), index.shape)
    chosen = _deal(column, d2, group, k, nearest_share)[:, round(nearest_share * k) :]
    # The last column takes those that are missing.
    out = np.zeros((len(index), index.shape[1] + 1), dtype=bool)
    np.put_along_axis(out, chosen, True, axis=1)
    return out[:, :-1]


def _all_rows(search: NeighbourSearch, X: Array, k: int) -> Index:
    """Every row, nearest first."""
    d2 = (((search.X[search.row][None] - X[:, None]) / search.scale) ** 2).sum(axis=-1)
    out = np.full((len(X), k), MISSING, dtype=np.int64)
    out[:, : search.n_rows] = search.row[np.argsort(d2, axis=1, kind="stable")]
    return out


def _candidate_places(search: NeighbourSearch, S: Array, wanted: int, per_tier: int) -> Index:
    """(n, C) candidate places, each once, -1 where none: nearest ones, and a few from each tier."""
    found = []
    for depth, tier in enumerate(search.tiers):
        m = min(wanted if depth == 0 else per_tier, len(tier.place))
        _, j = tier.tree.query(S, k=np.arange(1, m + 1))
        found.append(tier.place[j])
    C = np.sort(np.concatenate(found, axis=1), axis=1)
    C[:, 1:][C[:, 1:] == C[:, :-1]] = MISSING
    return C


def _query_chunk(
    search: NeighbourSearch, X: Array, k: int, nearest_share: float, latest: Array | None
) -> Index:
    D = search.X.shape[1]
    axes = [d for d in range(D) if d != search.time_axis]
    S = X[:, axes] / search.scale[axes]
    history = search.history
    mean_history = len(search.row) / len(search.first)
    per_tier = PER_TIER if mean_history < 2.0 else PER_TIER_RECURRING
    places = _candidate_places(search, S, int(np.ceil(1.5 * k / mean_history)) + 2 * DIRECTIONS, per_tier)

    offset = search.place_space[places] - S[:, None, :]  # (n, C, space)
    d2 = (offset**2).sum(axis=-1)
    group = _direction(offset, d2)
    d2[places == MISSING] = np.inf
    if history == 1 and latest is None:
        rows = np.where(places == MISSING, MISSING, search.row[search.first[places]])
    else:
        step = np.arange(history)
        slot = search.first[places][..., None] + step
        valid = (step < search.count[places][..., None]) & (places != MISSING)[..., None]
        rows = np.where(valid, search.row[np.minimum(slot, len(search.row) - 1)], MISSING)
        d2 = np.repeat(d2[..., None], history, axis=-1)
        if search.time_axis is not None:
            then = search.X[rows, search.time_axis]
            d2 += ((then - X[:, None, None, search.time_axis]) / search.scale[search.time_axis]) ** 2
            if latest is not None:
                valid &= then <= latest[:, None, None] + 1e-9
        d2[~valid] = np.inf
        n = len(X)
        rows, d2 = rows.reshape(n, -1), d2.reshape(n, -1)
        group = np.repeat(group[..., None], history, axis=-1).reshape(n, -1)
    return _deal(rows, d2, group, k, nearest_share)


def _direction(offset: Array, d2: Array) -> NDArray[np.int8]:
    """Octant of the first two spatial axes; one more group for the place itself."""
    if offset.shape[-1] == 1:
        group = (offset[..., 0] > 0).astype(np.int8)
    else:
        turn = np.arctan2(offset[..., 1], offset[..., 0]) / (2.0 * np.pi) + 0.5
        group = np.minimum((turn * DIRECTIONS).astype(np.int8), DIRECTIONS - 1).astype(np.int8)
    group[d2 == 0.0] = DIRECTIONS
    return group


def _take(values: Any, index: Any) -> Any:
    return np.take_along_axis(values, index, axis=1)


def _deal(rows: Index, d2: Array, group: NDArray[np.int8], k: int, nearest_share: float) -> Index:
    """The nearest share of k, then the rest in turns over the directions, each direction nearest first."""
    keep = min(rows.shape[1], 12 * k + 8 * PER_TIER)
    if keep < rows.shape[1]:
        # Far rows of crowded candidates cannot be dealt: keep the nearest of them only.
        part = np.argpartition(d2, keep - 1, axis=1)[:, :keep]
        rows, d2, group = _take(rows, part), _take(d2, part), _take(group, part)
    order = np.lexsort((rows, d2), axis=1)
    rows, d2, group = _take(rows, order), _take(d2, order), _take(group, order)
    near = round(nearest_share * k)
    turn = np.zeros(rows.shape, dtype=np.int32)
    for g in range(DIRECTIONS + 1):
        inside = group == g
        inside[:, :near] = False
        turn += np.where(inside, np.cumsum(inside, axis=1, dtype=np.int32), 0)
    turn[:, :near] = 0
    turn[~np.isfinite(d2)] = np.iinfo(np.int32).max
    pick = np.argsort(turn, axis=1, kind="stable")[:, :k]
    pick.sort(axis=1)
    chosen = np.where(np.isfinite(_take(d2, pick)), _take(rows, pick), MISSING)
    out = np.full((len(rows), k), MISSING, dtype=np.int64)
    out[:, : chosen.shape[1]] = chosen
    return out

"""Neighbours on all sides: which observations a prediction is conditioned on.

Over a gap the nearest observations all lie on one edge. Half of every conditioning set is therefore the
nearest rows, the other half is dealt out over eight directions (and, for data that recur at one place, the
place's own history counts as one more direction, so that it cannot flood the set).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from geogp.holdout import sampled
from geogp.linalg.distinct import begins, order_of

Array = NDArray[np.float64]
Index = NDArray[np.int64]

DIRECTIONS = 8
PER_TIER = 24  # candidates asked from each tier: three a direction
PER_TIER_RECURRING = 12  # .. where each place brings its history along
HISTORY = 64  # rows of one place that are candidates: those about the time that is asked for
MISSING = -1  # fills a row whose reference has too few observations
#: The lower half of a whole number; keys from here on stand for infinite distances.
LOWER, NOWHERE = (1 << 32) - 1, int(np.array(np.inf, dtype=np.float32).view(np.int32)) << 32


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
    time_axis: int | None
    history: int

    @property
    def n_rows(self) -> int:
        return len(self.X)

    @cached_property
    def longest(self) -> int:
        """Rows of the place that has most."""
        return int(self.count.max())

    @cached_property
    def times(self) -> Array:
        """Of the rows, those of a place together."""
        return np.ascontiguousarray(self.X[self.row, self.time_axis])


def build(
    X: Array, *, scale: Array | None = None, time_axis: int | None = None, order: Index | None = None
) -> NeighbourSearch:
    """Search structure over the reference rows, independent of their order and of their units.

    Parameters
    ----------
    X : (N, D) coordinates; all axes but `time_axis` are space
    scale : (D,) lengths that make the axes comparable (the kernel's lengthscales); default: the axes'
        root-mean-square spread, one number for all spatial axes
    time_axis : column that holds time, or None
    order : of the rows by space, then time, where it is known: what it would be found to be

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
    keys = [X[:, d] for d in (*axes, *([] if time_axis is None else [time_axis]))]
    order = order_of(keys) if order is None else order
    row = np.arange(len(X)) if order is None else order
    space = X[row][:, axes]
    first = np.flatnonzero(begins(list(space.T)))
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
        history=int(min(count.max(), HISTORY)),
    )


def _thin(P: Array) -> list[_Tier]:
    """Places at doubling cell sizes, one a cell (the one nearest the cell's centre), down to a few dozen."""
    tiers = [_Tier(cKDTree(P), np.arange(len(P)))]
    if len(P) < 4 * PER_TIER:
        return tiers
    low = P.min(axis=0)
    # About nine places a cell at the second tier, where they are as dense as usual.
    size = 3.0 * float(np.median(tiers[0].tree.query(sampled(P), k=[2])[0]))
    kept = np.arange(len(P))
    while len(kept) > 2 * PER_TIER:
        cell = np.floor((P[kept] - low) / size)
        off = ((P[kept] - low - (cell + 0.5) * size) ** 2).sum(axis=1)
        kept = kept[_first_of_each(cell, off)]
        tiers.append(_Tier(cKDTree(P[kept]), kept))
        size *= 2.0
    return tiers


def _first_of_each(cell: Array, off: Array) -> Index:
    """In order, the number of the row with the least `off` (n,) of each cell, whole numbers (n, d) from 0 on; of equal ones
    the first."""
    # Of places much nearer to each other than most are to anything there are too many cells for one whole number.
    if (cell.max(axis=0) + 1.0).prod() >= 2.0**62:
        cell = np.column_stack([np.unique(c, return_inverse=True)[1] for c in cell.T])
    key = np.zeros(len(cell), dtype=np.int64)
    for c in cell.T:
        key = key * (int(c.max()) + 1) + c.astype(np.int64)
    order = np.argsort(key, kind="stable")
    head = np.ones(len(order), dtype=bool)
    head[1:] = key[order[1:]] != key[order[:-1]]
    group, off = np.cumsum(head) - 1, off[order]
    least = np.flatnonzero(off == np.minimum.reduceat(off, np.flatnonzero(head))[group])
    return np.sort(order[least[np.unique(group[least], return_index=True)[1]]])


def query(
    search: NeighbourSearch,
    X: Array,
    k: int,
    *,
    nearest_share: float = 0.5,
    latest: Array | None = None,
    chunk: int = 64,
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
    chosen = _deal(d2, group, k, nearest_share)[:, round(nearest_share * k) :]
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
    slot = search.first[places]
    if history > 1 or search.time_axis is not None:
        step = np.broadcast_to(np.arange(history), (*places.shape, history))
        if search.time_axis is not None and history < search.longest:
            step = step + _begin(search, places, X[:, search.time_axis], latest)[..., None]
        d2 = np.where(step < search.count[places][..., None], d2[..., None], np.inf)
        slot = np.minimum(slot[..., None] + step, len(search.row) - 1)
        if search.time_axis is not None:
            then = search.times[slot]
            d2 += ((then - X[:, None, None, search.time_axis]) / search.scale[search.time_axis]) ** 2
            if latest is not None:
                d2[then > latest[:, None, None] + 1e-9] = np.inf
        n = len(X)
        slot, d2 = slot.reshape(n, -1), d2.reshape(n, -1)
        group = np.repeat(group, history, axis=-1)
    found = _deal(d2, group, k, nearest_share)
    return np.where(found == MISSING, MISSING, search.row[np.take_along_axis(slot, found, axis=1)])


def _begin(search: NeighbourSearch, places: Index, times: Array, latest: Array | None) -> Index:
    """How many rows (n, C) of each place come before the `history` of them about a time (n,), or before a latest one."""
    first, count = search.first[places], search.count[places]

    def until(time: Array) -> Index:
        """Rows of the place at this time or before."""
        low, high = np.zeros_like(count), count.copy()
        while (low < high).any():
            middle = (low + high) // 2
            there = (low < high) & (
                search.times[np.minimum(first + middle, len(search.row) - 1)] <= time[:, None]
            )
            low, high = np.where(there, middle + 1, low), np.where(there, high, np.maximum(middle, low))
        return low

    begin = until(times) - search.history // 2
    if latest is not None:
        begin = np.minimum(begin, until(latest) - search.history)
    return np.clip(begin, 0, np.maximum(count - search.history, 0))


def _direction(offset: Array, d2: Array) -> NDArray[np.int8]:
    """Octant of the first two spatial axes; one more group for the place itself."""
    if offset.shape[-1] == 1:
        group = (offset[..., 0] > 0).astype(np.int8)
    else:
        turn = np.arctan2(offset[..., 1], offset[..., 0]) / (2.0 * np.pi) + 0.5
        group = np.minimum((turn * DIRECTIONS).astype(np.int8), DIRECTIONS - 1).astype(np.int8)
    group[d2 == 0.0] = DIRECTIONS
    return group


def _deal(d2: Array, group: NDArray[np.int8], k: int, nearest_share: float) -> Index:
    """Columns (n, k) of the nearest share of k, then of the rest in turns over the directions, each direction nearest
    first: all nearest first, `MISSING` at the end where d2 (n, M) is finite for fewer. Of equally near ones the first.

    Notes
    -----
    Distances that differ by less than 1e-7 of themselves count as equal: see `ranked`.
    """
    n, M = d2.shape
    key = ranked(d2)
    keep = min(M, 12 * k + 8 * PER_TIER)
    if keep < M:
        # Far rows of crowded candidates cannot be dealt: keep the nearest of them only.
        key = np.partition(key, keep - 1, axis=1)[:, :keep]
    key.sort(axis=1)
    column, there = key & LOWER, key < NOWHERE
    near = min(round(nearest_share * k), keep)
    rank = np.arange(near, keep)
    turn = _turns(np.take_along_axis(group, column[:, near:], axis=1))
    turn[~there[:, near:]] = keep
    order = turn << 32 | rank
    m = min(k, keep) - near
    if m < keep - near:
        order = np.partition(order, m - 1, axis=1)[:, :m] if m else order[:, :0]
    others = np.sort(order & LOWER, axis=1)
    pick = np.concatenate([np.broadcast_to(np.arange(near), (n, near)), others], axis=1)
    out = np.full((n, k), MISSING, dtype=np.int64)
    found = np.take_along_axis(column, pick, axis=1)
    found[~np.take_along_axis(there, pick, axis=1)] = MISSING
    out[:, : found.shape[1]] = found
    return out


def ranked(values: NDArray[np.floating]) -> Index:
    """Whole numbers that sort as values (..., M) from 0 on do, as float32, the first column first of equal ones: a value in the
    upper half, its column in the lower (`LOWER`). numpy sorts these several times as fast as it sorts indices.

    Examples
    --------
    >>> (np.sort(ranked(np.array([3.0, 1.0, 2.0, 1.0]))) & LOWER).tolist()
    [1, 3, 2, 0]
    """
    bits = np.asarray(values, dtype=np.float32).view(np.int32)
    return bits.astype(np.int64) << 32 | np.arange(values.shape[-1])


def _turns(group: NDArray[np.int8]) -> Index:
    """How many of the same group stand before each entry of a row (n, m)."""
    m = group.shape[1]
    place = np.arange(m)
    key = np.sort(group.astype(np.int64) << 32 | place, axis=1)
    sorted_group = key >> 32
    first = np.zeros_like(key)
    first[:, 1:] = np.where(sorted_group[:, 1:] != sorted_group[:, :-1], place[1:], 0)
    turn = np.empty_like(key)
    np.put_along_axis(turn, key & LOWER, place - np.maximum.accumulate(first, axis=1), axis=1)
    return turn

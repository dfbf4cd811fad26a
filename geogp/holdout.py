"""Every way to leave rows out of the training set: at random, in folds, and as places lack data.

A part drawn at random chooses an epoch or a capacity; folds give every row a prediction that has not seen it. Four
kinds of places lack data: single rows left out, whole blocks left out (of several sizes), all that lies on one side,
and the future left out. What is learned on all four holds near data, in gaps, beyond the data and ahead in time, and no
row is ever predicted with the help of itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, islice

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from torch import Tensor

from geogp.data import Data
from geogp.linalg.distinct import distinct

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: Shares of the rows that are left out at a side, and towards either side of a corner.
SIDE, CORNER = 0.2, 0.4
#: Continuous time is cut into this many periods.
PERIODS = 20
#: Sides of the square blocks left out, in units of the median spacing of places.
BLOCK_SIZES = (10.0, 30.0)
#: Groups of blocks of a size, each left out once.
FOLDS = 6
#: Parts of the rows that are left out singly, a part at a time: so many of them, and so many where rows abound.
SINGLY, ENOUGH = 10, 2
#: Rows do not abound where they are fewer than so many times those that are asked for.
MIDDLING = 3
#: A small table is cut into blocks at most so many times, each time at other edges.
TILINGS = 6
#: Rows from which a tenth is held out to choose the epoch, when no validation rows are given.
TENTH_FROM = 1000
#: Rows from which a fifth is, where a network would learn a few rows by heart.
FIFTH_FROM = 40
#: Places whose nearest one tells the spacing of all.
ASKED = 100_000
#: Places are looked at in cells of so many median gaps, or of this share of the extent where these are wider, then in cells
#: twice as wide, up to that share, while there are so many clusters; these stand for a place each where so many times as far apart as wide.
CELL, BLUR, CLUSTERS, APART = 16.0, 1e-4, 16, 8.0
#: Farther from training places than so many times what nine of ten training rows are from the next is a gap.
GAP = 1.5


# -- drawn at random -------------------------------------------------------------------------------


def random_part(n: int, m: int, seed: int) -> tuple[Int[Tensor, " rest"], Int[Tensor, " part"]]:
    """Numbers of n rows without m drawn at random, and those m; each in the order drawn.

    Examples
    --------
    >>> rest, part = random_part(5, 2, seed=0)
    >>> len(rest), len(part), sorted([*rest.tolist(), *part.tolist()])
    (3, 2, [0, 1, 2, 3, 4])
    """
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[m:], order[:m]


def random_fifth(data: Data, seed: int) -> tuple[Data, Data]:
    """Four fifths of the rows, and the rest; at least one row."""
    rest, part = random_part(len(data), max(1, len(data) // 5), seed)
    return data.rows(rest.to(data.y.device)), data.rows(part.to(data.y.device))


def rows_for_the_epoch(n: int, *, by_heart: bool) -> int:
    """How many of n rows to hold out for choosing the epoch; `by_heart` where a network could learn few rows so.

    Examples
    --------
    >>> [rows_for_the_epoch(n, by_heart=True) for n in (30, 500, 5000)]
    [0, 100, 500]
    >>> rows_for_the_epoch(500, by_heart=False)
    0
    """
    if n >= TENTH_FROM:
        return n // 10
    return n // 5 if by_heart and n >= FIFTH_FROM else 0


def random_folds(n: int, k: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(rows outside, rows inside) of each of k random parts of n rows; every row is inside once."""
    fold = torch.randint(0, k, (n,), generator=torch.Generator().manual_seed(seed))
    for part in range(k):
        inside, outside = (fold == part).nonzero()[:, 0], (fold != part).nonzero()[:, 0]
        if len(inside) and len(outside):
            yield outside, inside


# -- as places lack data ---------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldOut:
    """Rows `target` (m,) to predict from the rows `reference` alone; kind is "rows", "blocks", "sides" or "future"."""

    kind: str
    reference: Int[np.ndarray, " n"]
    target: Int[np.ndarray, " m"]


def spacing(P: Float[np.ndarray, "N D"]) -> float:
    """Median distance from a place to its nearest other place; P (N, D), repeated places count once.

    Of many places a fixed sample asks, of all. Places that almost coincide count once, too, see `settled`.

    Examples
    --------
    >>> spacing(np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 3.0], [0.0, 6.0]]))
    3.0
    """
    return _gap(settled(P))


def gaps(P: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " M"]:
    """From each of the M `settled` places of P (N, D) to the nearest other one; none where there is one place."""
    P = settled(P)
    return np.asarray(cKDTree(P).query(P, k=2)[0][:, 1]) if len(P) > 1 else np.empty(0)


def _gap(P: Float[np.ndarray, "N D"]) -> float:
    return float(np.median(cKDTree(P).query(sampled(P), k=2)[0][:, 1])) if len(P) > 1 else 1.0


def settled(P: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "M D"]:
    """The distinct places of P (N, D), those that almost coincide as one.

    Positions that are measured anew each time never repeat to the last digit, and the distances between them say nothing of
    how far apart places lie. Clusters narrower than `BLUR` of the extent, some metres in 100 km, stand for a place each
    where they lie `APART` times as far from each other as they are wide. Wider ones may be sensors of a campus or tiles
    of a village: they stay as they are.

    Notes
    -----
    O(N log N), twice or thrice where places almost coincide.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> homes = rng.uniform(0, 1000, (100, 2))
    >>> blurred = np.repeat(homes, 3, axis=0) + 0.001 * rng.standard_normal((300, 2))
    >>> len(settled(homes)), len(settled(blurred)), len(settled(homes + [1e9, 0]))
    (100, 100, 100)
    """
    return clusters(P)[0]


def clusters(P: Float[np.ndarray, "N D"]) -> tuple[Float[np.ndarray, "M D"], Int[np.ndarray, " N"]]:
    """The `settled` places of P (N, D), and which of them each row is at.

    Examples
    --------
    >>> places, at = clusters(np.array([[2.0], [1.0], [2.0]]))
    >>> places.tolist(), at.tolist()
    ([[1.0], [2.0]], [1, 0, 1])
    """
    P, at = distinct(P)
    if len(P) < 2 * CLUSTERS:
        return P, at
    low, extent = P.min(axis=0), float(np.ptp(P, axis=0).max())
    widest, gap = BLUR * extent, _gap(P)
    wide = CELL * gap > widest
    # Cells that touch reach no further than three of them: most places lie alone.
    side = math.inf if gap > 3.0 * widest else min(CELL * gap, widest)
    while side <= widest:
        cells, cell = distinct(np.floor((P - low) / side).astype(np.int64))
        beside = cKDTree(cells).query_pairs(1.5, output_type="ndarray")
        links = coo_array((np.ones(len(beside)), beside.T), shape=(len(cells), len(cells)))
        n, cluster = connected_components(links, directed=False)
        if n < CLUSTERS:
            break
        cluster = cluster[cell]
        first, last = np.full((n, P.shape[1]), np.inf), np.full((n, P.shape[1]), -np.inf)
        np.minimum.at(first, cluster, P)
        np.maximum.at(last, cluster, P)
        width = (last - first).max(axis=1)
        # In cells of fewer gaps some places lie together by chance: most must, and none in a crowd that is wider.
        together = not wide or (2 * n <= len(P) and float(width.max()) <= widest)
        if together and _gap(first) > APART * max(side, float(np.median(width))):
            return P[np.unique(cluster, return_index=True)[1]], cluster[at]
        side *= 2.0
    return P, at


def sampled(P: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "M D"]:
    """All of P (N, D), or `ASKED` of them spread over the whole: what a median needs."""
    return P if len(P) <= ASKED else P[np.linspace(0, len(P) - 1, ASKED).astype(np.int64)]


def left_out_kinds(
    space: Float[np.ndarray, "N d"],
    time: Float[np.ndarray, " N"] | None,
    *,
    n_targets: int = 12000,
    block_sizes: tuple[float, ...] = BLOCK_SIZES,
    folds: int = FOLDS,
    sides: bool = False,
    seed: int = 0,
) -> list[HeldOut]:
    """Reference sets and targets of the four kinds, about `n_targets` of each.

    Parameters
    ----------
    space : (N, 2) coordinates, or (N, 1) along a line, rows in a canonical order
    time : (N,) or None
    block_sizes : side of the square blocks, in units of the median spacing of places
    folds : every block size is split into this many groups of blocks, each left out once
    sides : also what lies outermost, on four sides and at four corners

    Returns
    -------
    list of HeldOut; "future" appears only with eight or more distinct times

    Notes
    -----
    O(N · folds · sizes) memory for the row indices; `each_left_out` holds one set at a time.
    """
    return list(
        each_left_out(
            space, time, n_targets=n_targets, block_sizes=block_sizes, folds=folds, sides=sides, seed=seed
        )
    )


def each_left_out(
    space: Float[np.ndarray, "N d"],
    time: Float[np.ndarray, " N"] | None,
    *,
    n_targets: int,
    block_sizes: tuple[float, ...],
    sides: bool,
    seed: int,
    folds: int = FOLDS,
) -> Iterator[HeldOut]:
    """`left_out_kinds`, one after the other."""
    rng = np.random.default_rng(seed)
    unit = spacing(space)
    each = [
        _rows(rng, len(space), n_targets // 2),
        _tiling(rng, space, unit, block_sizes, folds, n_targets),
    ]
    if sides:
        each.append(_sides(rng, space, n_targets // 16))
    if time is not None:
        each.append(_future(rng, time, n_targets // 4))
    # One at a time and in this order, for they draw from the same numbers.
    yield from chain.from_iterable(each)


def left_out_again(
    space: Float[np.ndarray, "N d"], *, n_targets: int, block_sizes: tuple[float, ...], seed: int
) -> Iterator[HeldOut]:
    """What `each_left_out` leaves out, again in other company: of fewer than `MIDDLING` times `n_targets` rows the other ones
    singly, of fewer than `n_targets` blocks with other edges, too, until there are about so many or `TILINGS` times; nothing of
    more rows.

    A network that hears a few rows in one gap each learns these by heart, as it does where it hears them in the same gap over
    and over.

    Examples
    --------
    >>> few = np.random.default_rng(0).random((500, 2))
    >>> options = dict(n_targets=1200, block_sizes=(10.0,), seed=0)
    >>> found = [h.kind for h in left_out_again(few, **options)]
    >>> found.count("rows"), found.count("blocks")  # eight tenths, and six groups in two more tilings
    (8, 12)
    >>> [h.kind for h in left_out_again(np.tile(few, (3, 1)), **options)].count("blocks")
    0
    >>> list(left_out_again(np.tile(few, (8, 1)), **options))
    []
    """
    n = len(space)
    if n >= MIDDLING * n_targets:
        return
    # The tenths of the first time.
    yield from _rows(np.random.default_rng(seed), n, n, range(ENOUGH, SINGLY))
    rng, unit = np.random.default_rng([seed, n]), spacing(space)
    for _ in range(min(TILINGS, -(-n_targets // n)) - 1):
        yield from _tiling(rng, space, unit, block_sizes, FOLDS, n)


def _some(rng: np.random.Generator, rows: Index, m: int) -> Index:
    return np.sort(rng.choice(rows, min(len(rows), max(m, 1)), replace=False))


def _held_out(rng: np.random.Generator, kind: str, out: Bool[np.ndarray, " N"], m: int) -> Iterator[HeldOut]:
    """About m of the rows that are out (N,), unless those are all or none."""
    if out.any() and not out.all():
        yield HeldOut(kind, np.flatnonzero(~out), _some(rng, np.flatnonzero(out), m))


def _rows(rng: np.random.Generator, n: int, m: int, parts: range = range(ENOUGH)) -> Iterator[HeldOut]:
    """Single rows: two tenths are enough of many, the rest are exchangeable with them."""
    tenth = rng.integers(0, SINGLY, n)
    for part in parts:
        yield from _held_out(rng, "rows", tenth == part, m)


def _tiling(
    rng: np.random.Generator, space: Array, unit: float, sizes: tuple[float, ...], folds: int, m: int
) -> Iterator[HeldOut]:
    """Blocks of each of these sizes, m rows of all together."""
    for size in sizes:
        yield from _blocks(rng, space, size * unit, folds, m // (folds * len(sizes)))


def _blocks(rng: np.random.Generator, space: Array, side: float, folds: int, m: int) -> Iterator[HeldOut]:
    """Square blocks in groups, each left out once."""
    cell = np.floor((space - space.min(axis=0)) / side + rng.random(space.shape[1])).astype(np.int64)
    block = distinct(cell)[1]
    group = rng.permutation(block.max() + 1) % folds
    for part in range(folds):
        yield from _held_out(rng, "blocks", group[block] == part, m)


def _sides(rng: np.random.Generator, space: Array, m: int) -> Iterator[HeldOut]:
    """What lies outermost on each of four sides, a fifth of the rows, and at each of four corners; of a line at both ends."""
    low, high = np.quantile(space, [SIDE, 1.0 - SIDE], axis=0)
    inner, outer = np.quantile(space, [CORNER, 1.0 - CORNER], axis=0)
    axes = range(space.shape[1])
    ends = [side for d in axes for side in (space[:, d] < low[d], space[:, d] > high[d])]
    wide = [(space[:, d] < inner[d], space[:, d] > outer[d]) for d in axes]
    outermost = [*ends, *(a & b for one, other in combinations(wide, 2) for a in one for b in other)]
    for out in outermost:
        yield from _held_out(rng, "sides", out, m)


def _future(rng: np.random.Generator, time: Array, m: int) -> Iterator[HeldOut]:
    """Up to four periods ahead, seen from four moments in the later half; nothing below eight times."""
    times = np.unique(time)
    if len(times) > 2 * PERIODS:
        times = np.linspace(times[0], times[-1], PERIODS + 1)[:-1]
    if len(times) < 8:
        return
    for back in (2, 3, 5, 7):
        now = times[-back]
        ahead = np.flatnonzero((time >= now) & (time < now + 3.5 * np.median(np.diff(times))))
        if len(ahead):
            yield HeldOut("future", np.flatnonzero(time < now), _some(rng, ahead, m))


def one_of_each_kind(
    space: Float[np.ndarray, "N d"],
    time: Float[np.ndarray, " N"] | None,
    *,
    most: int,
    fewest: int,
    seed: int,
) -> tuple[Int[np.ndarray, " fitted"], dict[str, Index]]:
    """Rows to train on, and rows of each kind that no other kind has taken: one training serves all kinds.

    Parameters
    ----------
    space, time : as in `left_out_kinds`
    most : about so many rows of each kind; fewest : a kind that fewer rows make up is left out

    Returns
    -------
    fitted : row numbers; held : kind -> row numbers

    Notes
    -----
    A tenth of the rows, a tenth in small blocks, a tenth in large ones, and two of the times where there are eight.
    """
    everywhere = np.arange(len(space))
    parts: dict[tuple[str, float], Index] = {}
    for side in BLOCK_SIZES:
        for found in left_out_kinds(
            space, time, n_targets=len(space), block_sizes=(side,), folds=10, seed=seed
        ):
            # One of each: the blocks of either size; rows and times come with the first.
            key = (found.kind, side if found.kind == "blocks" else 0.0)
            if key not in parts:
                parts[key] = np.setdiff1d(everywhere, found.reference, assume_unique=True)
    taken = np.zeros(len(space), dtype=np.int64)
    for left in parts.values():
        taken[left] += 1
    rng = np.random.default_rng(seed)
    held: dict[str, Index] = {}
    for (kind, _), left in parts.items():
        own = left[taken[left] == 1]
        own = np.sort(rng.permutation(own)[: most if kind != "blocks" else most // len(BLOCK_SIZES)])
        held[kind] = np.concatenate([held[kind], own]) if kind in held else own
    return np.flatnonzero(taken == 0), {kind: rows for kind, rows in held.items() if len(rows) >= fewest}


def side_and_blocks(
    space: Float[np.ndarray, "N d"], *, seed: int
) -> tuple[Int[np.ndarray, " fitted"], Int[np.ndarray, " left"]]:
    """Rows to train on, and those left out on one side, a fifth, and in a sixth of the blocks: one training serves both.

    Side and blocks are drawn; of places where either would be all rows or none it leaves out less.

    Examples
    --------
    >>> fitted, left = side_and_blocks(np.random.default_rng(0).uniform(size=(400, 2)), seed=0)
    >>> len(fitted) + len(left), 80 < len(left) < 200
    (400, True)
    """
    rng = np.random.default_rng(seed)
    n = len(space)
    out = np.zeros(n, dtype=bool)
    sides = [side.target for side in islice(_sides(rng, space, n), 2 * space.shape[1])]
    if sides:
        out[sides[int(rng.integers(len(sides)))]] = True
    for blocks in islice(_blocks(rng, space, BLOCK_SIZES[0] * spacing(space), FOLDS, n), 1):
        out[blocks.target] = True
    return np.flatnonzero(~out), np.flatnonzero(out)


def kinds_asked(
    space: Float[np.ndarray, "n d"],
    time: Float[np.ndarray, " n"] | None,
    places: Float[np.ndarray, "m d"],
    times: Float[np.ndarray, " m"] | None,
) -> dict[str, float]:
    """How rows to be predicted lie beside the training rows: shares of "rows", "blocks" and "future".

    Parameters
    ----------
    space : (n, 2) training positions; time : (n,) or None
    places : (m, 2) positions to come, in the same unit; times : (m,) or None

    Returns
    -------
    shares that sum to one: "blocks" where a row is farther from every training place than training rows are from
    each other; of the rest "future" after the last training time and "rows" up to it. Nothing but where rows lie is
    looked at.

    Notes
    -----
    O((n + m) log n).

    Examples
    --------
    >>> line = np.column_stack([np.arange(10.0), np.zeros(10)])
    >>> kinds_asked(line, None, np.array([[2.5, 0.0], [4.5, 0.0], [30.0, 0.0], [31.0, 0.0]]), None)
    {'rows': 0.5, 'blocks': 0.5, 'future': 0.0}
    """
    tree = cKDTree(space)
    apart = float(np.quantile(tree.query(space, k=2)[0][:, 1], 0.9))
    # Places that repeat are zero apart; another copy of a place may differ by its last bits.
    far = tree.query(places)[0] > GAP * apart + 1e-9 * float(np.ptp(space, axis=0).max())
    ahead = np.zeros(len(far), dtype=bool) if time is None or times is None else times > time.max()
    blocks, future = float(far.mean()), float((ahead & ~far).mean())
    return {"rows": 1.0 - blocks - future, "blocks": blocks, "future": future}

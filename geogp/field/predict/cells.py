"""Cells whose places share a neighbourhood: rectangles fixed by the observations alone, that overlap and blend."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from geogp.linalg.distinct import distinct

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: A cell's half diagonal is at most this share of the distance from its centre to the p-th nearest observed place.
SHARE = 0.45
#: A cell reaches over its edge by this share of its half side; there it blends into the next.
OVERLAP = 0.1
#: The root square is so many times as wide as the observed places; what lies beyond belongs to the cells at its edge.
WIDER = 3.0
#: Halvings of the root square; deeper, places count as one.
DEEPEST = 60


@dataclass(frozen=True)
class Shares:
    """Which cells a place is predicted from: M pairs of a place and a cell, the places of a cell together.

    place : (M,) number of the place
    cell : (M,) number of the cell in `centre` (cells, 2)
    weight : (M,) of the cell at the place; those of a place sum to one
    """

    place: Index
    cell: Index
    weight: Array
    centre: Array


@dataclass(frozen=True)
class Cells:
    """Halves of halves of a square over observed places, along either axis in turn: small cells where places are dense, large
    ones far from all of them.

    tree : of the distinct observed places
    nth : which nearest of them sets the size of a cell; 0 for one cell that holds everything
    low, side : corner (2,) and side of the root square

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cells = Cells.over(rng.uniform(size=(500, 2)), 16)
    >>> shares = cells.shares(rng.uniform(size=(40, 2)))
    >>> bool(np.allclose(np.bincount(shares.place, shares.weight), 1.0))
    True
    """

    tree: cKDTree
    nth: int
    low: Array
    side: float

    @classmethod
    def over(cls, places: Array, nth: int) -> "Cells":
        """Over observed places (n, 2), repeated ones counting once."""
        P = distinct(places)[0]
        low, high = P.min(axis=0), P.max(axis=0)
        side = WIDER * (float((high - low).max()) or 1.0)
        return cls(cKDTree(P), min(nth, len(P)), 0.5 * (low + high) - 0.5 * side, side)

    def shares(self, P: Array) -> Shares:
        """Of places P (N, 2).

        Notes
        -----
        O(N depth); a place's shares depend on it and on the observed places, not on what else is asked.
        """
        # In units of the root square.
        at = np.clip((P - self.low) / self.side, 0.0, 1.0)
        place, cell = np.arange(len(P)), np.zeros(len(P), dtype=np.int64)
        corner, sides = np.zeros((1, 2)), np.ones(2)
        found: list[tuple[Index, Index, Array]] = []
        centres: list[Array] = []
        n_found = 0
        for depth in range(DEEPEST + 1):
            if not len(place):
                break
            leaf = self._small_enough(corner + 0.5 * sides, sides) | (depth == DEEPEST)
            inside = leaf[cell]
            number = np.cumsum(leaf) - 1
            here, mine = place[inside], number[cell[inside]]
            middle = corner[leaf] + 0.5 * sides
            ramp = _ramps(at[here] - middle[mine], 0.5 * sides)
            some = ramp > 0.0
            found.append((here[some], mine[some] + n_found, ramp[some]))
            centres.append(self.low + self.side * middle)
            n_found += len(middle)
            sides[depth % 2] *= 0.5
            place, cell, corner = _halved(at, place[~inside], cell[~inside], corner, sides, depth % 2)
        places, cells, weight = (np.concatenate(parts) for parts in zip(*found))
        weight = weight / np.bincount(places, weight, minlength=len(P))[places]
        order = np.lexsort((places, cells))
        used, renumbered = np.unique(cells[order], return_inverse=True)
        return Shares(places[order], renumbered, weight[order], np.concatenate(centres)[used])

    def _small_enough(self, centre: Array, sides: Array) -> NDArray[np.bool_]:
        """Whether cells at centres (m, 2) of sides (2,), in units of the root square, need no halving."""
        if self.nth == 0:
            return np.ones(len(centre), dtype=bool)
        away, _ = self.tree.query(self.low + self.side * centre, k=[self.nth])
        return 0.5 * self.side * np.hypot(*sides) <= SHARE * away[:, 0]


def _ramps(off: Array, half: Array) -> Array:
    """Weight (m,) of cells of half sides (2,) at places `off` (m, 2) from their centres: 1 inside, 0 at the outer edge."""
    ramp = np.clip(((1.0 + OVERLAP) - np.abs(off) / half) / (2.0 * OVERLAP), 0.0, 1.0)
    return np.asarray(ramp[:, 0] * ramp[:, 1])


def _halved(
    at: Array, place: Index, cell: Index, corner: Array, sides: Array, axis: int
) -> tuple[Index, Index, Array]:
    """Places of cells with those of their halves along an axis, of these sides (2,), that they may share in, and the halves'
    corners."""
    side = sides[axis]
    reach = side * 0.5 * OVERLAP
    off = at[place, axis] - corner[cell, axis]
    lower = np.flatnonzero((off >= -reach) & (off <= side + reach))
    upper = np.flatnonzero((off >= side - reach) & (off <= 2.0 * side + reach))
    place, child = (
        np.concatenate([place[lower], place[upper]]),
        np.concatenate([2 * cell[lower], 2 * cell[upper] + 1]),
    )
    present = np.zeros(2 * len(corner), dtype=bool)
    present[child] = True
    number = np.cumsum(present) - 1
    which = np.flatnonzero(present)
    corner = corner[which // 2]
    corner[:, axis] += side * (which % 2)
    return place, number[child], corner


def near_each_other(P: Array, most: int) -> Iterator[Index]:
    """The numbers of places (N, d), each once, in pieces of at most so many: halves along the longest side, again and again.

    Places that are told of together share the more cells the nearer they lie.

    Examples
    --------
    >>> [part.tolist() for part in near_each_other(np.array([[0.0], [9.0], [1.0], [8.0]]), 2)]
    [[0, 2], [1, 3]]
    """

    def halves(rows: Index) -> Iterator[Index]:
        if len(rows) <= most:
            yield np.sort(rows)
            return
        axis, middle = np.ptp(P[rows], axis=0).argmax(), len(rows) // 2
        order = rows[np.argpartition(P[rows, axis], middle)]
        yield from halves(order[:middle])
        yield from halves(order[middle:])

    return halves(np.arange(len(P)))

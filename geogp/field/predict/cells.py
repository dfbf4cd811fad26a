"""Cells whose places share a neighbourhood: squares fixed by the observations alone, that overlap and blend."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: A cell's half diagonal is at most this share of the distance from its centre to the p-th nearest observed place.
SHARE = 0.5
#: A cell reaches over its edge by this share of its half side; there it blends into the next.
OVERLAP = 0.1
#: The root square is so many times as wide as the observed places; what lies beyond belongs to the cells at its edge.
WIDER = 3.0
#: Halvings of the root square; deeper, places count as one.
DEEPEST = 30


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
    """A quadtree over observed places: small cells where they are dense, large ones far from all of them.

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
        P = np.unique(places, axis=0)
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
        corner, side = np.zeros((1, 2)), 1.0
        found: list[tuple[Index, Index, Array]] = []
        centres: list[Array] = []
        n_found = 0
        for depth in range(DEEPEST + 1):
            if not len(place):
                break
            leaf = self._small_enough(corner + 0.5 * side, side) | (depth == DEEPEST)
            inside = leaf[cell]
            number = np.cumsum(leaf) - 1
            here, mine = place[inside], number[cell[inside]]
            middle = corner[leaf] + 0.5 * side
            ramp = _ramps(at[here] - middle[mine], 0.5 * side)
            some = ramp > 0.0
            found.append((here[some], mine[some] + n_found, ramp[some]))
            centres.append(self.low + self.side * middle)
            n_found += len(middle)
            side *= 0.5
            place, cell, corner = _halved(at, place[~inside], cell[~inside], corner, side)
        places, cells, weight = (np.concatenate(parts) for parts in zip(*found))
        weight = weight / np.bincount(places, weight, minlength=len(P))[places]
        order = np.lexsort((places, cells))
        used, renumbered = np.unique(cells[order], return_inverse=True)
        return Shares(places[order], renumbered, weight[order], np.concatenate(centres)[used])

    def _small_enough(self, centre: Array, side: float) -> NDArray[np.bool_]:
        """Whether cells at centres (m, 2) of this side, in units of the root square, need no halving."""
        if self.nth == 0:
            return np.ones(len(centre), dtype=bool)
        away, _ = self.tree.query(self.low + self.side * centre, k=[self.nth])
        return side * self.side / np.sqrt(2.0) <= SHARE * away[:, 0]


def _ramps(off: Array, half: float) -> Array:
    """Weight (m,) of cells of a half side at places `off` (m, 2) from their centres: 1 inside, 0 at the outer edge."""
    ramp = np.clip(((1.0 + OVERLAP) - np.abs(off) / half) / (2.0 * OVERLAP), 0.0, 1.0)
    return np.asarray(ramp[:, 0] * ramp[:, 1])


def _halved(at: Array, place: Index, cell: Index, corner: Array, side: float) -> tuple[Index, Index, Array]:
    """Places of cells with those of their quarters (of this side) that they may share in, and the quarters' corners."""
    reach = side * 0.5 * OVERLAP
    low = corner[cell]
    off = at[place] - low
    lower = (off >= -reach) & (off <= side + reach)
    upper = (off >= side - reach) & (off <= 2.0 * side + reach)
    pairs = []
    for i in (0, 1):
        for j in (0, 1):
            x, y = (upper if i else lower)[:, 0], (upper if j else lower)[:, 1]
            mine = np.flatnonzero(x & y)
            pairs.append((place[mine], 4 * cell[mine] + 2 * i + j))
    place, child = (np.concatenate(parts) for parts in zip(*pairs))
    present = np.zeros(4 * len(corner), dtype=bool)
    present[child] = True
    number = np.cumsum(present) - 1
    which = np.flatnonzero(present)
    quarter = np.stack([which % 4 // 2, which % 2], axis=1)
    return place, number[child], corner[which // 4] + side * quarter

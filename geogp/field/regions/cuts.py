"""Cells of places by balanced cuts, and how they overlap: which rows a region is told, and what it weighs at a place."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Self, Union

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from geogp.holdout import spacing

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: A region reaches over a cut by so many spacings of the places beyond it, but by no fewer and no more than these shares of
#: a cell's rows for each cell that is as wide as the cut is long.
REACH, LEAST, MOST = 40.0, 1 / 32, 1 / 8
#: It is weighed over this share of that: what it is told goes on where it is asked no more.
WEIGHED = 0.5
#: A cut leaves on either side at least this share of what it should, or is none.
LOPSIDED = 0.5


@dataclass(frozen=True)
class Cut:
    """Places whose coordinate `axis` is less than `at` are `left`, the others `right`: a cut each, or a cell's number.

    below, above : how far the right side's regions reach to the left, and the left side's to the right
    """

    axis: int
    at: float
    below: float
    above: float
    left: Union["Cut", int]
    right: Union["Cut", int]

    def share(self, x: Array) -> Array:
        """Of the right side at coordinates x (n,): 0 to 1 by 3t² − 2t³, whose slope is continuous."""
        low, high = self.at - WEIGHED * self.below, self.at + WEIGHED * self.above
        # Where no number lies between them, rows to either side of the cut differ in their last bit.
        t = np.clip((x - low) / (high - low), 0.0, 1.0) if high > low else (x >= self.at).astype(np.float64)
        return np.asarray(t * t * (3.0 - 2.0 * t))


@dataclass(frozen=True)
class Cuts:
    """Cells that hold about as many rows each, numbered from the west and south; those at the edge go on for ever.

    space : the columns of X with the places
    root : the first cut, or 0 where there is none
    n : how many cells

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(0, 100, (4000, 2))
    >>> cuts = Cuts.over(X, (0, 1), 4)
    >>> cuts.n, [len(rows) > 1000 for rows in cuts.members(X, 1)]
    (4, [True, True, True, True])
    """

    space: tuple[int, ...]
    root: Cut | int
    n: int

    @classmethod
    def over(cls, X: Float[np.ndarray, "N D"], space: tuple[int, ...], cells: int) -> Self:
        """Of rows X (N, D), into so many cells, or fewer where so many rows share a coordinate that no cut parts them.

        Notes
        -----
        O(N log N) for each time that the number of cells is halved; the same for every order of the rows.
        """
        number = count()
        root = _divided(X[:, list(space)], cells, number)
        return cls(space, root, next(number))

    def shares(self, X: Float[np.ndarray, "N D"]) -> list[tuple[Index, Array]]:
        """Of each cell the numbers of rows X (N, D) where it is asked, and its weight there, above 0.

        A row's weights depend on its place alone and sum to one; away from the cuts a single one is 1.

        Notes
        -----
        O(N log n) for n cells; memory grows with N and not with n.
        """
        none = np.empty(0, dtype=np.int64), np.empty(0)
        found = dict(_weighed(self.root, X[:, list(self.space)], np.arange(len(X)), np.ones(len(X))))
        return [found.get(k, none) for k in range(self.n)]

    def members(self, X: Float[np.ndarray, "N D"], least: int) -> list[Index]:
        """Of each cell the numbers of rows X (N, D) in it and within the reach of its region, in their order; the `least`
        nearest to the cell where these are fewer."""
        P = X[:, list(self.space)]
        found = dict(_reached(self.root, P, np.arange(len(P))))
        rows = [found[k] for k in range(self.n)]
        few = [k for k in range(self.n) if len(rows[k]) < min(least, len(P))]
        boxes = dict(_boxes(self.root, np.full((2, P.shape[1]), [[-np.inf], [np.inf]]))) if few else {}
        for k in few:
            low, high = boxes[k]
            away = np.square(np.maximum(np.maximum(low - P, P - high), 0.0)).sum(1)
            rows[k] = np.sort(np.argsort(away, kind="stable")[:least])
        return rows

    def facts(self) -> dict[str, Any]:
        """JSON-able, of which `from_facts` makes the same again."""
        return {"space": list(self.space), "root": _told(self.root), "n": self.n}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Self:
        """What `facts` described."""
        return cls(tuple(facts["space"]), _heard(facts["root"]), facts["n"])


def _divided(P: Array, cells: int, number: Iterator[int]) -> Cut | int:
    """Cuts that part places P (n, d) into so many cells."""
    few = cells // 2
    for axis in np.argsort(-np.ptp(P, axis=0), kind="stable") if few else ():
        x = np.sort(P[:, axis])
        steps = np.flatnonzero(x[1:] > x[:-1]) + 1
        wanted = few / cells * len(x)
        if not len(steps):
            continue
        i = int(steps[np.argmin(np.abs(steps - wanted))])
        if i < LOPSIDED * wanted or len(x) - i < LOPSIDED * (len(x) - wanted):
            continue
        middle = 0.5 * (x[i - 1] + x[i])
        at = float(middle if middle > x[i - 1] else x[i])
        left = P[:, axis] < at
        below = _reach(P[left], at - x[:i][::-1], few)
        above = _reach(P[~left], x[i:] - at, cells - few)
        halves = _divided(P[left], few, number), _divided(P[~left], cells - few, number)
        return Cut(int(axis), at, below, above, *halves)
    return next(number)


def _reach(P: Array, away: Array, cells: int) -> float:
    """How far a region reaches over a cut to places P (n, d), so many cells, whose distances from it in order are (n,)."""
    share = 1.0 / np.sqrt(cells)
    least, most = (away[min(int(s * share * len(away)), len(away) - 1)] for s in (LEAST, MOST))
    return float(min(max(REACH * spacing(P), least), most))


def _weighed(
    node: Cut | int, P: Array, rows: Index, weight: Array
) -> Iterator[tuple[int, tuple[Index, Array]]]:
    """Cells below a node with the rows among these where they weigh anything."""
    if not len(rows):
        return
    if isinstance(node, int):
        yield node, (rows, weight)
        return
    right = node.share(P[rows, node.axis])
    for side, share in ((node.left, 1.0 - right), (node.right, right)):
        some = share > 0.0
        yield from _weighed(side, P, rows[some], weight[some] * share[some])


def _reached(node: Cut | int, P: Array, rows: Index) -> Iterator[tuple[int, Index]]:
    """Cells below a node with the rows among these that their regions reach."""
    if isinstance(node, int):
        yield node, rows
        return
    x = P[rows, node.axis]
    yield from _reached(node.left, P, rows[x <= node.at + node.above])
    yield from _reached(node.right, P, rows[x >= node.at - node.below])


def _boxes(node: Cut | int, box: Array) -> Iterator[tuple[int, Array]]:
    """Cells below a node with their lower and upper corners (2, d)."""
    if isinstance(node, int):
        yield node, box
        return
    for side, end in ((node.left, 1), (node.right, 0)):
        own = box.copy()
        own[end, node.axis] = node.at
        yield from _boxes(side, own)


def _told(node: Cut | int) -> Any:
    if isinstance(node, int):
        return node
    return [node.axis, node.at, node.below, node.above, _told(node.left), _told(node.right)]


def _heard(told: Any) -> Cut | int:
    if isinstance(told, int):
        return told
    axis, at, below, above, left, right = told
    return Cut(axis, at, below, above, _heard(left), _heard(right))

"""Neighbours among the points before: what a Gaussian process drawn or judged point by point conditions on."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: (known (s, d), new (n, d), m) -> up to m rows of the known points for each new one, nearest first, -1 for none.
Search = Callable[[Array, Array, int], Index]


def earlier(P: Array, k: int, search: Search) -> Index:
    """Up to k of the rows before each row of P (n, d) that a search finds, -1 for none: (n, k).

    With k >= n - 1 each row gets all rows before it.

    Notes
    -----
    The last fifth of the rows is looked up among all, of which at least four in five lie before the row: one and a half
    times k and some hold k earlier ones, but for one row in thousands. Then the last fifth of those before, and so on:
    O(n k log n) for a search in a tree.

    References
    ----------
    Vecchia 1988; Guinness 2018, Permutation and grouping methods for sharpening Gaussian process approximations

    Examples
    --------
    >>> earlier(np.array([[0.0], [5.0], [1.0]]), 2, nearest).tolist()
    [[-1, -1], [0, -1], [0, 1]]
    """
    n = len(P)
    out = np.full((n, k), -1, dtype=np.int64)
    stop = n
    while stop > 1:
        begin = stop * 4 // 5
        found = search(P[:stop], P[begin:stop], min(3 * k // 2 + 8, stop))
        found = np.where(found < np.arange(begin, stop)[:, None], found, -1)
        first = np.argsort(found < 0, axis=1, kind="stable")[:, :k]
        out[begin:stop, : first.shape[1]] = np.take_along_axis(found, first, axis=1)
        stop = begin
    return out


def nearest(known: Array, new: Array, m: int) -> Index:
    """The m nearest of the known rows (n, D) for each new one: a search for `earlier`."""
    return cKDTree(known).query(new, k=np.arange(1, m + 1))[1]

"""The distinct rows of a table, found without a sort where they stand in order."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int, Shaped


def order_of(columns: Sequence[Shaped[np.ndarray, " n"]]) -> Int[np.ndarray, " n"] | None:
    """The stable order by the first column, then the next ..; None where rows stand in it. At least one column.

    Examples
    --------
    >>> order_of([np.array([2, 1, 2]), np.array([5, 9, 4])]).tolist()
    [1, 2, 0]
    """
    same = np.ones(max(len(columns[0]) - 1, 0), dtype=bool)
    for column in columns:
        one, next_one = column[:-1], column[1:]
        falls = next_one < one
        if np.logical_and(falls, same, out=falls).any():
            return np.lexsort(tuple(columns)[::-1])
        same &= next_one == one
    return None


def begins(columns: Sequence[Shaped[np.ndarray, " n"]]) -> Bool[np.ndarray, " n"]:
    """Whether each row differs from the one before: where the distinct ones of rows in order begin.

    Examples
    --------
    >>> begins([np.array([1, 1, 2]), np.array([5, 5, 5])]).tolist()
    [True, False, True]
    """
    new = np.ones(len(columns[0]), dtype=bool)
    new[1:] = False
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return new


def distinct(rows: Shaped[np.ndarray, "n d"]) -> tuple[Shaped[np.ndarray, "m d"], Int[np.ndarray, " n"]]:
    """The distinct rows in ascending order of their columns, and the number of each row among them.

    What `np.unique(rows, axis=0, return_inverse=True)` gives; rows without NaN.

    Notes
    -----
    O(n d) for rows in order, as a field has them, some forty times as fast as `np.unique`; else O(n d log n), some five times.

    Examples
    --------
    >>> places, at = distinct(np.array([[2.0, 0.0], [1.0, 5.0], [2.0, 0.0]]))
    >>> places.tolist(), at.tolist()
    ([[1.0, 5.0], [2.0, 0.0]], [1, 0, 1])
    """
    columns = [np.ascontiguousarray(column) for column in rows.T]
    order = order_of(columns)
    if order is not None:
        columns = [column[order] for column in columns]
    new = begins(columns)
    number = np.cumsum(new) - 1
    found = np.stack([column[new] for column in columns], axis=1)
    if order is not None:
        back = np.empty_like(number)
        back[order] = number
        number = back
    return found, number

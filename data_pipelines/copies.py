"""Rows that are copies of others, of one place, time, value and count: a table joined from two may hold the rows of one twice."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_pipelines.arrow import numbers

#: Of a table of points: where and when, and what was measured how often.
WHERE, WHAT = ("lon", "lat", "time_years"), ("value", "tests")


def first_of(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
    """Of each row the first that equals it in all columns, itself where none before it does; NaN equals NaN. O(n log n).

    Examples
    --------
    >>> first_of([np.array([5.0, 1.0, 5.0, 5.0]), np.array([2.0, 2.0, np.nan, 2.0])]).tolist()
    [0, 1, 2, 0]
    """
    n = len(columns[0])
    order = np.lexsort(columns)  # stable: of equal rows the first comes first
    begins = np.zeros(n, dtype=bool)
    begins[:1] = True
    for column in columns:
        a, b = column[order][:-1], column[order][1:]
        begins[1:] |= (a != b) & ~(np.isnan(a) & np.isnan(b))
    first = np.empty(n, np.int64)
    first[order] = order[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    return first


def taken_together(table: pa.Table) -> NDArray[np.int64] | None:
    """Of each row the first of its copies, to share its part of a split; None of tables without points or copies.

    Where a place and time have other rows than copies, they are repeated measurements, among which some are alike: these
    are dealt one by one.
    """
    if not {"lon", "lat", *WHAT} <= set(table.column_names):
        return None
    where = [numbers(table.column(name)) for name in WHERE if name in table.column_names]
    first = first_of([*where, *(numbers(table.column(name)) for name in WHAT)])
    rows = np.arange(len(first))
    if (first == rows).all():
        return None
    place = first_of(where)
    kinds = np.bincount(place[first == rows], minlength=len(first))
    return np.where(kinds[place] == 1, first, rows)

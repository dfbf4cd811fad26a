"""Held-out rows inside the training set: what it looks like to predict a row that was not seen.

Three ways in which a place can lack data, each split into a reference set and target rows: single rows left
out, whole blocks left out (of several sizes), and the future left out. What is learned on all three holds near
data, in gaps and ahead in time, and no row is ever predicted with the help of itself.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: Continuous time is cut into this many periods.
PERIODS = 20


@dataclass(frozen=True)
class HeldOut:
    """Rows `target` (m,) to predict from the rows `reference` alone; kind is "rows", "blocks" or "future"."""

    kind: str
    reference: Index
    target: Index


def spacing(P: Array) -> float:
    """Median distance from a place to its nearest other place; P (N, D), repeated places count once.

    Examples
    --------
    >>> spacing(np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 3.0], [0.0, 6.0]]))
    3.0
    """
    from scipy.spatial import cKDTree

    P = np.unique(P, axis=0)
    if len(P) < 2:
        return 1.0
    return float(np.median(cKDTree(P).query(P, k=2)[0][:, 1]))


def hold_out(
    space: Array,
    time: Array | None,
    *,
    n_targets: int = 12000,
    block_sizes: tuple[float, ...] = (10.0, 30.0),
    folds: int = 6,
    seed: int = 0,
) -> list[HeldOut]:
    """Reference sets and targets of the three kinds, about `n_targets` of each.

    Parameters
    ----------
    space : (N, 2) coordinates, rows in a canonical order
    time : (N,) or None
    block_sizes : side of the square blocks, in units of the median spacing of places
    folds : every block size is split into this many groups of blocks, each left out once

    Returns
    -------
    list of HeldOut; "future" appears only with eight or more distinct times

    Notes
    -----
    O(N · folds · sizes) memory for the row indices.
    """
    rng = np.random.default_rng(seed)
    n = len(space)
    out: list[HeldOut] = []

    def some(rows: Index, m: int) -> Index:
        return np.sort(rng.choice(rows, min(len(rows), max(m, 1)), replace=False))

    # Single rows: two tenths are enough, the rest are exchangeable with them.
    tenth = rng.integers(0, 10, n)
    for part in (0, 1):
        out.append(
            HeldOut(
                "rows", np.flatnonzero(tenth != part), some(np.flatnonzero(tenth == part), n_targets // 2)
            )
        )

    h = spacing(space)
    for size in block_sizes:
        side = size * h
        cell = np.floor((space - space.min(axis=0)) / side + rng.random(2)).astype(np.int64)
        _, block = np.unique(cell, axis=0, return_inverse=True)
        block = block.ravel()
        group = rng.permutation(block.max() + 1) % folds
        for part in range(min(folds, block.max() + 1)):
            left = group[block] == part
            rows = np.flatnonzero(left)
            if left.all() or len(rows) == 0:
                continue
            out.append(
                HeldOut("blocks", np.flatnonzero(~left), some(rows, n_targets // (folds * len(block_sizes))))
            )

    times = np.unique(time) if time is not None else np.empty(0)
    if len(times) > 2 * PERIODS:
        times = np.linspace(times[0], times[-1], PERIODS + 1)[:-1]
    if time is not None and len(times) >= 8:
        # Up to four periods ahead, seen from four moments in the later half.
        for back in (2, 3, 5, 7):
            now = times[-back]
            ahead = np.flatnonzero((time >= now) & (time < now + 3.5 * np.median(np.diff(times))))
            out.append(HeldOut("future", np.flatnonzero(time < now), some(ahead, n_targets // 4)))
    return [h for h in out if len(h.reference) and len(h.target)]

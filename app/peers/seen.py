"""What the neighbours of a place measured, as columns for trees: the spatial features that a plain table lacks.

After Sekulić et al. 2020 (random forest spatial interpolation: values and distances of the nearest observations), with
count-weighted kernel means at several ranges, as kriging would weigh them. A training row sees other folds only, and the
folds lie as the rows to be predicted lie: by rows, by blocks, or by what came before.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from app.peers.base import Array, Sample, precision_of_counts
from geogp.holdout import spacing
from geogp.linalg.distinct import distinct

#: Ranges of the kernel means in spacings of the places, and in years where there is a time.
RANGES, YEARS = (0.7, 3.0, 10.0, 40.0), (0.5, 3.0)
#: Nearest rows whose values are columns, and those whose quantiles are.
NEAREST, QUANTILES_OF = 6, 24
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
#: Cells that a kernel mean rests on, each a share of its range wide.
CELLS, CELL = 120, 0.4
#: So many folds of rows and of blocks; a block's side in spacings.
FOLDS, BLOCK = 10, 10.0
#: Spacings of the places that a year is worth where nearest rows are looked for.
YEAR = 1.0
AT_ONCE = 2000


@dataclass(frozen=True)
class Cells:
    """Rows put together in square cells, by period: weight, weighted sum and sum of squares, (C, T) each."""

    tree: cKDTree
    weight: Array
    value: Array
    square: Array


@dataclass(frozen=True)
class Seen:
    """Training rows that others may look at: places (n, 2) in spacings, times (n,) in years, values, counts.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = Sample(rng.uniform(0, 9, (80, 2)), rng.normal(size=80), None)
    >>> Seen.of(rows, unit=1.0)(rows.take(np.arange(3))).shape
    (3, 41)
    """

    unit: float
    years: tuple[float, ...]
    place: Array
    time: Array
    z: Array
    log_count: Array
    nearest: cKDTree
    periods: Array
    cells: tuple[Cells, ...]

    @classmethod
    def of(cls, rows: Sample, unit: float) -> "Seen":
        """Of rows; `unit` is the spacing of places."""
        place, time = rows.X[:, :2] / unit, _time(rows)
        count = np.ones(len(rows)) if rows.counts is None else rows.counts
        weight = precision_of_counts(rows.counts, len(rows))
        periods, period = np.unique(np.round(time * 4.0) / 4.0, return_inverse=True)
        cells = tuple(_cells(place, period.ravel(), len(periods), rows.z, weight, CELL * r) for r in RANGES)
        near = cKDTree(np.column_stack([place, YEAR * time]))
        years = YEARS if rows.timed else YEARS[:1]
        return cls(unit, years, place, time, rows.z, np.log(count), near, periods, cells)

    def __call__(self, rows: Sample) -> Array:
        """Columns (m, F) at rows, whose own values are not read."""
        parts = [
            self._columns(rows.take(np.arange(i, min(i + AT_ONCE, len(rows)))))
            for i in range(0, len(rows), AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, 0))

    def _columns(self, rows: Sample) -> Array:
        place, time = rows.X[:, :2] / self.unit, _time(rows)
        k = min(QUANTILES_OF, len(self.z))
        _, near = self.nearest.query(np.column_stack([place, YEAR * time]), k=np.arange(1, k + 1))
        few = np.minimum(np.arange(NEAREST), k - 1)
        first = near[:, few]
        away = np.linalg.norm(self.place[first] - place[:, None], axis=-1)
        out = [self.z[first], np.log1p(away), time[:, None] - self.time[first], self.log_count[first]]
        out.append(np.quantile(self.z[near], SHARES, axis=1).T)
        for cells, reach in zip(self.cells, RANGES):
            m = min(CELLS, cells.tree.n)
            distance, cell = cells.tree.query(place, k=np.arange(1, m + 1))
            over_space = np.exp(-distance / reach)
            for years in self.years:
                over_time = np.exp(-np.abs(time[:, None] - self.periods) / years)
                w, s, q = (
                    np.einsum("nk,nkt,nt->n", over_space, table[cell], over_time)
                    for table in (cells.weight, cells.value, cells.square)
                )
                mean = s / (w + 1e-9)
                spread = np.sqrt(np.maximum(q / (w + 1e-9) - mean**2, 0.0))
                out.append(np.column_stack([mean, np.log(w + 1e-6), spread]))
        return np.column_stack(out)


def out_of_fold(rows: Sample, unit: float, kind: str, seed: int) -> tuple[Array, np.ndarray]:
    """Columns of training rows as seen from other folds, and which rows have any.

    kind : "rows", "blocks", or "past", where a row sees what is older than itself by a quarter
    """
    rng = np.random.default_rng(seed)
    if kind == "past":
        times = np.unique(np.round(_time(rows) * 4.0) / 4.0)
        fold = np.searchsorted(times, np.round(_time(rows) * 4.0) / 4.0)
        pairs = [(fold < f, fold == f) for f in range(max(1, len(times) // 3), len(times))]
    else:
        if kind == "rows":
            fold = rng.integers(0, FOLDS, len(rows))
        else:
            cell = np.floor(rows.X[:, :2] / (BLOCK * unit) + rng.random(2)).astype(np.int64)
            block = distinct(cell)[1]
            fold = rng.integers(0, FOLDS, block.max() + 1)[block]
        pairs = [(fold != f, fold == f) for f in range(FOLDS)]
    out, has = None, np.zeros(len(rows), dtype=bool)
    for outside, inside in pairs:
        if outside.sum() < 2 * NEAREST or not inside.any():
            continue
        A = Seen.of(rows.take(np.flatnonzero(outside)), unit)(rows.take(np.flatnonzero(inside)))
        out = np.zeros((len(rows), A.shape[1])) if out is None else out
        out[inside], has[inside] = A, True
    if out is None:
        raise ValueError(f"{len(rows)} rows are too few to leave any out by {kind}.")
    return out, has


def folded(rows: Sample, unit: float, own: Array, seed: int) -> Iterator[tuple[str, Array, Array]]:
    """Each kind of folds, with what training rows see through it: columns (m, F), their `own` (n, f) first, and values (m,)."""
    for kind in ("rows", "blocks", "past") if rows.timed else ("rows", "blocks"):
        columns, has = out_of_fold(rows, unit, kind, seed)
        yield kind, np.hstack([own, columns])[has], rows.z[has]


def pinball(p: float, z: Array, quantile: Array) -> float:
    """Mean loss of a quantile (n,) at level p where z (n,) came."""
    away = z - quantile
    return float(np.mean(np.maximum(p * away, (p - 1.0) * away)))


def unit_of(rows: Sample) -> float:
    """The spacing of the places of rows."""
    return spacing(rows.X[:, :2])


def _time(rows: Sample) -> Array:
    return rows.X[:, 2] if rows.timed else np.zeros(len(rows))


def _cells(place: Array, period: np.ndarray, n_periods: int, z: Array, weight: Array, side: float) -> Cells:
    key, cell = distinct(np.floor(place / side).astype(np.int64))
    at = cell * n_periods + period
    size = len(key) * n_periods

    def table(each: Array) -> Array:
        return np.bincount(at, each, size).reshape(len(key), n_periods).astype(np.float64)

    total = np.bincount(cell, weight, len(key))
    centre = np.column_stack([np.bincount(cell, weight * place[:, d], len(key)) / total for d in (0, 1)])
    return Cells(cKDTree(centre), table(weight), table(weight * z), table(weight * z * z))

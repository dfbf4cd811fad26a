"""Learning from tables larger than memory: their rows are read a group at a time, again in every epoch.

groups = row_groups("rows.parquet", ["easting_m", "northing_m", "years"], "speed", counts="tests")
model = fit_streamed(GPRegressor("dbk-silu", spatial=(0, 1), time=2), groups)
model = refresh(model, [summarise_streamed(model, groups)])  # the weights' exact posterior given all rows
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from geogp.basis.statistics import Statistic, merge
from geogp.data import CHUNK, Data, n_batches
from geogp.engines import Hooks, Plan
from geogp.engines.asked import plan_of, rows_held_out, warn_far, with_capacity
from geogp.engines.check import engine_of
from geogp.errors import ImpossibleCombination, InvalidInput, check_values, checked_counts
from geogp.estimator import GPRegressor
from geogp.linalg.threads import patient
from geogp.methods import METHODS
from geogp.transforms import spread, unit_of
from geogp.update.renewed import summarise

Array = NDArray[np.float64]
#: Inputs X (n, d), values y (n,), and counts (n,) or None.
Read = tuple[Array, Array, Array | None]

#: Rows that are shuffled together, as Parquet's groups lie in order of quarter and place: 60 MB of three inputs.
MOST_ROWS = 2**20
#: Rows by which a model is scaled and started, and its transform and scales are chosen; rows held out at most.
SAMPLE, MOST_HELD = 2**16, 2**16


@dataclass(frozen=True)
class Groups:
    """A table's rows in groups, each read when it is asked for.

    sizes : rows of each group
    read : a group's number -> its inputs (n, d), values (n,) and counts (n,) or None, the same each time
    """

    sizes: Sequence[int]
    read: Callable[[int], Read]

    def __len__(self) -> int:
        return sum(self.sizes)


def row_groups(
    path: str | Path,
    inputs: Sequence[str],
    values: str,
    counts: str | None = None,
    *,
    forward: Callable[[Array], Array] = lambda y: y,
) -> Groups:
    """The row groups of a Parquet file, of which only the columns named are read.

    Parameters
    ----------
    inputs : columns of X; values : column of y; counts : of the measurements behind each, or None
    forward : from a column's values to what is modelled, such as `numpy.log10`

    Raises
    ------
    InvalidInput
        a column that the file has not.
    """
    import pyarrow.parquet as pq

    names = [*inputs, values, *([] if counts is None else [counts])]
    with pq.ParquetFile(path) as file:
        known = file.schema_arrow.names
        sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
    if lacking := [name for name in names if name not in known]:
        raise InvalidInput(f"{path} has no column {lacking[0]!r}; it has {', '.join(known)}.")

    def read(group: int) -> Read:
        # Opened anew: a reader keeps what it has read of every group.
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(group, columns=names)
        columns = [table.column(name).to_numpy().astype(np.float64) for name in names]
        d = len(inputs)
        return np.column_stack(columns[:d]), forward(columns[d]), None if counts is None else columns[d + 1]

    return Groups(sizes, read)


@dataclass(frozen=True)
class Streamed(Data):
    """Rows to learn from, standardised, that are read a group at a time.

    X, y, counts and `rows` are those of a sample, by which a model is scaled and started; the length, `chunks` and
    `shuffled` those of all rows.

    sizes : rows of each group; read : a group's number -> its rows; most_rows : that are shuffled together
    """

    sizes: Sequence[int] = ()
    read: Callable[[int], Data] = lambda group: Data(torch.zeros(0, 1), torch.zeros(0))
    most_rows: int = MOST_ROWS

    def __len__(self) -> int:
        return sum(self.sizes)

    def chunks(self, size: int = CHUNK) -> Iterator[Data]:
        for group in range(len(self.sizes)):
            yield from self._here(group).chunks(size)

    def shuffled(self, size: int, generator: torch.Generator) -> Iterator[Data]:
        """One epoch of batches: groups in random order, as many as the buffer takes shuffled together, what does not fill a
        batch with the next ones. Of rows that all fit, the batches of `Data`."""
        if len(self) <= self.most_rows:
            yield from joined([self._here(g) for g in range(len(self.sizes))]).shuffled(size, generator)
            return
        left: list[Data] = []
        for groups in self._buffers(torch.randperm(len(self.sizes), generator=generator).tolist()):
            some = joined([*left, *(self._here(g) for g in groups)])
            order = torch.randperm(len(some), generator=generator).to(some.y.device)
            whole = len(some) // size * size
            for start in range(0, whole, size):
                yield some.rows(order[start : start + size])
            left = [some.rows(order[whole:])]
        if len(left[0]) and len(self) // size < n_batches(len(self), size):
            yield left[0]

    def to(self, device: torch.device) -> "Streamed":
        sample = super().to(device)
        return replace(self, X=sample.X, y=sample.y, counts=sample.counts)

    def _here(self, group: int) -> Data:
        return self.read(group).to(self.y.device)

    def _buffers(self, order: Sequence[int]) -> Iterator[list[int]]:
        """Groups in their order, of most_rows at most together or one alone."""
        now: list[int] = []
        rows = 0
        for group in order:
            if now and rows + self.sizes[group] > self.most_rows:
                yield now
                now, rows = [], 0
            now.append(group)
            rows += self.sizes[group]
        yield now


def joined(parts: Sequence[Data]) -> Data:
    """The rows of all parts, in order."""
    counts = [part.counts for part in parts if part.counts is not None]
    return Data(
        torch.cat([part.X for part in parts]),
        torch.cat([part.y for part in parts]),
        torch.cat(counts) if counts else None,
    )


def streamed_methods() -> list[str]:
    """The methods that learn from tables larger than memory."""
    return [name for name, row in METHODS.items() if engine_of(row).streams]


def fit_streamed(
    model: GPRegressor,
    groups: Groups,
    *,
    validation: Sequence[ArrayLike | None] | None = None,
    most_rows: int = MOST_ROWS,
    hooks: Hooks | None = None,
) -> GPRegressor:
    """Fit a model to a table's rows, of which never more than some are in memory; the model, fitted.

    A table of at most `most_rows` rows is read and fitted as `GPRegressor.fit` fits it, to the same result. Of a larger one
    the values' mean and sd and the median count are those of all rows; inputs are scaled, the basis is placed, and transform
    and Fourier scales are chosen by 65,536 rows at random; at most as many others are held out to choose the epoch.

    Parameters
    ----------
    model : not fitted, of a method that is trained by minibatches
    validation : as for `GPRegressor.fit`
    most_rows : that are shuffled together, and held in memory
    hooks : progress and checkpoint callbacks

    Raises
    ------
    InvalidInput
        no row; values, inputs or counts that are none; counts in some groups alone.
    ImpossibleCombination
        a method that takes all rows at once.

    Notes
    -----
    Memory: some 100 bytes for each of `most_rows`, and one group. Every epoch reads the table once, beside two readings
    before the first. `fitted_rows_` is None.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (6000, 2)); y = np.sin(X[:, 0])
    >>> groups = Groups([2000] * 3, lambda g: (X[2000 * g : 2000 * (g + 1)], y[2000 * g : 2000 * (g + 1)], None))
    >>> model = fit_streamed(GPRegressor("dbk-silu", epochs=1, fourier_scales=None), groups, most_rows=4000)
    >>> model.predict(X[:3]).shape
    (3,)
    """
    _not_empty(groups)
    if len(groups) <= most_rows:
        return model.fit(
            *_whole([groups.read(g) for g in range(len(groups.sizes))]), validation=validation, hooks=hooks
        )
    first = groups.read(0)
    plan = plan_of(model.get_params(deep=False), first[0].shape[1], first[2] is not None, len(groups))
    engine = engine_of(plan.row)
    if not engine.streams:
        raise ImpossibleCombination(
            f"method {plan.row.name!r} learns from all rows at once; take a table of fewer rows, or a method that is "
            f"trained by minibatches: {', '.join(streamed_methods())}."
        )
    cut = min(rows_held_out(plan.row, len(groups)), MOST_HELD) if validation is None else 0
    drawn = np.random.default_rng(plan.seed).choice(
        len(groups), min(cut + SAMPLE, len(groups)), replace=False, shuffle=True
    )
    held = np.sort(drawn[:cut])
    found = _scan(groups, np.sort(drawn[cut:]), held)
    _take_scale(model, found, plan)
    dtype = engine.dtype
    starts = [0, *accumulate(groups.sizes)]

    def left(group: int) -> NDArray[np.bool_]:
        kept = np.ones(groups.sizes[group], dtype=bool)
        low, high = np.searchsorted(held, starts[group : group + 2])
        kept[held[low:high] - starts[group]] = False
        return kept

    def read(group: int) -> Data:
        X, y, n = groups.read(group)
        kept = left(group)
        return model._data(X[kept], y[kept], None if n is None else n[kept], dtype)

    sizes = [int(left(group).sum()) for group in range(len(groups.sizes))]
    some = model._data(*found.sample, dtype)
    data = Streamed(some.X, some.y, some.counts, sizes, read, most_rows)
    watched = model._data(*found.held, dtype) if cut else None
    model.capacity_, model.crs_, model.fitted_rows_ = None, None, None  # type: ignore[assignment]  # so many are not listed
    model.n_features_in_ = first[0].shape[1]
    if validation is not None:
        watched = model._validation(validation, counted=first[2] is not None, dtype=dtype)
    plan = replace(plan, target_mean=model.target_mean_, target_sd=model.target_sd_)
    if model.fourier_scales == "auto":
        plan, model.capacity_ = with_capacity(plan, data, None if validation is None else watched)
    model.row_, model.n_rows_ = plan.row, len(data)
    with patient():
        model.engine_ = engine.fit(plan, data, watched, hooks or Hooks())
    warn_far(plan.row)
    return model


def summarise_streamed(model: GPRegressor, groups: Groups) -> Statistic:
    """What the weights' posterior asks of all rows under a fitted model's basis, for `refresh`: one group in memory.

    Exact whatever the order and the sizes of the groups.

    Raises
    ------
    InvalidInput
        no row; a method without features.
    """
    _not_empty(groups)
    parts = (summarise(model, *groups.read(g))["all"] for g in range(len(groups.sizes)) if groups.sizes[g])
    return reduce(merge, parts)


def _not_empty(groups: Groups) -> None:
    if not len(groups):
        raise InvalidInput("there is no row to learn from.")


@dataclass(frozen=True, eq=False)
class _Scan:
    """What one reading of all rows tells.

    n, mean, squares : rows, their values' mean, and the sum of squared deviations from it
    low, high : smallest and largest of each input, and last of the values, (d + 1,)
    counts : how often each count was met
    sample, held : some rows
    """

    n: int
    mean: float
    squares: float
    low: Array
    high: Array
    counts: Counter[float]
    sample: Read
    held: Read

    @cached_property
    def median_count(self) -> float | None:
        """As numpy takes it."""
        if not self.counts:
            return None
        values = sorted(self.counts)
        until = np.cumsum([self.counts[v] for v in values])
        ends = np.searchsorted(until, [(self.n - 1) // 2, self.n // 2], side="right")
        return 0.5 * (values[ends[0]] + values[ends[1]])


def _scan(groups: Groups, sampled: NDArray[np.int64], held: NDArray[np.int64]) -> _Scan:
    """Read all rows once; `sampled` and `held` are numbers of rows, in order. The rows of the smallest and of the largest
    value are in the sample, too, so that no transform is chosen that does not reach them."""
    n, mean, squares, start = 0, 0.0, 0.0, 0
    low, high, counts = np.array(np.inf), np.array(-np.inf), Counter[float]()
    some: list[Read] = []
    aside: list[Read] = []
    ends: list[Read] = []
    for group in range(len(groups.sizes)):
        X, y, c = groups.read(group)
        _check(X, y, c, group, groups.sizes[group])
        if not len(y):
            continue
        of = np.column_stack([X, y])
        low, high = np.minimum(low, of.min(axis=0)), np.maximum(high, of.max(axis=0))
        # Chan, Golub and LeVeque 1979
        m, more = float(y.mean()), len(y)
        squares += float(np.square(y - m).sum()) + (m - mean) ** 2 * n * more / (n + more)
        mean += (m - mean) * more / (n + more)
        n += more
        if c is not None:
            counts.update(dict(zip(*(v.tolist() for v in np.unique(c, return_counts=True)))))
        for kept, wanted in ((some, sampled), (aside, held)):
            inside = wanted[np.searchsorted(wanted, start) : np.searchsorted(wanted, start + more)] - start
            kept.append(_at((X, y, c), inside))
        ends.append(_at((X, y, c), np.array([y.argmin(), y.argmax()])))
        start += more
    edge = _whole(ends)
    some.append(_at(edge, np.array([edge[1].argmin(), edge[1].argmax()])))
    return _Scan(n, mean, squares, low, high, counts, _whole(some), _whole(aside))


def _check(X: Array, y: Array, counts: Array | None, group: int, size: int) -> None:
    """Refuse rows that are none."""
    if X.ndim != 2 or y.shape != (size,) or len(X) != size:
        raise InvalidInput(
            f"group {group} was said to have {size} rows, and X has shape {X.shape}, y {y.shape}; give all alike."
        )
    check_values(y)
    if not np.isfinite(X).all():
        raise InvalidInput(f"X holds NaN or infinity in group {group}; drop those rows.")
    if counts is not None:
        checked_counts(counts, size)


def _take_scale(model: GPRegressor, found: _Scan, plan: Plan) -> None:
    """What `GPRegressor` takes from its rows, of all those that were read; the transform from the sample."""
    X, y, counts = found.sample
    model._take_scale(X, y, counts, plan)
    model.target_mean_ = found.mean
    model.target_sd_ = float(np.sqrt(found.squares / found.n)) if spread(y) else unit_of(y)
    model.target_range_ = (float(found.low[-1]), float(found.high[-1]))
    if (time := plan.shape.time) is not None:
        model.time_range_ = (float(found.low[time]), float(found.high[time]))
    model.typical_count_ = model.reference_count_ = found.median_count


def _at(rows: Read, index: NDArray[np.int64]) -> Read:
    X, y, counts = rows
    return X[index], y[index], None if counts is None else counts[index]


def _whole(parts: Sequence[Read]) -> Read:
    """All rows of some parts."""
    X, y, counts = zip(*parts)
    told = [n for n in counts if n is not None]
    if told and len(told) < len(counts):
        raise InvalidInput("some groups have counts and others have none; give all alike.")
    return np.concatenate(X), np.concatenate(y), np.concatenate(told) if told else None


__all__ = ["Groups", "Streamed", "fit_streamed", "row_groups", "summarise_streamed"]

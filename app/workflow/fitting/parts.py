"""A fit to a table that the memory allowed does not hold: its rows are read a row group at a time, in every epoch again."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.errors import InvalidInput
from app.workflow.knowing import Known
from app.workflow.machine import resident
from app.workflow.rows import Flags, Rows, manifest_of, refuse_none, rows_of
from data_pipelines.geoparquet import read_groups
from data_pipelines.splits import PARTS
from geogp.basis.statistics import Statistic, merge
from geogp.engines import Hooks
from geogp.errors import InvalidInput as NotUpdatable
from geogp.estimator import GPRegressor
from geogp.linalg.distinct import distinct
from geogp.storage import sha256
from geogp.targets import Target
from geogp.update import STATISTICS, Groups, fit_streamed, streamed_methods, summarise, way

#: Bytes that a fit takes beside the libraries, and for each row of a table in memory: measured of 85,000 and 850,000 rows.
WORK, ROW = 350 * 2**20, 400
#: For each row of a table in parts, what is noted of it; for each row that is shuffled with others; fewest of these.
NOTED, SHUFFLED, FEWEST = 8, 160, 2**16
#: Rows held out to choose the epoch by: a tenth, at most so many.
MOST_HELD = 2**16


def rows_at_once(path: str | Path, method: str, max_memory: int | None) -> int | None:
    """How many rows of a table a fit may hold at once to stay below so many bytes; None where it may hold all.

    Raises
    ------
    InvalidInput
        a method that asks for all rows at once, or too little memory for any.
    """
    if max_memory is None:
        return None
    sizes, _, _ = read_groups(path)
    n, there = sum(sizes), resident("VmRSS") or 0
    if (whole := there + WORK + ROW * n) <= max_memory:
        return None
    words = (
        f"A fit of {method} to {n:,} rows takes about {_mib(whole)}, and --max-memory is {_mib(max_memory)}"
    )
    if method not in streamed_methods():
        raise InvalidInput(
            f"{words}; allow more, or take a method that reads its table in parts: {', '.join(streamed_methods())}."
        )
    least = max(FEWEST, *sizes)
    most = (max_memory - there - WORK - NOTED * n) // SHUFFLED
    if most < least:
        needed = there + WORK + NOTED * n + SHUFFLED * least
        raise InvalidInput(f"{words}; read in parts it takes about {_mib(needed)}: allow that.")
    return int(most)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


@dataclass(frozen=True, eq=False)
class Parts:
    """All rows of an observations file for one target, read a row group at a time: what `Rows` says of rows in memory.

    first : rows of the first group; sizes : of the groups; read : one of them, of its columns; usable : (N,); codes : (N,) each row's place among `labels`
    quarters : of usable rows; dropped, counted_as_one : as of `Rows`
    held : numbers of the usable rows, in order, that choose the epoch
    """

    first: Rows
    sizes: list[int]
    read: Callable[[int, Collection[str] | None], pa.Table]
    usable: Flags
    codes: NDArray[np.int16]
    labels: list[str]
    quarters: list[str]
    dropped: dict[str, int]
    counted_as_one: int
    held: NDArray[np.int64]

    @classmethod
    def of(
        cls, path: str | Path, target: str | None, counts: str, covariates: Mapping[str, Any], seed: int
    ) -> "Parts":
        """Of a file, which is read once.

        Raises
        ------
        InvalidInput
            as `read_rows`; rasters, which are sampled at all rows together; groups of which some have times alone.
        """
        if rasters := [name for name, file in covariates.items() if file is not None]:
            raise InvalidInput(
                f"Rows read in parts take no rasters ({rasters[0]}); allow more memory, or make it a column of the table."
            )
        path = Path(path)
        sizes, read, metadata = read_groups(path)
        digest = sha256(path)
        usable, codes, names = [], [], []
        quarters: set[str] = set()
        dropped: Counter[str] = Counter()
        ones, first = 0, None
        for group in range(len(sizes)):
            rows = rows_of(read(group, None), metadata, path, digest, target, counts, covariates)
            first = rows if first is None else first
            target = first.target
            if rows.X.shape[1] != first.X.shape[1]:
                raise InvalidInput(
                    f"Some rows of {path} have a time and others have none; ingest the table again."
                )
            found, code = np.unique(rows.labels, return_inverse=True)
            names.append(found)
            codes.append(code.ravel().astype(np.int16))
            usable.append(rows.usable)
            quarters |= set(rows.quarters)
            dropped.update(rows.dropped)
            ones += rows.counted_as_one
        n = sum(sizes)
        refuse_none(dropped, n, path, target or "value")
        assert first is not None  # a file without rows has dropped them all
        labels = sorted({str(name) for found in names for name in found})
        order = {name: k for k, name in enumerate(labels)}
        places = [np.array([order[str(name)] for name in found], dtype=np.int16) for found in names]
        kept = np.flatnonzero(np.concatenate(usable))
        cut = min(len(kept) // 10, MOST_HELD)
        held = np.sort(np.random.default_rng(seed).choice(kept, cut, replace=False))
        return cls(
            replace(first, path=path.resolve()), sizes, read, np.concatenate(usable),
            np.concatenate([place[code] for place, code in zip(places, codes)]), labels, sorted(quarters),
            dict(dropped), ones, held,
        )  # fmt: skip

    # -- what `fit` asks of rows, in memory or not ---------------------------------------------------

    @property
    def goal(self) -> Target:
        return self.first.goal

    @property
    def target(self) -> str:
        return self.first.target

    @property
    def has_time(self) -> bool:
        return self.first.has_time

    @property
    def metadata(self) -> dict[str, Any]:
        return self.first.metadata

    @property
    def sha256(self) -> str:
        return self.first.sha256

    @property
    def covariates(self) -> tuple[str, ...]:
        return self.first.covariates

    @property
    def rasters(self) -> dict[str, dict[str, str]]:
        return self.first.rasters

    @property
    def n_rows(self) -> int:
        return sum(self.sizes)

    def manifest(self) -> dict[str, Any]:
        """As `Rows.manifest`."""
        first = self.first
        return manifest_of(first.path, first.sha256, self.n_rows, first.metadata, self.labels, self.quarters)

    # -- rows ----------------------------------------------------------------------------------------

    @property
    def fitted(self) -> Flags:
        """(N,) which rows are learned from."""
        out = self.usable.copy()
        out[self.held] = False
        return out

    def groups(self, chosen: Flags) -> Groups:
        """Chosen rows (N,) by row group, as `fit_streamed` takes them."""
        starts = [0, *accumulate(self.sizes)]
        sizes = [int(chosen[a:b].sum()) for a, b in pairwise(starts)]
        return Groups(
            sizes, lambda group: self._rows(group).select(chosen[starts[group] : starts[group + 1]])
        )

    def _rows(self, group: int) -> Rows:
        """Of what a fit takes alone; which of them are usable has been seen."""
        first, named = self.first, self.first.goal.column
        taken = {
            "easting_m",
            "northing_m",
            "time_years",
            "quarter",
            "tests",
            "devices",
            named,
            *first.covariates,
        }
        table = self.read(group, taken)
        return rows_of(
            table, first.metadata, first.path, first.sha256, first.target, first.counted_by, dict.fromkeys(first.covariates)
        )  # fmt: skip

    def fit(self, model: GPRegressor, most_rows: int, hooks: Hooks) -> GPRegressor:
        """The model, fitted to all rows but those held out, which choose its epoch."""
        aside = np.zeros(self.n_rows, dtype=bool)
        aside[self.held] = True
        groups = self.groups(aside)
        read = [groups.read(group) for group, size in enumerate(groups.sizes) if size]
        X, t, counts = zip(*read) if read else ((), (), ())
        held = (
            (np.concatenate(X), np.concatenate(t), None if counts[0] is None else np.concatenate(counts))
            if read
            else None
        )
        return fit_streamed(
            model, self.groups(self.fitted), validation=held, most_rows=most_rows, hooks=hooks
        )

    def what_is_known(self, model: GPRegressor) -> tuple[Known, dict[str, dict[str, Tensor]]]:
        """As `app.workflow.knowing.what_is_known` of the rows that were learned from: read once more."""
        try:
            summed = way(model) == STATISTICS
        except NotUpdatable:
            summed = False
        fitted, starts = self.fitted, [0, *accumulate(self.sizes)]
        groups = self.groups(fitted)
        parts: dict[str, Statistic] = {}
        here, places, counted = np.zeros((0, len(self.labels)), dtype=bool), np.empty((0, 2)), Counter[str]()
        names = np.array(self.labels)
        for group, size in enumerate(groups.sizes):
            if not size:
                continue
            X, t, counts = groups.read(group)
            code = self.codes[starts[group] : starts[group + 1]][fitted[starts[group] : starts[group + 1]]]
            counted.update(names[code].tolist())
            places, at = distinct(np.concatenate([places, X[:, :2]]))
            now = np.zeros((len(places), len(names)), dtype=bool)
            now[at[: len(here)]] = here
            now[at[len(here) :], code] = True
            here = now
            if summed:
                for label, part in summarise(model, X, t, counts, groups=names[code]).items():
                    parts[label] = merge(parts[label], part) if label in parts else part
        there = [k for k, name in enumerate(self.labels) if counted[name]]
        known = Known({self.labels[k]: counted[self.labels[k]] for k in there}, places, here[:, there])
        return known, {f"statistics/{label}": part.to_tensors() for label, part in sorted(parts.items())}

    def split(self) -> dict[str, Tensor]:
        """What `split.safetensors` holds: all rows train."""
        return {
            "part": torch.full((self.n_rows,), PARTS.index("train"), dtype=torch.int8),
            "fitted": torch.from_numpy(self.fitted),
            "quarter": torch.from_numpy(np.where(self.usable, self.codes, np.int16(-1))),
        }

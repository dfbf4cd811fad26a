"""An observations file as a model sees it: inputs, target, counts, and which rows can be used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.choices import CountedBy
from app.errors import InvalidInput
from app.workflow.rasters.covariates import covariate_raster, file_of
from data_pipelines import quarters
from data_pipelines.arrow import numbers
from data_pipelines.observations import for_target, read, target_alone
from data_pipelines.splits import PARTS
from geogp.linalg.distinct import distinct
from geogp.run import Run
from geogp.storage import sha256
from geogp.targets import Target
from geogp.targets import target as target_named

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Taken of several targets where none is named.
DEFAULT_TARGET = "download"
INPUTS = ("easting_m", "northing_m", "time_years")
#: What may count the measurements behind a value.
COUNTS = get_args(CountedBy)
#: The Earth is 40,075 km round.
MOST_M = 5e7
#: The label of rows without a quarter.
ALL = "all"
#: What a run keeps of a table's metadata.
KEPT = (
    "source", "type", "region", "crs", "boundary", "boundary_source", "bbox", "missing_quarters", "urban", "sources",
    "value_unit", "value_name", "value_better", "credit",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Rows:
    """All rows of an observations file for one target; row i is row i of the file.

    X : (N, 3) easting_m, northing_m, time_years; (N, 2) for measurements without a time; then the covariates
    t : (N,) on the score scale (log10 of kbit/s, ..), NaN where unusable
    counts : (N,) measurements behind each value, or None when nothing counts them
    urban : (N,) labels, or None without them
    usable : (N,); dropped : how many are not, by cause
    counted_as_one : usable rows whose count was missing or zero
    counted_by : "tests", "devices", or "both" for their geometric mean
    covariates : names of the last columns of X; rasters : files of those that are no columns, with their SHA-256
    """

    path: Path
    sha256: str
    table: pa.Table
    metadata: dict[str, Any]
    target: str
    X: Array
    t: Array
    counts: Array | None
    urban: Flags | None
    usable: Flags
    dropped: dict[str, int]
    counted_as_one: int = 0
    counted_by: str = "tests"
    covariates: tuple[str, ...] = ()
    rasters: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def has_time(self) -> bool:
        return self.X.shape[1] - len(self.covariates) == 3

    @property
    def n_rows(self) -> int:
        """Of the file, usable or not."""
        return self.table.num_rows

    @property
    def goal(self) -> Target:
        """What is mapped."""
        return target_named(self.target).called(
            self.metadata.get("value_name"), self.metadata.get("value_better")
        )

    @property
    def unit(self) -> str:
        """Of the target in this file."""
        return self.goal.unit_of(self.metadata.get("value_unit"))

    @cached_property
    def labels(self) -> NDArray[np.str_]:
        """(N,) what an update adds and forgets a row by: its quarter, or "all" where nothing has one."""
        if "quarter" not in self.table.column_names or self.table.column("quarter").null_count:
            return np.full(self.table.num_rows, ALL)
        names, codes = coded(self.table.column("quarter"))
        return names.astype("U6")[codes]

    @property
    def quarter_codes(self) -> NDArray[np.int16]:
        """(N,) each row's label as its place among the sorted labels of the file, -1 where unusable."""
        codes = np.unique(self.labels, return_inverse=True)[1].ravel()
        return np.where(self.usable, codes, -1).astype(np.int16)

    @property
    def quarters(self) -> list[str]:
        """Quarters of the usable rows, in order."""
        if "quarter" not in self.table.column_names:
            return []
        names = self.table.column("quarter").filter(pa.array(self.usable)).unique().to_pylist()
        return sorted(name for name in names if name)

    def places_m(self, mask: Flags) -> Array:
        """Distinct positions of some rows: (n, 2) easting and northing, sorted."""
        return distinct(self.X[mask, :2])[0]

    def select(self, mask: Flags) -> tuple[Array, Array, Array | None]:
        """Inputs, target and counts of some rows, as `GPRegressor.fit` takes them."""
        return self.X[mask], self.t[mask], None if self.counts is None else self.counts[mask]

    def manifest(self) -> dict[str, Any]:
        """What a run keeps of its data: enough to check them, to map them and to say where they came from."""
        return manifest_of(
            self.path,
            self.sha256,
            self.table.num_rows,
            self.metadata,
            np.unique(self.labels).tolist(),
            self.quarters,
        )


def manifest_of(
    path: Path, digest: str, n: int, metadata: Mapping[str, Any], labels: list[str], quarters: list[str]
) -> dict[str, Any]:
    """What a run keeps of a file of n rows with these labels, of which usable rows have these quarters."""
    return {
        "path": str(path),
        "sha256": digest,
        "rows": n,
        **{name: metadata.get(name) for name in KEPT},
        "labels": labels,
        "quarters": quarters,
        "last_quarter": quarters[-1] if quarters else None,
    }


def read_rows(
    path: str | Path,
    target: str | None,
    counts: str = "tests",
    covariates: Mapping[str, str | Path | None] | None = None,
) -> Rows:
    """Read an observations file for one target.

    Parameters
    ----------
    path : GeoParquet made by ingest
    target : a key of `geogp.targets.TARGETS`; None is what the file has alone, of several the download speed
    counts : what the noise takes as the number of measurements, one of `COUNTS`
    covariates : name -> raster with its value at each row, or None for the table's column of that name

    Raises
    ------
    InvalidInput
        not such a file, a column missing, or no usable row.

    Notes
    -----
    A missing or zero count beside a good value is taken as a single measurement (`counted_as_one` says how many):
    a bad count never drops a download.
    """
    path = Path(path)
    if target is not None:
        target_named(target)
    table, metadata = read(path, shapes=False)
    rows = rows_of(table, metadata, path, sha256(path), target, counts, covariates)
    refuse_none(rows.dropped, table.num_rows, path, rows.target)
    return rows


def refuse_none(dropped: Mapping[str, int], n: int, path: Path, target: str) -> None:
    """Refuse a file of n rows that were all dropped.

    Raises
    ------
    InvalidInput
    """
    if sum(dropped.values()) >= n:
        causes = ", ".join(f"{k:,} {cause}" for cause, k in dropped.items() if k)
        raise InvalidInput(f"None of the {n:,} rows of {path} has a usable {target} ({causes}).")


def rows_of(
    table: pa.Table,
    metadata: dict[str, Any],
    path: Path,
    digest: str,
    target: str | None,
    counts: str = "tests",
    covariates: Mapping[str, str | Path | None] | None = None,
) -> Rows:
    """The rows of a table, or of a part of one, for one target: as `read_rows`, be they usable or not.

    Parameters
    ----------
    metadata, path, digest : of the file that the table is from, its SHA-256 last
    """
    target = target or target_alone(table) or DEFAULT_TARGET
    goal = target_named(target)
    missing = [name for name in ("easting_m", "northing_m") if name not in table.column_names]
    if missing:
        raise InvalidInput(f"{path} has no column {missing[0]}; make the table again with `geogp ingest`.")
    usable, dropped = for_target(table, goal.column, positive=goal.positive, name=target)
    values = numbers(table.column(goal.column))
    t = np.full(table.num_rows, np.nan)
    t[usable] = goal.to_score(values[usable])
    inputs = [numbers(table.column("easting_m")), numbers(table.column("northing_m"))]
    time = _time(table, path)
    if time is not None:
        inputs.append(time)
    X = np.stack(inputs, axis=1)
    # No projection of the Earth leads farther than its circumference.
    lost = usable & ~(np.isfinite(X) & (np.abs(X) <= MOST_M)).all(axis=1)
    if lost.any():
        usable, dropped = usable & ~lost, {**dropped, "no_place_or_time": int(lost.sum())}
    if covariates:
        if goal.column in [name for name, file in covariates.items() if file is None]:
            raise InvalidInput(
                f"--covariates names {goal.column}, which is what is mapped: a model that is told the answer learns nothing "
                "else; leave it out."
            )
        X = np.column_stack([X, _covariates(table, covariates, X, metadata, path)])
        if (without := usable & ~np.isfinite(X).all(axis=1)).any():
            usable, dropped = usable & ~without, {**dropped, "without_covariates": int(without.sum())}
    t[~usable] = np.nan
    if (again := usable & _repeated(table)).any():
        usable, dropped = usable & ~again, {**dropped, "repeated": int(again.sum())}
        t[again] = np.nan
    n, guessed = _counts(table, counts, path) if goal.counted else (None, None)
    return Rows(
        path=path.resolve(),
        sha256=digest,
        table=table,
        metadata=metadata,
        target=target,
        X=X,
        t=t,
        counts=n,
        urban=_urban(table),
        usable=usable,
        dropped=dropped,
        counted_as_one=0 if guessed is None else int((guessed & usable).sum()),
        counted_by=counts,
        covariates=tuple(covariates or ()),
        rasters={name: file_of(file) for name, file in (covariates or {}).items() if file is not None},
    )


def observations_of(run: Run, data: str | Path | None = None) -> Rows:
    """The observations a run was fitted from, from where they were or from `data`, their hash checked.

    Raises
    ------
    InvalidInput
        the file is gone, or is another.
    """
    path = Path(data or run.data["path"])
    if not path.is_file():
        raise InvalidInput(
            f"The observations {path} of {run.path} are not there; say where with --data FILE."
        )
    if sha256(path) != run.data["sha256"]:
        raise InvalidInput(
            f"{path} is not the file {run.path} was fitted from (its SHA-256 differs); give that one with --data."
        )
    return rows_for(run, path)


def rows_for(run: Run, path: str | Path) -> Rows:
    """A file read as a run reads its own: for the same target, counted in the same way."""
    rasters = run.facts.get("covariate_rasters") or {}
    covariates = {name: rasters.get(name, {}).get("path") for name in run.facts.get("covariates") or ()}
    return read_rows(path, run.target.name, run.facts.get("counts", "tests"), covariates)


def labels(run: Run, part: str) -> Flags:
    """Which rows of the run's own file belong to a part of its split: (N,)."""
    return run.tensors("split")["part"].numpy() == PARTS.index(part)


def _covariates(
    table: pa.Table,
    wanted: Mapping[str, str | Path | None],
    X: Array,
    metadata: Mapping[str, Any],
    path: Path,
) -> Array:
    """The covariates of each row: (N, k), NaN where one has none."""
    out = []
    for name, file in wanted.items():
        if file is not None:
            out.append(covariate_raster(file, metadata["crs"], X[:, :2], metadata.get("boundary"))(X))
            continue
        if name not in table.column_names:
            kept = ", ".join(metadata.get("covariates") or [])
            raise InvalidInput(
                f"{path} has no column {name}, {f'it has {kept}' if kept else 'and no covariates'}; keep it with "
                f"`geogp ingest --covariates {name}`, or name a raster: --covariates {name}=FILE.tif."
            )
        column = table.column(name)
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise InvalidInput(
                f"Column {name} of {path} holds no numbers ({column.type}); a covariate is a number."
            )
        out.append(numbers(column))
    return np.column_stack(out)


def _repeated(table: pa.Table) -> Flags:
    """(N,) whether a row is of a tile and quarter that an earlier row has: ingest keeps one, others' tables may not."""
    if not {"quadkey", "quarter"} <= set(table.column_names) or table.column("quadkey").null_count:
        return np.zeros(table.num_rows, bool)
    tiles, tile = coded(table.column("quadkey"))
    # A row without a quarter has the code -1: it is of a time of its own.
    _, quarter = coded(table.column("quarter"))
    first = np.unique((quarter.astype(np.int64) + 1) * len(tiles) + tile, return_index=True)[1]
    again = np.ones(table.num_rows, bool)
    again[first] = False
    return again


def coded(column: pa.ChunkedArray) -> tuple[NDArray[np.str_], NDArray[np.int32]]:
    """Distinct texts of a column, and each row's place among them, -1 for none: a few bytes a row, where Python's texts
    take sixty."""
    whole = column.combine_chunks().dictionary_encode()
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    codes = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(whole.dictionary.to_pylist(), dtype=np.str_), codes.astype(np.int32)


def _time(table: pa.Table, path: Path) -> Array | None:
    """Decimal years: the measured time of points, the middle of the quarter of tiles; None without either."""
    if "time_years" in table.column_names and table.column("time_years").null_count < table.num_rows:
        return numbers(table.column("time_years"))
    if "quarter" not in table.column_names or table.column("quarter").null_count == table.num_rows:
        return None
    names = table.column("quarter")
    if names.null_count:
        raise InvalidInput(f"{names.null_count:,} rows of {path} have no quarter; ingest the table again.")
    known, codes = coded(names)
    return quarters.years(known.astype("U6"))[codes]


def _counts(table: pa.Table, counted_by: str, path: Path) -> tuple[Array | None, Flags | None]:
    """Measurements behind each value, and which of them had to be taken as one; None where nothing counts."""

    def empty(name: str) -> bool:
        return name not in table.column_names or table.column(name).null_count == table.num_rows

    if counted_by not in COUNTS:
        raise InvalidInput(f"counts must be one of {', '.join(COUNTS)}; got {counted_by!r}.")
    names = ("tests", "devices") if counted_by == "both" else (counted_by,)
    if names == ("tests",) and empty("tests"):
        return None, None
    for name in names:
        if empty(name):
            raise InvalidInput(
                f"{path} has no {name} to count by; take --counts tests, or ingest a table with it."
            )
    columns = [numbers(table.column(name)) for name in names]
    good = np.all([np.isfinite(c) & (c >= 1) for c in columns], axis=0)
    whole = [np.where(good, c, 1.0) for c in columns]
    return np.exp(np.mean(np.log(whole), axis=0)) if len(whole) > 1 else whole[0], ~good


def _urban(table: pa.Table) -> Flags | None:
    if "urban" not in table.column_names or table.column("urban").null_count:
        return None
    return np.asarray(table.column("urban").to_numpy(zero_copy_only=False), dtype=bool)

"""From public files to one tidy table: join, label, filter, and say what was left out and why."""

import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_pipelines import geoparquet
from data_pipelines.assemble import assemble, numbers
from data_pipelines.atomic import refuse_existing
from data_pipelines.download import Progress, as_record
from data_pipelines.errors import DataWarning, InvalidInput
from data_pipelines.geoparquet import read
from data_pipelines.regions import Region
from data_pipelines.schema import TARGETS
from data_pipelines.sources import SOURCES
from data_pipelines.sources.contract import Collected, Request

__all__ = ["IngestReport", "for_target", "ingest", "ingest_table", "read"]


@dataclass(frozen=True)
class IngestReport:
    """What an ingest wrote and what it left out."""

    path: Path
    metadata: dict[str, Any]
    seconds: float
    warnings: tuple[str, ...] = ()

    @property
    def rows_kept(self) -> int:
        return int(self.metadata["rows_kept"])

    def summary(self) -> str:
        """One line for people: rows kept and dropped by cause, quarters, region, time."""
        m = self.metadata
        dropped = ", ".join(f"{n:,} {cause.replace('_', ' ')}" for cause, n in m["dropped"].items() if n)
        quarters = m["quarters"]
        span = f"{quarters[0]}..{quarters[-1]}" if len(quarters) > 1 else "".join(quarters)
        parts = [
            f"{self.path}: {m['rows_kept']:,} of {m['rows_read']:,} rows kept"
            + (f" ({dropped})" if dropped else ""),
            f"{len(quarters)} quarters {span}" if len(quarters) > 1 else span,
            f"{len(m['missing_quarters'])} missing" if m["missing_quarters"] else "",
            f"region {m['region']}" if m["region"] else "",
            f"{100 * m['urban']['share_of_rows']:.0f}% urban" if m["urban"] else "",
            f"{self.seconds:.1f} s",
        ]
        return ", ".join(part for part in parts if part)


def ingest(
    *,
    source: str = "ookla",
    root: str | Path | None = None,
    type: str = "fixed",
    quarters: str | None = None,
    region: str | None = None,
    states: str | Path | None = None,
    bbox: tuple[float, float, float, float] | None = None,
    boundary: str | Path | None = None,
    urban: str | Path | None = None,
    output: str | Path,
    overwrite: bool = False,
    progress: Progress | None = None,
    seed: int = 0,
    size: str = "demo",
) -> IngestReport:
    """Published tiles of one place and some quarters, as one GeoParquet of observations.

    Parameters
    ----------
    source : "ookla", or "synthetic" for the made-up world in the same format
    root : https URL, s3://bucket or folder in the bucket's layout; None is the public bucket (for "synthetic":
        a folder of `synthetic.write_world`; None makes the world first, in a temporary folder)
    type : "fixed" or "mobile"
    quarters : "2023Q4", "2019Q1..2023Q4" or a comma list; for "synthetic" None is all of them
    region, states : state code, and the Census states file to find it in (path or URL; None downloads one)
    bbox : W, S, E, N in degrees; W > E crosses 180 degrees, when that way is at most 180 degrees wide
    boundary : file of polygons in any CRS
    urban : Census urban areas of either vintage; None leaves `urban` null
    output : GeoParquet to write
    overwrite : replace an existing output
    progress : called with (done, total, what)
    seed, size : of a synthetic world that has to be made first; others are left as they are

    Returns
    -------
    IngestReport
        Path, metadata document (see `schema`), seconds, warnings. Warnings are also issued as `DataWarning`.

    Raises
    ------
    InvalidInput
        Anything about the input that leaves nothing to write; nothing is written then.

    Notes
    -----
    A row is dropped only for an undecodable quadkey, a place outside, or as a repeat of the same tile and
    quarter (the row with the most tests stays). Odd values are counted under `flagged` and kept; what is
    unusable for one target is dropped by `for_target` when that target is fitted.

    Cost: one pass over the files; memory holds one batch of 262,144 rows and the rows kept.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from data_pipelines.sources import synthetic
    >>> folder = Path(tempfile.mkdtemp())
    >>> world = synthetic.write_world(folder, size="small")
    >>> report = ingest(root=folder, quarters="2023Q4", region="HY", states=world.states_file(folder),
    ...                 output=folder / "obs.parquet")
    >>> report.metadata["region"]
    'HY'
    """
    output = Path(output)
    refuse_existing(output, overwrite)
    if source not in SOURCES:
        raise InvalidInput(f"Unknown source {source!r}; it is one of {', '.join(SOURCES)}.")
    if source not in ("ookla", "synthetic"):
        raise InvalidInput(f"Source {source!r} is a table of points; read it with ingest_table.")
    started = time.perf_counter()
    with ExitStack() as stack:
        about: dict[str, Any] = {"source": source, "type": type}
        if source == "synthetic":
            from data_pipelines.sources import synthetic

            world, root = stack.enter_context(synthetic.world_folder(root, seed=seed, size=size))
            quarters = quarters or f"{world.quarters[0]}..{world.quarters[-1]}"
            region = region if region or bbox or boundary else world.state_code
            states, urban = states or world.states_file(root), urban or world.urban_file(root)
            about["synthetic"] = {"seed": world.seed, "size": world.size}
        if not quarters:
            raise InvalidInput("Say which quarters: 2023Q4, 2019Q1..2023Q4 or a comma list.")
        place, place_record = _place(region, states, bbox, boundary)
        request = Request(region=place, progress=progress, root=root, type=type, quarters=quarters)
        collected = SOURCES[source](request)
        return _write(collected, place, place_record, urban, output, overwrite, started, about)


def ingest_table(
    *,
    file: str | Path,
    source: str = "csv",
    columns: dict[str, str] | None = None,
    crs: Any = None,
    value_unit: str | None = None,
    region: str | None = None,
    states: str | Path | None = None,
    bbox: tuple[float, float, float, float] | None = None,
    boundary: str | Path | None = None,
    urban: str | Path | None = None,
    output: str | Path,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> IngestReport:
    """Any other point measurement, from CSV or GeoParquet, as one GeoParquet with target `value`.

    Parameters
    ----------
    file : the table, path or URL
    source : "csv" or "geoparquet"
    columns : our name -> the file's: x, y, value, and optionally count and time (decimal years or dates);
        a GeoParquet's x and y default to its point geometry
    crs : of x and y, anything PROJ understands; None is longitude and latitude for CSV and the file's own
        for GeoParquet
    value_unit : written to the metadata, for axes and legends
    region, states, bbox, boundary, urban, output, overwrite, progress : as for `ingest`; without a place all
        rows are kept

    Raises
    ------
    InvalidInput
        As for `ingest`; also coordinates that are no longitudes and latitudes when no CRS is given.
    """
    output = Path(output)
    refuse_existing(output, overwrite)
    if source not in ("csv", "geoparquet"):
        raise InvalidInput(f"Unknown table source {source!r}; it is csv or geoparquet.")
    started = time.perf_counter()
    place, place_record = (None, None)
    if region or bbox or boundary:
        place, place_record = _place(region, states, bbox, boundary)
    request = Request(region=place, progress=progress, root=file, columns=columns or {}, crs=crs)
    collected = SOURCES[source](request)
    about = {"source": source, "type": None, "value_unit": value_unit}
    return _write(collected, place, place_record, urban, output, overwrite, started, about)


def for_target(table: pa.Table, target: str) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Rows usable for one target, and how many are not, by cause.

    Speeds, latency and tests must be positive, because they are modelled as logarithms; `value` must be a
    finite number. Nothing else about a row matters: a bad latency never drops a download.

    Returns
    -------
    mask : (N,) True for usable rows
    dropped : {"null_download": n, "nonpositive_download": n}

    Examples
    --------
    >>> for_target(pa.table({"download_mbps": [12.5, 0.0, None]}), "download")
    (array([ True, False, False]), {'null_download': 1, 'nonpositive_download': 1})
    """
    if target not in TARGETS:
        raise InvalidInput(f"Unknown target {target!r}; it is one of {', '.join(TARGETS)}.")
    if TARGETS[target] not in table.column_names:
        there = [name for name, column in TARGETS.items() if column in table.column_names]
        raise InvalidInput(f"The table has no target {target!r}; it has {', '.join(there) or 'none'}.")
    values = numbers(table.column(TARGETS[target]))
    null = ~np.isfinite(values)
    bad = np.zeros_like(null) if target == "value" else ~null & (values <= 0)
    return ~(null | bad), {f"null_{target}": int(null.sum()), f"nonpositive_{target}": int(bad.sum())}


def _place(
    region: str | None,
    states: str | Path | None,
    bbox: tuple[float, float, float, float] | None,
    boundary: str | Path | None,
) -> tuple[Region, dict[str, Any] | None]:
    """The region asked for, and the record of the file it came from."""
    given = [
        name for name, v in (("region", region), ("bbox", bbox), ("boundary", boundary)) if v is not None
    ]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise InvalidInput(f"Give one of region, bbox and boundary; got {got}.")
    if bbox is not None:
        return Region.from_bbox(bbox), None
    from data_pipelines.sources import census

    if region is not None:
        place, fetched = census.state(region, states)
    else:
        place, fetched = census.boundary(boundary or "")
    return place, as_record(fetched)


def _write(
    collected: Collected,
    place: Region | None,
    place_record: dict[str, Any] | None,
    urban: str | Path | None,
    output: Path,
    overwrite: bool,
    started: float,
    about: dict[str, Any],
) -> IngestReport:
    """Assemble, write, and only then say what the user should hear about."""
    table, metadata = assemble(collected, place, place_record, urban, about)
    geoparquet.write(table, metadata, output, overwrite=overwrite)
    notes = []
    if collected.missing_quarters:
        missing, there = ", ".join(collected.missing_quarters), ", ".join(collected.quarters)
        notes.append(f"No data for {missing}; they are left out of the table, which has {there}.")
    if metadata["thin_quarters"]:
        thin = ", ".join(metadata["thin_quarters"])
        notes.append(f"Far fewer rows than in the other quarters: {thin}; they may be there only in part.")
    for note in notes:
        warnings.warn(note, DataWarning, stacklevel=3)
    return IngestReport(output, metadata, time.perf_counter() - started, tuple(notes))

"""From public files to one tidy table: join, label, filter, and say what was left out and why."""

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_pipelines import former, geoparquet, quadkey, zorder
from data_pipelines.arrow import numbers
from data_pipelines.assemble import Assembly
from data_pipelines.atomic import refuse_existing, refuse_input
from data_pipelines.download import Progress
from data_pipelines.errors import DataWarning, InvalidInput
from data_pipelines.geoparquet import read
from data_pipelines.places import check_quarters, place_of, type_of
from data_pipelines.schema import COUNTS, MEASURED
from data_pipelines.sources import SOURCES
from data_pipelines.sources.contract import BETTER, Collected, Request, Source, Workers
from data_pipelines.words import causes, many

#: Rows a tile and quarter from which a table looks like single measurements.
CROWDED = 8
#: Where half the rows have another one within these metres; so many are asked.
ONE_PLACE_M, ASKED = 10.0, 100_000
#: Values that programs write where they have none, told from real ones by lying far below them.
STAND_INS = (-9.0, -99.0, -999.0, -9999.0, -99999.0, -32768.0, -2147483648.0)
#: Endings of other kinds of file, which what is written is not.
OTHERS = (".csv", ".tsv", ".txt", ".json", ".geojson", ".gpkg", ".shp", ".zip", ".gz", ".xlsx", ".nc")
#: What is asked of tables of points alone.
OF_FILES = ("crs", "value_unit", "value_name", "better", "covariates", "average", "credit")

__all__ = ["IngestReport", "for_target", "ingest", "ingest_table", "read", "target_alone", "targets_of"]


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

    def document(self) -> dict[str, Any]:
        """For programs: where the table is and its account, without the polygon."""
        account = {key: value for key, value in self.metadata.items() if key not in ("boundary", "crs")}
        return {"schema": 1, "path": str(self.path), **account, "seconds": round(self.seconds, 2)}

    def summary(self) -> str:
        """One line for people: rows kept and dropped by cause, quarters, region, time."""
        m = self.metadata
        dropped = causes(m["dropped"], none="")
        quarters, averaged = m["quarters"], m.get("averaged_rows")
        found = ", ".join(f"{role}={name}" for role, name in m.get("columns_found", {}).items())
        kept = f"{m['rows_kept']:,} averages over {averaged:,}" if averaged else f"{m['rows_kept']:,}"
        span = f"{quarters[0]}..{quarters[-1]}" if len(quarters) > 1 else "".join(quarters)
        parts = [
            f"{self.path}: {kept} of {many(m['rows_read'], 'row')} kept"
            + (f" ({dropped})" if dropped else ""),
            f"{len(quarters)} quarters {span}" if len(quarters) > 1 else span,
            f"{len(m['missing_quarters'])} missing" if m["missing_quarters"] else "",
            f"region {m['region']}" if m["region"] else "",
            f"{100 * m['urban']['share_of_rows']:.0f}% urban" if m["urban"] else "",
            f"columns taken by their names: {found}" if found else "",
            f"{self.seconds:.1f} s",
        ]
        return ", ".join(part for part in parts if part)


def ingest(
    *,
    source: str = "ookla",
    root: str | Path | None = None,
    file: str | Path | None = None,
    type: str | None = None,
    quarters: str | None = None,
    columns: dict[str, str] | None = None,
    crs: Any = None,
    value_unit: str | None = None,
    value_name: str | None = None,
    better: str | None = None,
    covariates: Sequence[str] | None = None,
    average: bool = False,
    credit: str | None = None,
    region: str | None = None,
    states: str | Path | None = None,
    bbox: tuple[float, float, float, float] | None = None,
    boundary: str | Path | None = None,
    urban: str | Path | None = None,
    output: str | Path,
    overwrite: bool = False,
    expect_sha256: tuple[str, ...] = (),
    progress: Progress | None = None,
    workers: Workers | None = None,
    seed: int = 0,
    size: str = "demo",
) -> IngestReport:
    """Measurements of one place as one GeoParquet of observations.

    Parameters
    ----------
    source : a name in `sources.SOURCES`: "ookla", or "synthetic" for the made-up world in the same format, whose
        published tiles are read by quarters; "csv" or "geoparquet" for any other point measurement
    root : of published tiles: https URL, s3://bucket or folder in the bucket's layout; None is the public bucket
        (for "synthetic": a folder of `write_world`; None makes the world first, in a temporary folder)
    file : of point measurements: the table, path or URL
    type : "fixed" or "mobile"; None is the first that the source publishes
    quarters : "2023Q4", "2019Q1..2023Q4" or a comma list; for "synthetic" None is all of them
    columns : of a file, our name -> the file's: x, y, value, and optionally count and time (decimal years or
        dates); a GeoParquet's x and y default to its point geometry, others' to columns called lon and lat, or so, the
        value to one called value, and the count to the one called count or tests, or so, if it holds whole numbers
    crs : of x and y, anything PROJ understands; None is longitude and latitude for CSV and the file's own for
        GeoParquet
    value_unit : of a file's value, written to the metadata, for axes and legends
    value_name : what a file's value is, for titles; None is its column's name
    better : "higher" or "lower", which of a file's values is better, for ranks, colours and words; None judges nothing
    covariates : further columns of a file, kept beside the value for `fit` to learn by
    average : of a file of single measurements, whose places are blurred or many at one place: rows become the mean of each
        zoom-16 tile and quarter, their number the count
    credit : who measured a file's values, for the attribution of maps
    region, states : state code, or several by commas ("US": the 50 states and DC; the column `region` says which state), and
        the Census states file to find them in (path or URL; None downloads one)
    bbox : W, S, E, N in degrees; W > E crosses 180 degrees, when that way is at most 180 degrees wide
    boundary : file of polygons in any CRS
    urban : Census urban areas of either vintage; None leaves `urban` null
    output : GeoParquet to write
    overwrite : replace an existing output
    expect_sha256 : of all files that measurements may come from; any other is refused
    progress : called with (done, total, what)
    workers : who read published quarters side by side, such as `app.cluster.workers` gives; the table is the same to the byte
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
    A row is dropped only for an undecodable quadkey, a place outside, as a repeat of the same tile and quarter
    (the row with the most tests stays), or, of points, for a value that is none or infinite. Odd values of tiles are
    counted under `flagged` and kept; what is unusable for one target is dropped by `for_target` when it is fitted.

    Where a source of the same name and date was another file when a table or run of the output's folder was made,
    a warning says so.

    Cost: one pass over the files; memory holds one batch of 262,144 rows and the rows kept.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from data_pipelines import synthetic
    >>> folder = Path(tempfile.mkdtemp())
    >>> world = synthetic.write_world(folder, size="small")
    >>> report = ingest(root=folder, quarters="2023Q4", region="HY", states=world.states_file(folder),
    ...                 output=folder / "obs.parquet")
    >>> report.metadata["region"]
    'HY'
    """
    started = time.perf_counter()
    output = Path(output)
    refuse_existing(output, overwrite)
    refuse_input(output, file, boundary, states, urban)
    if output.suffix.lower() in OTHERS:
        raise InvalidInput(
            f"The table is written as GeoParquet; name the output .parquet, not {output.name}."
        )
    if source not in SOURCES:
        raise InvalidInput(f"Unknown source {source!r}; it is one of {', '.join(SOURCES)}.")
    entry = SOURCES[source]
    asked = Request(
        root=root, file=file, type=type_of(source, type), quarters=quarters, columns=columns or {}, crs=crs,
        value_unit=value_unit, value_name=value_name, better=better, covariates=None if covariates is None else tuple(covariates),
        average=average or None, credit=credit,
        region=region, states=states, bbox=bbox, boundary=boundary, urban=urban, seed=seed, size=size, progress=progress,
        workers=workers,
    )  # fmt: skip
    _check(source, entry, asked)
    with entry.ready(asked) as request:
        if not entry.takes_file:
            check_quarters(request)
        place, place_record = place_of(request, optional=entry.takes_file)
        collected = entry.collect(replace(request, place=place))
        parts = [collected] if isinstance(collected, Collected) else collected
        about = {"source": source, "type": request.type}
        made = Assembly(entry.tiled, place, place_record, request.urban, about)
        metadata: dict[str, Any] = {}
        notes: list[str] = []

        def tables() -> Iterator[pa.Table]:
            for table in made.tables(_expected(parts, expect_sha256)):
                if isinstance(collected, Collected) and entry.takes_file:
                    notes.extend(_single(table, collected.about) + _stand_ins(table))
                yield table

        def document() -> dict[str, Any]:
            metadata.update(made.document())
            notes[:0] = _notes(metadata)
            notes.extend(filter(None, [former.note(metadata, output.parent)]))
            return metadata

        geoparquet.write_parts(tables(), document, output, overwrite=overwrite)
    for note in notes:
        warnings.warn(note, DataWarning, stacklevel=2)
    return IngestReport(output, metadata, time.perf_counter() - started, tuple(notes))


def ingest_table(*, file: str | Path, source: str = "csv", **asked: Any) -> IngestReport:
    """`ingest` of a table of point measurements, by default a CSV file.

    Parameters
    ----------
    file, source, asked : as for `ingest`

    Raises
    ------
    InvalidInput
        As for `ingest`; also a source that reads no file.
    """
    tables = [name for name, entry in SOURCES.items() if entry.takes_file]
    if source not in tables:
        raise InvalidInput(f"Unknown table source {source!r}; it is {' or '.join(tables)}.")
    return ingest(source=source, file=file, **asked)


def for_target(
    table: pa.Table, column: str, *, positive: bool, name: str | None = None
) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Rows usable for one target, and how many are not, by cause.

    Nothing else about a row matters: a bad latency never drops a download.

    Parameters
    ----------
    table : observations, (N,) rows
    column : of the table that holds the target
    positive : whether only values above 0 can be used, because they are modelled as logarithms
    name : of the target, for causes and messages; None is the column's

    Returns
    -------
    mask : (N,) True for usable rows
    dropped : {"null_download": n, "nonpositive_download": n}

    Raises
    ------
    InvalidInput
        The table has no such column.

    Examples
    --------
    >>> for_target(pa.table({"mbps": [12.5, 0.0, None]}), "mbps", positive=True, name="download")
    (array([ True, False, False]), {'null_download': 1, 'nonpositive_download': 1})
    """
    name = name or column
    if column not in table.column_names:
        there, alone = targets_of(table), target_alone(table)
        hint = f"; name it with --target {alone}" if alone else ""
        raise InvalidInput(f"The table has no target {name!r}; it has {', '.join(there) or 'none'}{hint}.")
    values = numbers(table.column(column))
    null, infinite = np.isnan(values), np.isinf(values)
    bad = np.isfinite(values) & (values <= 0) if positive else np.zeros_like(null)
    dropped = {f"null_{name}": int(null.sum()), f"nonpositive_{name}": int(bad.sum())}
    if infinite.any():
        dropped[f"infinite_{name}"] = int(infinite.sum())
    return ~(null | infinite | bad), dropped


def targets_of(table: pa.Table) -> list[str]:
    """What the rows of a table measure, by the names that targets have.

    Examples
    --------
    >>> targets_of(pa.table({"download_mbps": [12.5, None], "upload_mbps": [None, None]}))
    ['download']
    """
    columns = [c for c in MEASURED if c.name in table.column_names]
    return [str(c.measures) for c in columns if table.column(c.name).null_count < table.num_rows]


def target_alone(table: pa.Table) -> str | None:
    """The one target that a table has, its counts left aside where they stand beside another; None of several, or none.

    Examples
    --------
    >>> target_alone(pa.table({"value": [2.5], "tests": [3]})), target_alone(pa.table({"value": [None], "tests": [3]}))
    ('value', 'tests')
    """
    counts = {c.measures for c in COUNTS}
    there = targets_of(table)
    there = [name for name in there if name not in counts] or there
    return there[0] if len(there) == 1 else None


def _expected(parts: Iterable[Collected], wanted: tuple[str, ...]) -> Iterator[Collected]:
    """Refuse a source whose SHA-256 is none of those wanted, if any are."""
    for part in parts:
        for record in part.sources if wanted else ():
            if record.get("sha256") not in {digest.strip().lower() for digest in wanted}:
                raise InvalidInput(
                    f"{record.get('url')} has the SHA-256 {record.get('sha256') or 'nobody computed'}, which is none of those "
                    "expected; fetch it again, or expect it."
                )
        yield part


def _check(source: str, entry: Source, request: Request) -> None:
    """Refuse a file for a source that reads none, and none for one that does."""
    if entry.takes_file and request.file is None:
        raise InvalidInput(f"Source {source!r} is a table of points; name it with file.")
    if not entry.takes_file and request.file is not None:
        raise InvalidInput(
            f"Source {source!r} takes no file ({request.file}); name its folder or URL with root."
        )
    others = ("root", "quarters", "workers") if entry.takes_file else OF_FILES
    for name in (name for name in others if getattr(request, name) is not None):
        raise InvalidInput(f"Source {source!r} does not read {name}; leave it out.")
    if request.better not in (None, *BETTER):
        raise InvalidInput(f"better is {' or '.join(BETTER)}; got {request.better!r}.")


def _single(table: pa.Table, about: dict[str, Any]) -> tuple[str, ...]:
    """What to do with a table that looks like single measurements, many at about one place and time."""
    if "averaged_rows" in about:
        return ()
    lon, lat = (numbers(table.column(name)) for name in ("lon", "lat"))
    tile = zorder.of_tiles(*quadkey.tile_of(lon, lat))
    when = table.column("quarter").fill_null("").dictionary_encode().combine_chunks().indices.to_numpy()
    tiles = len(np.unique(tile * (int(when.max()) + 1) + when))
    if table.num_rows < CROWDED * tiles:
        return ()
    from scipy.spatial import cKDTree

    metres = np.stack([numbers(table.column(name)) for name in ("easting_m", "northing_m")], axis=1)
    if np.median(cKDTree(metres).query(metres[:ASKED], k=[2])[0]) > ONE_PLACE_M:
        return ()
    return (
        f"{table.num_rows:,} rows lie in {tiles:,} tiles of some 600 m and quarters; if they are single tests, ingest them with "
        "--average (average=True), which makes averages of them that know their counts.",
    )


def _stand_ins(table: pa.Table) -> tuple[str, ...]:
    """Rows of one's own table whose place or value is one that programs write where they know none."""
    lon, lat, value = (numbers(table.column(name)) for name in ("lon", "lat", "value"))
    notes = []
    if nowhere := int(((lon == 0) & (lat == 0)).sum()):
        notes.append(
            f"{nowhere:,} row{'s lie' if nowhere > 1 else ' lies'} at 0, 0, which many programs write for no place; take them out "
            "if there is none."
        )
    low = float(value.min())
    others = value[value != low]
    if low in STAND_INS and len(others) and others.min() - low > np.ptp(others):
        times = len(value) - len(others)
        notes.append(
            f"{times:,} row{'s have' if times > 1 else ' has'} the value {low:g}, far below all others, which many programs write "
            "for no value; take them out if there is none."
        )
    return tuple(notes)


def _notes(metadata: dict[str, Any]) -> tuple[str, ...]:
    """What the user should hear about."""
    notes = []
    if metadata["missing_quarters"]:
        missing, there = ", ".join(metadata["missing_quarters"]), ", ".join(metadata["quarters"])
        they = "it is" if len(metadata["missing_quarters"]) == 1 else "they are"
        notes.append(f"No data for {missing}; {they} left out of the table, which has {there}.")
    if metadata["thin_quarters"]:
        thin = ", ".join(metadata["thin_quarters"])
        they = "it" if len(metadata["thin_quarters"]) == 1 else "they"
        notes.append(f"Far fewer rows than in the other quarters: {thin}; {they} may be there only in part.")
    if rounded := metadata["flagged"].get("rounded_count"):
        were = "count was no whole number and is" if rounded == 1 else "counts were no whole numbers and are"
        notes.append(f"{rounded:,} {were} rounded, to 1 at least.")
    if negative := metadata["flagged"].get("negative_count"):
        were = "count was negative and is" if negative == 1 else "counts were negative and are"
        notes.append(f"{negative:,} {were} taken as missing.")
    if again := metadata["flagged"].get("repeated_row"):
        rows = "row is an exact copy of another" if again == 1 else "rows are exact copies of others"
        notes.append(
            f"{again:,} {rows} (same place, time, value and count) and kept; where the table was joined from some that overlap, take "
            "such rows out, for they weigh twice."
        )
    return tuple(notes)

"""Speedtest by Ookla's open tiles, read in the bucket's own layout from https, S3 or a folder.

    {root}/parquet/performance/type={fixed|mobile}/year=Y/quarter=Q/Y-MM-01_performance_{type}_tiles.parquet

Only the needed columns are read (never `tile`, three quarters of a file), row group by row group, so a
published quarter of 7 million rows passes through bounded memory. The tile comes from `quadkey`; the columns
of latency under load are taken when the file's own footer lists them, because old quarters are re-published.
"""

import os
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data_pipelines import download, quadkey, quarters
from data_pipelines.errors import InvalidInput
from data_pipelines.regions import Region
from data_pipelines.sources.contract import Collected, Request

BUCKET_URL = "https://ookla-open-data.s3.amazonaws.com"
S3_REGION = "us-west-2"
TYPES = ("fixed", "mobile")
#: published name -> (our name, factor to our unit)
COLUMNS = {
    "avg_d_kbps": ("download_mbps", 1e-3),
    "avg_u_kbps": ("upload_mbps", 1e-3),
    "avg_lat_ms": ("latency_ms", 1.0),
    "tests": ("tests", 1.0),
    "devices": ("devices", 1.0),
}
OPTIONAL_COLUMNS = {"avg_lat_down_ms": ("latency_down_ms", 1.0), "avg_lat_up_ms": ("latency_up_ms", 1.0)}
#: The upper half of a float64 NaN read as an integer: how some published files spell a null latency.
NULL_LATENCY_MS = 2_146_959_360
BATCH_ROWS = 1 << 18


@dataclass(frozen=True)
class QuarterFile:
    """One published file: a path or open stream for Arrow, and what the metadata keeps of it."""

    quarter: str
    source: Any
    record: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.record["url"])


def key(type: str, quarter: str) -> str:
    """The object key of a quarter in the bucket's layout."""
    year, q = quarter[:4], int(quarter[5])
    return (
        f"parquet/performance/type={type}/year={year}/quarter={q}/"
        f"{year}-{3 * q - 2:02d}-01_performance_{type}_tiles.parquet"
    )


def collect(request: Request) -> Collected:
    """Rows of the quarters asked for whose tile intersects the region.

    A quarter missing inside a range or list is left out and listed; one row a tile and quarter is kept: of
    repeated rows that with the most tests, then the most devices, then the first.

    Raises
    ------
    InvalidInput
        No quarter found, a single named quarter missing, a file that is not Parquet or lacks a column.
    """
    if request.type not in TYPES:
        raise InvalidInput(f"Unknown type {request.type!r}; Ookla publishes {' and '.join(TYPES)}.")
    if request.region is None:
        raise InvalidInput("Ookla's files cover the world; name a region, a bounding box or a boundary file.")
    wanted = quarters.parse(request.quarters or "")
    found, missing, parts = [], [], []
    for number, quarter in enumerate(wanted):
        if request.progress:
            request.progress(number, len(wanted), f"{request.type} {quarter}")
        file = find(request.root or BUCKET_URL, request.type, quarter, request.progress)
        if file is None:
            missing.append(quarter)
            continue
        found.append(quarter)
        parts.append(read_quarter(file, request.region))
    if request.progress:
        request.progress(len(wanted), len(wanted), f"{request.type} tiles")
    if not found:
        raise InvalidInput(_none_found(request, wanted))
    names = [name for name in _NAMES if any(name in part.columns for part in parts)]
    total: dict[str, int] = {}
    for part in parts:
        for cause, count in part.dropped.items():
            total[cause] = total.get(cause, 0) + count
    merged: dict[str, NDArray[Any] | None] = {
        name: np.concatenate([part.columns.get(name, np.full(len(part.x), np.nan)) for part in parts])
        for name in names
    }
    x, y = (np.concatenate([getattr(part, axis) for part in parts]) for axis in "xy")
    merged["quadkey"] = quadkey.encode(x, y)
    merged["quarter"] = np.repeat(np.array(found, "U6"), [len(part.x) for part in parts])
    return Collected(
        columns=merged,
        quarters=found,
        missing_quarters=missing,
        rows_read=sum(part.rows_read for part in parts),
        dropped=total,
        flagged={"null_latency": sum(part.null_latency for part in parts)},
        sources=[part.record for part in parts],
        x=x,
        y=y,
    )


_NAMES = [name for name, _ in (*COLUMNS.values(), *OPTIONAL_COLUMNS.values())]


def find(
    root: str | Path, type: str, quarter: str, progress: download.Progress | None = None
) -> QuarterFile | None:
    """The file of a quarter under a root (https URL, s3://bucket[/prefix] or folder); None when absent."""
    text = str(root).rstrip("/")
    path = key(type, quarter)
    if download.is_url(text):
        try:
            fetched = download.fetch(f"{text}/{path}", progress=progress)
        except download.NotPublished:
            return None
        return QuarterFile(quarter, fetched.path, download.as_record(fetched))
    if text.startswith("s3://"):
        return _find_s3(text.removeprefix("s3://"), path, quarter)
    folder = Path(root)
    if not folder.is_dir():
        raise InvalidInput(f"The root {folder} is not a folder; give a folder, an https URL or s3://bucket.")
    local = folder / path
    if not local.is_file():
        return None
    return QuarterFile(quarter, local, download.as_record(download.resolve(local)))


def _find_s3(bucket: str, path: str, quarter: str) -> QuarterFile | None:
    """An object of an anonymous bucket, read in place: only the columns asked for travel.

    AWS_ENDPOINT_URL, when set, names another server that speaks S3.
    """
    endpoint = urllib.parse.urlsplit(os.environ.get("AWS_ENDPOINT_URL") or "https://")
    files = pyarrow.fs.S3FileSystem(
        anonymous=True, region=S3_REGION, scheme=endpoint.scheme, endpoint_override=endpoint.netloc or None
    )
    try:
        info = files.get_file_info(f"{bucket}/{path}")
        if info.type != pyarrow.fs.FileType.File:
            return None
        handle = files.open_input_file(f"{bucket}/{path}")
        with files.open_input_stream(f"{bucket}/{path}") as stream:
            tags = {name.lower(): _text(value) for name, value in stream.metadata().items()}
    except OSError as error:
        raise InvalidInput(f"s3://{bucket}/{path} cannot be read ({error}); check the connection.") from error
    record = {
        "url": f"s3://{bucket}/{path}",
        "sha256": None,
        "etag": tags.get("etag"),
        "last_modified": tags.get("last-modified") or (info.mtime.isoformat() if info.mtime else None),
    }
    return QuarterFile(quarter, handle, record)


@dataclass(frozen=True)
class QuarterRows:
    """The rows of one quarter inside a region, and the account of the others."""

    columns: dict[str, NDArray[np.float64]]
    x: NDArray[np.int64]
    y: NDArray[np.int64]
    rows_read: int
    dropped: dict[str, int]
    null_latency: int
    record: dict[str, Any]


def read_quarter(file: QuarterFile, region: Region) -> QuarterRows:
    """Rows of a quarter's file whose tile intersects the region, one a tile.

    Row groups whose quadkey statistics lie outside the region's key range are not read at all.
    """
    parquet = _open(file)
    present = set(parquet.schema_arrow.names)
    for name in ("quadkey", *COLUMNS):
        if name not in present:
            raise InvalidInput(
                f"{file.url} has no column {name} (it has {', '.join(sorted(present))}); "
                "give files as Ookla publishes them."
            )
    kind = parquet.schema_arrow.field("quadkey").type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if kind not in (pa.string(), pa.large_string(), pa.string_view()):
        raise InvalidInput(
            f"Column quadkey of {file.url} is {kind}, not text; keys lose their zeros as numbers."
        )
    wanted = COLUMNS | {name: to for name, to in OPTIONAL_COLUMNS.items() if name in present}
    kept: list[dict[str, NDArray[Any]]] = []
    undecodable = null_latency = 0
    for batch in _batches(parquet, file, ["quadkey", *wanted], region):
        x, y, valid = decode_arrow(batch.column("quadkey"))
        undecodable += int((~valid).sum())
        rows = np.flatnonzero(valid)
        rows = rows[region.holds_tiles(x[rows], y[rows])]
        if not rows.size:
            continue
        taken = batch.select(list(wanted)).take(pa.array(rows))
        out: dict[str, NDArray[Any]] = {"x": x[rows], "y": y[rows]}
        for name, (to, factor) in wanted.items():
            values = _floats(taken.column(name), name, file)
            if to.startswith("latency"):
                sentinel = values == NULL_LATENCY_MS
                null_latency += int(sentinel.sum())
                values[sentinel] = np.nan
            out[to] = values * factor if factor != 1 else values
        kept.append(out)
    names = ["x", "y", *(to for to, _ in wanted.values())]
    columns = {
        name: np.concatenate([part[name] for part in kept]) if kept else np.array([]) for name in names
    }
    inside = len(columns["x"])
    columns = {name: values[_one_a_tile(columns)] for name, values in columns.items()}
    rows_read = parquet.metadata.num_rows
    x, y = columns.pop("x").astype(np.int64), columns.pop("y").astype(np.int64)
    dropped = {
        "undecodable_quadkey": undecodable,
        "outside": rows_read - undecodable - inside,
        "duplicate": inside - len(x),
    }
    record = {**file.record, "quarter": file.quarter, "rows_read": rows_read, "rows_kept": len(x)}
    return QuarterRows(columns, x, y, rows_read, dropped, null_latency, record)


def decode_arrow(keys: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """`quadkey.decode` of an Arrow column of strings, without making a Python object a row."""
    if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)):
        keys = pc.cast(keys, pa.string())  # dictionaries, string views
    fits = pc.fill_null(pc.equal(pc.binary_length(keys), quadkey.ZOOM), False)
    keys = pc.if_else(fits, keys, pa.scalar("x" * quadkey.ZOOM, keys.type))
    binary = pa.large_binary() if pa.types.is_large_string(keys.type) else pa.binary()
    fixed = keys.cast(binary).cast(pa.binary(quadkey.ZOOM))
    flat = np.frombuffer(fixed.buffers()[1], f"S{quadkey.ZOOM}", len(fixed), fixed.offset * quadkey.ZOOM)
    return quadkey.decode(flat)


def _open(file: QuarterFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file.source, pre_buffer=not isinstance(file.source, Path), buffer_size=1 << 20)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput(
            f"{file.url} is not a readable Parquet file ({str(error).splitlines()[0]}); fetch it again."
        ) from error


def _batches(
    parquet: pq.ParquetFile, file: QuarterFile, columns: list[str], region: Region
) -> Iterator[pa.RecordBatch]:
    groups = [g for g in range(parquet.num_row_groups) if _may_hold(parquet, g, region.key_range())]
    try:
        yield from parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput(
            f"{file.url} breaks off or is damaged ({str(error).splitlines()[0]}); fetch it again."
        ) from error


def _may_hold(parquet: pq.ParquetFile, group: int, key_range: tuple[str, str] | None) -> bool:
    """False only when the row group's own statistics place all its keys outside the range."""
    if key_range is None:
        return True
    metadata = parquet.metadata.row_group(group)
    for number in range(metadata.num_columns):
        column = metadata.column(number)
        if column.path_in_schema == "quadkey":
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return True
            low, high = _text(statistics.min), _text(statistics.max)
            return low <= key_range[1] and high >= key_range[0]
    return True


def _floats(values: pa.Array, name: str, file: QuarterFile) -> NDArray[np.float64]:
    """Numbers as float64, nulls as NaN: validity is honoured, never the bytes behind a null."""
    try:
        array = pc.cast(values, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(f"Column {name} of {file.url} is {values.type}, not a number.") from error
    return np.array(array.to_numpy(zero_copy_only=False), np.float64)


def _one_a_tile(columns: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Rows to keep, in tile order: of repeated tiles that with most tests, then devices, then the first."""
    code = columns["x"].astype(np.int64) << quadkey.ZOOM | columns["y"].astype(np.int64)
    order = np.lexsort((-columns["devices"], -columns["tests"], code))
    first = np.ones(len(order), bool)
    first[1:] = code[order][1:] != code[order][:-1]
    return order[first]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _none_found(request: Request, wanted: list[str]) -> str:
    root = request.root or BUCKET_URL
    asked = wanted[0] if len(wanted) == 1 else f"{wanted[0]}..{wanted[-1]}"
    there = ""
    if not download.is_url(str(root)) and not str(root).startswith("s3://"):
        names = sorted(
            f"{path.parent.parent.name[5:]}Q{path.parent.name[8:]}"
            for path in Path(root).glob(f"parquet/performance/type={request.type}/year=*/quarter=*/*.parquet")
        )
        there = f"; it has {names[0]}..{names[-1]}" if names else "; it has no quarter of this type"
    return f"No {request.type} data for {asked} under {root}{there}."

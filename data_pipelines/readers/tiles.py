"""The published tiles of Speedtest by Ookla, quarter by quarter, one row a tile and quarter.

Only the needed columns are read (never `tile`, three quarters of a file), row group by row group, so a
published quarter of 7 million rows passes through bounded memory. The tile comes from `quadkey`; the columns
of latency under load are taken when the file's own footer lists them, because old quarters are re-published.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data_pipelines import arrow, quadkey, quarters
from data_pipelines.arrow import refusing
from data_pipelines.errors import InvalidInput
from data_pipelines.intact import check_intact
from data_pipelines.readers import mirror
from data_pipelines.readers.mirror import QuarterFile
from data_pipelines.regions import Region
from data_pipelines.sources.contract import Collected, Request

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
class QuarterRows:
    """The rows of one quarter inside a region, and the account of the others."""

    columns: dict[str, NDArray[np.float64]]
    x: NDArray[np.int64]
    y: NDArray[np.int64]
    dropped: dict[str, int]
    null_latency: int
    record: dict[str, Any]


def collect(request: Request) -> Collected:
    """Rows of the quarters asked for whose tile intersects the region.

    A quarter missing inside a range or list is left out and listed; one row a tile and quarter is kept: of
    repeated rows that with the most tests, then the most devices, then the first.

    Raises
    ------
    InvalidInput
        No quarter found, a single named quarter missing, a file that is not Parquet or lacks a column.
    """
    if request.place is None:
        raise InvalidInput("Ookla's files cover the world; name a region, a bounding box or a boundary file.")
    root, type = request.root or mirror.BUCKET_URL, request.type or ""
    wanted = quarters.parse(request.quarters or "")
    parts: dict[str, QuarterRows] = {}
    for number, quarter in enumerate(wanted):
        if request.progress:
            request.progress(number, len(wanted), f"{type} {quarter}")
        file = mirror.find(root, type, quarter, request.progress)
        if file is not None:
            parts[quarter] = read_quarter(file, request.place)
    if request.progress:
        request.progress(len(wanted), len(wanted), f"{type} tiles")
    if not parts:
        raise InvalidInput(_none_found(root, type, wanted))
    return _joined(parts, wanted)


def _joined(parts: dict[str, QuarterRows], wanted: list[str]) -> Collected:
    """The quarters found, one after the other; a column that only some have is NaN in the others."""
    rows = list(parts.values())
    names = [name for name, _ in (*COLUMNS.values(), *OPTIONAL_COLUMNS.values())]
    columns: dict[str, NDArray[Any]] = {
        name: np.concatenate([part.columns.get(name, np.full(len(part.x), np.nan)) for part in rows])
        for name in names
        if any(name in part.columns for part in rows)
    }
    columns["quarter"] = np.repeat(np.array(list(parts), "U6"), [len(part.x) for part in rows])
    dropped: Counter[str] = Counter()
    for part in rows:
        dropped.update(part.dropped)
    return Collected(
        columns=columns,
        at=(np.concatenate([part.x for part in rows]), np.concatenate([part.y for part in rows])),
        quarters=list(parts),
        missing_quarters=[quarter for quarter in wanted if quarter not in parts],
        rows_read=sum(part.record["rows_read"] for part in rows),
        dropped=dict(dropped),
        flagged={"null_latency": sum(part.null_latency for part in rows)},
        sources=[part.record for part in rows],
    )


def read_quarter(file: QuarterFile, region: Region) -> QuarterRows:
    """Rows of a quarter's file whose tile intersects the region, one a tile.

    Row groups whose quadkey statistics lie outside the region's key range are not read at all.
    """
    parquet = _open(file)
    wanted = _columns(parquet, file)
    kept: list[dict[str, NDArray[Any]]] = []
    undecodable = null_latency = 0
    for batch in _batches(parquet, file, ["quadkey", *wanted], region):
        x, y, valid = decode_arrow(batch.column("quadkey"))
        undecodable += int((~valid).sum())
        rows = np.flatnonzero(valid)
        rows = rows[region.holds_tiles(x[rows], y[rows])]
        if not rows.size:
            continue
        values, nulls = _values(batch.select(list(wanted)).take(pa.array(rows)), wanted, file)
        null_latency += nulls
        kept.append({"x": x[rows], "y": y[rows], **values})
    names = ["x", "y", *(to for to, _ in wanted.values())]
    columns = {
        name: np.concatenate([part[name] for part in kept]) if kept else np.array([]) for name in names
    }
    inside = len(columns["x"])
    first = _one_a_tile(columns)
    columns = {name: values[first] for name, values in columns.items()}
    x, y = columns.pop("x").astype(np.int64), columns.pop("y").astype(np.int64)
    rows_read = parquet.metadata.num_rows
    dropped = {
        "undecodable_quadkey": undecodable,
        "outside": rows_read - undecodable - inside,
        "duplicate": inside - len(x),
    }
    record = {**file.record, "quarter": file.quarter, "rows_read": rows_read, "rows_kept": len(x)}
    return QuarterRows(columns, x, y, dropped, null_latency, record)


def _columns(parquet: pq.ParquetFile, file: QuarterFile) -> dict[str, tuple[str, float]]:
    """The columns to read of a file that has what it must have: as `COLUMNS`."""
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
    return COLUMNS | {name: to for name, to in OPTIONAL_COLUMNS.items() if name in present}


def _values(
    batch: pa.RecordBatch, wanted: dict[str, tuple[str, float]], file: QuarterFile
) -> tuple[dict[str, NDArray[np.float64]], int]:
    """The measured columns in our names and units, and how many latencies are nulls in disguise."""
    out, disguised = {}, 0
    for name, (to, factor) in wanted.items():
        try:
            values = arrow.numbers(batch.column(name))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            kind = batch.column(name).type
            raise InvalidInput(f"Column {name} of {file.url} is {kind}, not a number.") from error
        if to.startswith("latency"):
            sentinel = values == NULL_LATENCY_MS
            disguised += int(sentinel.sum())
            values[sentinel] = np.nan
        out[to] = values * factor if factor != 1 else values
    return out, disguised


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
    with refusing(f"{file.url} is not a readable Parquet file", "; fetch it again."):
        local = isinstance(file.source, Path)
        if local:
            check_intact(file.source)
        return pq.ParquetFile(
            file.source, pre_buffer=not local, buffer_size=1 << 20, page_checksum_verification=True
        )


def _batches(
    parquet: pq.ParquetFile, file: QuarterFile, columns: list[str], region: Region
) -> Iterator[pa.RecordBatch]:
    groups = [g for g in range(parquet.num_row_groups) if _may_hold(parquet, g, region.key_range())]
    with refusing(f"{file.url} breaks off or is damaged", "; fetch it again."):
        yield from parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns)


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
            low, high = arrow.text(statistics.min), arrow.text(statistics.max)
            return low <= key_range[1] and high >= key_range[0]
    return True


def _one_a_tile(columns: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Rows to keep, in tile order: of repeated tiles that with most tests, then devices, then the first."""
    code = quadkey.pack(columns["x"], columns["y"])
    order = np.lexsort((-columns["devices"], -columns["tests"], code))
    first = np.ones(len(order), bool)
    first[1:] = code[order][1:] != code[order][:-1]
    return order[first]


def _none_found(root: str | Path, type: str, wanted: list[str]) -> str:
    asked = wanted[0] if len(wanted) == 1 else f"{wanted[0]}..{wanted[-1]}"
    names = mirror.there(root, type)
    there = f"it has {names[0]}..{names[-1]}" if names else "it has no quarter of this type"
    return f"No {type} data for {asked} under {root}{'' if names is None else f'; {there}'}."

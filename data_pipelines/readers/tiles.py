"""The published tiles of Speedtest by Ookla, quarter by quarter, one row a tile and quarter.

Only the needed columns are read (never `tile`, three quarters of a file), batch by batch, so a published quarter of
7 million rows passes through bounded memory; row groups that lie elsewhere are not read. The tile comes from `quadkey`;
the columns of latency under load are taken when a file's own footer lists them, because old quarters are re-published.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data_pipelines import arrow, quadkey, quarters, zorder
from data_pipelines.arrow import refusing
from data_pipelines.covering import Covering
from data_pipelines.errors import InvalidInput
from data_pipelines.intact import check_intact
from data_pipelines.readers import mirror
from data_pipelines.readers.copied import copied
from data_pipelines.readers.listing import published
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
#: Whether a type is one of numbers; a column of nulls has none other.
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
#: The upper half of a float64 NaN read as an integer: how some published files spell a null latency.
NULL_LATENCY_MS = 2_146_959_360
BATCH_ROWS = 1 << 18
#: A quarter, the columns to give of it, in our names, and the quarters that are said to be missing with it.
Piece: TypeAlias = tuple[str, list[str], list[str]]


@dataclass(frozen=True)
class Opened:
    """A quarter's file and what its footer says: columns to read, as `COLUMNS`, and the ends of each row group's keys."""

    file: QuarterFile
    metadata: pq.FileMetaData
    wanted: dict[str, tuple[str, float]]

    @property
    def rows(self) -> int:
        """That were published."""
        return self.file.copied.rows_read if self.file.copied else int(self.metadata.num_rows)

    @property
    def names(self) -> set[str]:
        """Its measured columns, as we call them."""
        return {to for to, _ in self.wanted.values()}

    @cached_property
    def record(self) -> dict[str, Any]:
        """What the metadata keeps of it: where it was published, its SHA-256 and its date."""
        return mirror.record(self.file)

    def groups(self, covering: Covering) -> list[int]:
        """Row groups that can hold a tile of a place."""
        return [g for g, ends in enumerate(self._ends()) if ends is None or covering.may_hold(*ends)]

    def batches(self, columns: list[str], groups: list[int] | None = None) -> Iterator[pa.RecordBatch]:
        """Columns of all row groups, or of some, in bounded memory.

        Raises
        ------
        InvalidInput
            The file breaks off or is damaged.
        """
        with refusing(f"{self.file.url} breaks off or is damaged", "; fetch it again."):
            parquet = _parquet(self.file, self.metadata)
            if groups is None or self.file.copied is None:
                yield from parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns)
                return
            for group in groups:
                batch = parquet.read_row_group(group, columns).combine_chunks().to_batches()[0]
                self.file.copied.check(group, batch.column("quadkey"))
                yield batch

    def _ends(self) -> Iterator[tuple[str, str] | None]:
        """First and last key of each row group; None where nobody says."""
        if self.file.copied:
            yield from self.file.copied.ends
            return
        at = self.metadata.schema.names.index("quadkey")
        for group in range(self.metadata.num_row_groups):
            statistics = self.metadata.row_group(group).column(at).statistics
            told = statistics is not None and statistics.has_min_max
            yield (arrow.text(statistics.min), arrow.text(statistics.max)) if told else None


def collect(request: Request) -> Iterator[Collected]:
    """Rows of the quarters asked for whose tile intersects the region, a quarter at a time.

    A quarter missing inside a range or list is left out and listed; one row a tile and quarter is kept: of
    repeated rows that with the most tests, then the most devices, then the first.

    Raises
    ------
    InvalidInput
        No quarter found, a single named quarter missing, a file that is not Parquet or lacks a column.
    """
    place = place_asked(request)
    files = {one.file.quarter: one for one in found(request)}

    def read(pieces: list[Piece]) -> Iterator[Collected]:
        return (read_quarter(files[quarter], place, *rest) for quarter, *rest in pieces)

    return parts({quarter: one.names for quarter, one in files.items()}, request, read)


def place_asked(request: Request) -> Region:
    """The place of a request.

    Raises
    ------
    InvalidInput
        It has none.
    """
    if request.place is None:
        raise InvalidInput("Ookla's files cover the world; name a region, a bounding box or a boundary file.")
    return request.place


def found(request: Request) -> Iterator[Opened]:
    """The files of the quarters asked for, in order, fetched where they must be.

    Raises
    ------
    InvalidInput
        As for `collect`.
    """
    root, type = request.root or mirror.BUCKET_URL, request.type or ""
    wanted = quarters.parse(request.quarters or "")
    there = 0
    for quarter in wanted:
        file = mirror.find(root, type, quarter, request.progress)
        if file is not None:
            there += 1
            yield opened(file)
    if not there:
        raise none_found(root, type, wanted)


def parts(
    there: dict[str, set[str]], request: Request, read: Callable[[list[Piece]], Iterator[Collected]]
) -> Iterator[Collected]:
    """The rows of each quarter that is there; a column that only some have is NaN in the others.

    Parameters
    ----------
    there : the measured columns of each quarter, in our names
    read : the rows of each of some pieces, in their order
    """
    some = set[str]().union(*there.values())
    names = [name for name, _ in (*COLUMNS.values(), *OPTIONAL_COLUMNS.values()) if name in some]
    missing = [quarter for quarter in quarters.parse(request.quarters or "") if quarter not in there]
    pieces = [(quarter, names, missing if number == 0 else []) for number, quarter in enumerate(there)]
    rows = read(pieces)
    for number, quarter in enumerate(there):
        if request.progress:
            request.progress(number, len(there), f"{request.type} {quarter}")
        yield next(rows)
    if request.progress:
        request.progress(len(there), len(there), f"{request.type} tiles")


def read_quarter(one: Opened, region: Region, names: Iterable[str], missing: Iterable[str] = ()) -> Collected:
    """Rows of a quarter's file whose tile intersects the region, one a tile."""
    kept: list[dict[str, NDArray[Any]]] = []
    undecodable, null_latency = one.file.copied.undecodable if one.file.copied else 0, 0
    for batch in one.batches(["quadkey", *one.wanted], one.groups(region.covering)):
        codes, valid = decode(batch.column("quadkey"))
        undecodable += int((~valid).sum())
        rows = np.flatnonzero(valid & region.covering.near(codes))
        x, y = zorder.tiles(codes[rows])
        rows = rows[region.holds_tiles(x, y)]
        if not rows.size:
            continue
        values, nulls = _values(batch.select(list(one.wanted)).take(pa.array(rows)), one.wanted)
        null_latency += nulls
        kept.append({"code": codes[rows], **values})
    columns = {
        name: np.concatenate([part[name] for part in kept]) if kept else np.array([])
        for name in ("code", *(to for to, _ in one.wanted.values()))
    }
    inside = len(columns["code"])
    first = _one_a_tile(columns)
    columns = {name: values[first] for name, values in columns.items()}
    codes = columns.pop("code").astype(np.int64)
    record = {**one.record, "quarter": one.file.quarter, "rows_read": one.rows, "rows_kept": len(codes)}
    return Collected(
        columns={name: columns.get(name, np.full(len(codes), np.nan)) for name in names}
        | {"quarter": np.full(len(codes), one.file.quarter)},
        at=zorder.tiles(codes),
        quarters=[one.file.quarter],
        missing_quarters=list(missing),
        rows_read=one.rows,
        dropped={
            "undecodable_quadkey": undecodable,
            "outside": one.rows - undecodable - inside,
            "duplicate": inside - len(codes),
        },
        flagged={"null_latency": null_latency},
        sources=[record],
    )


def opened(file: QuarterFile) -> Opened:
    """A quarter's file that is whole and has the columns it must have."""
    with refusing(f"{file.url} is not a readable Parquet file", "; fetch it again."):
        if isinstance(file.source, Path):
            check_intact(file.source)
        parquet = _parquet(file)
    present = set(parquet.schema_arrow.names)
    for name in ("quadkey", *COLUMNS):
        if name not in present:
            raise InvalidInput(
                f"{file.url} has no column {name} (it has {', '.join(sorted(present))}); "
                "give files as Ookla publishes them."
            )
    kind = _kind(parquet, "quadkey")
    if kind not in (pa.string(), pa.large_string(), pa.string_view()):
        raise InvalidInput(
            f"Column quadkey of {file.url} is {kind}, not text; keys lose their zeros as numbers."
        )
    wanted = COLUMNS | {name: to for name, to in OPTIONAL_COLUMNS.items() if name in present}
    for name in wanted:
        if not any(is_one(kind := _kind(parquet, name)) for is_one in _NUMBERS):
            raise InvalidInput(f"Column {name} of {file.url} is {kind}, not a number.")
    told = copied(parquet.schema_arrow.metadata, file.url)
    if told and len(told.sizes) != parquet.num_row_groups:
        raise InvalidInput(f"{file.url} is damaged (it lacks a row group); sort it again.")
    return Opened(replace(file, copied=told), parquet.metadata, wanted)


def _kind(parquet: pq.ParquetFile, name: str) -> pa.DataType:
    """The type of a column's values."""
    kind = parquet.schema_arrow.field(name).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _values(
    batch: pa.RecordBatch, wanted: dict[str, tuple[str, float]]
) -> tuple[dict[str, NDArray[np.float64]], int]:
    """The measured columns in our names and units, and how many latencies are nulls in disguise."""
    out, disguised = {}, 0
    for name, (to, factor) in wanted.items():
        values = arrow.numbers(batch.column(name))
        if to.startswith("latency"):
            sentinel = values == NULL_LATENCY_MS
            disguised += int(sentinel.sum())
            values[sentinel] = np.nan
        out[to] = values * factor if factor != 1 else values
    return out, disguised


def decode(keys: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """`zorder.of_keys` of an Arrow column of strings, without making a Python object a row."""
    if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)):
        keys = pc.cast(keys, pa.string())  # dictionaries, string views
    fits = pc.fill_null(pc.equal(pc.binary_length(keys), quadkey.ZOOM), False)
    if not pc.all(fits).as_py():
        keys = pc.if_else(fits, keys, pa.scalar("x" * quadkey.ZOOM, keys.type))
    binary = pa.large_binary() if pa.types.is_large_string(keys.type) else pa.binary()
    fixed = keys.cast(binary).cast(pa.binary(quadkey.ZOOM))
    flat = np.frombuffer(fixed.buffers()[1], f"S{quadkey.ZOOM}", len(fixed), fixed.offset * quadkey.ZOOM)
    return zorder.of_keys(flat)


def _parquet(file: QuarterFile, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    return pq.ParquetFile(
        file.source,
        metadata=metadata,
        pre_buffer=not isinstance(file.source, Path),
        buffer_size=1 << 20,
        page_checksum_verification=True,
    )


def _one_a_tile(columns: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Rows to keep, in the order of their keys: of repeated tiles that with most tests, then devices, then the first."""
    code = columns["code"]
    order = np.lexsort((-columns["devices"], -columns["tests"], code))
    first = np.ones(len(order), bool)
    first[1:] = code[order][1:] != code[order][:-1]
    return order[first]


def none_found(root: str | Path, type: str, wanted: list[str]) -> InvalidInput:
    """The refusal of quarters of which a root has none."""
    asked = wanted[0] if len(wanted) == 1 else f"{wanted[0]}..{wanted[-1]}"
    names = None if mirror.remote(root) else [one.quarter for one in published(root) if one.type == type]
    there = f"it has {names[0]}..{names[-1]}" if names else "it has no quarter of this type"
    return InvalidInput(f"No {type} data for {asked} under {root}{'' if names is None else f'; {there}'}.")

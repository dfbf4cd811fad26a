"""A copy of published quarters, sorted by quadkey, from which any place is read in a moment: a root like any other."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data_pipelines import geoparquet, quadkey, quarters, zorder
from data_pipelines.arrow import refusing
from data_pipelines.atomic import atomic_path, refuse_existing
from data_pipelines.errors import InvalidInput
from data_pipelines.readers import mirror, tiles
from data_pipelines.readers.copied import KEY, Copied
from data_pipelines.readers.elsewhere import Where
from data_pipelines.sources.contract import Request

Codes = NDArray[np.uint32]
_NONE = np.zeros(0, np.uint32)

#: Rows of a row group: a state of average size meets a few.
ROW_GROUP_ROWS = 1 << 15
#: About, on disk.
BYTES_A_ROW = 40


@dataclass(frozen=True)
class Sorted:
    """A quarter's copy: its file, rows and bytes; whether it was there already."""

    quarter: str
    path: Path
    rows: int
    bytes: int
    kept: bool
    seconds: float

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            "quarter": self.quarter, "path": str(self.path), "rows": self.rows, "bytes": self.bytes, "kept": self.kept,
            "seconds": round(self.seconds, 2),
        }  # fmt: skip


def sort_into(folder: Path, request: Request, *, overwrite: bool = False) -> Iterator[Sorted]:
    """Copies of the quarters asked for, each in place before the next is begun; what is up to date is left as it is.

    A kill costs the quarter that was being sorted. A file in the folder that is no copy is replaced only when `overwrite`
    says so.

    Raises
    ------
    InvalidInput
        As for `tiles.found`; also a folder that is the root itself.

    Notes
    -----
    Memory: some 100 bytes a row of one quarter, which is sorted whole: 700 MB of 7 million.
    """
    if not mirror.remote(request.root) and folder.resolve() == Path(request.root or "").resolve():
        raise InvalidInput(f"{folder} is the root itself; name another folder for the sorted copies.")
    if request.workers is None:
        yield from (_sorted(one, folder, request.type or "", overwrite) for one in tiles.found(request))
        return
    where, there = Where.of(request), folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    wanted, made = quarters.parse(request.quarters or ""), False
    pieces = ((where, quarter, there, overwrite) for quarter in wanted)
    for one in request.workers.in_order(_sorted_there, pieces):
        if one is not None:
            made = True
            yield replace(one, path=folder / one.path.relative_to(there))
    if not made:
        raise tiles.none_found(where.called, where.type, wanted)


def _sorted(one: tiles.Opened, folder: Path, type: str, overwrite: bool) -> Sorted:
    """The copy of a quarter, made unless it is up to date."""
    started = time.perf_counter()
    target = folder / mirror.key(type, one.file.quarter)
    if one.file.copied:
        raise InvalidInput(f"{one.file.url} is sorted already; use its root as it is.")
    target.parent.mkdir(parents=True, exist_ok=True)
    there = _there(target)
    kept = there is not None and there.origin == one.record
    if not kept:
        refuse_existing(target, overwrite or there is not None)
        there = _sort(one, target)
    assert there
    seconds = time.perf_counter() - started
    return Sorted(one.file.quarter, target, sum(there.sizes), target.stat().st_size, kept, seconds)


def _sorted_there(where: Where, quarter: str, folder: Path, overwrite: bool) -> Sorted | None:
    """In a worker: the copy of a quarter, None where there is none to copy."""
    if not folder.is_dir():
        raise InvalidInput(
            f"A worker does not see the folder {folder}; put it where all machines see it under this name."
        )
    one = where.opened(quarter)
    return None if one is None else _sorted(one, folder, where.type, overwrite)


def _there(path: Path) -> Copied | None:
    """The account of a copy that is in place; None where there is none, or another file, or a damaged one."""
    if not path.is_file():
        return None
    try:
        return tiles.opened(mirror.QuarterFile("", path, {"url": str(path)})).file.copied
    except InvalidInput:
        return None


def _sort(one: tiles.Opened, target: Path) -> Copied:
    """One quarter, column by column."""
    with refusing(f"{one.file.url} breaks off or is damaged", "; fetch it again."):
        codes, order = _order(one)
        columns = {name: _column(one, name, order) for name in one.wanted}
    if not len(codes):
        raise InvalidInput(f"{one.file.url} has no row with a quadkey; fetch it again.")
    starts = range(0, len(codes), ROW_GROUP_ROWS)
    ends = [codes[[at, min(at + ROW_GROUP_ROWS, len(codes)) - 1]] for at in starts]
    account = Copied(
        one.record,
        one.rows,
        one.rows - len(codes),
        tuple((a.decode(), b.decode()) for a, b in (zorder.keys(pair).tolist() for pair in ends)),
        tuple(min(ROW_GROUP_ROWS, len(codes) - at) for at in starts),
    )
    schema = _part(codes[:1], {name: column[:1] for name, column in columns.items()}).schema.with_metadata(
        {KEY: account.metadata(), b"geo": json.dumps(geoparquet.geo(*_extent(codes)))}
    )
    small = [*columns, *(f"bbox.{edge}" for edge in ("xmin", "ymin", "xmax", "ymax"))]
    with atomic_path(target, overwrite=True, needed=BYTES_A_ROW * len(codes)) as temporary:
        with pq.ParquetWriter(
            temporary, schema, compression="zstd", write_page_checksum=True, use_dictionary=small,
            column_encoding={"quadkey": "DELTA_BYTE_ARRAY"},
        ) as writer:  # fmt: skip
            for at in starts:
                some = slice(at, at + ROW_GROUP_ROWS)
                writer.write_table(
                    _part(codes[some], {name: column[some] for name, column in columns.items()})
                )
        if (again := _there(temporary)) != account:
            raise OSError(f"{target} was written as {again} instead of {account}")
    return account


def _order(one: tiles.Opened) -> tuple[Codes, Codes]:
    """Codes of the rows that have one, sorted, and which rows they are; of equal ones in the order they were published."""
    some: list[Codes] = []
    rows: list[Codes] = []
    at = 0
    for batch in one.batches(["quadkey"]):
        codes, valid = tiles.decode(batch.column("quadkey"))
        here = np.flatnonzero(valid)
        some.append(codes[here].astype(np.uint32))
        rows.append((here + at).astype(np.uint32))
        at += len(batch)
    code, row = np.concatenate([_NONE, *some]), np.concatenate([_NONE, *rows])
    order = np.argsort(code, kind="stable")
    return code[order], row[order]


def _column(one: tiles.Opened, name: str, order: Codes) -> pa.Array:
    """A published column in the order of the keys; integers in four bytes where all fit."""
    column = pa.chunked_array([batch.column(0) for batch in one.batches([name])])
    if pa.types.is_integer(column.type):
        with suppress(pa.ArrowInvalid):
            column = column.cast(pa.int32())
    return column.combine_chunks().take(pa.array(order))


def _part(codes: Codes, columns: dict[str, pa.Array]) -> pa.Table:
    """Rows as they stand in the file."""
    tile = zorder.tiles(codes)
    keys = pa.array(zorder.keys(codes)).cast(pa.string())
    return geoparquet.with_shapes(pa.table({"quadkey": keys, **columns}), *quadkey.centre(*tile))


def _extent(codes: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least and largest longitude and latitude of tiles' centres."""
    x, y = zorder.tiles(codes)
    return quadkey.centre(np.array([x.min(), x.max()]), np.array([y.max(), y.min()]))

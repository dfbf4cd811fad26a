"""Reading and writing the observations file: GeoParquet 1.1 with our metadata beside the standard key."""

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
from numpy.typing import NDArray

from data_pipelines.arrow import refusing, strings
from data_pipelines.atomic import atomic_path
from data_pipelines.errors import InvalidInput, check_file
from data_pipelines.intact import check_intact
from data_pipelines.schema import SCHEMA_VERSION

ROW_GROUP_ROWS = 1 << 16
KEY = b"geogp"
#: In the metadata: what columns there are, and a digest of all that the metadata say. Pages have checksums, a footer has none.
NAMES, SEAL = "columns", "seal"
#: Columns that `write_parts` adds.
SHAPES = ("geometry", "bbox")


def write_parts(
    parts: Iterable[pa.Table],
    metadata: Callable[[], dict[str, Any]],
    output: Path,
    *,
    overwrite: bool,
    needed: int | None = None,
) -> None:
    """Write tables with lon and lat as one GeoParquet: whole or not at all, read back before it gets its name.

    Adds `geometry` (WKB points, EPSG:4326) and `bbox` (the covering that lets readers skip row groups). Each
    quarter starts a row group, none longer than 65,536 rows; in a quarter rows follow the quadkey, so groups
    are compact on the ground. One part is held in memory at a time.

    Parameters
    ----------
    parts : at least one, all of the same schema
    metadata : the document, asked for when all parts are written
    needed : bytes the file takes, about
    """
    rows, box, writer = 0, [np.full(2, np.inf), np.full(2, -np.inf)], None
    with atomic_path(output, overwrite=overwrite, needed=needed) as temporary:
        with ExitStack() as stack:
            for part in parts:
                at = lon, lat = [part.column(name).to_numpy() for name in ("lon", "lat")]
                if len(lon):
                    box = [np.minimum(box[0], np.min(at, axis=1)), np.maximum(box[1], np.max(at, axis=1))]
                table = with_shapes(part.replace_schema_metadata(None), lon, lat)
                rows += len(lon)
                if writer is None:
                    options = {"compression": "zstd", "write_page_checksum": True, "store_schema": False}
                    writer = stack.enter_context(pq.ParquetWriter(temporary, table.schema, **options))
                for start, stop in _groups(table.column("quarter")) if len(lon) else ():
                    writer.write_table(table.slice(start, stop - start), row_group_size=ROW_GROUP_ROWS)
            assert writer is not None, "a table has a part"
            sealed = metadata() | {NAMES: table.column_names}
            sealed |= {SEAL: _seal(sealed)}
            told: dict[bytes, str | bytes] = {
                KEY: json.dumps(sealed),
                b"geo": json.dumps(geo(*np.transpose(box))),
            }
            schema = table.schema.with_metadata(told)
            # what Arrow would have written at the start, had it known
            told[b"ARROW:schema"] = base64.b64encode(schema.serialize())
            writer.add_key_value_metadata(told)
        again = _read_back(temporary)
        if again != rows:
            raise OSError(f"{output} was written with {again} rows instead of {rows}")


def with_shapes(table: pa.Table, lon: NDArray[np.float64], lat: NDArray[np.float64]) -> pa.Table:
    """The table with its points as `geometry` and their boxes as `bbox`."""
    box = pa.StructArray.from_arrays(
        [pa.array(v) for v in (lon, lat, lon, lat)], names=["xmin", "ymin", "xmax", "ymax"]
    )
    return table.append_column(SHAPES[0], _points_wkb(lon, lat)).append_column(SHAPES[1], box)


def read(
    path: str | Path, columns: list[str] | None = None, *, shapes: bool = True
) -> tuple[pa.Table, dict[str, Any]]:
    """The observations of a file and its metadata document.

    Parameters
    ----------
    path : a file made by ingest
    columns : those to read; None is all of them
    shapes : whether these are with the points and their boxes, a third of the memory, which lon and lat say, too

    Raises
    ------
    InvalidInput
        The file is missing, is not Parquet, or was not made by ingest.
    """
    path = Path(path)
    file = _opened(path)
    with refusing(f"{path} is not a readable Parquet file", "; make it with `geogp ingest`."):
        if columns is None and not shapes:
            columns = [name for name in file.schema_arrow.names if name not in SHAPES]
        table = file.read(columns)
    return table, _document(file, path)


def read_groups(
    path: str | Path,
) -> tuple[list[int], Callable[[int, Collection[str] | None], pa.Table], dict[str, Any]]:
    """How many rows each row group of a file has, a reader of one of them (of all columns but the shapes, or of
    those named that are there), and the metadata document.

    Raises
    ------
    InvalidInput
        As for `read`; the reader, too.
    """
    path = Path(path)
    with _opened(path) as file:
        sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
        document = _document(file, path)
        names = [name for name in file.schema_arrow.names if name not in SHAPES]

    def of(group: int, columns: Collection[str] | None = None) -> pa.Table:
        # Opened anew: a reader keeps what it has read of every group.
        with (
            refusing(f"{path} is not a readable Parquet file", "; make it with `geogp ingest`."),
            pq.ParquetFile(path, page_checksum_verification=True) as file,
        ):
            return file.read_row_group(group, columns=[n for n in names if columns is None or n in columns])

    return sizes, of, document


def _read_back(path: Path) -> int:
    """Rows that can be read, a row group at a time."""
    with _opened(path) as file:
        _document(file, path)
        groups = file.num_row_groups
    rows = 0
    for group in range(groups):  # opened anew: a reader keeps what it has read
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            rows += file.read_row_group(group).num_rows
    return rows


def _opened(path: Path) -> pq.ParquetFile:
    check_file(path, "observations file")
    with refusing(f"{path} is not a readable Parquet file", "; make it with `geogp ingest`."):
        check_intact(path)
        return pq.ParquetFile(path, page_checksum_verification=True)


def _document(file: pq.ParquetFile, path: Path) -> dict[str, Any]:
    """The metadata document of a file."""
    document = (file.schema_arrow.metadata or {}).get(KEY)
    if document is None:
        raise InvalidInput(
            f"{path} is not an observations table of GeoGP; make one from it with `geogp ingest`."
        )
    with refusing(f"The metadata of {path} cannot be read", "; make it again with `geogp ingest`."):
        metadata = json.loads(document)
        _check(metadata, path)
        seal = metadata.pop(SEAL, None)  # absent before there was one
        whole = seal is None or (seal == _seal(metadata) and not _renamed(metadata, file.schema_arrow.names))
    if not whole:
        raise InvalidInput(
            f"{path} is damaged (its metadata or the name of a column are not what was written); make it again with "
            "`geogp ingest`."
        )
    return {key: value for key, value in metadata.items() if key != NAMES}


def _seal(metadata: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()


def _renamed(metadata: dict[str, Any], names: Collection[str]) -> bool:
    """Whether a column is there under a name that is one letter off: others may add and drop columns."""
    written = metadata.get(NAMES, [])
    new = [name for name in names if name not in written]
    gone = [name for name in written if name not in names]
    return any(len(a) == len(b) and sum(x != y for x, y in zip(a, b)) == 1 for a in new for b in gone)


def _check(metadata: Any, path: Path) -> None:
    """Refuse what no ingest of this version, or of an earlier one, has written."""
    if not isinstance(metadata, dict):
        raise InvalidInput(f"The metadata of {path} are no JSON object; make it again with `geogp ingest`.")
    version = metadata.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidInput(
            f"{path} has schema version {version!r}, and there are 1 to {SCHEMA_VERSION}; make it again with "
            "`geogp ingest`."
        )
    if version > SCHEMA_VERSION:
        raise InvalidInput(
            f"{path} has schema version {version}, newer than {SCHEMA_VERSION}; read it with the GeoGP that wrote it."
        )
    if metadata.get("crs") is not None:
        pyproj.CRS.from_user_input(metadata["crs"])
    for name, kind in (("sources", list), ("quarters", list), ("boundary", dict), ("region", str)):
        if metadata.get(name) is not None and not isinstance(metadata[name], kind):
            raise InvalidInput(
                f"The metadata of {path} have a {name} that is none; make it again with `geogp ingest`."
            )


def geo(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> dict[str, Any]:
    """What GeoParquet 1.1 wants to know of the geometry column."""
    return {
        "version": "1.1.0",
        "primary_column": "geometry",
        "columns": {
            "geometry": {
                "encoding": "WKB",
                "geometry_types": ["Point"],
                "crs": pyproj.CRS.from_epsg(4326).to_json_dict(),
                "bbox": [float(lon.min()), float(lat.min()), float(lon.max()), float(lat.max())],
                "covering": {"bbox": {edge: ["bbox", edge] for edge in ("xmin", "ymin", "xmax", "ymax")}},
            }
        },
    }


def _points_wkb(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> pa.Array:
    """Little-endian WKB points: byte order 1, type 1, x, y; 21 bytes each."""
    record = np.dtype([("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])
    points = np.empty(len(lon), record)
    points["order"], points["type"], points["x"], points["y"] = 1, 1, lon, lat
    offsets = np.arange(len(lon) + 1, dtype=np.int32) * record.itemsize
    return pa.Array.from_buffers(
        pa.binary(), len(lon), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(points.tobytes())]
    )


def _groups(quarter: pa.ChunkedArray) -> list[tuple[int, int]]:
    """Start and end of each run of equal quarters."""
    names = strings(quarter)
    starts = np.concatenate([[0], np.flatnonzero(names[1:] != names[:-1]) + 1, [len(names)]])
    return [(int(a), int(b)) for a, b in pairwise(starts)]

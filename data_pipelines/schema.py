"""The observation columns: name, type, unit, null rule. What every reader of `obs.parquet` can rely on."""

from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 1

#: The column of the table that holds each target.
TARGETS = {
    "download": "download_mbps",
    "upload": "upload_mbps",
    "latency": "latency_ms",
    "tests": "tests",
    "value": "value",
}


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, unit (None for names and labels), when it is null, what it holds."""

    name: str
    type: pa.DataType
    unit: str | None
    null: str
    meaning: str


_PLACE = (
    Column("lon", pa.float64(), "degree", "never", "longitude of the tile centre or point, WGS84"),
    Column("lat", pa.float64(), "degree", "never", "latitude of the tile centre or point, WGS84"),
    Column("easting_m", pa.float64(), "m", "never", "x in the file's local metric CRS"),
    Column("northing_m", pa.float64(), "m", "never", "y in the file's local metric CRS"),
)
_LABELS = (
    Column("urban", pa.bool_(), None, "without an urban-area file", "centre lies in a Census urban area"),
    Column("urban_vintage", pa.string(), None, "without an urban-area file", "criteria: 2010 or 2020"),
    Column("urban_share", pa.float64(), "1", "without an urban-area file", "urban share of the tile's area"),
    Column("region", pa.string(), None, "when no region was named", "state code or boundary file's name"),
)
_KEY = (
    Column("quadkey", pa.string(), None, "for places that are not tiles", "zoom-16 tile"),
    Column("quarter", pa.string(), None, "without times", "calendar quarter, as 2023Q4"),
)
_COUNTS = (
    Column("tests", pa.int64(), "1", "as published", "measurements behind the averages"),
    Column("devices", pa.int64(), "1", "as published", "devices that made them"),
)

TILE_COLUMNS = (
    *_KEY,
    *_PLACE,
    Column("download_mbps", pa.float64(), "Mbit/s", "as published", "mean download speed"),
    Column("upload_mbps", pa.float64(), "Mbit/s", "as published", "mean upload speed"),
    Column("latency_ms", pa.float64(), "ms", "as published", "mean idle latency"),
    *_COUNTS,
    *_LABELS,
)
#: Present when at least one source file has them (Ookla: from 2022Q4, older files when re-published).
OPTIONAL_TILE_COLUMNS = (
    Column("latency_down_ms", pa.float64(), "ms", "as published", "mean latency while downloading"),
    Column("latency_up_ms", pa.float64(), "ms", "as published", "mean latency while uploading"),
)
POINT_COLUMNS = (
    *_KEY,
    *_PLACE,
    Column("value", pa.float64(), "value_unit in the metadata", "as given", "the measured value"),
    *_COUNTS,
    *_LABELS,
    Column("time_years", pa.float64(), "year", "without times", "time of the measurement in decimal years"),
)
#: The last two columns of every file: the point as WKB and its box (GeoParquet 1.1 covering).
GEOMETRY_COLUMNS = ("geometry", "bbox")


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Arrow schema of the columns, each field carrying its unit and meaning."""
    return pa.schema(
        [
            pa.field(c.name, c.type, metadata={"unit": c.unit or "", "long_name": c.meaning, "null": c.null})
            for c in columns
        ]
    )

"""The observation columns: name, type, unit, null rule. What every reader of `obs.parquet` can rely on.

The file's last two columns, `geometry` and `bbox`, are added by `geoparquet.write_parts`.
"""

import math
from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 1
FLOAT = pa.float64()


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, unit (None for names and labels), when it is null, what it holds.

    measures : what it measures, in a word; None for what is not measured
    positive : whether a value of 0 or below is odd
    absurd : beyond this a published value is odd, and kept
    """

    name: str
    type: pa.DataType
    unit: str | None
    null: str
    meaning: str
    measures: str | None = None
    positive: bool = False
    absurd: float = math.inf


def _measured(
    name: str, unit: str, meaning: str, measures: str, type: pa.DataType = FLOAT, absurd: float = math.inf
) -> Column:
    """A measured quantity that is above 0 unless something is odd."""
    return Column(name, type, unit, "as published", meaning, measures, positive=True, absurd=absurd)


_PLACE = (
    Column("lon", FLOAT, "degree", "never", "longitude of the tile centre or point, WGS84"),
    Column("lat", FLOAT, "degree", "never", "latitude of the tile centre or point, WGS84"),
    Column("easting_m", FLOAT, "m", "never", "x in the file's local metric CRS"),
    Column("northing_m", FLOAT, "m", "never", "y in the file's local metric CRS"),
)
_LABELS = (
    Column("urban", pa.bool_(), None, "without an urban-area file", "centre lies in a Census urban area"),
    Column("urban_vintage", pa.string(), None, "without an urban-area file", "criteria: 2010 or 2020"),
    Column("urban_share", FLOAT, "1", "without an urban-area file", "urban share of the tile's area"),
    Column("region", pa.string(), None, "when no region was named", "state code or boundary file's name"),
)
_KEY = (
    Column("quadkey", pa.string(), None, "for places that are not tiles", "zoom-16 tile"),
    Column("quarter", pa.string(), None, "without times", "calendar quarter, as 2023Q4"),
)
#: How many measurements, of how many devices, stand behind a row.
COUNTS = (
    _measured("tests", "1", "measurements behind the averages", "tests", pa.int64()),
    Column("devices", pa.int64(), "1", "as published", "devices that made them"),
)

TILE_COLUMNS: tuple[Column, ...] = (
    *_KEY,
    *_PLACE,
    _measured("download_mbps", "Mbit/s", "mean download speed", "download", absurd=10_000.0),
    _measured("upload_mbps", "Mbit/s", "mean upload speed", "upload", absurd=10_000.0),
    _measured("latency_ms", "ms", "mean idle latency", "latency", absurd=60_000.0),
    *COUNTS,
    *_LABELS,
)
#: Present when at least one source file has them (Ookla: from 2022Q4, older files when re-published).
OPTIONAL_TILE_COLUMNS = (
    Column("latency_down_ms", FLOAT, "ms", "as published", "mean latency while downloading"),
    Column("latency_up_ms", FLOAT, "ms", "as published", "mean latency while uploading"),
)
POINT_COLUMNS: tuple[Column, ...] = (
    *_KEY,
    *_PLACE,
    Column("value", FLOAT, "value_unit in the metadata", "as given", "the measured value", measures="value"),
    *COUNTS,
    *_LABELS,
    Column("time_years", FLOAT, "year", "without times", "time of the measurement in decimal years"),
)


def covariate(name: str) -> Column:
    """A column of the user's file that a fit may learn by."""
    return Column(name, FLOAT, "as given", "as given", "a covariate")


#: What can be mapped: every column that measures something.
MEASURED = tuple(dict.fromkeys(c for c in (*TILE_COLUMNS, *POINT_COLUMNS) if c.measures))


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Arrow schema of the columns, each field carrying its unit and meaning."""
    return pa.schema(
        [
            pa.field(c.name, c.type, metadata={"unit": c.unit or "", "long_name": c.meaning, "null": c.null})
            for c in columns
        ]
    )

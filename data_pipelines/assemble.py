"""From collected rows to the table and its metadata document: place, label, sort, account."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyproj
import shapely
from numpy.typing import NDArray

from data_pipelines import quadkey
from data_pipelines.download import as_record
from data_pipelines.errors import InvalidInput
from data_pipelines.regions import Region
from data_pipelines.schema import (
    OPTIONAL_TILE_COLUMNS,
    POINT_COLUMNS,
    SCHEMA_VERSION,
    TARGETS,
    TILE_COLUMNS,
    Column,
    arrow_schema,
)
from data_pipelines.sources.contract import Collected

#: A quarter is thin below this share of the median quarter's rows, judged among at least so many.
THIN_SHARE, THIN_AMONG = 0.3, 4
#: Beyond these a published value is counted as absurd, and kept.
ABSURD = {"download_mbps": 10_000.0, "upload_mbps": 10_000.0, "latency_ms": 60_000.0}


def assemble(
    collected: Collected,
    place: Region | None,
    place_record: dict[str, Any] | None,
    urban: str | Path | None,
    about: dict[str, Any],
) -> tuple[pa.Table, dict[str, Any]]:
    """The table of `schema`, sorted by quarter and quadkey, and the document that goes with it.

    Parameters
    ----------
    collected : rows of a source
    place, place_record : region they lie in and the file that drew it; None for a table without a place,
        which gets a metric CRS about its own points
    urban : urban-area file or None
    about : first entries of the document (source, type)

    Raises
    ------
    InvalidInput
        No row is left.
    """
    tiles = collected.x is not None and collected.y is not None
    if tiles:
        lon, lat = quadkey.centre(collected.x, collected.y)  # type: ignore[arg-type]
    else:
        lon, lat = np.asarray(collected.lon), np.asarray(collected.lat)
    if not len(lon):
        where = f"in {place}" if place else "usable"
        raise InvalidInput(
            f"None of the {collected.rows_read:,} rows read is {where} (dropped: {causes(collected.dropped)}); "
            "check the place and the source."
        )
    around = place or Region.from_polygon("", _around(lon, lat))
    columns: dict[str, Any] = dict(collected.columns)
    columns["lon"], columns["lat"] = lon, lat
    to_metres = pyproj.Transformer.from_crs(4326, around.crs, always_xy=True)
    columns["easting_m"], columns["northing_m"] = to_metres.transform(lon, lat)
    columns["region"] = np.full(len(lon), place.name) if place else None
    urban_about = _label(columns, collected, around, urban) if urban is not None else None

    chosen: tuple[Column, ...] = TILE_COLUMNS if tiles else POINT_COLUMNS
    if tiles:
        chosen += tuple(c for c in OPTIONAL_TILE_COLUMNS if c.name in columns)
    schema = arrow_schema(chosen)
    order = _order(columns)
    table = pa.table([_arrow(columns.get(f.name), f.type, len(lon), order) for f in schema], schema=schema)

    flagged = {**collected.flagged, **_flags(table)}
    metadata = {
        "schema_version": SCHEMA_VERSION,
        **about,
        "region": place.name if place else None,
        "crs": around.crs.to_wkt("WKT2_2019"),
        "boundary": place.boundary() if place else None,
        "bbox": list(place.bbox) if place and place.bbox else None,
        "boundary_source": place_record,
        "quarters": collected.quarters,
        "missing_quarters": collected.missing_quarters,
        "thin_quarters": _thin(collected.sources),
        "rows_read": collected.rows_read,
        "rows_kept": table.num_rows,
        "dropped": collected.dropped,
        "flagged": {cause: n for cause, n in flagged.items() if n},
        "urban": urban_about,
        "sources": collected.sources,
        "targets": [name for name, column in TARGETS.items() if column in table.column_names]
        if tiles
        else ["value"],
    }
    return table, metadata


def _label(columns: dict[str, Any], collected: Collected, place: Region, urban: str | Path) -> dict[str, Any]:
    """Add urban, urban_vintage and urban_share; each distinct place is looked up once."""
    from data_pipelines.sources.census import UrbanAreas

    areas = UrbanAreas.read(urban, place)
    lon, lat = columns["lon"], columns["lat"]
    if collected.x is not None and collected.y is not None:
        code = collected.x << quadkey.ZOOM | collected.y
        unique, inverse = np.unique(code, return_inverse=True)
        x, y = unique >> quadkey.ZOOM, unique & ((1 << quadkey.ZOOM) - 1)
        inside = areas.hold(*quadkey.centre(x, y))[inverse]
        share = areas.share(place.tile_boxes(x, y))[inverse]
    else:
        inside = areas.hold(lon, lat)
        share = None
    columns["urban"] = inside
    columns["urban_vintage"] = np.full(len(lon), areas.vintage)
    columns["urban_share"] = share
    record = as_record(areas.source)
    return {
        "source": record["url"],
        "sha256": record["sha256"],
        "vintage": areas.vintage,
        "share_of_rows": float(inside.mean()),
    }


def _thin(sources: list[dict[str, Any]]) -> list[str]:
    """Quarters with far fewer rows than the others: probably published, or mirrored, in part."""
    rows = {source["quarter"]: source["rows_kept"] for source in sources if "quarter" in source}
    if len(rows) < THIN_AMONG:
        return []
    usual = float(np.median(list(rows.values())))
    return [quarter for quarter, n in rows.items() if n < THIN_SHARE * usual]


def _order(columns: dict[str, Any]) -> NDArray[np.int64]:
    """Row order of the file: quarter, then quadkey; where both are missing, the order given."""
    keys = [columns[name] for name in ("quadkey", "quarter") if columns.get(name) is not None]
    rows = len(columns["lon"])
    return np.lexsort(keys) if keys else np.arange(rows)


def _arrow(values: Any, type_: pa.DataType, rows: int, order: NDArray[np.int64]) -> pa.Array:
    """An Arrow column: NaN becomes null, a missing column all nulls."""
    if values is None:
        return pa.nulls(rows, type_)
    values = np.asarray(values)[order]
    if values.dtype.kind == "f":
        return pa.array(values, pa.float64(), from_pandas=True).cast(type_)
    return pa.array(values, type_)


def _flags(table: pa.Table) -> dict[str, int]:
    """Counts of odd values among the rows kept."""
    counts = {}
    for target, name in TARGETS.items():
        if (
            name in table.column_names
            and target != "value"
            and table.column(name).null_count < table.num_rows
        ):
            values = numbers(table.column(name))
            counts[f"null_{target}"] = int(np.isnan(values).sum())
            counts[f"nonpositive_{target}"] = int((values <= 0).sum())
            counts[f"absurd_{target}"] = int((values > ABSURD.get(name, np.inf)).sum())
    devices, tests = (numbers(table.column(name)) for name in ("devices", "tests"))
    counts["more_devices_than_tests"] = int((devices > tests).sum())
    return counts


def _around(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> Any:
    """A box about points that came without a region; on whichever side of 180 degrees it is narrower."""
    turned = lon % 360
    if np.ptp(turned) < np.ptp(lon):
        lon = turned
    return shapely.box(lon.min() - 1e-3, lat.min() - 1e-3, lon.max() + 1e-3, lat.max() + 1e-3)


def numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """A column as float64, null as NaN."""
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def causes(dropped: dict[str, int]) -> str:
    """Drop counts in words."""
    return (
        ", ".join(f"{n:,} {cause.replace('_', ' ')}" for cause, n in dropped.items() if n) or "none dropped"
    )

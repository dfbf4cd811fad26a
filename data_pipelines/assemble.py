"""From collected rows to the table and its metadata document: place, label, sort, account."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyproj
import shapely
from numpy.typing import NDArray

from data_pipelines import quadkey
from data_pipelines.arrow import numbers
from data_pipelines.errors import InvalidInput
from data_pipelines.regions import Region
from data_pipelines.schema import (
    MEASURED,
    OPTIONAL_TILE_COLUMNS,
    POINT_COLUMNS,
    SCHEMA_VERSION,
    TILE_COLUMNS,
    arrow_schema,
    covariate,
)
from data_pipelines.sources.contract import Collected

Degrees = NDArray[np.float64]

#: A quarter is thin below this share of the median quarter's rows, judged among at least so many.
THIN_SHARE, THIN_AMONG = 0.3, 4


def assemble(
    collected: Collected,
    tiled: bool,
    place: Region | None,
    place_record: dict[str, Any] | None,
    urban: str | Path | None,
    about: dict[str, Any],
) -> tuple[pa.Table, dict[str, Any]]:
    """The table of `schema`, sorted by quarter and quadkey, and the document that goes with it.

    Parameters
    ----------
    collected : rows of a source
    tiled : whether they are averages over tiles
    place, place_record : region they lie in and the file that drew it; None for a table without a place,
        which gets a metric CRS about its own points
    urban : urban-area file or None
    about : first entries of the document (source, type)

    Raises
    ------
    InvalidInput
        No row is left.
    """
    if not len(collected.at[0]):
        where = f"in {place}" if place else "usable"
        raise InvalidInput(
            f"None of the {collected.rows_read:,} rows read is {where} (dropped: {causes(collected.dropped)}); "
            "check the place and the source."
        )
    lon, lat = _degrees(collected, tiled)
    around = place or Region.from_polygon("", _around(lon, lat))
    columns = {**collected.columns, **_placed(lon, lat, around)}
    if tiled:
        columns["quadkey"] = quadkey.encode(*collected.at)
    if place:
        columns["region"] = np.full(len(lon), place.name)
    urban_about = None
    if urban is not None:
        labels, urban_about = _labels(collected, tiled, lon, lat, around, urban)
        columns |= labels
    table = _table(columns, tiled, collected.about.get("covariates") or ())
    flagged = {**collected.flagged, **_flags(table)}
    return table, {
        "schema_version": SCHEMA_VERSION,
        **about,
        **collected.about,
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
        "targets": [column.measures for column in TILE_COLUMNS if column.measures] if tiled else ["value"],
    }


def causes(dropped: dict[str, int], none: str = "none dropped") -> str:
    """Drop counts in words.

    Examples
    --------
    >>> causes({"outside": 1200, "undecodable_quadkey": 3, "duplicate": 0})
    '1,200 outside, 3 undecodable quadkey'
    """
    return ", ".join(f"{n:,} {cause.replace('_', ' ')}" for cause, n in dropped.items() if n) or none


def _degrees(collected: Collected, tiled: bool) -> tuple[Degrees, Degrees]:
    """Longitude and latitude of each row."""
    first, second = collected.at
    if not tiled:
        return np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.dtype.kind not in "iu" or second.dtype.kind not in "iu":
        raise TypeError(f"A tiled source gives tile indices, integers; got {first.dtype} and {second.dtype}.")
    return quadkey.centre(first, second)


def _placed(lon: Degrees, lat: Degrees, around: Region) -> dict[str, NDArray[Any]]:
    """The columns that say where, in degrees and in metres."""
    to_metres = pyproj.Transformer.from_crs(4326, around.crs, always_xy=True)
    easting, northing = to_metres.transform(lon, lat)
    return {"lon": lon, "lat": lat, "easting_m": easting, "northing_m": northing}


def _labels(
    collected: Collected, tiled: bool, lon: Degrees, lat: Degrees, place: Region, urban: str | Path
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The columns urban, urban_vintage and urban_share, and their record; each distinct tile is looked up once."""
    from data_pipelines.census import UrbanAreas

    areas = UrbanAreas.read(urban, place)
    labels: dict[str, NDArray[Any]] = {"urban_vintage": np.full(len(lon), areas.vintage)}
    if tiled:
        codes, inverse = np.unique(quadkey.pack(*collected.at), return_inverse=True)
        x, y = quadkey.unpack(codes)
        labels["urban"] = areas.hold(*quadkey.centre(x, y))[inverse]
        labels["urban_share"] = areas.share(place.tile_boxes(x, y))[inverse]
    else:  # a point has no area
        labels["urban"] = areas.hold(lon, lat)
    return labels, {
        "source": areas.source.url,
        "sha256": areas.source.sha256,
        "vintage": areas.vintage,
        "share_of_rows": float(labels["urban"].mean()),
    }


def _table(columns: dict[str, NDArray[Any]], tiled: bool, covariates: Sequence[str]) -> pa.Table:
    """The columns that the schema wants, in its types and the file's order; those not given are null."""
    chosen = TILE_COLUMNS if tiled else POINT_COLUMNS
    if tiled:
        chosen += tuple(c for c in OPTIONAL_TILE_COLUMNS if c.name in columns)
    chosen += tuple(covariate(name) for name in covariates)
    schema = arrow_schema(chosen)
    order = _order(columns)
    return pa.table([_arrow(columns.get(f.name), f.type, order) for f in schema], schema=schema)


def _order(columns: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Row order of the file: quarter, then quadkey; where both are missing, the order given."""
    keys = [columns[name] for name in ("quadkey", "quarter") if name in columns]
    return np.lexsort(keys) if keys else np.arange(len(columns["lon"]))


def _arrow(values: NDArray[Any] | None, type_: pa.DataType, order: NDArray[np.int64]) -> pa.Array:
    """An Arrow column: NaN becomes null, a missing column all nulls."""
    if values is None:
        return pa.nulls(len(order), type_)
    values = values[order]
    if values.dtype.kind == "f":
        return pa.array(values, pa.float64(), from_pandas=True).cast(type_)
    return pa.array(values, type_)


def _flags(table: pa.Table) -> dict[str, int]:
    """Counts of odd values among the rows kept."""
    counts = {}
    for column in MEASURED:
        name, what = column.name, column.measures
        if column.positive and name in table.column_names and table.column(name).null_count < table.num_rows:
            values = numbers(table.column(name))
            finite = values[np.isfinite(values)]
            counts[f"null_{what}"] = int(np.isnan(values).sum())
            counts[f"infinite_{what}"] = int(np.isinf(values).sum())
            counts[f"nonpositive_{what}"] = int((finite <= 0).sum())
            counts[f"absurd_{what}"] = int((finite > column.absurd).sum())
    devices, tests = (numbers(table.column(name)) for name in ("devices", "tests"))
    counts["more_devices_than_tests"] = int((devices > tests).sum())
    return counts


def _thin(sources: list[dict[str, Any]]) -> list[str]:
    """Quarters with far fewer rows than the others: probably published, or mirrored, in part."""
    rows = {source["quarter"]: source["rows_kept"] for source in sources if "quarter" in source}
    if len(rows) < THIN_AMONG:
        return []
    usual = float(np.median(list(rows.values())))
    return [quarter for quarter, n in rows.items() if n < THIN_SHARE * usual]


def _around(lon: Degrees, lat: Degrees) -> shapely.Polygon:
    """A box about points that came without a region; on whichever side of 180 degrees it is narrower."""
    turned = lon % 360
    if np.ptp(turned) < np.ptp(lon):
        lon = turned
    south, north = max(lat.min() - 1e-3, -90.0), min(lat.max() + 1e-3, 90.0)
    east = min(lon.max() + 1e-3, lon.min() - 1e-3 + 360.0)
    box = shapely.box(lon.min() - 1e-3, south, east, north)
    return shapely.segmentize(box, 45.0)  # edges that can go one way round only

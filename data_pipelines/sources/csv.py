"""Any other point measurement: a CSV or GeoParquet file with named columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pyproj
from numpy.typing import NDArray

from data_pipelines import download, quarters
from data_pipelines.errors import InvalidInput
from data_pipelines.sources.contract import Collected, Request

ROLES = ("x", "y", "value", "count", "time")


def collect(request: Request) -> Collected:
    """Rows of a CSV file; x and y are longitude and latitude unless a CRS is given.

    Raises
    ------
    InvalidInput
        The file cannot be read, lacks a named column, or its x and y are not places in the CRS.
    """
    fetched = download.resolve(request.root or "")
    try:
        table = pyarrow.csv.read_csv(fetched.path)
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"{fetched.path} cannot be read as CSV ({reason}).") from error
    return _points(table, request, fetched, required=("x", "y", "value"))


def collect_geoparquet(request: Request) -> Collected:
    """Rows of a GeoParquet file of points in any CRS; x and y may come from its geometry.

    Raises
    ------
    InvalidInput
        As for `collect`; also a file without x and y columns whose geometry is no points or has no CRS.
    """
    fetched = download.resolve(request.root or "")
    if "x" in request.columns or "y" in request.columns:
        names = [name for role, name in request.columns.items() if role in ROLES]
        table = _read_parquet(fetched.path, names)
        return _points(table, request, fetched, required=("x", "y", "value"))
    import geopandas

    try:
        frame = geopandas.read_parquet(fetched.path)
    except (ValueError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"{fetched.path} cannot be read as GeoParquet ({reason}).") from error
    if not (frame.geometry.geom_type == "Point").all():
        raise InvalidInput(
            f"{fetched.path} has geometries that are not points; give points, or x and y columns."
        )
    crs = request.crs or frame.crs
    if crs is None:
        raise InvalidInput(f"{fetched.path} does not say its coordinate reference system; give crs.")
    table = pa.Table.from_pandas(frame.drop(columns=frame.geometry.name), preserve_index=False)
    x, y = np.asarray(frame.geometry.x), np.asarray(frame.geometry.y)
    return _points(table, request, fetched, required=("value",), place=(x, y), crs=crs)


def _points(
    table: pa.Table,
    request: Request,
    fetched: download.Fetched,
    required: tuple[str, ...],
    place: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    crs: Any = None,
) -> Collected:
    columns = request.columns
    unknown = sorted(set(columns) - set(ROLES))
    if unknown:
        raise InvalidInput(f"Unknown column role {unknown[0]!r}; the roles are {', '.join(ROLES)}.")
    for role in required:
        if role not in columns:
            raise InvalidInput(f"Say which column of {fetched.path} is {role} (columns {role}=NAME).")
    for role, name in columns.items():
        if name not in table.column_names:
            raise InvalidInput(
                f"{fetched.path} has no column {name!r} for {role}; it has {', '.join(table.column_names)}."
            )
    numbers = {
        role: _numbers(table.column(name), name, fetched.path)
        for role, name in columns.items()
        if role != "time"
    }
    x, y = place if place is not None else (numbers["x"], numbers["y"])
    lon, lat = _degrees(x, y, crs or request.crs, fetched.path)
    usable = np.isfinite(lon) & np.isfinite(lat)
    inside = usable.copy()
    if request.region is not None:
        inside[usable] = request.region.holds_points(lon[usable], lat[usable])
    rows = np.flatnonzero(inside)
    times = (
        _years(table.column(columns["time"]), columns["time"], fetched.path) if "time" in columns else None
    )
    named: list[str] = []
    out: dict[str, NDArray[Any] | None] = {"value": numbers["value"][rows]}
    if "count" in numbers:
        out["tests"] = np.round(numbers["count"][rows])
    if times is not None:
        out["time_years"] = times[rows]
        empty = int((~np.isfinite(times[rows])).sum())
        if empty:
            raise InvalidInput(
                f"Column {columns['time']} of {fetched.path} has {empty:,} empty times; "
                "fill them or leave the column out."
            )
        out["quarter"] = quarter = quarters.of_years(times[rows])
        named = sorted(set(quarter.tolist()))
    record = {**download.as_record(fetched), "rows_read": table.num_rows, "rows_kept": len(rows)}
    return Collected(
        columns=out,
        quarters=named,
        missing_quarters=[],
        rows_read=table.num_rows,
        dropped={"no_place": int((~usable).sum()), "outside": int((usable & ~inside).sum())},
        sources=[record],
        lon=lon[rows],
        lat=lat[rows],
    )


def _degrees(
    x: NDArray[np.float64], y: NDArray[np.float64], crs: Any, path: Path
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Longitude and latitude of WGS84; infinite where PROJ cannot place a point."""
    if crs is None:
        odd = np.flatnonzero((np.abs(x) > 180) | (np.abs(y) > 90))
        if odd.size:
            raise InvalidInput(
                f"Row {odd[0] + 1} of {path} lies at x={x[odd[0]]:g}, y={y[odd[0]]:g}, which is no longitude "
                "and latitude; swap x and y or say which CRS they are in."
            )
        return x, y
    try:
        source = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError as error:
        raise InvalidInput(f"The CRS {crs!r} is not known to PROJ; give one such as EPSG:32604.") from error
    if source == pyproj.CRS.from_epsg(4326):
        return _degrees(x, y, None, path)
    return pyproj.Transformer.from_crs(source, 4326, always_xy=True).transform(x, y)


def _numbers(column: pa.ChunkedArray, name: str, path: Path) -> NDArray[np.float64]:
    try:
        values = pc.cast(column, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(
            f"Column {name} of {path} is not numeric ({str(error).splitlines()[0]})."
        ) from error
    return np.array(values.to_numpy(), np.float64)


def _years(column: pa.ChunkedArray, name: str, path: Path) -> NDArray[np.float64]:
    """Decimal years of numbers (taken as they are), dates or ISO strings; NaN where empty."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _numbers(column, name, path)
    try:
        stamps = pc.cast(column, pa.timestamp("s"), safe=False).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(
            f"Column {name} of {path} is no time; give decimal years or dates such as 2023-11-20."
        ) from error
    stamps = stamps.astype("datetime64[s]")
    year = stamps.astype("datetime64[Y]")
    start, end = year.astype("datetime64[s]"), (year + 1).astype("datetime64[s]")
    share = (stamps - start).astype(float) / (end - start).astype(float)
    return np.where(np.isnat(stamps), np.nan, year.astype(float) + 1970 + share)


def _read_parquet(path: Path, columns: list[str]) -> pa.Table:
    try:
        file = pq.ParquetFile(path)
        return file.read(columns=[name for name in columns if name in file.schema_arrow.names])
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"{path} is not a readable Parquet file ({reason}).") from error

"""Any other point measurement: a CSV or GeoParquet file with named columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pyproj
from numpy.typing import NDArray

from data_pipelines import arrow, download, quarters
from data_pipelines.arrow import refusing
from data_pipelines.errors import InvalidInput
from data_pipelines.intact import check_intact
from data_pipelines.readers.averages import averaged, centred
from data_pipelines.readers.delimited import dialect_of, has_decimal_commas, roles_among
from data_pipelines.schema import POINT_COLUMNS
from data_pipelines.sources.contract import Collected, Request

Array = NDArray[np.float64]

#: Measurements behind one value, and years that quarters are named for.
MOST_COUNT, YEARS = 1e9, (1000, 10_000)
ROLES = ("x", "y", "value", "count", "time")


def collect_csv(request: Request) -> Collected:
    """Rows of a CSV file; x and y are longitude and latitude unless a CRS is given.

    Raises
    ------
    InvalidInput
        The file cannot be read, lacks a named column, or its x and y are not places in the CRS.
    """
    fetched = download.resolve(request.file or "")
    with refusing(f"{fetched.path} cannot be read as CSV"):
        table = _read_csv(fetched.path, request.columns, request.covariates or ())
    with refusing(f"{fetched.path} cannot be used"):
        return _collected(_File(fetched, table, request.columns), request)


def _read_csv(path: Path, columns: Mapping[str, str], covariates: Sequence[str]) -> pa.Table:
    """A CSV with whatever separator; with decimal commas where the columns that hold numbers have them."""
    found = dialect_of(path)

    def read(decimal: str, texts: Sequence[str] = ()) -> pa.Table:
        return pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(encoding=found.encoding),
            parse_options=pyarrow.csv.ParseOptions(delimiter=found.separator),
            convert_options=pyarrow.csv.ConvertOptions(
                decimal_point=decimal,
                column_types=dict.fromkeys(texts, pa.string()),
                include_columns=list(texts),
            ),
        )

    table = read(".")
    names = table.column_names
    asked = {*roles_among(names, columns).values(), *covariates}
    numbers = [name for name in names if name in asked and names.count(name) == 1]
    odd = {name: table.column(name) for name in numbers if pa.types.is_string(table.schema.field(name).type)}
    # a comma within a number stands for thousands where commas separate cells
    if found.separator == "," or not has_decimal_commas(odd, path):
        return table
    texts = read(".", numbers)
    has_decimal_commas({name: texts.column(name) for name in numbers}, path)
    return read(",")


def collect_geoparquet(request: Request) -> Collected:
    """Rows of a GeoParquet file of points in any CRS; x and y may come from its geometry.

    Raises
    ------
    InvalidInput
        As for `collect_csv`; also a file without x and y columns whose geometry is no points or has no CRS.
    """
    fetched = download.resolve(request.file or "")
    if "x" in request.columns or "y" in request.columns:
        with refusing(f"{fetched.path} is not a readable Parquet file"):
            check_intact(fetched.path)
            parquet = pq.ParquetFile(fetched.path, page_checksum_verification=True)
            there = parquet.schema_arrow.names
            named = roles_among(there, request.columns)
            wanted = [n for role, n in named.items() if role in ROLES and n in there]
            wanted += [n for n in request.covariates or () if n in there and n not in wanted]
            table = parquet.read(columns=wanted)
        with refusing(f"{fetched.path} cannot be used"):
            return _collected(_File(fetched, table, request.columns), request)
    import geopandas

    with refusing(f"{fetched.path} cannot be read as GeoParquet"):
        check_intact(fetched.path)
        frame = geopandas.read_parquet(fetched.path, page_checksum_verification=True)
    if not (frame.geometry.geom_type == "Point").all():
        raise InvalidInput(
            f"{fetched.path} has geometries that are not points; give points, or x and y columns."
        )
    crs = request.crs or frame.crs
    if crs is None:
        raise InvalidInput(f"{fetched.path} does not say its coordinate reference system; give crs.")
    with refusing(f"{fetched.path} cannot be used"):
        table = pa.Table.from_pandas(frame.drop(columns=frame.geometry.name), preserve_index=False)
        xy = np.asarray(frame.geometry.x), np.asarray(frame.geometry.y)
        return _collected(_File(fetched, table, request.columns, xy), replace(request, crs=crs))


@dataclass(frozen=True)
class _File:
    """A file's rows, and the names of its columns by role; xy where its geometry says the place."""

    fetched: download.Fetched
    table: pa.Table
    columns: dict[str, str]
    xy: tuple[Array, Array] | None = None

    def found(self) -> "_File":
        """With the columns of places and of the value, where they are not named and some are called so."""
        columns = roles_among(self.table.column_names, self.columns)
        places = () if self.xy is None else ("x", "y")
        return replace(self, columns={role: name for role, name in columns.items() if role not in places})

    def check(self) -> None:
        """Refuse roles that do not exist, are not named, or name no column."""
        path, names = self.fetched.path, self.table.column_names
        if twice := [name for name in self.columns.values() if names.count(name) > 1]:
            raise InvalidInput(
                f"{path} has {names.count(twice[0])} columns called {twice[0]!r}; rename all but one."
            )
        unknown = sorted(set(self.columns) - set(ROLES))
        if unknown:
            raise InvalidInput(f"Unknown column role {unknown[0]!r}; the roles are {', '.join(ROLES)}.")
        for role in ("x", "y", "value") if self.xy is None else ("value",):
            if role not in self.columns:
                free = [name for name in names if name not in self.columns.values()]
                raise InvalidInput(
                    f"Say which column of {path} is {role}, such as --columns {role}={free[0] if free else 'NAME'}; it has "
                    f"{', '.join(names) or 'none'}."
                )
        for role, name in self.columns.items():
            if name not in names:
                raise InvalidInput(f"{path} has no column {name!r} for {role}; it has {', '.join(names)}.")

    def covariates(self, names: Sequence[str]) -> dict[str, Array]:
        """Further columns by name, NaN where a row has none; refuses what is no column, or is called like one of ours."""
        path, own = self.fetched.path, {c.name for c in POINT_COLUMNS} | {"geometry", "bbox"}
        for name in names:
            if name not in self.table.column_names:
                there = ", ".join(self.table.column_names)
                raise InvalidInput(f"{path} has no column {name!r} to keep as a covariate; it has {there}.")
            if name in own:
                raise InvalidInput(
                    f"Tables have a column {name} of their own; rename that of {path} to keep it as a covariate."
                )
        return {name: self.of(name) for name in names}

    def numbers(self, role: str) -> Array:
        """The column of a role."""
        return self.of(self.columns[role])

    def of(self, name: str) -> Array:
        """A column."""
        with refusing(
            f"Column {name} of {self.fetched.path} is not numeric",
            errors=(pa.ArrowInvalid, pa.ArrowNotImplementedError),
        ):
            return arrow.numbers(self.table.column(name))

    def times(self) -> Array:
        """Decimal years of numbers (taken as they are), dates, ISO strings or quarters (their middle); NaN where empty."""
        name = self.columns["time"]
        column = self.table.column(name)
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            return self.numbers("time")
        if pa.types.is_string(column.type) and (named := _years_of_quarters(column)) is not None:
            return named
        try:
            stamps = pc.cast(column, pa.timestamp("s"), safe=False).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInput(
                f"Column {name} of {self.fetched.path} is no time; give decimal years, dates such as 2023-11-20 or "
                "quarters such as 2023Q4."
            ) from error
        return _decimal_years(stamps.astype("datetime64[s]"))


def _years_of_quarters(column: pa.ChunkedArray) -> Array | None:
    """Decimal years of a column that names quarters, NaN where empty; None where it names something else."""
    texts = np.array([text.strip() if text else "" for text in column.to_pylist()])
    there = texts != ""
    names = np.unique(texts[there])
    if not len(names) or not all(quarters.is_quarter(str(name)) for name in names):
        return None
    out = np.full(len(texts), np.nan)
    out[there] = quarters.years(texts[there])
    return out


def _collected(file: _File, request: Request) -> Collected:
    """The rows of a file that lie in the place."""
    file = file.found()
    file.check()
    given = {role: file.numbers(role) for role in file.columns if role != "time"}
    x, y = file.xy or (given["x"], given["y"])
    lon, lat = _degrees(x, y, request.crs, file.fetched.path)
    usable = np.isfinite(lon) & np.isfinite(lat)
    if request.average:
        lon, lat = centred(lon, lat, usable)
    inside = usable.copy()
    if request.place is not None:
        inside[usable] = request.place.holds_points(lon[usable], lat[usable])
    none, infinite = np.isnan(given["value"]), np.isinf(given["value"])
    rows = np.flatnonzero(inside & ~none & ~infinite)
    columns: dict[str, NDArray[Any]] = {"value": given["value"][rows]}
    further = file.covariates(request.covariates or ())
    columns |= {name: values[rows] for name, values in further.items()}
    flagged: dict[str, int] = {}
    if "count" in given:
        counts = given["count"][rows]
        absurd = np.flatnonzero(np.abs(counts) > MOST_COUNT)
        if absurd.size:
            raise InvalidInput(
                f"Column {file.columns['count']} of {file.fetched.path} has a count of {counts[absurd[0]]:g}, and at most "
                f"{MOST_COUNT:g} are possible; mend it, or leave the column out."
            )
        columns["tests"], flagged = _whole(counts)
    if "time" in file.columns:
        columns |= _timed(file, rows)
    collected = Collected(
        columns=columns,
        at=(lon[rows], lat[rows]),
        quarters=sorted(set(columns["quarter"].tolist())) if "quarter" in columns else [],
        rows_read=file.table.num_rows,
        dropped={
            "no_place": int((~usable).sum()),
            "outside": int((usable & ~inside).sum()),
            "without_value": int((inside & none).sum()),
            "infinite_value": int((inside & infinite).sum()),
        },
        flagged=flagged,
        sources=[{**file.fetched.record, "rows_read": file.table.num_rows, "rows_kept": len(rows)}],
        about={
            "value_unit": request.value_unit,
            "value_name": request.value_name or file.columns["value"],
            "value_better": request.better,
            "covariates": list(further),
            "credit": request.credit,
        },
    )
    return averaged(collected) if request.average else collected


def _whole(counts: Array) -> tuple[Array, dict[str, int]]:
    """Counts as whole numbers, NaN for negative ones, and how many were rounded (to 1 at least) and how many negative.

    Examples
    --------
    >>> _whole(np.array([3.0, 0.3, 2.6, 0.0, -1.0]))
    (array([ 3.,  1.,  3.,  0., nan]), {'rounded_count': 2, 'negative_count': 1})
    """
    negative = counts < 0
    broken = ~negative & (counts % 1 > 0)
    whole = np.where(broken, np.maximum(np.round(counts), 1.0), counts)
    whole[negative] = np.nan
    return whole, {"rounded_count": int(broken.sum()), "negative_count": int(negative.sum())}


def _timed(file: _File, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The columns that say when, of rows that all have a time."""
    times = file.times()[rows]
    empty = int((~np.isfinite(times)).sum())
    if empty:
        raise InvalidInput(
            f"Column {file.columns['time']} of {file.fetched.path} has {empty:,} empty times; "
            "fill them or leave the column out."
        )
    odd = times[(times < YEARS[0]) | (times >= YEARS[1])]
    if odd.size:
        raise InvalidInput(
            f"Column {file.columns['time']} of {file.fetched.path} has a time of {odd[0]:g}, which is no year of four digits; "
            "give decimal years or dates such as 2023-11-20."
        )
    return {"time_years": times, "quarter": quarters.of_years(times)}


def _degrees(x: Array, y: Array, crs: Any, path: Path) -> tuple[Array, Array]:
    """Longitude and latitude of WGS84; infinite where PROJ cannot place a point."""
    if crs is None:
        odd = np.flatnonzero((np.abs(x) > 180) | (np.abs(y) > 90))
        if odd.size:
            raise InvalidInput(
                f"Row {odd[0] + 1} of {path} lies at x={x[odd[0]]:g}, y={y[odd[0]]:g}, which is no longitude "
                "and latitude; swap x and y, or say which CRS they are in, such as --crs EPSG:32604."
            )
        return x, y
    shown = repr(str(crs)[:80])
    try:
        source = pyproj.CRS.from_user_input(crs)
    except (pyproj.exceptions.CRSError, RecursionError) as error:
        raise InvalidInput(f"The CRS {shown} is not known to PROJ; give one such as EPSG:32604.") from error
    if not (source.is_geographic or source.is_projected):
        raise InvalidInput(
            f"The CRS {shown} ({source.name}) has no x and y on a map; give a projected or geographic one."
        )
    if source == pyproj.CRS.from_epsg(4326):
        return _degrees(x, y, None, path)
    good = np.isfinite(x) & np.isfinite(y)
    if (
        source.is_projected
        and good.any()
        and (np.abs(x[good]) <= 180).all()
        and (np.abs(y[good]) <= 90).all()
    ):
        raise InvalidInput(
            f"x and y of {path} look like longitude and latitude, not like {source.name} (all within 180 by 90); leave "
            "the CRS out or name theirs."
        )
    try:
        way = pyproj.Transformer.from_crs(source, 4326, always_xy=True)
    except pyproj.exceptions.ProjError as error:
        raise InvalidInput(
            f"There is no way from {source.name} to longitude and latitude on Earth; give the CRS of x and y."
        ) from error
    return way.transform(x, y)


def _decimal_years(stamps: NDArray[np.datetime64]) -> Array:
    """The year, its quarters that have gone, and the share of the next: each quarter is a fourth of a year, whatever its
    days, so that the quarter of a time is that of its month. NaN for no time."""
    month = stamps.astype("datetime64[M]").astype(np.int64)
    first = (month - month % 3).astype("datetime64[M]")
    start, end = first.astype("datetime64[s]"), (first + 3).astype("datetime64[s]")
    share = (stamps - start).astype(float) / (end - start).astype(float)
    return np.where(np.isnat(stamps), np.nan, 1970 + (month // 3 + share) / 4)

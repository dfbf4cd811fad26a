"""Any other point measurement: a CSV or GeoParquet file with named columns."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pyproj
from numpy.typing import NDArray

from data_pipelines import arrow, copies, download, quarters
from data_pipelines.arrow import refusing
from data_pipelines.errors import InvalidInput
from data_pipelines.intact import check_intact
from data_pipelines.readers.averages import averaged, centred
from data_pipelines.readers.delimited import dialect_of, has_decimal_commas, roles_among
from data_pipelines.readers.texts import first_text
from data_pipelines.readers.times import years_of
from data_pipelines.schema import POINT_COLUMNS
from data_pipelines.sources.contract import Collected, Request
from data_pipelines.words import many

Array = NDArray[np.float64]

#: Measurements behind one value, and years that quarters are named for.
MOST_COUNT, YEARS = 1e9, (1000, 10_000)
ROLES = ("x", "y", "value", "count", "time")
#: Share of rows outside the degrees from which x and y are in another CRS, or swapped, and not a few cells wrong.
MANY = 0.5


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
        columns = {role: name for role, name in columns.items() if role not in places}
        if "count" not in self.columns and "count" in columns and not self._counts(columns["count"]):
            del columns["count"]
        return replace(self, columns=columns)

    def _counts(self, name: str) -> bool:
        """Whether a column holds nothing but counts: whole numbers, 0 or more, or none."""
        column = self.table.column(name)
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            return False
        counts = arrow.numbers(column)
        counts = counts[~np.isnan(counts)]
        return bool(counts.size and ((counts >= 0) & (counts <= MOST_COUNT) & (counts % 1 == 0)).all())

    def _unlike_values(self, name: str) -> int:
        """0 of a column that may hold values, 1 of whole numbers, 2 of no numbers."""
        kind = self.table.column(name).type
        return 0 if pa.types.is_floating(kind) else 1 if pa.types.is_integer(kind) else 2

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
                such = shlex.quote(f"{role}={min(free, key=self._unlike_values, default='NAME')}")
                raise InvalidInput(
                    f"Say which column of {path} is {role}, such as --columns {such}; it has {', '.join(names) or 'none'}."
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
        if (words := first_text(self.table.column(name))) is not None:
            raise InvalidInput(f"Column {name} of {self.fetched.path} is not numeric in {words}")
        with refusing(
            f"Column {name} of {self.fetched.path} is not numeric",
            errors=(pa.ArrowInvalid, pa.ArrowNotImplementedError),
        ):
            return arrow.numbers(self.table.column(name))

    def times(self) -> Array:
        """Decimal years of the column of times, NaN where empty."""
        name = self.columns["time"]
        return years_of(self.table.column(name), name, self.fetched.path)


def _collected(file: _File, request: Request) -> Collected:
    """The rows of a file that lie in the place."""
    asked, file = file.columns, file.found()
    file.check()
    given = {role: file.numbers(role) for role in file.columns if role != "time"}
    x, y = file.xy or (given["x"], given["y"])
    lon, lat = _degrees(x, y, request.crs, file.fetched.path)
    usable = np.isfinite(lon) & np.isfinite(lat)
    where = lon, lat
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
                f"Column {file.columns['count']} of {file.fetched.path} has a count of {counts[absurd[0]]:,.15g}, and at most "
                f"{MOST_COUNT:,.15g} are possible; mend it, or leave the column out."
            )
        columns["tests"], flagged = _whole(counts)
    if "time" in file.columns:
        columns |= _timed(file, rows)
    told = [columns[name] for name in ("time_years", *copies.WHAT) if name in columns]
    first = copies.first_of([*(of[rows] for of in where), *told])
    flagged["repeated_row"] = int((first != np.arange(len(rows))).sum())
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
            "columns_found": {role: name for role, name in file.columns.items() if role not in asked},
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
            f"Column {file.columns['time']} of {file.fetched.path} has {many(empty, 'empty time')}; "
            f"fill {'it' if empty == 1 else 'them'} or leave the column out."
        )
    odd = times[(times < YEARS[0]) | (times >= YEARS[1])]
    if odd.size:
        raise InvalidInput(
            f"Column {file.columns['time']} of {file.fetched.path} has a time of {odd[0]:g}, which is no year of four digits; "
            "give decimal years, dates such as 2023-11-20 or months such as 2023-11."
        )
    return {"time_years": times, "quarter": quarters.of_years(times)}


def _degrees(x: Array, y: Array, crs: Any, path: Path) -> tuple[Array, Array]:
    """Longitude and latitude of WGS84; infinite where PROJ cannot place a point."""
    if crs is None:
        odd = np.flatnonzero((np.abs(x) > 180) | (np.abs(y) > 90))
        if odd.size:
            first, among = int(odd[0]), f" such row{'s' if odd.size > 1 else ''} of {len(x):,}"
            such = (
                "" if len(x) == 1 else f", the {f'first of {odd.size:,}' if odd.size > 1 else 'only'}{among}"
            )
            remedy = "swap x and y, or say which CRS they are in, such as --crs EPSG:32604."
            if odd.size < MANY * len(x):
                remedy = "mend it, for x and y may be swapped, or take it out."
            raise InvalidInput(
                f"Row {first + 1} of {path} lies at x={x[first]:g}, y={y[first]:g}, which is no longitude and latitude{such}; {remedy}"
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

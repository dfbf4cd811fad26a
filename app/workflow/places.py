"""A table of places that people bring, a part at a time: its own columns as they are, and where each row lies."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pyproj import Transformer

from app.choices import map_crs
from app.errors import InvalidInput
from data_pipelines.intact import Damaged, check_intact
from data_pipelines.readers.delimited import DECIMAL_COMMA, dialect_of, has_decimal_commas, places_among

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

#: Attribute of a data frame whose cells commas separated.
COMMAS = "cells_between_commas"
#: Rows read and predicted at once.
ROWS = 20_000


def parts_of(
    path: str | Path,
    *,
    x: str | None = None,
    y: str | None = None,
    crs: str | None = None,
    numbers: Sequence[str] = (),
) -> Iterator[tuple["pd.DataFrame", Array]]:
    """The rows of a table, some at a time: their own columns, and their longitudes and latitudes (n, 2), NaN where a
    row has none.

    A CSV is read in parts, its cells kept as text; a GeoParquet, GeoPackage, GeoJSON or shapefile whole, and its points
    are the places where no columns are named.

    Parameters
    ----------
    x, y : columns of the places; default lon and lat, however written
    crs : of x and y; default degrees (EPSG:4326)
    numbers : further columns that are to be numbers, of those that are there

    Raises
    ------
    InvalidInput
        no such file or column, not a table, a CRS that is none, two decimal signs, or no row with a place.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidInput(f"The file {path} does not exist.")
    if (x is None) != (y is None):
        raise InvalidInput("--x and --y go together; name both columns, or neither.")
    to_degrees = None if crs is None else Transformer.from_crs(map_crs(crs), 4326, always_xy=True)
    found = 0
    for frame in _frames(path):
        names, lonlat = None, _points(frame)
        if x is not None or lonlat is None:
            names = _columns(frame, path, x, y)
            _check_signs(frame, path, (*names, *numbers))
            lonlat = np.column_stack([plain_numbers(frame[name]) for name in names])
            if to_degrees is not None:
                lonlat = np.column_stack(to_degrees.transform(*lonlat.T))
        bad = ~np.isfinite(lonlat).all(axis=1) | (np.abs(lonlat) > (360.0, 90.0)).any(axis=1)
        lonlat[bad] = np.nan
        found += int((~bad).sum())
        yield _plain(frame), lonlat
    if not found:
        where = "its points" if names is None else f"columns {names[0]} and {names[1]}"
        raise InvalidInput(
            f"No row of {path} has a place ({where}); give longitude and latitude in degrees, or --crs of the columns."
        )


def _frames(path: Path) -> Iterator["pd.DataFrame"]:
    """The rows as data frames of at most ROWS."""
    import geopandas
    import pandas as pd
    import pyarrow
    import pyogrio

    kind = path.suffix.lower()
    try:
        if kind in (".csv", ".txt", ".tsv"):
            found = dialect_of(path)
            reader = pd.read_csv(
                path,
                dtype=str,
                keep_default_na=False,
                sep=found.separator,
                encoding="utf-8-sig" if found.encoding == "utf-8" else found.encoding,
                chunksize=ROWS,
            )
            with reader:
                for part in reader:
                    part.attrs[COMMAS] = found.separator == ","
                    yield part
            return
        check_intact(path)
        if kind == ".parquet":
            try:
                frame: Any = geopandas.read_parquet(path)
            except ValueError:  # no geometry
                frame = pd.read_parquet(path)
        else:
            frame = geopandas.read_file(path)
    except Damaged:
        raise
    except (
        ValueError,  # pandas' errors of parsing among them
        OSError,
        pyarrow.ArrowInvalid,
        pyogrio.errors.DataSourceError,
        pyogrio.errors.DataLayerError,
    ) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(
            f"{path} cannot be read as a table ({reason.rstrip('.')}); give a CSV, GeoParquet, GeoPackage or GeoJSON."
        ) from None
    for start in range(0, len(frame), ROWS):
        yield frame.iloc[start : start + ROWS]


def _points(frame: Any) -> Array | None:
    """Longitude and latitude (n, 2) of a frame's points; None of a frame without geometry."""
    import geopandas

    if not isinstance(frame, geopandas.GeoDataFrame):
        return None
    if frame.crs is None:
        raise InvalidInput(
            "The points do not say their coordinate reference system; write the CRS into the file."
        )
    kinds = set(frame.geom_type.dropna().unique()) - {"Point"}
    if kinds:
        raise InvalidInput(
            f"The places are points; the file holds a {sorted(kinds)[0]}: use its centroids, or `geogp areas`."
        )
    degrees = frame.geometry.to_crs(4326)
    return np.column_stack([degrees.x.to_numpy(dtype=np.float64), degrees.y.to_numpy(dtype=np.float64)])


def _columns(frame: "pd.DataFrame", path: Path, x: str | None, y: str | None) -> tuple[str, str]:
    """The columns of the places."""
    own = [str(c) for c in frame.columns]
    if x is not None and y is not None:
        for option, name in (("--x", x), ("--y", y)):
            if name not in own:
                raise InvalidInput(f"{path} has no column {name!r} for {option}; it has {', '.join(own)}.")
        return x, y
    lon, lat = places_among(own)
    if lon is None or lat is None:
        raise InvalidInput(
            f"{path} has no columns of longitude and latitude that are called so; name them with --x and --y (it has "
            f"{', '.join(own)})."
        )
    return lon, lat


def _check_signs(frame: "pd.DataFrame", path: Path, names: Sequence[str]) -> None:
    """Refuse columns of text whose numbers have different decimal signs."""
    import pyarrow as pa

    texts = {name: frame[name] for name in names if name in frame.columns}
    has_decimal_commas(
        {name: pa.array(v.astype(str)) for name, v in texts.items() if _has_own_commas(v)}, path
    )


def _has_own_commas(column: Any) -> bool:
    """Whether commas are free for decimals: in text whose cells others separate."""
    import pandas as pd

    texts = column.dtype == object or pd.api.types.is_string_dtype(column)
    return bool(texts) and not column.attrs.get(COMMAS, False)


def pointed(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A frame whose numbers have points for decimal commas, as those have that are put beside them.

    A column of text, half of whose cells or more are numbers, is one of numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> pointed(pd.DataFrame({"lon": ["10,5", "11", ""], "rooms": ["3,4", "hall", "attic"]})).to_dict("list")
    {'lon': ['10.5', '11', ''], 'rooms': ['3,4', 'hall', 'attic']}
    """
    out = frame.copy(deep=False)
    for at, (_, column) in enumerate(frame.items()):
        if _has_own_commas(column) and 2 * np.isfinite(plain_numbers(column)).sum() >= column.ne("").sum():
            out.isetitem(at, column.map(_with_point))
    return out


def _with_point(cell: Any) -> Any:
    return cell.replace(",", ".") if isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell) else cell


def plain_numbers(column: Any) -> Array:
    """Numbers (n,), NaN where a cell is none; a comma between digits is a decimal sign, but where commas separate cells."""
    import pandas as pd

    if _has_own_commas(column):
        column = column.map(_with_point)
    return pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64).copy()


def _plain(frame: Any) -> "pd.DataFrame":
    """The columns without the geometry."""
    import geopandas
    import pandas as pd

    if isinstance(frame, geopandas.GeoDataFrame):
        frame = frame.drop(columns=frame.geometry.name)
    plain = pd.DataFrame(frame)
    plain.attrs = dict(frame.attrs)
    return plain

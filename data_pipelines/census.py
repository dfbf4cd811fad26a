"""Census files, and other polygon files of either kind: state boundaries and urban areas.

States: `cb_{year}_us_state_{500k,20m}.zip` or `tl_{year}_us_state.zip`. Urban areas: `tl_{year}_us_uac10.zip`
(2010 criteria) or `tl_{year}_us_uac20.zip` (2020 criteria); the columns tell them apart. Both are NAD83;
PROJ moves them to WGS84 with the transformation for the place (0 to 1 m in the United States).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pyogrio
import pyproj
import shapely
from numpy.typing import ArrayLike, NDArray

from data_pipelines import download
from data_pipelines.arrow import refusing
from data_pipelines.errors import InvalidInput
from data_pipelines.intact import check_intact
from data_pipelines.regions import Region, in_one_turn, polygons, shift, unwound
from data_pipelines.repair import repaired

STATES_URL = "https://www2.census.gov/geo/tiger/GENZ2023/shp/cb_2023_us_state_500k.zip"
#: A column that only one vintage has -> the vintage
VINTAGES = {"UACE10": "2010", "UACE20": "2020"}
#: The 50 states and the District of Columbia, by their codes.
NATION = (
    "AL", "AK", "AZ", "AR", "CA", "CO", "CT", "DE", "DC", "FL", "GA", "HI", "ID", "IL", "IN", "IA", "KS", "KY", "LA", "ME", "MD",
    "MA", "MI", "MN", "MS", "MO", "MT", "NE", "NV", "NH", "NJ", "NM", "NY", "NC", "ND", "OH", "OK", "OR", "PA", "RI", "SC", "SD",
    "TN", "TX", "UT", "VT", "VA", "WA", "WV", "WI", "WY",
)  # fmt: skip
#: Of a file of polygons: GDAL reads a million vertices of GeoJSON (40 MB) in 2 to 5 s.
MOST_BYTES = 2**30


def state(code: str, states: str | Path | None = None) -> tuple[Region, download.Fetched]:
    """The region of a state by its two-letter code, or of several, and the file it came from.

    Parameters
    ----------
    code : as in the file's column STUSPS, upper or lower case; several by commas; US is the 50 states and DC
    states : path or URL of a Census states file; None downloads the 2023 one, 1:500,000

    Raises
    ------
    InvalidInput
        No such code in the file (the message lists those it has), or not a states file.
    """
    source = download.resolve(states or STATES_URL)
    frame = read_polygons(source.path)
    if "STUSPS" not in frame:
        raise InvalidInput(
            f"{source.path} has no column STUSPS (it has {_listed(frame.columns)}); "
            "give a Census states file such as cb_2023_us_state_500k.zip."
        )
    codes = frame["STUSPS"].astype(str).str.upper()
    asked = [part.strip().upper() for part in code.split(",") if part.strip()] or [code]
    name = ",".join(dict.fromkeys(asked))
    members = []
    for one in dict.fromkeys(each for part in asked for each in (NATION if part == "US" else (part,))):
        rows = frame[codes == one]
        if rows.empty:
            raise InvalidInput(f"No state {one!r} in {source.path}; it has {_listed(sorted(codes))}.")
        with refusing(f"{source.path} has no polygon of {one} that makes a region"):
            members.append(Region.from_polygon(one, _united(rows)))
    if len(members) == 1:
        return replace(members[0], name=name), source
    with refusing(f"{source.path} has no polygons of {name} that make a region"):
        whole = Region.from_polygon(name, shapely.union_all([in_one_turn(each.shape) for each in members]))
    return replace(whole, members=tuple(members)), source


def boundary(path: str | Path) -> tuple[Region, download.Fetched]:
    """The region of all polygons of a file in any CRS, named after the file, and the file.

    Raises
    ------
    InvalidInput
        The file cannot be read, has no CRS or no polygon.
    """
    source = download.resolve(path)
    frame = read_polygons(source.path)
    with refusing(f"{path} holds no polygons that make a region"):
        return Region.from_polygon(source.path.stem, _united(frame)), source


def read_polygons(path: Path, near: Region | None = None) -> geopandas.GeoDataFrame:
    """Polygons of a vector file in WGS84; with `near`, only those whose box meets the region's.

    Raises
    ------
    InvalidInput
        The file is missing, cannot be read, has no CRS or holds no polygon.
    """
    if not path.exists():
        raise InvalidInput(f"The file {path} does not exist.")
    if path.is_file() and (size := path.stat().st_size) > MOST_BYTES:
        raise InvalidInput(
            f"{path} has {size / 2**30:.3g} GiB, more than {MOST_BYTES / 2**30:g} for polygons; cut it to the place, or "
            "simplify it (ogr2ogr -simplify)."
        )
    remedy = "; give a zipped shapefile, GeoPackage, GeoJSON or GeoParquet."
    with refusing(f"{path} cannot be read as a vector file", remedy):
        check_intact(path)
        return _polygons(path, near)


def _polygons(path: Path, near: Region | None) -> geopandas.GeoDataFrame:
    """`read_polygons`, of a file that is there."""
    frames = [_read(path, box) for box in _boxes(path, near)]
    frame = frames[0]
    if frame.crs is None:
        raise InvalidInput(
            f"{path} does not say its coordinate reference system; add its .prj file or write the CRS into it."
        )
    if len(frames) > 1:
        both = geopandas.pd.concat(frames)  # by the file's ids: what meets both boxes is there twice
        frame = geopandas.GeoDataFrame(both[~both.index.duplicated()], crs=frame.crs)
    areal = frame.geometry.geom_type.isin(["Polygon", "MultiPolygon"])
    if near is None and not areal.any():
        kinds = _listed(sorted({str(t) for t in frame.geometry.geom_type})) if len(frame) else "no feature"
        raise InvalidInput(f"{path} holds no polygon ({kinds}); give a file of polygons.")
    frame = frame[areal]
    valid = frame.geometry.map(lambda shape: repaired(shape, str(path)))
    return _in_degrees(frame.set_geometry(valid), path)


def _in_degrees(frame: geopandas.GeoDataFrame, path: Path) -> geopandas.GeoDataFrame:
    """The same polygons in WGS84."""
    try:
        degrees = frame.to_crs(4326)
    except pyproj.exceptions.ProjError as error:
        raise InvalidInput(
            f"The CRS of {path} ({frame.crs.name}) leads to no place on Earth: {error}."
        ) from error
    if len(degrees) and not np.isfinite(degrees.total_bounds).all():
        raise InvalidInput(f"{path} has coordinates that do not exist in its CRS ({frame.crs.name}).")
    return degrees if frame.crs.is_geographic else degrees.set_geometry(degrees.geometry.map(unwound))


@dataclass(frozen=True, eq=False)
class UrbanAreas:
    """Census urban areas near a region, of one vintage ("2010" or "2020")."""

    shapes: NDArray[Any]
    vintage: str
    source: download.Fetched
    region: Region

    @classmethod
    def read(cls, path: str | Path, region: Region) -> "UrbanAreas":
        """Urban areas of either vintage; the vintage is told by the columns UACE10 or UACE20."""
        source = download.resolve(path)
        frame = read_polygons(source.path, near=region)
        vintages = [vintage for column, vintage in VINTAGES.items() if column in frame]
        if len(vintages) != 1:
            raise InvalidInput(
                f"{source.path} is not a Census urban-area file: it has the columns {_listed(frame.columns)}, "
                "where UACE10 or UACE20 was expected."
            )
        pieces = [
            piece
            for shape in frame.geometry
            for piece in subdivide(Region.from_polygon("urban area", shape).shape)
        ]
        # one turn of longitude for all: that of the region
        moved = [shift(piece, _turns(region, piece)) for piece in pieces]
        return cls(np.array(moved, dtype=object), vintages[0], source, region)

    @cached_property
    def _tree(self) -> shapely.STRtree:
        return shapely.STRtree(self.shapes)

    def hold(self, lon: ArrayLike, lat: ArrayLike) -> NDArray[np.bool_]:
        """Which points lie in an urban area, (N,)."""
        points = shapely.points(self.region.turn(lon), np.asarray(lat, np.float64))
        found = np.zeros(len(points), bool)
        found[self._tree.query(points, predicate="intersects")[0]] = True
        return found

    def share(self, boxes: ArrayLike) -> NDArray[np.float64]:
        """Share of each box's area that is urban, in [0, 1], (N,); boxes as from `Region.tile_boxes`.

        Areas are compared in degrees: within one 600 m tile that is exact to 0.01%.
        """
        boxes = np.asarray(boxes, dtype=object)
        row, piece = self._tree.query(boxes, predicate="intersects")
        areas = shapely.area(shapely.intersection(boxes[row], self.shapes[piece]))
        total = np.bincount(row, weights=areas, minlength=len(boxes))
        return np.minimum(total / shapely.area(boxes), 1.0)


def subdivide(shape: shapely.Geometry, max_vertices: int = 256) -> list[shapely.Geometry]:
    """Polygons of at most `max_vertices` that together cover the shape: quick to intersect with small boxes."""
    parts = polygons(shape)
    small: list[shapely.Geometry] = []
    while parts:
        part = parts.pop()
        if shapely.get_num_coordinates(part) <= max_vertices:
            small.append(part)
            continue
        west, south, east, north = part.bounds
        x, y = (west + east) / 2, (south + north) / 2
        wide = east - west > north - south
        halves = (
            (shapely.box(west, south, x, north), shapely.box(x, south, east, north))
            if wide
            else (shapely.box(west, south, east, y), shapely.box(west, y, east, north))
        )
        for half in halves:
            parts.extend(polygons(shapely.intersection(part, half)))
    return small


def _united(frame: geopandas.GeoDataFrame) -> shapely.Geometry:
    """One geometry of all rows; a single row is taken as it is, which for Alaska saves seconds."""
    return frame.geometry.iloc[0] if len(frame) == 1 else frame.union_all()


def _turns(region: Region, shape: shapely.Geometry) -> float:
    middle = (shape.bounds[0] + shape.bounds[2]) / 2
    return float(np.round((region.turn(middle) - middle) / 360) * 360)


def _boxes(path: Path, near: Region | None) -> list[tuple[float, float, float, float] | None]:
    if near is None or path.suffix == ".parquet":
        return [None]
    crs = pyogrio.read_info(path)["crs"]
    if crs is None or not pyproj.CRS.from_user_input(crs).is_geographic:
        return [None]
    pad = 0.01  # more than a tile and any datum shift
    return [(w - pad, s - pad, e + pad, n + pad) for w, s, e, n in near.boxes()]


def _read(path: Path, box: tuple[float, float, float, float] | None) -> geopandas.GeoDataFrame:
    if path.suffix == ".parquet":
        return geopandas.read_parquet(path)
    frame = geopandas.read_file(path, bbox=box, engine="pyogrio", fid_as_index=True)
    if not isinstance(frame, geopandas.GeoDataFrame):
        raise ValueError("it has no geometry")
    return frame


def _listed(names: Any) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:60]) + (f" and {len(names) - 60} more" if len(names) > 60 else "")

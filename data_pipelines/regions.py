"""The place a table covers: a polygon or a box, its tiles, and its metric CRS.

Longitudes inside a `Region` are continuous: a region that crosses 180 degrees (the Aleutians) is unrolled
past it, and every longitude asked about is brought into the same turn first.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyproj
import shapely
from jaxtyping import Bool, Shaped
from numpy.typing import ArrayLike, NDArray
from shapely.geometry.base import BaseGeometry

from data_pipelines import quadkey, zorder
from data_pipelines.covering import Covering
from data_pipelines.errors import InvalidInput
from data_pipelines.remembered import Remembered
from data_pipelines.repair import repaired

#: Of the polygon that a table and its runs carry: 5 MB of JSON. Alaska's at 1:500,000 has 117,000.
MOST_VERTICES = 200_000


@dataclass(frozen=True, eq=False)
class Region:
    """A named area of the Earth.

    Parameters
    ----------
    name : the state code, or what else the user called it
    shape : polygon in degrees of WGS84, longitudes continuous (see `from_polygon`)
    bbox : (W, S, E, N) as given when the region is a box; then it is no boundary to mask a map with
    members : the regions it is made of, where it is made of several
    """

    name: str
    shape: BaseGeometry
    bbox: tuple[float, float, float, float] | None = None
    members: "tuple[Region, ...]" = ()

    @classmethod
    def from_polygon(cls, name: str, shape: BaseGeometry) -> "Region":
        """The region of a polygon in WGS84 degrees; parts on both sides of 180 degrees are brought together.

        Raises
        ------
        InvalidInput
            No degrees, no polygon, or one that crosses itself too often to be repaired.
        """
        shape = _unroll(repaired(shape, f"Region {name!r}"))
        west, south, east, north = shape.bounds
        if south < -90 or north > 90 or east - west > 360:
            raise InvalidInput(
                f"Region {name!r} spans {west:g} to {east:g} by {south:g} to {north:g}, which are not degrees "
                "of longitude and latitude; check the CRS of its file."
            )
        return cls(name, shape)

    @classmethod
    def from_bbox(cls, bbox: tuple[float, float, float, float]) -> "Region":
        """The region of a box W, S, E, N in degrees.

        W > E is read as a box across 180 degrees when that box is at most 180 degrees wide (RFC 7946);
        the other way round it can only be two swapped corners, which are refused.
        """
        if len(bbox) != 4 or not np.isfinite(bbox).all():
            raise InvalidInput(f"A bounding box is four numbers W S E N in degrees; got {bbox}.")
        west, south, east, north = (float(v) for v in bbox)
        shown = f"{west:g} {south:g} {east:g} {north:g}"
        if max(abs(south), abs(north)) > 90 or max(abs(west), abs(east)) > 180:
            raise InvalidInput(
                f"The bounding box {shown} leaves -180..180 by -90..90; give W S E N in degrees, longitude first."
            )
        if south >= north or west == east:
            raise InvalidInput(
                f"The bounding box {shown} has south {south:g} not below north {north:g} or no width; "
                "give the corners as W S E N."
            )
        if west > east and west - east < 180:
            raise InvalidInput(
                f"The bounding box {shown} has west {west:g} east of {east:g}; swap them: W S E N is "
                f"{east:g} {south:g} {west:g} {north:g}."
            )
        shape = shapely.box(west, south, east if east > west else east + 360, north)
        return cls("bbox", shape, (west, south, east, north))

    def __str__(self) -> str:
        if self.bbox:
            return "the bounding box " + " ".join(f"{edge:g}" for edge in self.bbox)
        return f"region {self.name}"

    @cached_property
    def crs(self) -> pyproj.CRS:
        """Lambert azimuthal equal-area, metres, its centre the polygon's centroid rounded to 0.1 degree.

        The centroid, not the middle of the box: far islets must not pull the centre away from the land. Of what is
        wider than half a turn, that on the sphere: of a cap it is the pole.
        """
        west, _, east, _ = self.shape.bounds
        if east - west > 180 and (middle := _middle_on_sphere(self.shape)):
            return local_crs(*middle)
        return local_crs(self.shape.centroid.x, self.shape.centroid.y)

    def turn(self, lon: ArrayLike) -> NDArray[np.float64]:
        """Longitudes brought within half a turn of the region's middle."""
        west, _, east, _ = self.shape.bounds
        start = (west + east) / 2 - 180
        return start + (np.asarray(lon, np.float64) - start) % 360

    def boxes(self) -> list[tuple[float, float, float, float]]:
        """The region's box as one, or two either side of 180 degrees, (W, S, E, N) within -180..180."""
        west, south, east, north = self.shape.bounds
        parts = [(west, east)]
        if west < -180:
            parts = [(west + 360, 180.0), (-180.0, east)]
        elif east > 180:
            parts = [(west, 180.0), (-180.0, east - 360)]
        return [(w, south, e, north) for w, e in parts]

    def holds_tiles(self, x: ArrayLike, y: ArrayLike) -> Bool[np.ndarray, " N"]:
        """Which zoom-16 tiles have a box that intersects the region, (N,).

        Each distinct tile in a cell of the covering is tested once against the prepared polygon; answers are kept,
        because tiles recur from quarter to quarter.
        """
        codes = zorder.of_tiles(x, y)
        inside = self.covering.near(codes)
        inside[inside] = self._meets(codes[inside])
        return inside

    def names(
        self, lon: NDArray[np.float64], lat: NDArray[np.float64], codes: NDArray[np.int64] | None
    ) -> NDArray[np.str_]:
        """The name of the region, or of the member, that rows (N,) of it belong to.

        codes : of tiles; then it is the member that holds the centre (lon, lat), else the first that meets the tile
        """
        if not self.members:
            return np.full(len(lon), self.name)
        names = np.array([member.name for member in self.members])
        if codes is not None:
            return names[self._member(codes)]
        holds = [member.holds_points(lon, lat) for member in self.members]
        return names[np.argmax(holds, axis=0)]

    def holds_points(self, lon: ArrayLike, lat: ArrayLike) -> Bool[np.ndarray, " N"]:
        """Which points lie in the region or on its edge, (N,)."""
        return shapely.intersects_xy(self._prepared, self.turn(lon), np.asarray(lat, np.float64))

    def tile_boxes(self, x: ArrayLike, y: ArrayLike) -> Shaped[np.ndarray, " N"]:
        """Boxes of zoom-16 tiles in the region's turn of longitude, as shapely polygons, (N,)."""
        edges = quadkey.bounds(x, y)
        middle = self.turn((edges.west + edges.east) / 2)
        half = (edges.east - edges.west) / 2
        return shapely.box(middle - half, edges.south, middle + half, edges.north)

    @cached_property
    def covering(self) -> Covering:
        """The cells of zoom 8 that the region can meet."""
        return Covering.of(self._tile_window, self._meets_cells)

    def boundary(self) -> dict[str, Any] | None:
        """GeoJSON geometry of the polygon, cut at 180 degrees (RFC 7946); None for a box.

        To 0.1 m, or, of more than `MOST_VERTICES`, as finely as so many show it: by steps of 1, 2, 4 m, ..
        """
        if self.bbox is not None:
            return None
        return _geojson(in_one_turn(_thinned(self.shape)))

    @cached_property
    def _prepared(self) -> BaseGeometry:
        shapely.prepare(self.shape)
        return self.shape

    @cached_property
    def _meets(self) -> Remembered:
        """Whether the box of a tile, by its code, intersects the region."""
        return Remembered(
            lambda codes: shapely.intersects(self._prepared, self.tile_boxes(*zorder.tiles(codes)))
        )

    @cached_property
    def _member(self) -> Remembered:
        """The number of the member that a tile belongs to, by its code."""

        def ask(codes: NDArray[np.int64]) -> NDArray[np.int64]:
            x, y = zorder.tiles(codes)
            lon, lat = quadkey.centre(x, y)
            found = np.full(len(codes), -1)
            for number, member in enumerate(self.members):
                free = np.flatnonzero((found < 0) & member.covering.near(codes))
                found[free[member.holds_points(lon[free], lat[free])]] = number
            for number, member in enumerate(self.members):
                free = np.flatnonzero(found < 0)
                found[free[member.holds_tiles(x[free], y[free])]] = number
            return np.maximum(found, 0)

        return Remembered(ask)

    def _meets_cells(self, x: NDArray[np.int64], y: NDArray[np.int64], zoom: int) -> NDArray[np.bool_]:
        """Which cells intersect the region, in whichever turn of longitude."""
        west, south, east, north = quadkey.bounds(x, y, zoom)
        hair = 1e-6  # more than the rounding of a tile's edges
        return np.any(
            [
                shapely.intersects(
                    self._prepared,
                    shapely.box(west + turn - hair, south - hair, east + turn + hair, north + hair),
                )
                for turn in (-360.0, 0.0, 360.0)
            ],
            axis=0,
        )

    @cached_property
    def _tile_window(self) -> tuple[int, int, int, int]:
        """First column and row of tiles that can meet the region, and how many follow them."""
        west, south, east, north = self.shape.bounds
        n = 1 << quadkey.ZOOM
        first, last = (int(np.floor((lon + 180) / 360 * n)) for lon in (west, east))
        _, (y0, y1) = quadkey.tile_of([0, 0], [north, south])
        return first % n, int(y0), min(last - first, n - 1), int(y1 - y0)


def local_crs(lon: float, lat: float) -> pyproj.CRS:
    """Lambert azimuthal equal-area CRS in metres, its centre rounded to 0.1 degree.

    Equal-area, so that a pixel is the same ground everywhere; distances within 300 km of the centre are
    true to 0.03%.
    """
    lon, lat = round((lon + 180) % 360 - 180, 1), round(lat, 1)
    conversion = pyproj.crs.coordinate_operation.LambertAzimuthalEqualAreaConversion(lat, lon)
    name = f"Local equal-area, centre {lat:g} {lon:g}"
    return pyproj.crs.ProjectedCRS(conversion, name=name, geodetic_crs=pyproj.CRS.from_epsg(4326))


def _middle_on_sphere(shape: BaseGeometry) -> tuple[float, float] | None:
    """Longitude and latitude of the mean of the shape's unit vectors, from some 16,000 of them; None without any."""
    west, south, east, north = shape.bounds
    lon = np.linspace(west, east, 257)[:-1] + (east - west) / 512
    lat = np.linspace(south, north, 65)[:-1] + (north - south) / 128
    u, v = (a.ravel() for a in np.meshgrid(lon, lat))
    inside = shapely.contains_xy(shape, u, v)
    u, v = np.radians(u[inside]), np.radians(v[inside])
    x, y, z = (
        float((c * np.cos(v)).sum()) for c in (np.cos(v) * np.cos(u), np.cos(v) * np.sin(u), np.sin(v))
    )
    size = float(np.cos(v).sum())
    if np.hypot(x, y) < 1e-3 * size:
        x = y = 0.0
    if not size or np.hypot(z, np.hypot(x, y)) < 0.1 * size:
        return None
    return float(np.degrees(np.arctan2(y, x))), float(np.degrees(np.arctan2(z, np.hypot(x, y))))


def polygons(shape: BaseGeometry) -> list[BaseGeometry]:
    """The polygons of a geometry, without the lines and points that repairs and cuts leave."""
    parts = shapely.get_parts(shapely.get_parts(shape))
    return [part for part in parts if shapely.get_type_id(part) == 3 and not part.is_empty]


def in_one_turn(shape: BaseGeometry) -> BaseGeometry:
    """The polygons with all longitudes within -180..180, cut there where they go beyond."""
    west, _, east, _ = shape.bounds
    if west >= -180 and east <= 180:
        return shape
    turns = np.arange(np.floor((west + 180) / 360), np.floor((east + 180) / 360) + 1) * 360.0
    return shapely.MultiPolygon(
        [
            shift(part, -turn)
            for turn in turns.tolist()
            for part in polygons(shapely.intersection(shape, shapely.box(turn - 180, -90, turn + 180, 90)))
        ]
    )


def unwound(shape: BaseGeometry) -> BaseGeometry:
    """What a (multi)polygon of another projection becomes in degrees, within -180..180.

    Its edges go the shorter way round; one about a pole reaches up to it.
    """
    west, _, east, _ = shape.bounds
    if not east - west > 180:
        return shape
    parts = [part for whole in polygons(shape) for part in polygons(in_one_turn(_unroll_polygon(whole)))]
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def shift(shape: BaseGeometry, degrees: float) -> BaseGeometry:
    """The geometry moved east."""
    return shapely.transform(shape, lambda xy: xy + [degrees, 0.0]) if degrees else shape


def _thinned(shape: BaseGeometry) -> BaseGeometry:
    """The shape with at most `MOST_VERTICES`, unless it has more parts than that: at 1 km it is left as it is."""
    metres = 1.0
    while shapely.get_num_coordinates(shape) > MOST_VERTICES and metres < 1000.0:
        shape = shapely.simplify(shape, metres / 111_195.0, preserve_topology=True)
        metres *= 2
    return shape


def _geojson(shape: BaseGeometry) -> dict[str, Any]:
    return dict(shapely.geometry.mapping(shapely.transform(shape, lambda xy: np.round(xy, 6))))


def _unroll(shape: BaseGeometry) -> BaseGeometry:
    """The same polygons with longitudes continuous across 180 degrees.

    The parts' longitudes are laid on a circle; the region starts where the widest empty arc ends.
    """
    parts = [_unroll_polygon(part) for part in polygons(shape)]
    if not parts:
        raise InvalidInput("The region has no polygon in it; give a file of polygons.")
    spans = sorted((part.bounds[0] % 360, part.bounds[2] - part.bounds[0]) for part in parts)
    start, reach, gap = spans[0][0], spans[0][0] + spans[0][1], -1.0
    for west, width in spans[1:]:
        if west - reach > gap:
            start, gap = west, west - reach
        reach = max(reach, west + width)
    if spans[0][0] + 360 - reach >= gap:
        start = spans[0][0]
    start = (start + 180) % 360 - 180
    turned = [shift(part, 360 * float(np.ceil((start - part.bounds[0] - 1e-9) / 360))) for part in parts]
    # weld what a file cut at 180 degrees; the other parts of a valid polygon do not touch
    cut = [any(abs(edge % 360 - 180) < 1e-6 for edge in (p.bounds[0], p.bounds[2])) for p in turned]
    whole = [part for part, at_cut in zip(turned, cut, strict=True) if not at_cut]
    if any(cut):
        whole += polygons(
            shapely.union_all([part for part, at_cut in zip(turned, cut, strict=True) if at_cut])
        )
    return whole[0] if len(whole) == 1 else shapely.MultiPolygon(whole)


def _unroll_polygon(polygon: BaseGeometry) -> BaseGeometry:
    """A polygon with edges longer than half a turn, each taken the shorter way round, across 180 degrees or a pole.

    That is how a file in a polar or Alaskan projection comes back to degrees. Others are left as they are.
    """
    west, _, east, _ = polygon.bounds
    if east - west <= 180:
        return polygon
    rings = [np.asarray(ring.coords)[:, :2].copy() for ring in (polygon.exterior, *polygon.interiors)]
    for ring in rings:
        ring[:, 0] = np.unwrap(ring[:, 0], period=360)
        ring[:, 0] += 360 * np.round((rings[0][0, 0] - ring[0, 0]) / 360)
    if abs(rings[0][-1, 0] - rings[0][0, 0]) > 180:  # it winds about a pole
        inner = shapely.union_all([in_one_turn(_filled(ring)) for ring in rings[1:]])
        return shapely.difference(in_one_turn(_filled(rings[0])), inner)
    unrolled = shapely.Polygon(rings[0], rings[1:])
    ok = unrolled.is_valid and 0 < unrolled.area < polygon.area
    return unrolled if ok else polygon


def _filled(ring: NDArray[np.float64]) -> BaseGeometry:
    """What an unwrapped ring encloses; of one that winds about a pole, all up to it."""
    start, end = ring[0, 0], ring[-1, 0]
    if abs(end - start) < 180:
        return shapely.Polygon(ring)
    pole = np.copysign(90.0, ring[:, 1].mean())
    back = np.linspace(end, start, 9)  # edges of 45 degrees: none that could go the other way round
    return shapely.Polygon(np.vstack([ring, np.column_stack([back, np.full(9, pole)])]))

"""Which pixels a map of a run has: the grid, its bounded size, and the mask of region or support."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer
from shapely.geometry.base import BaseGeometry

from app.choices import map_crs
from app.errors import InvalidInput
from data_pipelines.regions import unwound
from data_pipelines.sources import SOURCES
from geogp.errors import check_metres
from geogp.run import Run
from maps.grid import Window, geobox_like, windows, wkt_of
from maps.mercator import MERCATOR_HALF
from maps.region import NEAR_M, Mask, in_frame, near_data, polygon, to_crs
from maps.words import number

#: Side of a pixel where nothing is said: a little less than a tile at 40 degrees.
RESOLUTION_M = 500.0
#: Bounds on what nothing-was-said may cost: pixels to compute, and pixels of the whole rectangle.
MAX_INSIDE, MAX_WHOLE = 2_000_000, 40_000_000
#: Points that tell how much of a rectangle lies near data.
PROBE = 1 << 16
#: Even what was asked for has a bound: beyond it is a slip of the keyboard.
MAX_ASKED = 20_000_000_000
#: Zoom of Ookla's tiles.
TILE_ZOOM = 16
METRES_PER_DEGREE = 111_320.0
HALF_EARTH_M = 20_040_000.0
#: West, south, east, north.
Box = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Grid:
    """The pixels of a map, and which of them get a value.

    geobox : in any CRS; boundary : GeoJSON polygon in degrees, or None
    max_distance_m : the farthest a pixel may lie from a training place, None for any distance
    note : what was decided, when that should be said
    left_out : parts of the region away from its data that the map leaves out; None where nobody looked
    """

    geobox: GeoBox
    boundary: dict[str, Any] | None
    max_distance_m: float | None
    note: str = ""
    left_out: int | None = None

    @cached_property
    def mask(self) -> Mask:
        return Mask(self.geobox, self.boundary)

    def where(self, window: GeoBox) -> NDArray[np.bool_]:
        """Which pixels of a window of `geobox` lie inside the region: for `geogp.predict`."""
        return self.mask.inside(window_in(self.geobox, window))

    @property
    def pixel_words(self) -> str:
        """The side of a pixel in the unit of its CRS: "500 m", "0.0539 degree"."""
        unit = CRS.from_wkt(self.wkt).axis_info[0].unit_name
        return f"{self.resolution:.3g} {unit}" if unit != "metre" else f"{self.resolution:g} m"

    @property
    def wkt(self) -> str:
        """The CRS of the pixels."""
        assert self.geobox.crs is not None  # every way to a grid names one
        return str(self.geobox.crs.wkt)

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.geobox.shape
        return int(height), int(width)

    @property
    def n_pixels(self) -> int:
        return self.shape[0] * self.shape[1]

    @cached_property
    def n_inside(self) -> int:
        """Pixels that are computed; for a run without boundary, all."""
        if self.boundary is None:
            return self.n_pixels
        return sum(int(self.mask.inside(w).sum()) for w in windows(self.shape) if self.mask.touches(w))

    @property
    def resolution(self) -> float:
        """Side of a pixel in the unit of the CRS."""
        return abs(float(self.geobox.affine.a))


def window_in(whole: GeoBox, part: GeoBox) -> Window:
    """Where a part of a grid lies in it."""
    column, row = ~whole.affine * (part.affine.c, part.affine.f)
    y, x = round(row), round(column)
    return Window(y, y + part.shape[0], x, x + part.shape[1])


def grid_of(
    run: Run,
    *,
    resolution_m: float | None = None,
    like: str | Path | None = None,
    bounds: Box | None = None,
    crs: str | None = None,
    max_distance_m: float | None = None,
) -> Grid:
    """The grid on which to map a run.

    Parameters
    ----------
    run : from `geogp.load`
    resolution_m : side of a pixel; default `usual_side_m`, coarser for regions of more than 2 million such pixels
    like : a raster whose very pixels to take
    bounds : W, S, E, N in degrees to cut to; default the parts of the region around its data, see `with_data`
    crs : of the map; default the run's own metric CRS
    max_distance_m : no values farther than this from every training place; default of a run without boundary three times
        the usual distance between them

    Raises
    ------
    InvalidInput
        options that contradict each other, an unknown CRS, bounds outside the region, too many pixels.
    """
    boundary = run.boundary
    left_out = None
    if boundary is not None and like is None and bounds is None:
        boundary, left_out = with_data(run, boundary)
    reach, words = _distance(max_distance_m), ""
    if boundary is None:
        reach, words = _reach(run, reach)
    if left_out:
        words = (
            f"the map leaves out {left_out} part{'s' * (left_out > 1)} of the region beyond {NEAR_M / 1000:g} km of any data; --bounds takes "
            "in what it names"
        )
    if like is not None:
        if resolution_m is not None or bounds is not None or crs is not None:
            raise InvalidInput(
                "--like takes the raster's own grid; leave --resolution, --bounds and --crs out."
            )
        pixels = geobox_like(like)
        if (asked := float(pixels.shape[0]) * float(pixels.shape[1])) > MAX_ASKED:
            raise InvalidInput(
                f"--like {like} has {asked:.3g} pixels, and a map at most {MAX_ASKED:.3g}; take a coarser raster, or "
                "one cut to the region."
            )
        target = map_crs(wkt_of(pixels), f"--like {like}")
        box, _ = _extent(run, boundary, reach, target, None)
        if not _meets(pixels.boundingbox, box, target):
            raise InvalidInput(f"--like {like} does not meet the region of the run; take a raster that does.")
        return Grid(pixels, boundary, reach, words)
    check_resolution(resolution_m)
    target = map_crs(crs) if crs else run.crs
    box, ground = _extent(run, boundary, reach, target, bounds)
    # Metres to the unit of the CRS; degrees shrink with latitude, so one size serves both axes at the middle.
    unit = (
        1.0 / METRES_PER_DEGREE if target.is_geographic else 1.0 / target.axis_info[0].unit_conversion_factor
    )
    usual = usual_side_m(run)
    side = resolution_m
    if side is None:
        area_m2 = ground.area
        if boundary is None and area_m2 / usual**2 > MAX_INSIDE:  # of a rectangle much may lie far from data
            area_m2 *= _share_near(run, ground.bounds, math.inf if reach is None else reach)
        side = _side(box, area_m2, unit, usual)
    if resolution_m is None and side > usual:
        words = "; ".join(w for w in (words, f"pixels of {side:g} m, because the region is large") if w)
    if (asked := _pixels(box, side * unit)) > MAX_ASKED:
        raise InvalidInput(
            f"--resolution {side:g} would make {asked:.3g} pixels; take a coarser one or --bounds."
        )
    if bounds is not None and boundary is not None:
        boundary = clipped(boundary, bounds)
    return Grid(_snapped(box, side * unit, target), boundary, reach, words, left_out)


def finest_of(run: Run, grid: Grid) -> Grid:
    """The pixels of the usual side on the ground of a grid of a run, however many: nobody computes all of them."""
    box = grid.geobox.boundingbox
    ground = (box.left, box.bottom, box.right, box.top)
    side = min(usual_side_m(run), grid.resolution)
    while _pixels(ground, side) > MAX_ASKED:
        side *= 2
    return Grid(_snapped(ground, side, run.crs), grid.boundary, grid.max_distance_m)


def with_data(run: Run, boundary: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The parts of a run's region around its data (GeoJSON), and how many others there are: a far islet would make the
    rectangle of a map a hundred times as large, one beside the others belongs to it."""
    if not run.has_support:
        return boundary, 0
    region = polygon(boundary)
    near = in_frame(region, near_data(region, run.support.positions_m, run.data["crs"]))
    if near.all():
        return boundary, 0
    shape = shapely.MultiPolygon(list(shapely.get_parts(region)[near]))
    return dict(shapely.geometry.mapping(shape)), int((~near).sum())


def of_tiles(crs: str | None, resolution_m: float | None) -> tuple[str, float]:
    """CRS and side of the pixels of a map whose pixels are Ookla's tiles, for `grid_of`.

    Raises
    ------
    InvalidInput
        another CRS or side was asked for.
    """
    if crs is not None or resolution_m is not None:
        raise InvalidInput("--tiles chooses CRS and pixels; leave --crs and --resolution out.")
    return "EPSG:3857", 2 * MERCATOR_HALF / 2**TILE_ZOOM


def check_resolution(metres: float | None) -> None:
    """Refuse a --resolution that is no length.

    Raises
    ------
    InvalidInput
    """
    check_metres(metres, "--resolution")
    if metres is not None and metres > HALF_EARTH_M:
        raise InvalidInput(f"--resolution must be at most {HALF_EARTH_M:,.0f} m; got {metres:g}.")


def ground_words(km2: float) -> str:
    """Square kilometres as tables have them.

    >>> ground_words(1234567.8), ground_words(0.4567)
    ('1,234,568', '0.457')
    """
    return f"{km2:,.0f}" if km2 >= 100 else number(km2)


def length_words(metres: float) -> str:
    """A length as people say it.

    >>> length_words(573.8), length_words(2000)
    ('574 m', '2 km')
    """
    return f"{metres:.3g} m" if metres < 999.5 else f"{metres / 1000:.3g} km"


def _reach(run: Run, asked: float | None) -> tuple[float, str]:
    """How far a map without boundary reaches, and that in words."""
    reach = asked if asked is not None else usual_reach_m(run)
    return (
        reach,
        f"the run has no boundary, so the map reaches {length_words(reach)} from any training place",
    )


def _distance(asked: float | None) -> float | None:
    """A --max-distance, None where none was asked for."""
    check_metres(asked, "--max-distance")
    if asked is not None and asked > HALF_EARTH_M:
        raise InvalidInput(
            f"--max-distance must be at most {HALF_EARTH_M:,.0f} m, half way round the Earth; got {asked:g}."
        )
    return asked


def _pixels(box: Box, step: float) -> float:
    """How many pixels of a side the box takes."""
    left, bottom, right, top = box
    return (right - left) / step * ((top - bottom) / step)


def _side(box: Box, area_m2: float, unit: float, side: float) -> float:
    """Metres: the usual side, doubled until the map is not too large."""
    while area_m2 / side**2 > MAX_INSIDE or _pixels(box, side * unit) > MAX_WHOLE:
        side *= 2
    return side


def _snapped(box: Box, step: float, crs: CRS) -> GeoBox:
    """The pixels that cover a box, their lines at multiples of their side."""
    left, bottom, right, top = box
    x, y = math.floor(left / step) * step, math.floor(bottom / step) * step
    shape = (max(1, math.ceil((top - y) / step)), max(1, math.ceil((right - x) / step)))
    return GeoBox.from_bbox((x, y, x + shape[1] * step, y + shape[0] * step), crs=crs.to_wkt(), shape=shape)


def usual_reach_m(run: Run) -> float:
    """How far from training places a map may reach: three times the distance that holds nine in ten of their gaps; of
    tiles at least 2 km."""
    gap = run.support.usual_gap_m
    least = 2000.0 if of_tiled_source(run) or gap is None else 0.0
    return max(least, 3.0 * (gap or 0.0))


def of_tiled_source(run: Run) -> bool:
    """Whether a run's measurements are of tiles, whose size is known; of an unknown source, too."""
    return measures_tiles(run.data.get("source"))


def measures_tiles(source: str | None) -> bool:
    """Whether what a source measures are tiles; of an unknown one, too."""
    known = SOURCES.get(source or "")
    return known is None or known.tiled


def usual_side_m(run: Run) -> float:
    """The side of a pixel where nothing is said: 500 m for tiles; else half the usual distance between places, to one
    digit."""
    if of_tiled_source(run) or not len(run.support.gaps_m):
        return RESOLUTION_M
    return float(f"{0.5 * np.median(run.support.gaps_m):.1g}")


def _extent(
    run: Run, boundary: dict[str, Any] | None, reach_m: float | None, target: CRS, bounds: Box | None
) -> tuple[Box, BaseGeometry]:
    """The box to map in the target CRS, and the ground in it that may have values in the run's."""
    own = run.crs
    if boundary is not None:
        shape = polygon(boundary)
        ground = to_crs(shape, own.to_wkt())
    else:
        places = run.support.positions_m
        low, high = places.min(axis=0) - reach_m, places.max(axis=0) + reach_m
        ground = shapely.box(*low, *high)
    if bounds is not None:
        ground = _cut(ground, bounds, own)
    if target.equals(own):
        return ground.bounds, ground
    # Corner to corner is not enough in another projection: carry the outline itself.
    outline = shapely.get_coordinates(shapely.segmentize(ground, 5000.0))
    u, v = Transformer.from_crs(own, target, always_xy=True).transform(outline[:, 0], outline[:, 1])
    u, v = np.asarray(u), np.asarray(v)
    if target.is_geographic and np.ptp(u) > 180:
        u = np.where(u < 0, u + 360, u)
    if not (np.isfinite(u).all() and np.isfinite(v).all()):
        raise InvalidInput(f"Part of the map cannot be expressed in {target.name}; choose another --crs.")
    return (float(u.min()), float(v.min()), float(u.max()), float(v.max())), ground


def _share_near(run: Run, box: Box, reach_m: float) -> float:
    """About how much of a box of the run's CRS lies within reach of a training place: some thousand points of it tell."""
    low, high = np.array(box[:2]), np.array(box[2:])
    places = low + np.random.default_rng(0).random((PROBE, 2)) * (high - low)
    near = np.isfinite(run.support.distances_m(places, reach_m))
    return max(1, int(near.sum())) / PROBE


def _meets(one: Any, other: Box, crs: CRS) -> bool:
    """Whether two boxes of a CRS share ground; degrees may be a turn apart."""
    turns = (-360.0, 0.0, 360.0) if crs.is_geographic else (0.0,)
    left, bottom, right, top = other
    apart = one.top <= bottom or one.bottom >= top
    return not apart and any(one.left + t < right and one.right + t > left for t in turns)


def clipped(boundary: dict[str, Any], bounds: Box) -> dict[str, Any]:
    """The part of a GeoJSON polygon inside W, S, E, N in degrees; W > E crosses 180 degrees. Empty where there is none."""
    west, south, east, north = bounds
    east += 360 * (west > east)
    turns = shapely.union_all([shapely.box(west + t, south, east + t, north) for t in (-360, 0, 360)])
    cut = shapely.intersection(polygon(boundary), turns)
    return dict(
        shapely.geometry.mapping(shapely.segmentize(cut, 45.0))
    )  # edges that can go one way round only


def _cut(ground: Any, bounds: Box, own: CRS) -> Any:
    """The part of the ground inside W, S, E, N in degrees."""
    west, south, east, north = (float(v) for v in bounds)
    shown = f"{west:g} {south:g} {east:g} {north:g}"
    if west > east and west - east >= 180:  # as ingest reads it: across 180 degrees
        east += 360
    if not (-90 <= south < north <= 90 and -360 <= west < east <= 540 and east - west <= 360):
        raise InvalidInput(
            f"--bounds {shown} are not W S E N in degrees; give west and south before east and north, or west and east "
            "of 180 degrees."
        )
    to_degrees = Transformer.from_crs(own, 4326, always_xy=True)

    def to_lonlat(xy: NDArray[Any]) -> NDArray[Any]:
        u, v = to_degrees.transform(xy[:, 0], xy[:, 1])
        return np.column_stack([u, v])

    def project(xy: NDArray[Any]) -> NDArray[Any]:
        u, v = Transformer.from_crs(4326, own, always_xy=True).transform(xy[:, 0], xy[:, 1])
        return np.column_stack([u, v])

    # In degrees: a large box has no outline in the plane of a region far from it.
    lonlat = unwound(shapely.transform(shapely.segmentize(ground, 5000.0), to_lonlat))
    turns = shapely.union_all([shapely.box(west + t, south, east + t, north) for t in (-360, 0, 360)])
    cut = shapely.intersection(shapely.make_valid(lonlat), turns)
    if cut.is_empty or cut.area == 0:
        raise InvalidInput(f"--bounds {shown} do not meet the region of the run.")
    if shapely.covers(turns, lonlat):
        return ground
    return shapely.transform(shapely.segmentize(cut, 0.05), project)

"""The region's polygon: read from GeoJSON, carried to the grid, and asked which pixels lie inside."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import shapely
import shapely.geometry
from affine import Affine
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer
from shapely.geometry.base import BaseGeometry

from maps.errors import InvalidInput
from maps.grid import Window, continuous, is_geographic, wkt_of

#: Lines to draw: [(lon, lat), ..] each.
Lines = Iterable[Sequence[Sequence[float]]]

DENSE_DEGREES = 0.05  # longest edge after densifying: 5.5 km bows by less than 1 m in a metric projection
NEAR_M = 50_000.0  # parts of a region farther than this from every measured place are left out of maps

WELD_M = 0.01  # what two sides of a cut at 180 degrees may differ by after they were carried to a plane
BESIDE = 1.25  # parts beside them are shown while the frame grows by this at most


def polygon(geometry: Mapping[str, Any]) -> BaseGeometry:
    """A valid shapely (multi)polygon in longitude and latitude from a GeoJSON geometry, or what offers itself as one.

    A Feature or FeatureCollection is accepted too. An edge longer than 180 degrees of longitude is read as one that
    crosses the antimeridian; rings given in 0..360 degrees or split at 180 (RFC 7946) are both understood.

    Raises
    ------
    InvalidInput : not GeoJSON, not a polygon, empty, or coordinates that are not degrees
    """
    if not isinstance(geometry, Mapping) and hasattr(geometry, "__geo_interface__"):
        geometry = geometry.__geo_interface__  # shapely's, geopandas'
    if not isinstance(geometry, Mapping):
        raise InvalidInput(f"A region is a GeoJSON geometry (a dict); got {type(geometry).__name__}.")
    kind = geometry.get("type")
    if kind == "Feature":
        return polygon(geometry.get("geometry") or {})
    if kind == "FeatureCollection":
        features = geometry.get("features") or []
        if not features:
            raise InvalidInput("The region's FeatureCollection holds no feature.")
        return shapely.union_all([polygon(f) for f in features])
    if kind not in ("Polygon", "MultiPolygon"):
        raise InvalidInput(f"A region must be a GeoJSON Polygon or MultiPolygon; got type {kind!r}.")
    try:
        with np.errstate(invalid="ignore"):  # coordinates that are not numbers are refused below
            shape = shapely.geometry.shape(geometry)
    except (
        TypeError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
        shapely.errors.ShapelyError,
    ) as error:
        raise InvalidInput(
            f"The region's GeoJSON coordinates cannot be read as a {kind} ({error})."
        ) from None
    if shape.is_empty:
        raise InvalidInput("The region is empty: its GeoJSON has no coordinates.")
    xy = shapely.get_coordinates(shape)
    if not np.isfinite(xy).all() or np.abs(xy[:, 1]).max() > 90 or np.abs(xy[:, 0]).max() > 360:
        raise InvalidInput(
            "The region's coordinates are not longitudes and latitudes in degrees (EPSG:4326): "
            f"x runs from {xy[:, 0].min():g} to {xy[:, 0].max():g}, y from {xy[:, 1].min():g} to {xy[:, 1].max():g}."
        )
    if _jumps(shape):
        shape = _unwrap(shape)
    if not shape.is_valid:
        shape = shapely.make_valid(shape)
    parts = polygons_of(shape)
    if not parts:
        raise InvalidInput("The region has no area: all its points lie on a line.")
    whole = shapely.MultiPolygon(parts) if len(parts) > 1 else parts[0]
    return whole if whole.is_valid else shapely.union_all(parts)


def _rings(shape: BaseGeometry) -> list[NDArray[Any]]:
    return [shapely.get_coordinates(r) for p in shapely.get_parts(shape) for r in (p.exterior, *p.interiors)]


def _jumps(shape: BaseGeometry) -> bool:
    return any(np.abs(np.diff(r[:, 0])).max(initial=0) > 180 for r in _rings(shape))


def _unwrap(shape: BaseGeometry) -> BaseGeometry:
    def ring(r: Any) -> NDArray[Any]:
        c = shapely.get_coordinates(r).copy()
        c[:, 0] = np.unwrap(c[:, 0], period=360)
        return c

    parts = []
    for p in shapely.get_parts(shape):
        outer = ring(p.exterior)
        holes = []
        for h in p.interiors:
            hole = ring(h)
            turns = np.round((outer[:, 0].mean() - hole[:, 0].mean()) / 360)
            hole[:, 0] += 360 * turns
            holes.append(hole)
        parts.append(shapely.Polygon(outer, holes))
    return shapely.MultiPolygon(parts)


def to_crs(shape: BaseGeometry, crs: Any) -> BaseGeometry:
    """A polygon in degrees carried to `crs`, its edges first densified so that they bow as they should."""
    dense = shapely.segmentize(shape, DENSE_DEGREES)
    target = _known(crs) if isinstance(crs, str) else CRS.from_user_input(crs)
    if target.is_geographic:
        return dense
    moved = shapely.transform(dense, _projection(crs if isinstance(crs, str) else target.to_wkt()))
    if not np.isfinite(shapely.get_coordinates(moved)).all():
        raise InvalidInput(f"Part of the region cannot be expressed in the grid's CRS ({target.name}).")
    if (
        np.abs(shapely.bounds(shapely.get_parts(shape))[:, ::2]) >= 180
    ).any():  # weld what was cut at 180 degrees
        whole = shapely.set_precision(shapely.make_valid(moved), WELD_M)
        return shapely.union_all(polygons_of(whole))
    return moved if moved.is_valid else shapely.make_valid(moved)


def is_plain(shapes: NDArray[Any]) -> NDArray[np.bool_]:
    """Which (multi)polygons in degrees are valid and stay clear of 180 degrees, so that `polygon` leaves them as they are."""
    box = shapely.bounds(shapes)
    inside = (np.abs(box[:, ::2]) < 180).all(axis=1) & (box[:, 2] - box[:, 0] <= 180)
    return np.asarray(inside & shapely.is_valid(shapes))


def plain_to_crs(shapes: NDArray[Any], crs: str) -> NDArray[Any]:
    """`to_crs` of each of many plain polygons, see `is_plain`, in a tenth of the time: all points are carried at once."""
    single = shapely.get_num_geometries(shapes) == 1
    whole = np.where(single, shapely.get_geometry(shapes, 0), shapes)
    moved = np.asarray(shapely.transform(shapely.segmentize(whole, DENSE_DEGREES), _projection(crs)))
    if not np.isfinite(shapely.get_coordinates(moved)).all():
        raise InvalidInput(f"Part of the region cannot be expressed in the grid's CRS ({_known(crs).name}).")
    bad = ~shapely.is_valid(moved)
    moved[bad] = shapely.make_valid(moved[bad])
    return moved


def polygons_of(shape: BaseGeometry) -> list[BaseGeometry]:
    """The polygons of a geometry that have an area."""
    parts = shapely.get_parts(shapely.get_parts(shape))
    return [p for p in parts if p.geom_type == "Polygon" and p.area > 0]


def _projection(target: str) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """From degrees, also beyond 180 (n, 2), to a CRS in metres."""
    transformer = _from_degrees(target)

    def project(xy: NDArray[Any]) -> NDArray[Any]:
        lon = np.where(np.abs(xy[:, 0]) > 180, (xy[:, 0] + 180) % 360 - 180, xy[:, 0])
        u, v = transformer.transform(lon, xy[:, 1])
        return np.column_stack([u, v])

    return project


@lru_cache(maxsize=16)
def _known(crs: str) -> CRS:
    """To read one takes a millisecond, seconds for the counties of a country."""
    return CRS.from_user_input(crs)


@lru_cache(maxsize=16)
def _from_degrees(crs: str) -> Transformer:
    """To make one takes 15 ms, a minute for the counties of a country."""
    return Transformer.from_crs("EPSG:4326", crs, always_xy=True)


def near_data(
    shape: BaseGeometry, places_m: Float[np.ndarray, "n 2"], crs: Any
) -> Bool[np.ndarray, " parts"]:
    """Which parts of a region belong to its maps: those with a measured place in them or within `NEAR_M`.

    A far islet would shrink everything else to a speck. Without a part near, all belong.

    Parameters
    ----------
    shape : in degrees, from `polygon` or `around`
    places_m, crs : (n, 2) easting and northing of the measured places, metres, and their CRS

    Returns
    -------
    one truth value a part, in the order of `shapely.get_parts`

    Examples
    --------
    >>> parts = shapely.MultiPolygon([shapely.box(9, 0, 10, 1), shapely.box(10.3, 0, 10.4, 1), shapely.box(11, 0, 12, 1)])
    >>> near_data(parts, np.array([[1_113_000.0, 50_000.0]]), "EPSG:3857").tolist()  # near 10 E
    [True, True, False]
    """
    from scipy.spatial import cKDTree

    parts, target = shapely.get_parts(shape), CRS.from_user_input(crs)
    # A line is a place every 5.5 km, which is no nearer than its points by more than 80 m.
    xy, owner = shapely.get_coordinates(shapely.segmentize(parts, DENSE_DEGREES), return_index=True)
    ground = _projection(target.to_wkt())(xy)
    good = np.isfinite(ground).all(axis=1)
    away, _ = cKDTree(places_m).query(ground[good], distance_upper_bound=NEAR_M)
    near = np.zeros(len(parts), dtype=bool)
    near[owner[good][np.isfinite(away)]] = True
    back = Transformer.from_crs(target, "EPSG:4326", always_xy=True)
    lon, lat = (np.asarray(v) for v in back.transform(places_m[:, 0], places_m[:, 1]))
    for k in np.flatnonzero(~near):  # a part may be large and its places in the middle
        shapely.prepare(parts[k])
        west, _, east, _ = parts[k].bounds
        near[k] = shapely.contains_xy(parts[k], continuous(lon, (west + east) / 2), lat).any()
    return near if near.any() else ~near


def in_frame(shape: BaseGeometry, near: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Parts near data, and those beside them: the nearest first, while the frame around all grows by a quarter at most.

    >>> parts = shapely.MultiPolygon([shapely.box(0, 0, 4, 4), shapely.box(4.3, 1, 4.6, 2), shapely.box(9, 9, 9.1, 9.1)])
    >>> in_frame(parts, np.array([True, False, False])).tolist()
    [True, True, False]
    """
    parts, shown = shapely.get_parts(shape), near.copy()
    core = shapely.MultiPolygon(list(parts[near]))
    most = BESIDE * shapely.box(*core.bounds).area
    for k in np.argsort(shapely.distance(parts, core)):
        if not shown[k]:
            shown[k] = True
            bounds = shapely.total_bounds(parts[shown])
            if shapely.box(*bounds).area > most:
                shown[k] = False
                break
    return shown


def places_of(places: Iterable[Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    """(name, lon, lat) of labels given as {"name", "lon", "lat"}; InvalidInput for anything else."""
    found = []
    for place in places:
        try:
            name, lon, lat = str(place["name"]), float(place["lon"]), float(place["lat"])
        except (KeyError, TypeError, ValueError):
            raise InvalidInput(f"A place is a dict of name, lon and lat; got {place!r}.") from None
        if not (abs(lon) <= 360 and abs(lat) <= 90):
            raise InvalidInput(f"Place {name!r} lies at lon {lon}, lat {lat}: not degrees on the globe.")
        found.append((name, lon, lat))
    return found


def lines_of(lines: Lines) -> list[list[list[float]]]:
    """Lines as [[lon, lat], ..] each; InvalidInput for anything else."""
    found = []
    for line in lines:
        try:
            xy = np.asarray(line, np.float64).reshape(-1, 2)
        except (TypeError, ValueError):
            raise InvalidInput(f"A line is a list of (lon, lat); got {str(line)[:60]}.") from None
        if not (np.isfinite(xy).all() and (np.abs(xy) <= (540.0, 90.0)).all()):
            raise InvalidInput(f"A line's points are degrees on the globe; got {str(line)[:60]}.")
        found.append(xy.tolist())
    return found


def around(shape: BaseGeometry, centre_lon: float) -> BaseGeometry:
    """The polygon with each part shifted by whole turns to lie nearest `centre_lon`, for drawing in one piece."""
    parts = []
    for part in shapely.get_parts(shape):
        west, _, east, _ = part.bounds
        middle = (west + east) / 2
        turn = float(continuous(np.array([middle]), centre_lon)[0] - middle)
        parts.append(shapely.transform(part, lambda c, t=turn: c + [t, 0]))
    return shapely.MultiPolygon(parts) if len(parts) > 1 else parts[0]


class Mask:
    """Which pixels of a grid have their centre inside a region.

    A pixel counts when its centre is inside (GDAL's `all_touched=False`), so that neighbouring regions share no
    pixel and areas add up; `all_touched=True` takes every pixel the polygon touches, for small islands on coarse grids.
    """

    def __init__(self, geobox: GeoBox, geometry: Mapping[str, Any] | None, all_touched: bool = False) -> None:
        self.geobox, self.all_touched = geobox, all_touched
        self.shape: BaseGeometry | None = None
        if geometry is not None:
            self.shape = to_crs(polygon(geometry), wkt_of(geobox))
            if is_geographic(geobox):
                self.shape = around(
                    self.shape, (geobox.extent.boundingbox.left + geobox.extent.boundingbox.right) / 2
                )
            shapely.prepare(self.shape)
            if not self.shape.intersects(self._box(Window(0, geobox.shape[0], 0, geobox.shape[1]))):
                raise InvalidInput(
                    "The region and the grid do not overlap: no pixel lies inside. "
                    "Check the region's coordinates and the grid's bounds."
                )

    def _box(self, w: Window) -> BaseGeometry:
        a = self.geobox.affine
        corners = [(w.x0, w.y0), (w.x1, w.y0), (w.x1, w.y1), (w.x0, w.y1)]
        return shapely.Polygon([(a.a * c + a.b * r + a.c, a.d * c + a.e * r + a.f) for c, r in corners])

    def touches(self, w: Window) -> bool:
        """False when no pixel of the window can be inside; cheap."""
        return self.shape is None or bool(self.shape.intersects(self._box(w)))

    def inside(self, w: Window) -> Bool[np.ndarray, "rows columns"]:
        """True for pixels of the window inside the region, (rows, columns)."""
        if self.shape is None:
            return np.ones(w.shape, dtype=bool)
        box = self._box(w)
        if not self.shape.intersects(box):
            return np.zeros(w.shape, dtype=bool)
        if self.shape.contains(box):
            return np.ones(w.shape, dtype=bool)
        from rasterio.features import geometry_mask

        margin = 2 * max(abs(v) for v in (self.geobox.affine.a, self.geobox.affine.b, self.geobox.affine.e))
        near = shapely.clip_by_rect(
            self.shape, *box.buffer(margin).bounds
        )  # a coast of 100,000 points is slow
        pieces = [
            p
            for p in shapely.get_parts(near)
            if p.geom_type in ("Polygon", "MultiPolygon") and not p.is_empty
        ]
        if not pieces:
            return np.zeros(w.shape, dtype=bool)
        transform: Affine = self.geobox.affine * Affine.translation(w.x0, w.y0)
        return geometry_mask(
            pieces, out_shape=w.shape, transform=transform, invert=True, all_touched=self.all_touched
        )

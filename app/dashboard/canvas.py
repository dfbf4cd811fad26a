"""The pixels of the map: a Web Mercator grid over the region, so that the browser draws it without warping."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from affine import Affine
from numpy.typing import ArrayLike, NDArray
from odc.geo.geobox import GeoBox
from shapely.geometry.base import BaseGeometry

from app.errors import InvalidInput
from app.workflow.grids import usual_reach_m
from geogp.blocks import Where
from geogp.run import Run, Support
from maps.grid import Window, continuous
from maps.mercator import MERCATOR_HALF, degrees, mercator
from maps.region import around, near_data, polygon

WHOLE = 4_000_000  # pixels of the whole rectangle, for a region of small islands


def support_of(run: Run) -> Support | None:
    """The training places, or None for a run that does not record them."""
    return run.support if (run.path / "support.safetensors").is_file() else None


def masked(geobox: GeoBox, inside: NDArray[np.bool_]) -> Where:
    """The mask of a grid as `geogp.predict` asks for it: by parts of that grid."""
    whole = geobox.affine

    def where(part: GeoBox) -> NDArray[np.bool_]:
        row = round((whole.f - part.affine.f) / -whole.e)
        column = round((part.affine.c - whole.c) / whole.a)
        return inside[row : row + part.height, column : column + part.width]

    return where


def pixels(geobox: GeoBox) -> tuple[NDArray[Any], NDArray[Any]]:
    """Longitude and latitude of pixel centres, row by row."""
    a = geobox.affine
    x, y = np.meshgrid(
        a.c + a.a * (np.arange(geobox.width) + 0.5), a.f + a.e * (np.arange(geobox.height) + 0.5)
    )
    return degrees(x.ravel(), y.ravel())


@dataclass(frozen=True, eq=False)
class Canvas:
    """Where the map lies: its grid, its outline in degrees, and which pixels it fills. Make one with `canvas_of`.

    outline : the region in one piece (longitudes may pass 180), or None for a run without a polygon
    inside : (H, W), True where the map has a value
    reach_m : of a run without a polygon: how far beyond its training places the map goes
    """

    run: Run
    geobox: GeoBox
    outline: BaseGeometry | None
    inside: NDArray[np.bool_]
    reach_m: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        return self.inside.shape[0], self.inside.shape[1]

    @property
    def support(self) -> Support | None:
        """The training places, where the run records them."""
        return support_of(self.run)

    def away_m(self, lon: ArrayLike, lat: ArrayLike, most: float = math.inf) -> NDArray[np.float64]:
        """(N,) metres from places to the nearest training place, in the run's own projection; inf beyond `most`."""
        return self.run.support.distances_m(self.run.from_degrees(lon, lat), most)

    @cached_property
    def bounds(self) -> tuple[float, float, float, float]:
        """W, S, E, N in degrees; E may pass 180."""
        box = self.geobox.extent.boundingbox
        lon, lat = degrees([box.left, box.right], [box.bottom, box.top])
        return float(lon[0]), float(lat[0]), float(lon[1]), float(lat[1])

    @cached_property
    def focus(self) -> tuple[float, float, float, float]:
        """Where people live on the map, W, S, E, N: all but the outermost 1% of training places, within the bounds."""
        west, south, east, north = self.bounds
        if self.support is None:
            return self.bounds
        lon, lat = self.run.to_degrees(self.support.positions_m)
        lon = continuous(lon, (west + east) / 2)
        w, e = np.quantile(lon, (0.005, 0.995))
        s, n = np.quantile(lat, (0.005, 0.995))
        pad = 0.08 * max(e - w, n - s, 0.05)
        w, s, e, n = max(west, w - pad), max(south, s - pad), min(east, e + pad), min(north, n + pad)
        return (float(w), float(s), float(e), float(n)) if w < e and s < n else self.bounds

    def strips(self, pixels: int | None = None) -> Iterator[Window]:
        """Windows of at most `pixels` inside, or of one row, top to bottom; empty rows are skipped.

        The default reports progress sixteen times.
        """
        per_row = self.inside.sum(axis=1)
        pixels = pixels or max(2000, int(per_row.sum()) // 16)
        rows: list[int] = []
        held = 0
        for row in np.flatnonzero(per_row).tolist():
            if rows and held + per_row[row] > pixels:
                yield self._tight(rows[0], rows[-1] + 1)
                rows, held = [], 0
            rows.append(row)
            held += int(per_row[row])
        if rows:
            yield self._tight(rows[0], rows[-1] + 1)

    def _tight(self, y0: int, y1: int) -> Window:
        cols = np.flatnonzero(self.inside[y0:y1].any(axis=0))
        return Window(y0, y1, int(cols[0]), int(cols[-1]) + 1)

    def thinned(self, pixels: int) -> tuple[GeoBox, NDArray[np.bool_]]:
        """Every k-th pixel, so that about `pixels` lie inside: their grid and which of them are inside."""
        step = max(1, round(math.sqrt(self.inside.sum() / pixels)))
        inside = self.inside[step // 2 :: step, step // 2 :: step]
        if not inside.any():
            step, inside = 1, self.inside
        shift = step // 2 + 0.5 - step / 2  # centres stay where they are
        affine = self.geobox.affine * Affine.translation(shift, shift) * Affine.scale(step)
        return GeoBox(inside.shape, affine, self.geobox.crs), inside

    def square(self, z: int, x: int, y: int, side: int) -> GeoBox:
        """A grid of `side` x `side` places on the square numbered x, y of zoom z, on the turn where the map lies."""
        width = 2 * MERCATOR_HALF / 2**z
        left = -MERCATOR_HALF + x * width
        middle = self.geobox.extent.centroid.coords[0][0]
        left += 2 * MERCATOR_HALF * round((middle - left - width / 2) / (2 * MERCATOR_HALF))
        pixel = width / side
        return GeoBox(
            (side, side), Affine(pixel, 0, left, 0, -pixel, MERCATOR_HALF - y * width), self.geobox.crs
        )

    def mask(self, geobox: GeoBox) -> NDArray[np.bool_]:
        """Which pixels of another Web Mercator grid the map fills."""
        if self.outline is None:
            near = self.away_m(*pixels(geobox), self.reach_m)
            return np.isfinite(near).reshape(geobox.shape)
        box = geobox.extent.boundingbox
        margin = abs(geobox.affine.a)
        part = shapely.clip_by_rect(
            self._mercator_outline,
            box.left - margin,
            box.bottom - margin,
            box.right + margin,
            box.top + margin,
        )
        return _filled(part, geobox) if part.area > 0 else np.zeros(geobox.shape, bool)

    @cached_property
    def _mercator_outline(self) -> BaseGeometry:
        return shapely.transform(self.outline, _to_mercator)

    def contains(self, lat: float, lon: float) -> bool:
        """Whether the map has a value at a place."""
        if self.outline is None:
            return bool(self.away_m(lon, lat)[0] <= self.reach_m)
        west, _, east, _ = self.bounds
        lon = float(continuous(np.array([lon]), (west + east) / 2)[0])
        return bool(self.outline.intersects(shapely.Point(lon, lat)))


def canvas_of(run: Run, *, inside: int, whole: int = WHOLE) -> Canvas:
    """The canvas of a run: over its polygon, else over what lies within reach of its training places.

    Parameters
    ----------
    inside : pixels inside the region, about; whole : pixels of the rectangle, at most

    Raises
    ------
    InvalidInput (of geogp or of this package)
        the run records neither a polygon nor places, or no CRS.
    """
    _ = run.crs  # refuses a run without one
    if run.boundary:
        return _over_polygon(run, run.boundary, inside, whole)
    if support_of(run) is None:
        raise InvalidInput(
            f"{run.path} records neither the region's polygon nor the training places; fit it with `geogp fit`."
        )
    return _around_places(run, inside, whole)


def _over_polygon(run: Run, boundary: dict[str, Any], inside: int, whole: int) -> Canvas:
    shape = polygon(boundary)
    west, _, east, _ = shape.bounds
    outline = around(shape, _middle(shape) if east - west > 180 else (west + east) / 2)
    shown, support = shapely.transform(outline, _to_mercator), support_of(run)
    if support is not None:  # parts far from data would make the picture coarse; they are in its detail
        near = near_data(outline, support.positions_m, run.crs)
        shown = shown if near.all() else shapely.MultiPolygon(list(shapely.get_parts(shown)[near]))
    geobox = _box(shown.bounds, max(math.sqrt(shown.area / inside), 1.0), whole)
    filled = _filled(shown, geobox)
    if not filled.any():  # a region thinner than a pixel
        filled = _filled(shown, geobox, touched=True)
    return Canvas(run, geobox, outline, filled)


def _around_places(run: Run, inside: int, whole: int) -> Canvas:
    reach_m = usual_reach_m(run)
    lon, lat = run.to_degrees(run.support.positions_m)
    x, y = mercator(continuous(lon, lon[0]), lat)
    reach = reach_m / math.cos(math.radians(float(np.clip(np.abs(lat).max(), 0, 85))))
    bounds = (x.min() - reach, y.min() - reach, x.max() + reach, y.max() + reach)
    pixel = max(math.sqrt((bounds[2] - bounds[0]) * (bounds[3] - bounds[1]) / inside), 1.0)
    geobox = _box(bounds, pixel, whole)
    near = run.support.distances_m(run.from_degrees(*pixels(geobox)), reach_m)
    return Canvas(run, geobox, None, np.isfinite(near).reshape(geobox.shape), reach_m)


def _middle(shape: BaseGeometry) -> float:
    """A longitude in the largest part: where a region that crosses the antimeridian is centred."""
    return float(max(shapely.get_parts(shape), key=lambda p: p.area).centroid.x)


def _box(bounds: tuple[float, float, float, float], pixel: float, whole: int) -> GeoBox:
    left, bottom, right, top = bounds
    pixel = max(pixel, math.sqrt((right - left) * (top - bottom) / whole))
    width = max(2, math.ceil((right - left) / pixel))
    height = max(2, math.ceil((top - bottom) / pixel))
    return GeoBox((height, width), Affine(pixel, 0, left, 0, -pixel, top), "EPSG:3857")


def _to_mercator(lonlat: NDArray[Any]) -> NDArray[Any]:
    return np.column_stack(mercator(lonlat[:, 0], lonlat[:, 1]))


def _filled(shape: BaseGeometry, geobox: GeoBox, touched: bool = False) -> NDArray[np.bool_]:
    from rasterio.features import geometry_mask

    parts = [p for p in shapely.get_parts(shape) if p.area > 0]
    return geometry_mask(
        parts, out_shape=geobox.shape, transform=geobox.affine, invert=True, all_touched=touched
    )

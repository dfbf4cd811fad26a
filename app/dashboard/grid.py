"""The pixels of the map: a Web Mercator grid over the region, so that the browser draws it without warping."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from affine import Affine
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from pyproj import Transformer
from shapely.geometry.base import BaseGeometry

from app.errors import InvalidInput
from app.workflow.grids import usual_reach_m
from geogp.run import Run
from maps.grid import Window, continuous
from maps.mercator import degrees, mercator
from maps.region import around, near_data, polygon

WHOLE = 4_000_000  # pixels of the whole rectangle, for a region of small islands
FAR_M = 5_000.0  # farther than this from any training place is hatched


@dataclass(frozen=True)
class Ground:
    """Where the map lies: its grid, its outline in degrees, and which pixels it fills.

    outline : the region in one piece (longitudes may pass 180), or None for a run without a polygon
    inside : (H, W), True where the map has a value
    """

    geobox: GeoBox
    outline: BaseGeometry | None
    inside: NDArray[np.bool_]
    support: "Support | None"
    reach_m: float = 0.0  # of a run without a polygon: how far beyond its training places the map goes

    @property
    def shape(self) -> tuple[int, int]:
        return self.inside.shape[0], self.inside.shape[1]

    @cached_property
    def bounds(self) -> tuple[float, float, float, float]:
        """W, S, E, N in degrees; E may pass 180."""
        box = self.geobox.extent.boundingbox
        lon, lat = degrees(np.array([box.left, box.right]), np.array([box.bottom, box.top]))
        return float(lon[0]), float(lat[0]), float(lon[1]), float(lat[1])

    @cached_property
    def focus(self) -> tuple[float, float, float, float]:
        """Where people live on the map, W, S, E, N: all but the outermost 1% of training places, and the ground."""
        west, south, east, north = self.bounds
        if self.support is None:
            return self.bounds
        lon, lat = self.support.lonlat()
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

    def mask(self, geobox: GeoBox) -> NDArray[np.bool_]:
        """Which pixels of another Web Mercator grid the map fills."""
        if self.outline is None:
            assert self.support is not None
            near = self.support.distances_m(*pixels(geobox), self.reach_m)
            return np.isfinite(near).reshape(geobox.shape)
        box = geobox.extent.boundingbox
        margin = abs(geobox.affine.a)
        near = shapely.clip_by_rect(
            self.mercator_outline,
            box.left - margin,
            box.bottom - margin,
            box.right + margin,
            box.top + margin,
        )
        return _filled(near, geobox) if near.area > 0 else np.zeros(geobox.shape, bool)

    @cached_property
    def mercator_outline(self) -> BaseGeometry:
        assert self.outline is not None
        return shapely.transform(self.outline, _to_mercator)

    def contains(self, lat: float, lon: float) -> bool:
        """Whether the map has a value at a place."""
        west, _, east, _ = self.bounds
        lon = float(continuous(np.array([lon]), (west + east) / 2)[0])
        if self.outline is not None:
            return bool(self.outline.intersects(shapely.Point(lon, lat)))
        return self.support is not None and self.support.distance_m(lat, lon) <= self.reach_m


@dataclass(frozen=True)
class Where:
    """The mask of a grid, as `geogp.predict` asks for it: by parts of that grid."""

    geobox: GeoBox
    inside: NDArray[np.bool_]

    def __call__(self, part: GeoBox) -> NDArray[np.bool_]:
        whole = self.geobox.affine
        row = round((whole.f - part.affine.f) / -whole.e)
        column = round((part.affine.c - whole.c) / whole.a)
        return self.inside[row : row + part.height, column : column + part.width]


class Support:
    """The training places, asked how far away the nearest one is."""

    def __init__(self, positions_m: NDArray[np.float64], crs: str):
        from scipy.spatial import cKDTree

        self.positions_m, self.tree = positions_m, cKDTree(positions_m)
        self._to = Transformer.from_crs("EPSG:4326", crs, always_xy=True)

    def lonlat(self) -> tuple[NDArray[Any], NDArray[Any]]:
        east, north = self.positions_m.T
        lon, lat = self._to.transform(east, north, direction="INVERSE")
        return np.asarray(lon), np.asarray(lat)

    def distance_m(self, lat: float, lon: float) -> float:
        """Metres from a place to the nearest training place, in the run's own projection."""
        return float(self.distances_m(np.array([lon]), np.array([lat]))[0])

    def distances_m(self, lon: NDArray[Any], lat: NDArray[Any], most: float = math.inf) -> NDArray[Any]:
        """The same for many places; inf beyond `most`."""
        xy = np.stack(self._to.transform(np.asarray(lon), np.asarray(lat)), axis=-1)
        out = np.full(len(xy), math.inf)
        good = np.isfinite(xy).all(1)
        out[good] = self.tree.query(xy[good], distance_upper_bound=np.nextafter(most, math.inf))[0]
        return out


def survey(run: Run, *, inside: int, whole: int = WHOLE) -> Ground:
    """The ground of a run: over its polygon, else over what lies within reach of its training places.

    Raises
    ------
    InvalidInput
        the run records neither a polygon nor places, or no CRS.
    """
    data: Mapping[str, Any] = run.facts.get("data") or {}
    if not data.get("crs"):
        raise InvalidInput(
            f"{run.path} does not record a CRS, so it cannot be put on a map; fit it with `geogp fit`."
        )
    support = None
    if (run.path / "support.safetensors").is_file():
        support = Support(run.tensors("support")["positions_m"].numpy(), data["crs"])
    if data.get("boundary"):
        shape = polygon(data["boundary"])
        west, _, east, _ = shape.bounds
        outline = around(shape, _middle(shape) if east - west > 180 else (west + east) / 2)
        shown = shapely.transform(outline, _to_mercator)
        if support is not None:  # parts far from data would make the picture coarse; they are in its detail
            near = near_data(outline, support.positions_m, data["crs"])
            shown = shown if near.all() else shapely.MultiPolygon(list(shapely.get_parts(shown)[near]))
        geobox = _box(shown.bounds, max(math.sqrt(shown.area / inside), 1.0), whole)
        filled = _filled(shown, geobox)
        if not filled.any():  # a region thinner than a pixel
            filled = _filled(shown, geobox, touched=True)
        return Ground(geobox, outline, filled, support)
    if support is None:
        raise InvalidInput(
            f"{run.path} records neither the region's polygon nor the training places; fit it with `geogp fit`."
        )
    reach_m = usual_reach_m(run)
    lon, lat = support.lonlat()
    x, y = mercator(continuous(lon, lon[0]), lat)
    reach = reach_m / math.cos(math.radians(float(np.clip(np.abs(lat).max(), 0, 85))))
    bounds = (x.min() - reach, y.min() - reach, x.max() + reach, y.max() + reach)
    pixel = max(math.sqrt((bounds[2] - bounds[0]) * (bounds[3] - bounds[1]) / inside), 1.0)
    geobox = _box(bounds, pixel, whole)
    near = np.isfinite(support.distances_m(*pixels(geobox), reach_m))
    return Ground(geobox, None, near.reshape(geobox.shape), support, reach_m)


def pixels(geobox: GeoBox) -> tuple[NDArray[Any], NDArray[Any]]:
    """Longitude and latitude of pixel centres, row by row."""
    a = geobox.affine
    x, y = np.meshgrid(
        a.c + a.a * (np.arange(geobox.width) + 0.5), a.f + a.e * (np.arange(geobox.height) + 0.5)
    )
    return degrees(x.ravel(), y.ravel())


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

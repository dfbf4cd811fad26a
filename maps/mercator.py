"""Web Mercator: its formulas, said once, and a pixel grid in it over any other grid."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Num
from numpy.typing import ArrayLike, NDArray
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer

from maps.errors import InvalidInput
from maps.grid import continuous, is_geographic, wkt_of

MERCATOR_HALF = 20037508.342789244  # metres: half the width of the Web Mercator world
MERCATOR_LATITUDE = 85.0511287798066  # degrees: where that world is square


def mercator(lon: ArrayLike, lat: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Web Mercator metres of degrees; longitudes beyond 180 stay beyond, latitudes stop where the world is square.

    Examples
    --------
    >>> x, y = mercator([-180.0, 190.0], [0.0, 90.0])
    >>> (x / MERCATOR_HALF).round(3).tolist(), (y / MERCATOR_HALF).round(3).tolist()
    ([-1.0, 1.056], [0.0, 1.0])
    """
    lat = np.clip(lat, -MERCATOR_LATITUDE, MERCATOR_LATITUDE)
    return (
        np.asarray(lon) / 180 * MERCATOR_HALF,
        np.arcsinh(np.tan(np.radians(lat))) / np.pi * MERCATOR_HALF,
    )


def degrees(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Longitude and latitude of Web Mercator metres: the inverse of `mercator`.

    Examples
    --------
    >>> [v.round(9).tolist() for v in degrees(*mercator([-157.86, 190.0], [21.31, -60.0]))]
    [[-157.86, 190.0], [21.31, -60.0]]
    """
    return (
        np.asarray(x) / MERCATOR_HALF * 180,
        np.degrees(np.arctan(np.sinh(np.asarray(y) / MERCATOR_HALF * np.pi))),
    )


def tile_zoom(box: GeoBox) -> int | None:
    """The zoom at which each pixel of a grid is one map tile; None where they are not such tiles.

    Examples
    --------
    >>> side = 2 * MERCATOR_HALF / 2**16
    >>> tile_zoom(GeoBox.from_bbox((0, 0, 4 * side, 2 * side), crs="EPSG:3857", resolution=side))
    16
    >>> tile_zoom(GeoBox.from_bbox((0, 0, 4000, 2000), crs="EPSG:3857", resolution=1000))
    """
    if box.crs is None or not CRS.from_wkt(wkt_of(box)).equals(CRS.from_epsg(3857), ignore_axis_order=True):
        return None
    a = box.affine
    zoom = np.log2(2 * MERCATOR_HALF / abs(a.a))
    corner = np.array([a.c, a.f]) / a.a
    if abs(zoom - round(zoom)) > 1e-6 or abs(a.a + a.e) > 1e-6 * abs(a.a) or not 0 <= zoom <= 31:
        return None
    return round(zoom) if np.abs(corner - np.round(corner)).max() < 1e-4 else None


def quadkeys(lon: ArrayLike, lat: ArrayLike, zoom: int) -> NDArray[np.str_]:
    """The Bing quadkeys of the tiles that hold places in degrees, one of {"0", .., "3"} per zoom.

    Examples
    --------
    >>> quadkeys([-157.86], [21.31], 6).tolist()
    ['022211']
    """
    x, y = (np.atleast_1d(v) for v in mercator(lon, lat))
    n = 2**zoom
    column = (np.floor((x / MERCATOR_HALF + 1) / 2 * n).astype(np.int64)) % n
    row = np.clip(np.floor((1 - y / MERCATOR_HALF) / 2 * n).astype(np.int64), 0, n - 1)
    shifts = np.arange(zoom - 1, -1, -1)
    digits = ((column[:, None] >> shifts) & 1) + 2 * ((row[:, None] >> shifts) & 1)
    return (digits + ord("0")).astype(np.uint8).view(f"S{zoom}").astype(str).ravel()


@dataclass(frozen=True)
class MercatorGrid:
    """A Web Mercator pixel grid over a GeoBox, with the way back to the GeoBox's pixels.

    Columns may run past the antimeridian (x beyond ±20,037,508 m), so a region that crosses it stays in one piece.
    """

    source: GeoBox
    left: float
    top: float
    pixel_m: float
    shape: tuple[int, int]

    @property
    def bounds_lonlat(self) -> tuple[float, float, float, float]:
        """west, south, east, north in degrees; east may exceed 180."""
        right = self.left + self.pixel_m * self.shape[1]
        bottom = self.top - self.pixel_m * self.shape[0]
        lon, lat = degrees([self.left, right], [bottom, self.top])
        return float(lon[0]), float(lat[0]), float(lon[1]), float(lat[1])

    @cached_property
    def _back(self) -> Transformer:
        return Transformer.from_crs("EPSG:4326", CRS.from_wkt(wkt_of(self.source)), always_xy=True)

    def to_source(
        self, x: Num[np.ndarray, " *shape"], y: Num[np.ndarray, " *shape"]
    ) -> tuple[Float[np.ndarray, " *shape"], Float[np.ndarray, " *shape"]]:
        """Fractional (column, row) of the source for Mercator metres; NaN where there is none."""
        lon, lat = degrees(x, y)
        if not is_geographic(self.source):
            lon = (lon + 180) % 360 - 180
        u, v = self._back.transform(lon, lat)
        u, v = np.asarray(u, dtype=np.float64), np.asarray(v, dtype=np.float64)
        bad = ~(np.isfinite(u) & np.isfinite(v))
        inverse = ~self.source.affine
        with np.errstate(invalid="ignore"):
            col = inverse.a * u + inverse.b * v + inverse.c
            row = inverse.d * u + inverse.e * v + inverse.f
        col[bad], row[bad] = np.nan, np.nan
        return col, row

    def mesh(self, tolerance: float = 0.1) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "n n"]]:
        """Source (column, row) at the nodes of an even mesh over the grid, each (n, n).

        n is the smallest of 9, 17, .. 257 with which bilinear interpolation errs by less than `tolerance`
        source pixels at the midpoints of the mesh's cells.
        """
        for n in (9, 17, 33, 65, 129, 257):
            xs = self.left + self.pixel_m * np.linspace(0, self.shape[1], 2 * n - 1)
            ys = self.top - self.pixel_m * np.linspace(0, self.shape[0], 2 * n - 1)
            col, row = self.to_source(*np.meshgrid(xs, ys))
            worst = 0.0
            for plane in (col, row):
                corner = plane[::2, ::2]
                middle = (corner[1:, 1:] + corner[:-1, 1:] + corner[1:, :-1] + corner[:-1, :-1]) / 4
                with np.errstate(invalid="ignore"):
                    gap = np.abs(middle - plane[1::2, 1::2])
                worst = max(worst, float(np.nanmax(gap, initial=0.0)))
            if worst < tolerance:
                break
        return col[::2, ::2], row[::2, ::2]


def mercator_grid(source: GeoBox, oversample: float = 1.0, max_pixels: int | None = None) -> MercatorGrid:
    """A Web Mercator grid over `source` with about its resolution (times `oversample`).

    Parameters
    ----------
    source : GeoBox in any CRS
    oversample : pixels of the result per source pixel along a side
    max_pixels : upper bound on the number of pixels; the resolution is lowered to meet it
    """
    x, y = mercator(*_outline(source))
    left, right, bottom, top = x.min(), x.max(), y.min(), y.max()
    height, width = source.shape
    # The area of the source in pixels is kept: one mean scale serves both axes.
    pixel = float(np.sqrt(max((right - left) * (top - bottom), 1e-9) / (height * width))) / oversample
    if max_pixels is not None:
        pixel = max(pixel, float(np.sqrt((right - left) * (top - bottom) / max_pixels)))
    shape = (max(1, int(np.ceil((top - bottom) / pixel))), max(1, int(np.ceil((right - left) / pixel))))
    return MercatorGrid(source, float(left), float(top), pixel, shape)


def _outline(box: GeoBox) -> tuple[NDArray[Any], NDArray[Any]]:
    """Longitudes (continuous across the antimeridian) and latitudes of the box's edges and inside."""
    height, width = box.shape
    cols, rows = np.meshgrid(np.linspace(0, width, 41), np.linspace(0, height, 41))
    a = box.affine
    u, v = a.a * cols + a.b * rows + a.c, a.d * cols + a.e * rows + a.f
    forward = Transformer.from_crs(CRS.from_wkt(wkt_of(box)), "EPSG:4326", always_xy=True)
    lon, lat = forward.transform(u, v)
    lon, lat = np.asarray(lon), np.asarray(lat)
    keep = np.isfinite(lon) & np.isfinite(lat)
    if not keep.any():
        raise InvalidInput("The grid's CRS has no longitude and latitude anywhere on the grid.")
    if is_geographic(box):
        return lon[keep], lat[keep]
    centre = lon[20, 20] if keep[20, 20] else lon[keep][0]
    return continuous(lon[keep], centre), lat[keep]

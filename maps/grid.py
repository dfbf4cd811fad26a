"""Where a Dataset lies: its GeoBox, its windows, and the way to Web Mercator."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from affine import Affine
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer

from maps.errors import InvalidInput

BLOCK = 512  # pixels: the side of a COG tile and of the blocks a prediction is computed in
MERCATOR_HALF = 20037508.342789244  # metres: half the width of the Web Mercator world
MERCATOR_LATITUDE = 85.0511287798066  # degrees: where that world is square


class Window(NamedTuple):
    """Pixel rows [y0, y1) and columns [x0, x1)."""

    y0: int
    y1: int
    x0: int
    x1: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.y1 - self.y0, self.x1 - self.x0

    @property
    def slices(self) -> tuple[slice, slice]:
        return slice(self.y0, self.y1), slice(self.x0, self.x1)


def geobox_of(ds: xr.Dataset) -> GeoBox:
    """The GeoBox of a prediction Dataset: shape, transform and CRS.

    The transform comes from the evenly spaced coordinates `x` and `y` (for a single row or column from the
    `GeoTransform` of `spatial_ref`), the CRS from `spatial_ref`'s `crs_wkt`.

    Raises
    ------
    InvalidInput : dims are not (y, x), coordinates are not even, or there is no CRS
    """
    missing = [name for name in ("y", "x") if name not in ds.coords]
    if missing:
        raise InvalidInput(f"The Dataset needs coordinates y and x; {missing} missing.")
    shape = (ds.sizes["y"], ds.sizes["x"])
    if min(shape) < 1:
        raise InvalidInput(f"The Dataset has no pixel: its shape is {shape}.")
    reference = ds["spatial_ref"].attrs if "spatial_ref" in ds.variables else {}
    wkt = reference.get("crs_wkt") or reference.get("spatial_ref")
    if not wkt:
        raise InvalidInput(
            "The Dataset has no CRS: its variable spatial_ref with the attribute crs_wkt is missing."
        )
    given = [float(v) for v in str(reference.get("GeoTransform", "")).split()]
    x0, dx = _axis(ds["x"].values, "x", given[0:2])
    y0, dy = _axis(ds["y"].values, "y", [given[3], given[5]] if len(given) == 6 else [])
    return GeoBox(shape, Affine(dx, 0, x0, 0, dy, y0), CRS.from_wkt(wkt).to_wkt())


def _axis(centres: NDArray[Any], name: str, given: list[float]) -> tuple[float, float]:
    """(edge of the first pixel, signed pixel size)."""
    centres = np.asarray(centres, dtype=np.float64)
    if not np.isfinite(centres).all():
        raise InvalidInput(f"Coordinate {name} holds values that are not finite.")
    if centres.size == 1:
        if len(given) != 2 or given[1] == 0:
            raise InvalidInput(
                f"Coordinate {name} has a single value, so the pixel size must come from spatial_ref's GeoTransform."
            )
        return centres[0] - given[1] / 2, given[1]
    step = (centres[-1] - centres[0]) / (centres.size - 1)
    uneven = np.abs(np.diff(centres) - step).max()
    if step == 0 or uneven > 1e-3 * abs(step):
        raise InvalidInput(f"Coordinate {name} is not evenly spaced (steps differ by up to {uneven:g}).")
    return float(centres[0] - step / 2), float(step)


def geobox_like(path: str | Path) -> GeoBox:
    """The GeoBox of an existing raster, to predict on the very same pixels (`--like RASTER`).

    Parameters
    ----------
    path : any raster GDAL reads; north-up or not

    Raises
    ------
    InvalidInput : the file cannot be read as a raster, or has no CRS or no georeference
    """
    import warnings

    import rasterio
    from rasterio.errors import NotGeoreferencedWarning, RasterioError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with rasterio.open(path) as src:
                crs, transform, shape = src.crs, src.transform, (src.height, src.width)
    except RasterioError as error:
        raise InvalidInput(
            f"{path} cannot be read as a raster ({error}); give a GeoTIFF or another GDAL raster."
        ) from None
    if crs is None:
        raise InvalidInput(f"{path} has no CRS; assign one (for example with `rio edit-info --crs EPSG:..`).")
    if transform.is_identity:
        raise InvalidInput(f"{path} is not georeferenced: it has no transform from pixels to coordinates.")
    return GeoBox(shape, transform, crs.to_wkt())


def windows(shape: tuple[int, int], side: int = BLOCK) -> Iterator[Window]:
    """Windows of at most `side` pixels that tile a grid, row by row."""
    rows, cols = shape
    for y in range(0, rows, side):
        for x in range(0, cols, side):
            yield Window(y, min(y + side, rows), x, min(x + side, cols))


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
        lon = np.array([self.left, right]) / MERCATOR_HALF * 180
        lat = np.degrees(np.arctan(np.sinh(np.array([bottom, self.top]) / MERCATOR_HALF * np.pi)))
        return float(lon[0]), float(lat[0]), float(lon[1]), float(lat[1])

    @cached_property
    def _back(self) -> Transformer:
        return Transformer.from_crs("EPSG:4326", CRS.from_wkt(str(self.source.crs.wkt)), always_xy=True)  # type: ignore[union-attr]

    def to_source(self, x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Fractional (column, row) of the source for Mercator metres; NaN where there is none."""
        lon = np.asarray(x) / MERCATOR_HALF * 180
        lat = np.degrees(np.arctan(np.sinh(np.asarray(y) / MERCATOR_HALF * np.pi)))
        if not _is_geographic(self.source):
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

    def mesh(self, window: Window | None = None, tolerance: float = 0.1) -> tuple[NDArray[Any], NDArray[Any]]:
        """Source (column, row) at the nodes of an even mesh over `window`, each (n, n).

        n is the smallest of 9, 17, .. 257 with which bilinear interpolation errs by less than `tolerance`
        source pixels at the midpoints of the mesh's cells.
        """
        w = window or Window(0, self.shape[0], 0, self.shape[1])
        for n in (9, 17, 33, 65, 129, 257):
            xs = self.left + self.pixel_m * np.linspace(w.x0, w.x1, 2 * n - 1)
            ys = self.top - self.pixel_m * np.linspace(w.y0, w.y1, 2 * n - 1)
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

    def indices(self, window: Window | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Source (row, column) nearest to each pixel of `window`; -1 where the source has no pixel."""
        from scipy.ndimage import map_coordinates

        w = window or Window(0, self.shape[0], 0, self.shape[1])
        col, row = self.mesh(w)
        n = col.shape[0] - 1
        rows = (np.arange(w.shape[0]) + 0.5) / w.shape[0] * n
        cols = (np.arange(w.shape[1]) + 0.5) / w.shape[1] * n
        at = np.meshgrid(rows, cols, indexing="ij")
        height, width = self.source.shape
        out = []
        for plane in (row, col):
            value = map_coordinates(plane, at, order=1, mode="nearest")
            out.append(np.where(np.isfinite(value), np.floor(value), -1).astype(np.int64))
        inside = (out[0] >= 0) & (out[0] < height) & (out[1] >= 0) & (out[1] < width)
        return np.where(inside, out[0], -1), np.where(inside, out[1], -1)


def mercator_grid(source: GeoBox, oversample: float = 1.0, max_pixels: int | None = None) -> MercatorGrid:
    """A Web Mercator grid over `source` with about its resolution (times `oversample`).

    Parameters
    ----------
    source : GeoBox in any CRS
    oversample : pixels of the result per source pixel along a side
    max_pixels : upper bound on the number of pixels; the resolution is lowered to meet it
    """
    lon, lat = _outline(source)
    lat = np.clip(lat, -MERCATOR_LATITUDE, MERCATOR_LATITUDE)
    x = lon / 180 * MERCATOR_HALF
    y = np.arcsinh(np.tan(np.radians(lat))) / np.pi * MERCATOR_HALF
    left, right, bottom, top = x.min(), x.max(), y.min(), y.max()
    height, width = source.shape
    # The area of the source in pixels is kept: one mean scale serves both axes.
    pixel = float(np.sqrt(max((right - left) * (top - bottom), 1e-9) / (height * width))) / oversample
    if max_pixels is not None:
        pixel = max(pixel, float(np.sqrt((right - left) * (top - bottom) / max_pixels)))
    shape = (max(1, int(np.ceil((top - bottom) / pixel))), max(1, int(np.ceil((right - left) / pixel))))
    return MercatorGrid(source, float(left), float(top), pixel, shape)


def _is_geographic(box: GeoBox) -> bool:
    return bool(box.crs is not None and box.crs.geographic)


def _outline(box: GeoBox) -> tuple[NDArray[Any], NDArray[Any]]:
    """Longitudes (continuous across the antimeridian) and latitudes of the box's edges and inside."""
    height, width = box.shape
    cols, rows = np.meshgrid(np.linspace(0, width, 41), np.linspace(0, height, 41))
    a = box.affine
    u, v = a.a * cols + a.b * rows + a.c, a.d * cols + a.e * rows + a.f
    forward = Transformer.from_crs(CRS.from_wkt(str(box.crs.wkt)), "EPSG:4326", always_xy=True)  # type: ignore[union-attr]
    lon, lat = forward.transform(u, v)
    lon, lat = np.asarray(lon), np.asarray(lat)
    keep = np.isfinite(lon) & np.isfinite(lat)
    if not keep.any():
        raise InvalidInput("The grid's CRS has no longitude and latitude anywhere on the grid.")
    if _is_geographic(box):
        return lon[keep], lat[keep]
    centre = lon[20, 20] if keep[20, 20] else lon[keep][0]
    return continuous(lon[keep], centre), lat[keep]


def continuous(lon: NDArray[Any], centre: float) -> NDArray[Any]:
    """Longitudes shifted by whole turns to lie within 180 degrees of `centre`."""
    return (np.asarray(lon) - centre + 180) % 360 - 180 + centre

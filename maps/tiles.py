"""z/x/y PNG tiles from an EPSG:3857 Cloud-Optimized GeoTIFF, and the way to such a file.

A tile is one windowed, decimated read: GDAL picks the overview. A handle per thread, because a GDAL dataset must not
be shared; transparent outside the raster, because a missing tile looks like a broken map.
"""

import threading
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox

from maps.colours import Scale, paint
from maps.errors import InvalidInput
from maps.grid import BLOCK, MERCATOR_HALF, Window, geobox_like, mercator_grid, windows
from maps.png import encode_png

SIZE = 256  # pixels: the side of a tile


def tile_bounds(z: int, x: int, y: int) -> tuple[float, float, float, float]:
    """west, south, east, north of a tile in EPSG:3857 metres.

    >>> [round(v) for v in tile_bounds(0, 0, 0)]
    [-20037508, -20037508, 20037508, 20037508]
    """
    side = 2 * MERCATOR_HALF / 2**z
    west, north = -MERCATOR_HALF + x * side, MERCATOR_HALF - y * side
    return west, north - side, west + side, north


class TileReader:
    """Tiles of one EPSG:3857 raster.

    Parameters
    ----------
    path : a COG in EPSG:3857 as `warp_for_display` writes it; it may run past the antimeridian
    scale, colours : how values become colours: a `maps.colours.Scale` and a cmcrameri map's name
    band : 1-based

    Examples
    --------
    >>> reader = TileReader("median_3857.tif", Scale(5, 500, "log"), "batlow")    # doctest: +SKIP
    >>> png = reader.tile(8, 16, 112)                                             # doctest: +SKIP
    """

    def __init__(self, path: str | Path, scale: Scale, colours: str, band: int = 1) -> None:
        self.path, self.scale, self.colours, self.band = Path(path), scale, colours, band
        self._local = threading.local()
        box = geobox_like(path)
        if box.crs is None or box.crs.epsg != 3857:
            raise InvalidInput(
                f"{path} is not in EPSG:3857; make a display copy with maps.tiles.warp_for_display."
            )

    @property
    def _source(self) -> Any:
        if not hasattr(self._local, "source"):
            import rasterio

            self._local.source = rasterio.open(self.path)
        return self._local.source

    @cached_property
    def empty(self) -> bytes:
        """A transparent tile."""
        return encode_png(np.zeros((SIZE, SIZE, 4), np.uint8), 9)

    def values(self, z: int, x: int, y: int) -> NDArray[np.float32] | None:
        """The tile's values (256, 256), NaN outside; None when no pixel of the raster is in it."""
        if not (0 <= z <= 30 and 0 <= y < 2**z):
            return None
        west, south, east, north = tile_bounds(z, x % 2**z, y)
        for turn in (0, -1, 1):  # a raster across the antimeridian also lies one world to the side
            shift = turn * 2 * MERCATOR_HALF
            found = self._read(west + shift, south, east + shift, north)
            if found is not None:
                return found
        return None

    def _read(self, west: float, south: float, east: float, north: float) -> NDArray[np.float32] | None:
        from rasterio.windows import Window as RasterioWindow

        source = self._source
        a = source.transform
        # The tile's edges in pixels of the raster, and the part of the raster inside them.
        c0, c1, r0, r1 = (west - a.c) / a.a, (east - a.c) / a.a, (north - a.f) / a.e, (south - a.f) / a.e
        left, right, top, bottom = max(c0, 0), min(c1, source.width), max(r0, 0), min(r1, source.height)
        if left >= right or top >= bottom:
            return None
        # That part in pixels of the tile, outwards to whole ones, and back to the raster.
        across, down = SIZE / (c1 - c0), SIZE / (r1 - r0)
        i0, i1 = int((left - c0) * across + 1e-6), min(SIZE, int(np.ceil((right - c0) * across - 1e-6)))
        j0, j1 = int((top - r0) * down + 1e-6), min(SIZE, int(np.ceil((bottom - r0) * down - 1e-6)))
        if i1 <= i0 or j1 <= j0:
            return None
        out = np.full((SIZE, SIZE), np.nan, np.float32)
        window = RasterioWindow(left, top, right - left, bottom - top)
        out[j0:j1, i0:i1] = source.read(self.band, window=window, out_shape=(j1 - j0, i1 - i0))
        return out

    def tile(self, z: int, x: int, y: int) -> bytes:
        """PNG bytes of a tile; transparent where there is nothing."""
        values = self.values(z, x, y)
        if values is None or not np.isfinite(values).any():
            return self.empty
        return encode_png(paint(values, self.scale, self.colours))

    def value(self, lon: float, lat: float) -> float:
        """The value at a place; NaN outside."""
        x = lon / 180 * MERCATOR_HALF
        y = np.arcsinh(np.tan(np.radians(lat))) / np.pi * MERCATOR_HALF
        source = self._source
        for turn in (0, -1, 1):
            col, row = ~source.transform @ (x + turn * 2 * MERCATOR_HALF, y)
            if 0 <= col < source.width and 0 <= row < source.height:
                cell = ((int(row), int(row) + 1), (int(col), int(col) + 1))
                return float(source.read(self.band, window=cell)[0, 0])
        return float("nan")


def warp_for_display(
    path: str | Path, output: str | Path, *, oversample: float = 1.0, overwrite: bool = False
) -> Path:
    """A copy of a COG in EPSG:3857, nearest neighbour, by window; a region across the antimeridian stays whole.

    Parameters
    ----------
    path : raster in any CRS; all bands are copied
    output : refused if it exists, unless `overwrite`
    oversample : pixels of the copy per pixel of the original along a side

    Returns
    -------
    `output`; every value in it is one of the original's

    Raises
    ------
    InvalidInput : unreadable raster, or the output exists
    """
    import rasterio
    import rasterio.shutil
    from rasterio.crs import CRS
    from rasterio.windows import Window as RasterioWindow

    from maps.raster import workplace

    path, output = Path(path), Path(output)
    if output.exists() and not overwrite:
        raise InvalidInput(f"{output} exists; pass overwrite=True (--overwrite) or another name.")
    source_box: GeoBox = geobox_like(path)
    grid = mercator_grid(source_box, oversample)
    height, width = grid.shape
    with workplace(output.parent) as work, rasterio.Env(GDAL_CACHEMAX=128), rasterio.open(path) as source:
        part = work / "part.tif"
        profile: dict[str, Any] = {
            "driver": "GTiff",
            "height": height,
            "width": width,
            "count": source.count,
            "dtype": source.dtypes[0],
            "nodata": source.nodata,
            "crs": CRS.from_epsg(3857),
            "transform": rasterio.Affine(grid.pixel_m, 0, grid.left, 0, -grid.pixel_m, grid.top),
            "tiled": True,
            "blockxsize": BLOCK,
            "blockysize": BLOCK,
            "compress": "deflate",
            "zlevel": 1,
            "sparse_ok": True,
            "bigtiff": "if_safer",
        }
        with rasterio.open(part, "w", **profile) as target:
            target.update_tags(**source.tags())
            for band in source.indexes:
                target.set_band_description(band, source.descriptions[band - 1] or "")
                target.set_band_unit(band, source.units[band - 1] or "")
                target.update_tags(band, **source.tags(band))
            for window in windows(grid.shape):
                rows, cols = grid.indices(window)
                known = rows >= 0
                if not known.any():
                    continue
                box = Window(
                    rows[known].min(), rows[known].max() + 1, cols[known].min(), cols[known].max() + 1
                )
                read = RasterioWindow(box.x0, box.y0, box.shape[1], box.shape[0])
                values = source.read(window=read)
                empty = np.isnan(values).all() if values.dtype.kind == "f" else False
                if empty:
                    continue
                out = np.full((source.count, *window.shape), source.nodata, values.dtype)
                out[:, known] = values[:, rows[known] - box.y0, cols[known] - box.x0]
                target.write(
                    out, window=RasterioWindow(window.x0, window.y0, window.shape[1], window.shape[0])
                )
        done = work / output.name
        options = {
            "BLOCKSIZE": SIZE,
            "COMPRESS": "DEFLATE",
            "OVERVIEW_RESAMPLING": "NEAREST",
            "BIGTIFF": "IF_SAFER",
        }
        rasterio.shutil.copy(part, done, driver="COG", PREDICTOR="YES", SPARSE_OK="TRUE", **options)
        with rasterio.open(done) as check:
            if check.shape != grid.shape:
                raise OSError(f"{output.name} was written but does not read back whole.")
        done.replace(output)
    return output

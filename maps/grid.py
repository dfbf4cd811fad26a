"""Where a Dataset lies: its GeoBox and its windows."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from affine import Affine
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer

from maps.errors import InvalidInput

#: How rasters begin that hold their pixels themselves: GeoTIFF, netCDF, HDF5, Erdas, PNG, JPEG 2000, Esri's grids as text. What
#: else GDAL opens (VRT, WMS, MRF, STACIT ..) may be a text that names other files and addresses.
PLAIN = (
    b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"CDF", b"\x89HDF", b"EHFA_HEADER_TAG", b"\x89PNG", b"\0\0\0\x0cjP",
    b"ncols", b"NCOLS",
)  # fmt: skip
BLOCK = 512  # pixels: the side of a COG tile and of the blocks a prediction is computed in


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


def wkt_of(box: GeoBox) -> str:
    """The CRS of a grid as WKT.

    Raises
    ------
    InvalidInput : it has none
    """
    if box.crs is None:
        raise InvalidInput("The grid has no CRS; give its GeoBox one.")
    return str(box.crs.wkt)


def is_geographic(box: GeoBox) -> bool:
    """Whether the grid's coordinates are degrees."""
    return bool(box.crs is not None and box.crs.geographic)


def open_plain(path: str | Path) -> Any:
    """A raster of somebody else's, opened by rasterio, that is its file alone.

    Raises
    ------
    ValueError
        another kind of file.
    OSError
        no such file, or rasterio's RasterioIOError.
    """
    import rasterio

    with open(path, "rb") as file:
        if not file.read(64).lstrip(b" \t\r\n").startswith(PLAIN):
            raise ValueError("it is of no format that holds its own pixels")
    return rasterio.open(path)


def geobox_like(path: str | Path) -> GeoBox:
    """The GeoBox of an existing raster, to predict on the very same pixels (`--like RASTER`).

    Parameters
    ----------
    path : a raster as `open_plain` takes it; north-up or not

    Raises
    ------
    InvalidInput : the file cannot be read as a raster, or has no CRS or no georeference
    """
    import warnings

    from rasterio.errors import NotGeoreferencedWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with open_plain(path) as src:
                crs, transform, shape = src.crs, src.transform, (src.height, src.width)
                wkt = crs.to_wkt() if crs else ""
    except Exception as error:  # GDAL raises of many kinds
        raise InvalidInput(f"{path} cannot be read as a raster ({error}); give a GeoTIFF.") from None
    if crs is None:
        raise InvalidInput(f"{path} has no CRS; assign one (for example with `rio edit-info --crs EPSG:..`).")
    if transform.is_identity:
        raise InvalidInput(f"{path} is not georeferenced: it has no transform from pixels to coordinates.")
    if not all(math.isfinite(v) for v in tuple(transform)[:6]) or transform.determinant == 0:
        raise InvalidInput(f"{path} has a transform that leads nowhere; give a georeferenced raster.")
    return GeoBox(shape, transform, wkt)


def pixel_of(box: GeoBox, lon: float, lat: float) -> tuple[int, int]:
    """(row, column) of the pixel that holds a place in degrees.

    Raises
    ------
    InvalidInput : it lies outside the grid, or the grid has no CRS

    Examples
    --------
    >>> pixel_of(GeoBox.from_bbox((0, 0, 4, 4), crs="EPSG:4326", resolution=1), 0.5, 0.5)
    (3, 0)
    """
    to_grid = Transformer.from_crs("EPSG:4326", wkt_of(box), always_xy=True)
    x, y = to_grid.transform(float(lon), float(lat))
    col, row = ~box.affine * (x, y)
    height, width = box.shape
    if not (0 <= row < height and 0 <= col < width):
        raise InvalidInput(f"The place {lon:g} {lat:g} (LON LAT) lies outside the map.")
    return int(row), int(col)


def windows(shape: tuple[int, int], side: int = BLOCK) -> Iterator[Window]:
    """Windows of at most `side` pixels that tile a grid, row by row."""
    rows, cols = shape
    for y in range(0, rows, side):
        for x in range(0, cols, side):
            yield Window(y, min(y + side, rows), x, min(x + side, cols))


def continuous(lon: NDArray[Any], centre: float) -> NDArray[Any]:
    """Longitudes shifted by whole turns to lie within 180 degrees of `centre`."""
    return (np.asarray(lon) - centre + 180) % 360 - 180 + centre

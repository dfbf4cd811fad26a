"""Where people live: the pixels of a population raster inside each area, in bounded memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from pyproj import Transformer
from shapely.geometry.base import BaseGeometry

from app.choices import map_crs
from app.errors import InvalidInput
from app.workflow.polygons import DENSE_M
from app.workflow.weighing import Places
from data_pipelines.words import many
from geogp.run import Run
from maps.grid import open_plain

Array = NDArray[np.float64]

#: Pixels read at once, and cells that an area's pixels are gathered in, a side.
PIXELS, CELLS = 4_000_000, 64
#: Shares of an area's ground in a raster below which it is not covered, and from which on it is whole: pixels have edges.
SLIGHT, WHOLE = 0.001, 0.98


def people_of(path: str | Path, parts: Sequence[BaseGeometry | None], run: Run) -> Places:
    """People of a raster (so many a pixel) in each area, in the plane of a run.

    An area's pixels are gathered in at most 64 x 64 cells, each at the mean place of its people. A pixel counts where
    its centre lies inside; an area that holds no centre takes the pixels it touches, in proportion to its ground.

    Raises
    ------
    InvalidInput
        no raster, no CRS, or nobody in any area.
    """
    from rasterio.errors import RasterioIOError

    if not Path(path).is_file():
        raise InvalidInput(f"The file {path} does not exist.")
    try:
        raster = open_plain(path)
    except (RasterioIOError, ValueError) as error:
        raise InvalidInput(
            f"{path} cannot be read as a raster ({str(error).splitlines()[0]}); give a GeoTIFF of people per pixel."
        ) from None
    with raster:
        if raster.crs is None:
            raise InvalidInput(f"{path} does not say its coordinate reference system; write the CRS into it.")
        of_raster = map_crs(raster.crs.to_wkt(), str(path))
        to_raster = Transformer.from_crs(run.crs, of_raster, always_xy=True)
        found = [
            (i, *_people_in(raster, part, to_raster)) for i, part in enumerate(parts) if part is not None
        ]
        covered = _covered(raster, parts, to_raster)
    xy = np.concatenate([np.empty((0, 2)), *(p for _, p, _ in found)])
    weight = np.concatenate([np.empty(0), *(w for *_, w in found)])
    if not weight.sum() > 0:
        raise InvalidInput(
            f"{path} has nobody in any of the areas; give a raster of people per pixel that covers them."
        )
    return Places(xy, np.concatenate([np.full(len(w), i) for i, _, w in found]), weight, covered)


def covered_words(covered: Array, raster: str | Path) -> str:
    """Which areas a raster of people leaves out, wholly or in part, in a sentence; "" where none. Areas outside are NaN."""
    asked = covered[np.isfinite(covered)]
    none, partly = int((asked < SLIGHT).sum()), int(((asked >= SLIGHT) & (asked < WHOLE)).sum())
    if not none + partly:
        return ""
    means = "people's means are of the part that it covers" if partly else "they have no people's means"
    return (
        f"{Path(raster).name} covers {len(asked) - none - partly:,} of {many(len(asked), 'area')} whole, {partly:,} in part and "
        f"{none:,} not at all: {means}"
    )


def _covered(raster: Any, parts: Sequence[BaseGeometry | None], to_raster: Transformer) -> Array:
    """The share (A,) of each area's ground that lies in a raster, NaN of no area; in the plane of the raster."""
    corners = [(0, 0), (raster.width, 0), (raster.width, raster.height), (0, raster.height)]
    frame = shapely.Polygon([raster.transform * corner for corner in corners])
    out = np.full(len(parts), np.nan)
    for i, part in enumerate(parts):
        if part is not None:
            shape = _in_raster(part, to_raster)
            finite = np.isfinite(shapely.get_coordinates(shape)).all()
            out[i] = (
                shapely.area(shapely.make_valid(shape).intersection(frame)) / shape.area if finite else 0.0
            )
    return out


def _in_raster(part: BaseGeometry, to_raster: Transformer) -> BaseGeometry:
    """An area in the plane of a raster."""

    def project(xy: Array) -> Array:
        return np.column_stack(to_raster.transform(xy[:, 0], xy[:, 1]))

    return shapely.transform(shapely.segmentize(part, DENSE_M), project)


def _people_in(raster: Any, part: BaseGeometry, to_raster: Transformer) -> tuple[Array, Array]:
    """Places (m, 2) in the plane of the run, and people (m,) there."""
    from rasterio.errors import RasterioIOError
    from rasterio.features import geometry_mask
    from rasterio.windows import Window, from_bounds
    from rasterio.windows import transform as window_transform

    shape = _in_raster(part, to_raster)
    nothing = np.empty((0, 2)), np.empty(0)
    if not np.isfinite(shapely.get_coordinates(shape)).all():
        return nothing
    asked = from_bounds(*shape.bounds, transform=raster.transform)
    top, left = max(int(np.floor(asked.row_off)), 0), max(int(np.floor(asked.col_off)), 0)
    bottom = min(int(np.ceil(asked.row_off + asked.height)), raster.height)
    right = min(int(np.ceil(asked.col_off + asked.width)), raster.width)
    if bottom <= top or right <= left:
        return nothing
    sums = np.zeros((3, CELLS * CELLS))
    step = max(1, PIXELS // (right - left))
    for touched in (False, True):
        covered = 0
        for first in range(top, bottom, step):
            window = Window(left, first, right - left, min(step, bottom - first))
            transform = window_transform(window, raster.transform)
            size = (window.height, window.width)
            inside = geometry_mask([shape], size, transform, all_touched=touched, invert=True)
            covered += int(inside.sum())
            try:
                values = raster.read(1, window=window, masked=True).astype(np.float64).filled(0.0)
            except RasterioIOError as error:  # cut or damaged further on than where it was opened
                raise InvalidInput(
                    f"{raster.name} cannot be read to its end ({str(error).splitlines()[0].rstrip('.')}); copy it again."
                ) from None
            row, col = np.nonzero(inside & np.isfinite(values) & (values > 0))
            people = values[row, col]
            cell = (row + first - top) * CELLS // (bottom - top) * CELLS + col * CELLS // (right - left)
            x, y = transform * (col + 0.5, row + 0.5)
            for k, of in enumerate((people, people * x, people * y)):
                sums[k] += np.bincount(cell, of, minlength=CELLS * CELLS)
        if covered:
            break
    if touched and covered:
        pixel = abs(raster.transform.a * raster.transform.e - raster.transform.b * raster.transform.d)
        sums *= min(1.0, shape.area / (covered * pixel))
    used = sums[0] > 0
    weight, x, y = sums[:, used]
    return np.column_stack(to_raster.transform(x / weight, y / weight, direction="INVERSE")), weight

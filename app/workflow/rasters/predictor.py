"""A raster file as the frozen predictor of a fixed-mean GP: its pixels, on the map and the scale of a run."""

from pathlib import Path

import numpy as np
from pyproj import CRS

from app.errors import InvalidInput, Usage
from app.workflow.rasters.covariates import FILL_PIXELS, box_around
from app.workflow.rows import Rows
from geogp.engines.check import engine_of
from geogp.methods import METHODS
from geogp.rasters import Raster
from maps.reader import open_raster


def raster_predictor(path: str | Path, rows: Rows, method: str) -> Raster:
    """The first band of a raster as a predictor for observations: in the target's unit, sampled where they lie.

    A place in a gap takes the nearest pixel with a value, at most `FILL_PIXELS` away.

    Raises
    ------
    Usage
        a method that takes no predictor.
    InvalidInput
        no raster, one in another unit, or one that has no value at some observations.
    """
    able = [name for name, row in METHODS.items() if engine_of(row).takes_predictor]
    if method not in able:
        raise Usage(
            f"--predictor goes with --method {', '.join(able)}, which keeps it as its mean; got --method {method}."
        )
    goal = rows.goal
    own = CRS.from_user_input(rows.metadata["crs"])
    image = open_raster(path, bounds=box_around(rows.X[rows.usable, :2], own))
    unit, wanted = image.attrs.get("units"), rows.unit
    # Pure numbers and counts go by many names.
    if unit and wanted != "1" and unit != wanted:
        raise InvalidInput(
            f"{path} is in {unit!r} and target {goal.name} in {wanted!r}; convert the raster first."
        )
    raster = Raster.of(image, from_crs=own.to_wkt(), scale=goal.name if goal.log10 else "")
    raster = raster.filled(FILL_PIXELS)
    try:
        mean = raster(rows.X[rows.usable])
    except ValueError as error:  # a logged target and a value that has no logarithm
        raise InvalidInput(f"{path}: {error}") from None
    without = int((~np.isfinite(mean)).sum())
    if without:
        raise InvalidInput(
            f"{path} has no value within {FILL_PIXELS:g} pixels of {without:,} of {len(mean):,} observations; fill its "
            "gaps (gdal_fillnodata), or take one that covers them."
        )
    return raster

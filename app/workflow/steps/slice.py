"""What a model thinks varies together with one place, as a raster."""

from pathlib import Path

import numpy as np
import shapely
import xarray as xr

from app.errors import InvalidInput
from app.workflow.grids import Grid, grid_of
from app.workflow.outputs import attribution, refuse_taken, titled
from app.workflow.polygons import Ground
from app.workflow.rasters.covariates import opened
from geogp.run import Run
from geogp.slices import kernel_slice
from maps.raster import write_cog

#: How far off the region's outline a place may lie.
SHORE_M = 1000.0


def slice_of(
    run: Run,
    at: tuple[float, float],
    *,
    quarter: str | None = None,
    resolution_m: float | None = None,
) -> tuple[xr.Dataset, Grid]:
    """The lazy kernel slice k(., x_ref) of a run over its region, and the grid it lies on."""
    grid = grid_of(run, resolution_m=resolution_m)
    ds = kernel_slice(run, grid.geobox, at, quarter=quarter, where=grid.where if grid.boundary else None)
    _check_inside(run, at)
    return ds.assign_attrs({**attribution(run), "title": f"Kernel slice: {titled(run)}"}), grid


def _check_inside(run: Run, at: tuple[float, float]) -> None:
    """Refuse a place that the map does not reach: nothing was learned of what is like it."""
    ground, xy = Ground.of(run), run.from_degrees(*at)
    # A place at the shore may lie a step off the polygon's line.
    near = shapely.dwithin(ground.outline, shapely.points(xy), SHORE_M)
    if not (near.all() and ground.reached(xy).all()):
        west, south, east, north = _in_degrees(run, ground)
        raise InvalidInput(
            f"The place {at[0]:g} {at[1]:g} lies outside the region of {run.path}; give LON LAT of one inside, between "
            f"{west:.4g} {south:.4g} and {east:.4g} {north:.4g}."
        )


def _in_degrees(run: Run, ground: Ground) -> tuple[float, float, float, float]:
    """West, south, east, north of a run's ground."""
    left, bottom, right, top = ground.outline.bounds
    corners = np.array([(left, bottom), (left, top), (right, bottom), (right, top)])
    lon, lat = run.to_degrees(corners)
    return float(lon.min()), float(lat.min()), float(lon.max()), float(lat.max())


def slice(
    run: str | Path | Run,
    at: tuple[float, float],
    path: str | Path,
    *,
    quarter: str | None = None,
    resolution_m: float | None = None,
    overwrite: bool = False,
) -> Path:
    """A kernel slice k(., x_ref) as a Cloud-Optimized GeoTIFF with bands covariance and correlation.

    Parameters
    ----------
    at : (longitude, latitude) of x_ref
    quarter, resolution_m : as for `export`

    Raises
    ------
    InvalidInput
        no longitude and latitude, a place outside the region, or an output that exists without `overwrite`.
    """
    run, path = opened(run), Path(path)
    refuse_taken(path, overwrite)
    ds, grid = slice_of(run, at, quarter=quarter, resolution_m=resolution_m)
    return write_cog(
        ds, path, layers=["covariance", "correlation"], geometry=grid.boundary, overwrite=overwrite
    )

"""What a model thinks varies together with one place, as a raster."""

from pathlib import Path

import xarray as xr

from app.workflow.grids import Grid, grid_of
from app.workflow.outputs import attribution, refuse_taken, titled
from geogp.run import Run, opened
from geogp.slices import kernel_slice
from maps.raster import write_cog


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
    return ds.assign_attrs({**attribution(run), "title": f"Kernel slice: {titled(run)}"}), grid


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
        no longitude and latitude, or an output that exists without `overwrite`.
    """
    run, path = opened(run), Path(path)
    refuse_taken(path, overwrite)
    ds, grid = slice_of(run, at, quarter=quarter, resolution_m=resolution_m)
    return write_cog(
        ds, path, layers=["covariance", "correlation"], geometry=grid.boundary, overwrite=overwrite
    )

"""Coherent maps: joint draws of the surface, each one map that may be true, in one NetCDF file."""

from pathlib import Path

import numpy as np
import xarray as xr

from app.errors import InvalidInput
from app.workflow.grids import Grid
from app.workflow.pixels import pixels_of
from geogp.areas import surface
from geogp.blocks import grid_coordinates
from geogp.run import Run
from maps.sinks.base import Output

FILE = "samples.nc"
#: So many that a mean of them is known to a tenth of an sd; more belong into `geogp areas`.
MOST = 1000


def check_samples(n: int | None, max_memory: int, grid: Grid) -> None:
    """Refuse numbers of maps that are none, and more than fit.

    Raises
    ------
    InvalidInput
    """
    if n is None:
        return
    if not 1 <= n <= MOST:
        raise InvalidInput(f"--samples must lie between 1 and {MOST:,}; got {n}.")
    if (size := 4 * n * grid.n_pixels) > max_memory / 4:
        raise InvalidInput(
            f"{n} maps of {grid.n_pixels:,} pixels take {size / 2**30:.2g} GiB; take fewer --samples or a coarser "
            "--resolution."
        )


def write_samples(
    run: Run,
    grid: Grid,
    folder: Path,
    n: int,
    attrs: dict[str, object],
    *,
    quarter: str | None,
    seed: int = 0,
) -> Output:
    """`samples.nc`: variable `surface` (sample, y, x), each sample a joint draw at all pixels, in the target's unit.

    Notes
    -----
    What differs between two samples is what is not known; sums, areas and contours of each are such draws too.
    """
    pixels = pixels_of(run, grid, "joint draws")
    found = surface(run.model, run.inputs(pixels.xy, quarter))
    values = np.full((n, *pixels.shape), np.nan, dtype=np.float32)
    first = 0
    for t in found.batches(n, seed):
        for draw in run.target.from_score(t).T:
            values[first] = pixels.plane(draw)
            first += 1
    words = f"joint draw of the surface of {run.target.words}"
    told = {"units": run.unit, "long_name": words, "grid_mapping": "spatial_ref"}
    coords = {
        **grid_coordinates(grid.geobox),
        "sample": ("sample", np.arange(1, n + 1), {"long_name": "number of the draw"}),
    }
    ds = xr.Dataset({"surface": (("sample", "y", "x"), values, told)}, coords, dict(attrs))
    path = folder / FILE
    chunk = (1, min(512, pixels.shape[0]), min(512, pixels.shape[1]))
    ds.to_netcdf(
        path,
        engine="h5netcdf",
        encoding={
            "surface": {"zlib": True, "complevel": 4, "chunksizes": chunk, "_FillValue": np.float32("nan")}
        },
    )
    return Output(path, "netcdf", FILE, ("samples",))

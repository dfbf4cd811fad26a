"""Kernel slices: what the model thinks varies together with one place, as a map.

k(., x_ref) is the prior covariance of the surface with the surface at x_ref, both at one moment: the learned kernel
made visible. A deep basis, or a local kernel that was found to vary over space, is not stationary (city with city,
coast with coast); of one kernel everywhere a slice shows circles or ellipses, the same about each place.
"""

from collections.abc import Callable

import torch
import xarray as xr
from odc.geo.geobox import GeoBox

from geogp.blocks import Array, Blocks, LazyPlane, Mapped, Plane, Where, grid_coordinates
from geogp.errors import InvalidInput
from geogp.prediction import model_scale, model_unit

LONG_NAMES = {
    "covariance": "prior covariance of the surface with the reference point",
    "correlation": "prior correlation of the surface with the reference point",
}


def kernel_slice(
    run: Mapped,
    geobox: GeoBox,
    at: tuple[float, float],
    *,
    quarter: str | None = None,
    where: Where | None = None,
) -> xr.Dataset:
    """`covariance` and `correlation` of the surface with the surface at one place, computed as they are read.

    Parameters
    ----------
    run : from `geogp.load`
    geobox : grid in any CRS
    at : (longitude, latitude) of the reference place, degrees
    quarter : the moment of both; default the run's last quarter
    where : mask by window; pixels outside are NaN and never computed

    Returns
    -------
    Dataset with dims (y, x): covariance in squared units of the model's scale (the attribute `model_scale`), correlation
    in -1..1; the reference place in the attributes `reference_lon`, `reference_lat`

    Raises
    ------
    InvalidInput
        a place that is no longitude and latitude, a malformed quarter, a grid without CRS.

    Notes
    -----
    Cost of a pixel: two evaluations of the features; memory as for `predict`.
    """
    lon, lat = (float(v) for v in at)
    if not (-180.0 <= lon <= 360.0 and -90.0 <= lat <= 90.0):
        raise InvalidInput(
            f"the reference place {lon:g} {lat:g} is no longitude and latitude; give LON LAT in degrees."
        )
    quarter = run.quarter(quarter)
    x_ref = torch.as_tensor(run.inputs(run.from_degrees(lon, lat), quarter))
    model = run.model

    def planes(X: Array) -> Plane:
        covariance, correlation = model.engine_.prior_slice(torch.as_tensor(X), x_ref)
        return torch.stack([model.target_sd_**2 * covariance, correlation]).float().numpy()

    blocks = Blocks(run, geobox, planes, len(LONG_NAMES), quarter=quarter, where=where)

    def plane(i: int) -> Callable[[Plane, float | None], Plane]:
        return lambda planes, _: planes[i]

    unit = model_unit(run)
    units = {"covariance": "1" if unit == "1" else f"({unit})2", "correlation": "1"}
    variables = {
        name: LazyPlane(blocks, plane(i)).variable(
            ("y", "x"), {"units": units[name], "long_name": f"{run.target.words}: {words}"}
        )
        for i, (name, words) in enumerate(LONG_NAMES.items())
    }
    out = xr.Dataset(variables, coords=grid_coordinates(geobox))
    out.attrs = {
        "Conventions": "CF-1.8",
        "title": f"Kernel slice of {run.target.words}",
        "institution": "made with GeoGP",
        "source": f"GeoGP method {run.model.method}",
        "method": run.model.method,
        **run.target.attributes(run.unit),
        "model_scale": model_scale(run),
        "quarter": quarter or "",
        "reference_lon": lon,
        "reference_lat": lat,
    }
    return out

"""Kernel slices: what the model thinks varies together with one place, as a map.

k(., x_ref) is the prior covariance of the surface with the surface at x_ref, both at one moment: the learned,
non-stationary kernel made visible (city with city, coast with coast).
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer
from xarray.backends import BackendArray
from xarray.core import indexing

from geogp.errors import InvalidInput
from geogp.prediction import BLOCK, Blocks, Setting, Where, grid_coordinates, quarter_to_years
from geogp.storage import Run
from geogp.targets import target

LONG_NAMES = {
    "covariance": "prior covariance of the surface with the reference point",
    "correlation": "prior correlation of the surface with the reference point",
}


class _SliceBlocks(Blocks):
    """Covariance and correlation with one place, by aligned block."""

    planes = 2

    def __init__(
        self, run: Run, geobox: GeoBox, setting: Setting, where: Where | None, x_ref: NDArray[np.float64]
    ):
        super().__init__(run, geobox, setting, where, None)
        self.x_ref = torch.as_tensor(x_ref[None])

    def _moments(self, X: NDArray[np.float64]) -> NDArray[np.float32]:
        model = self.run.model
        covariance, correlation = model.engine_.prior_slice(torch.as_tensor(X), self.x_ref)
        return torch.stack([model.target_sd_**2 * covariance, correlation]).float().numpy()


class _Lazy(BackendArray):
    def __init__(self, blocks: _SliceBlocks, which: int):
        self.blocks, self.which = blocks, which
        self.shape = tuple(blocks.geobox.shape)
        self.dtype = np.dtype("float32")

    def __getitem__(self, key: indexing.ExplicitIndexer) -> NDArray[np.float32]:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> NDArray[np.float32]:
        # Integers and strides are taken after reading the window that holds them.
        spans, after = [], []
        for k, n in zip(key, self.shape):
            chosen = np.atleast_1d(np.arange(n)[k])
            low, high = (int(chosen.min()), int(chosen.max()) + 1) if len(chosen) else (0, 0)
            spans.append(slice(low, high))
            after.append(int(k) % n - low if isinstance(k, int | np.integer) else chosen - low)
        values = self.blocks.window(spans[0], spans[1])[self.which]
        return values[after[0]][..., after[1]]


def kernel_slice(
    run: Run,
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
    Dataset with dims (y, x): covariance in squared units of the score scale (log10), correlation in -1..1;
    the reference place in the attributes `reference_lon`, `reference_lat`

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
    if geobox.crs is None:
        raise InvalidInput(
            "the grid has no CRS; give the GeoBox one, e.g. GeoBox.from_bbox(..., crs='EPSG:4326')."
        )
    goal = target(run.facts["target"])
    quarter = quarter or run.facts["data"].get("last_quarter")
    x_ref = [
        *Transformer.from_crs(4326, CRS.from_user_input(run.facts["data"]["crs"]), always_xy=True).transform(
            lon, lat
        )
    ]
    if run.model.engine_.plan.shape.time is not None:
        if quarter is None:
            raise InvalidInput("this run knows time; name the quarter of the slice, e.g. quarter='2023Q4'.")
        x_ref.append(quarter_to_years(quarter))
    blocks = _SliceBlocks(
        run, geobox, Setting(quarter, None, 0.95), where, np.asarray(x_ref, dtype=np.float64)
    )
    variables = {
        name: xr.Variable(
            ("y", "x"),
            indexing.LazilyIndexedArray(_Lazy(blocks, i)),
            {"units": "1", "long_name": words, "grid_mapping": "spatial_ref"},
            {"preferred_chunks": {"y": BLOCK, "x": BLOCK}},
        )
        for i, (name, words) in enumerate(LONG_NAMES.items())
    }
    out = xr.Dataset(variables, coords=grid_coordinates(geobox))
    out.attrs = {
        "Conventions": "CF-1.8",
        "title": f"Kernel slice of {goal.words}",
        "institution": "made with GeoGP",
        "source": f"GeoGP method {run.model.method}",
        "method": run.model.method,
        "target": goal.name,
        "quarter": quarter or "",
        "reference_lon": lon,
        "reference_lat": lat,
    }
    return out

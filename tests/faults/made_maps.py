"""A map to write that no model has to make."""

from typing import Any

import numpy as np
import xarray as xr
from affine import Affine
from odc.geo.geobox import GeoBox


def made_map(side: int = 48, level: float = 50.0, **attrs: Any) -> xr.Dataset:
    """Two layers of noise about `level`, (side, side) pixels: hard to compress."""
    box = GeoBox((side, side), Affine(500, 0, 600_000, 0, -500, 2_400_000), "EPSG:32604")
    rng = np.random.default_rng(0)
    y, x = 2_400_000 - 500 * (np.arange(side) + 0.5), 600_000 + 500 * (np.arange(side) + 0.5)
    values = {
        "median": rng.normal(level, 0.5, (side, side)),
        "explained": rng.uniform(0, 1, (side, side)),
    }
    ds = xr.Dataset(
        {name: (("y", "x"), v.astype(np.float32)) for name, v in values.items()}, coords={"y": y, "x": x}
    )
    ds["spatial_ref"] = xr.DataArray(0, attrs={"crs_wkt": box.crs.wkt})
    ds.attrs = {"target": "download", "target_unit": "Mbit/s", "title": "made", **attrs}
    return ds

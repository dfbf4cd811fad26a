"""A Zarr store (format 2, consolidated, as xarray and GDAL read it), streamed by window."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maps.grid import BLOCK, Window
from maps.layers import Band
from maps.sinks.base import Output, Plan, Sink
from maps.sinks.netcdf import axis_attrs, global_attrs, grid_mapping_attrs, variable_attrs


class ZarrSink(Sink):
    """`prediction.zarr/`; chunks without a pixel are not written."""

    @classmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        return ["prediction.zarr"]

    def begin(self, plan: Plan) -> None:
        import zarr

        self.plan = plan
        self._path = self.folder / str(self.options.get("single") or "prediction.zarr")
        self._group = group = zarr.open_group(self._path, mode="w", zarr_format=2)
        height, width = plan.shape
        chunk = (min(height, BLOCK), min(width, BLOCK))

        def small(name: str, dims: list[str], values: NDArray[Any], attrs: Mapping[str, Any]) -> None:
            array = group.create_array(name, shape=values.shape, dtype=values.dtype, fill_value=None)
            array[...] = values
            array.attrs.update({"_ARRAY_DIMENSIONS": dims} | _plain(attrs))

        for name, attrs in axis_attrs(plan).items():
            small(name, [name], np.asarray(plan.ds[name].values, dtype=np.float64), attrs)
        small("spatial_ref", [], np.array(0, np.int32), grid_mapping_attrs(plan))
        for key, bands in plan.variables.items():
            dims, shape, chunks = ["y", "x"], plan.shape, chunk
            if key == "exceedance":
                thresholds = np.array([b.threshold for b in bands], float)
                unit = str(plan.attrs.get("target_unit", "1"))
                small("threshold", ["threshold"], thresholds, {"units": unit, "long_name": "threshold"})
                dims, shape, chunks = ["threshold", *dims], (len(bands), *shape), (1, *chunk)  # type: ignore[assignment]
            array = group.create_array(
                key, shape=shape, chunks=chunks, dtype="float32", fill_value=float("nan")
            )
            array.attrs.update({"_ARRAY_DIMENSIONS": dims} | _plain(variable_attrs(plan, key)))
        group.attrs.update(_plain(global_attrs(plan)))

    def write(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], inside: NDArray[np.bool_]
    ) -> None:
        rows, cols = window.slices
        for key, bands in self.plan.variables.items():
            for i, band in enumerate(bands):
                where = (rows, cols) if band.index is None else (i, rows, cols)
                self._group[key][where] = planes[band.name]  # type: ignore[index]

    def finish(self) -> list[Output]:
        import zarr

        zarr.consolidate_metadata(self._path, zarr_format=2)
        again = zarr.open_consolidated(self._path, zarr_format=2)
        missing = [key for key in self.plan.variables if key not in again]
        if missing:
            raise OSError(f"{self._path.name} was written but does not read back whole (missing: {missing}).")
        return [Output(self._path, "zarr", self._path.name, tuple(b.name for b in self.plan.bands))]


def _plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON knows them."""
    return {k: v.tolist() if isinstance(v, np.generic | np.ndarray) else v for k, v in attrs.items()}

"""A Zarr store (format 2, consolidated, as xarray and GDAL read it), streamed by window."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maps.bands import Band
from maps.grid import Window
from maps.layers import LAYERS
from maps.sinks.base import Job, Output, Sink
from maps.sinks.netcdf import axis_attrs, global_attrs, grid_mapping_attrs, variable_attrs


class ZarrSink(Sink):
    """`prediction.zarr/`; chunks without a pixel are not written."""

    @classmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        return ["prediction.zarr"]

    def begin(self, job: Job) -> None:
        import zarr

        self.job = job
        self._path = self.folder / str(self.options.get("single") or "prediction.zarr")
        self._arrays: dict[str, Any] = {}
        group = zarr.open_group(self._path, mode="w", zarr_format=2)

        def small(name: str, dims: list[str], values: NDArray[Any], attrs: Mapping[str, Any]) -> None:
            array = group.create_array(name, shape=values.shape, dtype=values.dtype, fill_value=None)
            array[...] = values
            array.attrs.update({"_ARRAY_DIMENSIONS": dims} | _plain(attrs))

        for name, attrs in axis_attrs(job).items():
            small(name, [name], np.asarray(job.ds[name].values, dtype=np.float64), attrs)
        small("spatial_ref", [], np.array(0, np.int32), grid_mapping_attrs(job))
        if job.thresholds:
            unit = str(job.attrs.get("target_unit", "1"))
            words = {"units": unit, "long_name": "threshold"}
            small("threshold", ["threshold"], np.array(job.thresholds), words)
        for key in job.variables:
            dims = LAYERS[key].dims
            shape = tuple(job.sizes[dim] for dim in dims)
            self._arrays[key] = array = group.create_array(
                key, shape=shape, chunks=job.chunks(key), dtype="float32", fill_value=float("nan")
            )
            array.attrs.update({"_ARRAY_DIMENSIONS": list(dims)} | _plain(variable_attrs(job, key)))
        group.attrs.update(_plain(global_attrs(job)))

    def write(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], inside: NDArray[np.bool_]
    ) -> None:
        for band in self.job.bands:
            self._arrays[band.key][self.job.place(band, window)] = planes[band.name]

    def finish(self) -> list[Output]:
        import zarr

        zarr.consolidate_metadata(self._path, zarr_format=2)
        again = zarr.open_consolidated(self._path, zarr_format=2)
        missing = [key for key in self.job.variables if key not in again]
        if missing:
            raise OSError(f"{self._path.name} was written but does not read back whole (missing: {missing}).")
        return [Output(self._path, "zarr", self._path.name, tuple(b.name for b in self.job.bands))]


def _plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON knows them."""
    return {k: v.tolist() if isinstance(v, np.generic | np.ndarray) else v for k, v in attrs.items()}

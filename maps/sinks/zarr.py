"""A Zarr store (format 3, as xarray and GDAL read it) with overviews, streamed by window."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maps.bands import Band
from maps.grid import BLOCK, Window
from maps.layers import LAYERS
from maps.sinks.base import Job, Output, Sink
from maps.sinks.netcdf import axis_attrs, global_attrs, grid_mapping_attrs, threshold_attrs, variable_attrs

#: How the levels say that they are such.
CONVENTION: dict[str, Any] = {
    "name": "multiscales",
    "uuid": "d35379db-88df-4056-af3a-620245f8e347",
    "schema_url": "https://raw.githubusercontent.com/zarr-conventions/multiscales/refs/tags/v1/schema.json",
    "spec_url": "https://github.com/zarr-conventions/multiscales/blob/v1/README.md",
    "description": "Multiscale layout of zarr datasets",
}


class ZarrSink(Sink):
    """`prediction.zarr/`: the map, and in the groups `1/`, `2/`, .. every second, fourth, .. pixel of it, until one chunk
    holds all. Chunks without a pixel are not written.
    """

    @classmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        return ["prediction.zarr"]

    def begin(self, job: Job) -> None:
        import zarr

        self.job = job
        self._path = self.folder / "prediction.zarr"
        root = zarr.open_group(self._path, mode="w", zarr_format=3)
        self._steps = [1]
        while max(job.shape) / self._steps[-1] > BLOCK:
            self._steps.append(2 * self._steps[-1])
        self._levels = [
            self._level(root if i == 0 else root.create_group(str(i)), step)
            for i, step in enumerate(self._steps)
        ]
        layout = [
            {"asset": "." if i == 0 else str(i)}
            | (
                {}
                if i == 0
                else {"derived_from": "." if i == 1 else str(i - 1), "transform": {"scale": [2.0, 2.0]}}
            )
            for i in range(len(self._steps))
        ]
        levels: dict[str, Any] = {"layout": layout, "resampling_method": "nearest"}
        root.attrs.update({"zarr_conventions": [CONVENTION], "multiscales": levels})

    def _level(self, group: Any, step: int) -> dict[str, Any]:
        """The arrays of a level, made and empty, by variable."""
        job = self.job

        def small(name: str, dims: list[str], values: NDArray[Any], attrs: Mapping[str, Any]) -> None:
            array = group.create_array(name, shape=values.shape, dtype=values.dtype, dimension_names=dims)
            array[...] = values
            array.attrs.update(_plain(attrs))

        sizes = dict(job.sizes)
        for name, attrs in axis_attrs(job).items():
            values = np.asarray(job.ds[name].values, dtype=np.float64)[_first(step) :: step]
            sizes[name] = len(values)
            small(name, [name], values, attrs)
        mapping = grid_mapping_attrs(job)
        if step > 1:
            a = job.geobox.affine
            shift = _first(step) + 0.5 - step / 2
            corner = a * (shift, shift)
            numbers = (corner[0], a.a * step, a.b * step, corner[1], a.d * step, a.e * step)
            mapping["GeoTransform"] = " ".join(repr(float(v)) for v in numbers)
        small("spatial_ref", [], np.array(0, np.int32), mapping)
        if job.thresholds:
            small("threshold", ["threshold"], np.array(job.thresholds), threshold_attrs(job))
        arrays = {}
        for key in job.variables:
            dims = LAYERS[key].dims
            shape = tuple(sizes[dim] for dim in dims)
            arrays[key] = array = group.create_array(
                key,
                shape=shape,
                chunks=tuple(min(n, c) for n, c in zip(shape, job.chunks(key))),
                dtype="float32",
                fill_value=float("nan"),
                dimension_names=dims,
            )
            array.attrs.update(_plain(variable_attrs(job, key)))
        group.attrs.update(_plain(global_attrs(job)))
        return arrays

    def write(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], inside: NDArray[np.bool_]
    ) -> None:
        for step, arrays in zip(self._steps, self._levels):
            rows, cols = (_every(step, *ends) for ends in ((window.y0, window.y1), (window.x0, window.x1)))
            if not (rows and cols):
                continue
            part = Window(*(v // step for v in (rows[0], rows[-1], cols[0], cols[-1])))
            part = Window(part.y0, part.y1 + 1, part.x0, part.x1 + 1)
            for band in self.job.bands:
                plane = planes[band.name][
                    rows[0] - window.y0 : rows[-1] + 1 - window.y0 : step,
                    cols[0] - window.x0 : cols[-1] + 1 - window.x0 : step,
                ]
                arrays[band.key][self.job.place(band, part)] = plane

    def finish(self) -> list[Output]:
        import zarr

        with warnings.catch_warnings():
            # Not in the specification yet; xarray opens the store in one request with it and warns without.
            warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)
            zarr.consolidate_metadata(self._path, zarr_format=3)
        again = zarr.open_consolidated(self._path, zarr_format=3)
        missing = [key for key in self.job.variables if key not in again]
        if missing:
            raise OSError(f"{self._path.name} was written but does not read back whole (missing: {missing}).")
        return [Output(self._path, "zarr", self._path.name, tuple(b.name for b in self.job.bands))]


def _first(step: int) -> int:
    """The first pixel kept of every `step`: the middle of them."""
    return step // 2


def _every(step: int, start: int, stop: int) -> range:
    """The pixels kept of every `step` among [start, stop).

    Examples
    --------
    >>> list(_every(4, 3, 12)), list(_every(1, 3, 5))
    ([6, 10], [3, 4])
    """
    first = _first(step)
    return range(start + (first - start) % step, stop, step)


def _plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON knows them."""
    return {k: v.tolist() if isinstance(v, np.generic | np.ndarray) else v for k, v in attrs.items()}

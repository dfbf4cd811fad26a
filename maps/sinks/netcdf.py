"""CF-1.8 NetCDF-4, streamed by window."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS

from maps.bands import Band, long_name
from maps.grid import Window
from maps.layers import LAYERS
from maps.sinks.base import Job, Output, Sink
from maps.sinks.spilling import Spilling

AXES = {
    False: {
        "x": {
            "standard_name": "projection_x_coordinate",
            "long_name": "easting of the pixel centre",
            "units": "m",
        },
        "y": {
            "standard_name": "projection_y_coordinate",
            "long_name": "northing of the pixel centre",
            "units": "m",
        },
    },
    True: {
        "x": {
            "standard_name": "longitude",
            "long_name": "longitude of the pixel centre",
            "units": "degrees_east",
        },
        "y": {
            "standard_name": "latitude",
            "long_name": "latitude of the pixel centre",
            "units": "degrees_north",
        },
    },
}


def axis_attrs(job: Job) -> dict[str, dict[str, str]]:
    """CF attributes of `x` and `y`; the unit follows the CRS's own (metre or foot)."""
    crs = CRS.from_wkt(job.crs_wkt)
    attrs = {name: dict(values) for name, values in AXES[crs.is_geographic].items()}
    for name, letter in (("x", "X"), ("y", "Y")):
        attrs[name]["axis"] = letter
        if not crs.is_geographic and crs.axis_info and crs.axis_info[0].unit_name not in ("metre", "unknown"):
            attrs[name]["units"] = crs.axis_info[0].unit_name.replace("US survey foot", "US_survey_foot")
    return attrs


def grid_mapping_attrs(job: Job) -> dict[str, Any]:
    """CF grid-mapping attributes, the CRS as WKT and GDAL's GeoTransform."""
    crs = CRS.from_wkt(job.crs_wkt)
    attrs = {k: v for k, v in crs.to_cf().items() if v not in (None, "unknown", "undefined")}
    operation = crs.coordinate_operation
    if "grid_mapping_name" not in attrs and operation is not None and operation.method_code == "1024":
        # Web Mercator has no name in CF: it is the Mercator of a sphere; crs_wkt says exactly what it is.
        attrs |= {
            "grid_mapping_name": "mercator",
            "standard_parallel": 0.0,
            "longitude_of_projection_origin": 0.0,
        }
        attrs |= {"false_easting": 0.0, "false_northing": 0.0}
    return attrs | {"GeoTransform": " ".join(repr(float(v)) for v in job.geobox.affine.to_gdal())}


def threshold_attrs(job: Job) -> dict[str, str]:
    """Of the coordinate of thresholds: its unit, and what the Dataset calls it."""
    own = job.ds["threshold"].attrs.get("long_name", "threshold")
    return {"units": str(job.attrs.get("target_unit", "1")), "long_name": str(own)}


def variable_attrs(job: Job, key: str) -> dict[str, Any]:
    """Attributes of a data variable: those of the Dataset, else from `LAYERS`."""
    band = next(band for band in job.bands if band.key == key)
    given = job.ds[key].attrs
    words = given.get("long_name") or long_name(job.ds, key)
    attrs = {k: v for k, v in given.items() if k not in ("_FillValue", "grid_mapping", "long_name")}
    return (
        {"units": band.unit, "long_name": words, "comment": band.about}
        | attrs
        | {"grid_mapping": "spatial_ref"}
    )


def global_attrs(job: Job) -> dict[str, Any]:
    attrs: dict[str, Any] = {"Conventions": "CF-1.8", "title": "GeoGP prediction"}
    for name, value in job.attrs.items():
        attrs[name] = value if isinstance(value, str | int | float | np.number | np.ndarray) else str(value)
    return attrs


class NetcdfSink(Sink):
    """`prediction.nc`: chunked, deflated; chunks without a pixel take no room."""

    @classmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        return ["prediction.nc"]

    def begin(self, job: Job) -> None:
        import h5netcdf

        self.job = job
        self._path = self.folder / str(self.options.get("single") or "prediction.nc")
        self._out = Spilling(self._path)
        self._file = f = h5netcdf.File(self._out, "w")
        f.dimensions = job.sizes
        for name, attrs in axis_attrs(job).items():
            values = np.asarray(job.ds[name].values, dtype=np.float64)
            variable = f.create_variable(name, (name,), "float64", data=values)
            variable.attrs.update(attrs)
        mapping = f.create_variable("spatial_ref", (), "int32", data=np.int32(0))
        mapping.attrs.update(grid_mapping_attrs(job))
        if job.thresholds:
            threshold = f.create_variable(
                "threshold", ("threshold",), "float64", data=np.array(job.thresholds)
            )
            threshold.attrs.update(threshold_attrs(job))
        for key in job.variables:
            variable = f.create_variable(
                key,
                LAYERS[key].dims,
                "float32",
                fillvalue=np.float32(np.nan),
                chunks=job.chunks(key),
                compression="gzip",
                compression_opts=4,
                shuffle=True,
            )
            variable.attrs.update(variable_attrs(job, key))
        f.attrs.update(global_attrs(job))

    def write(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], inside: NDArray[np.bool_]
    ) -> None:
        for band in self.job.bands:
            self._file[band.key][self.job.place(band, window)] = planes[band.name]
        self._out.check()

    def finish(self) -> list[Output]:
        import h5netcdf

        self._file.close()
        self._out.close()
        self._out.check()
        with h5netcdf.File(self._path, "r") as f:
            missing = [
                key for key in (*self.job.variables, "spatial_ref", "x", "y") if key not in f.variables
            ]
            if missing or f.dimensions["y"].size != self.job.shape[0]:
                raise OSError(
                    f"{self._path.name} was written but does not read back whole (missing: {missing})."
                )
        return [Output(self._path, "netcdf", self._path.name, tuple(b.name for b in self.job.bands))]

    def abort(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()
        if hasattr(self, "_out"):
            self._out.close()

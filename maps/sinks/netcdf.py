"""CF-1.8 NetCDF-4, streamed by window."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS

from maps.grid import BLOCK, Window
from maps.layers import Band
from maps.sinks.base import Output, Plan, Sink

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


def axis_attrs(plan: Plan) -> dict[str, dict[str, str]]:
    """CF attributes of `x` and `y`; the unit follows the CRS's own (metre or foot)."""
    crs = CRS.from_wkt(plan.crs_wkt)
    attrs = {name: dict(values) for name, values in AXES[crs.is_geographic].items()}
    for name, letter in (("x", "X"), ("y", "Y")):
        attrs[name]["axis"] = letter
        if not crs.is_geographic and crs.axis_info and crs.axis_info[0].unit_name not in ("metre", "unknown"):
            attrs[name]["units"] = crs.axis_info[0].unit_name.replace("US survey foot", "US_survey_foot")
    return attrs


def grid_mapping_attrs(plan: Plan) -> dict[str, Any]:
    """CF grid-mapping attributes, the CRS as WKT and GDAL's GeoTransform."""
    crs = CRS.from_wkt(plan.crs_wkt)
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
    return attrs | {"GeoTransform": " ".join(repr(float(v)) for v in plan.geobox.affine.to_gdal())}


def variable_attrs(plan: Plan, key: str) -> dict[str, Any]:
    """Attributes of a data variable: those of the Dataset, else from `LAYERS`."""
    band = plan.variables[key][0]
    given = plan.ds[key].attrs
    long_name = given.get("long_name") or (
        f"probability that a new value exceeds the threshold ({band.about})"
        if key == "exceedance"
        else band.title
    )
    attrs = {k: v for k, v in given.items() if k not in ("_FillValue", "grid_mapping", "long_name")}
    return (
        {"units": band.unit, "long_name": long_name, "comment": band.about}
        | attrs
        | {"grid_mapping": "spatial_ref"}
    )


def global_attrs(plan: Plan) -> dict[str, Any]:
    attrs: dict[str, Any] = {"Conventions": "CF-1.8", "title": "GeoGP prediction"}
    for name, value in plan.attrs.items():
        attrs[name] = value if isinstance(value, str | int | float | np.number | np.ndarray) else str(value)
    return attrs


class NetcdfSink(Sink):
    """`prediction.nc`: chunked, deflated; chunks without a pixel take no room."""

    @classmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        return ["prediction.nc"]

    def begin(self, plan: Plan) -> None:
        import h5netcdf

        self.plan = plan
        self._path = self.folder / str(self.options.get("single") or "prediction.nc")
        self._file = f = h5netcdf.File(self._path, "w")
        height, width = plan.shape
        f.dimensions = {"y": height, "x": width}
        for name, attrs in axis_attrs(plan).items():
            values = np.asarray(plan.ds[name].values, dtype=np.float64)
            variable = f.create_variable(name, (name,), "float64", data=values)
            variable.attrs.update(attrs)
        mapping = f.create_variable("spatial_ref", (), "int32", data=np.int32(0))
        mapping.attrs.update(grid_mapping_attrs(plan))
        chunk = (min(height, BLOCK), min(width, BLOCK))
        for key, bands in plan.variables.items():
            dims: tuple[str, ...] = ("y", "x")
            chunks: tuple[int, ...] = chunk
            if key == "exceedance":
                f.dimensions["threshold"] = len(bands)
                threshold = f.create_variable(
                    "threshold", ("threshold",), "float64", data=np.array([b.threshold for b in bands], float)
                )
                threshold.attrs["units"] = str(plan.attrs.get("target_unit", "1"))
                threshold.attrs["long_name"] = "threshold"
                dims, chunks = ("threshold", "y", "x"), (1, *chunk)
            variable = f.create_variable(
                key,
                dims,
                "float32",
                fillvalue=np.float32(np.nan),
                chunks=chunks,
                compression="gzip",
                compression_opts=4,
                shuffle=True,
            )
            variable.attrs.update(variable_attrs(plan, key))
        f.attrs.update(global_attrs(plan))

    def write(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], inside: NDArray[np.bool_]
    ) -> None:
        rows, cols = window.slices
        for key, bands in self.plan.variables.items():
            for i, band in enumerate(bands):
                where = (rows, cols) if band.index is None else (i, rows, cols)
                self._file[key][where] = planes[band.name]

    def finish(self) -> list[Output]:
        import h5netcdf

        self._file.close()
        with h5netcdf.File(self._path, "r") as f:
            missing = [
                key for key in (*self.plan.variables, "spatial_ref", "x", "y") if key not in f.variables
            ]
            if missing or f.dimensions["y"].size != self.plan.shape[0]:
                raise OSError(
                    f"{self._path.name} was written but does not read back whole (missing: {missing})."
                )
        return [Output(self._path, "netcdf", self._path.name, tuple(b.name for b in self.plan.bands))]

    def abort(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

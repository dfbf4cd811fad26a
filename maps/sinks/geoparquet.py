"""GeoParquet: one point per pixel inside the region, one column per band."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS, Transformer

from maps.bands import Band
from maps.grid import Window
from maps.sinks.base import Job, Output, Sink


class GeoparquetSink(Sink):
    """`prediction.parquet` with x, y (grid CRS), lon, lat, the bands, and the pixel centre as WKB point (EPSG:4326)."""

    @classmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        return ["prediction.parquet"]

    def begin(self, job: Job) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.job = job
        self._to_lonlat = Transformer.from_crs(CRS.from_wkt(job.crs_wkt), "EPSG:4326", always_xy=True)
        self._path = self.folder / str(self.options.get("single") or "prediction.parquet")
        fields = [pa.field(name, pa.float64()) for name in ("x", "y", "lon", "lat")]
        fields += [
            pa.field(b.name, pa.float32(), metadata={"units": b.unit, "long_name": b.title})
            for b in job.bands
        ]
        fields.append(pa.field("geometry", pa.binary()))
        geo = {
            "version": "1.1.0",
            "primary_column": "geometry",
            "columns": {"geometry": {"encoding": "WKB", "geometry_types": ["Point"]}},  # no crs: OGC:CRS84
        }
        about = {k: str(v) for k, v in job.attrs.items()} | {"crs": job.crs_wkt}
        self._schema = pa.schema(fields, metadata={"geo": json.dumps(geo), "geogp": json.dumps(about)})
        self._writer = pq.ParquetWriter(self._path, self._schema, compression="zstd")
        self._rows = 0

    def write(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], inside: NDArray[np.bool_]
    ) -> None:
        import pyarrow as pa

        known = inside & np.any([np.isfinite(p) for p in planes.values()], axis=0)
        rows, cols = np.nonzero(known)
        if rows.size == 0:
            return
        x = np.asarray(self.job.ds["x"].values, dtype=np.float64)[window.x0 + cols]
        y = np.asarray(self.job.ds["y"].values, dtype=np.float64)[window.y0 + rows]
        lon, lat = self._to_lonlat.transform(x, y)
        columns: list[Any] = [pa.array(v) for v in (x, y, lon, lat)]
        columns += [pa.array(planes[b.name][rows, cols]) for b in self.job.bands]
        columns.append(_points(lon, lat))
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._rows += rows.size

    def finish(self) -> list[Output]:
        import pyarrow.parquet as pq

        self._writer.close()
        if pq.read_metadata(self._path).num_rows != self._rows:
            raise OSError(f"{self._path.name} was written but does not read back whole.")
        return [Output(self._path, "geoparquet", self._path.name, tuple(b.name for b in self.job.bands))]

    def abort(self) -> None:
        if hasattr(self, "_writer"):
            self._writer.close()


def _points(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> Any:
    """Little-endian WKB points as one Arrow binary array."""
    import pyarrow as pa

    wkb = np.zeros(lon.size, dtype=[("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])
    wkb["order"], wkb["type"], wkb["x"], wkb["y"] = 1, 1, lon, lat
    offsets = np.arange(lon.size + 1, dtype=np.int32) * wkb.dtype.itemsize
    return pa.Array.from_buffers(
        pa.binary(), lon.size, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(wkb.tobytes())]
    )

"""GeoParquet 1.1: one point per pixel inside the region, one column per band."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maps.sinks.base import Output
from maps.sinks.rows import GROUP, Columns, RowSink


class GeoparquetSink(RowSink):
    """`prediction.parquet`: the rows, their boxes (`bbox`, by which readers skip row groups), the geometry as WKB (EPSG:4326)."""

    kind, file = "geoparquet", "prediction.parquet"
    geometry_type = "Point"

    def open(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        words = {b.name: {"units": b.unit, "long_name": b.title} for b in self.job.bands}
        box = pa.struct([pa.field(name, pa.float32()) for name in ("xmin", "ymin", "xmax", "ymax")])
        fields = [
            pa.field(
                name,
                pa.string() if v.dtype.kind == "U" else pa.from_numpy_dtype(v.dtype),
                metadata=words.get(name),
            )
            for name, v in self.columns.items()
        ]
        fields += [pa.field("bbox", box), pa.field("geometry", pa.binary())]
        covering = {name: ["bbox", name] for name in ("xmin", "ymin", "xmax", "ymax")}
        column = {"encoding": "WKB", "geometry_types": [self.geometry_type], "covering": {"bbox": covering}}
        geo = {
            "version": "1.1.0",
            "primary_column": "geometry",
            "columns": {"geometry": column},
        }  # no crs: OGC:CRS84
        self._schema = pa.schema(fields, metadata={"geo": json.dumps(geo), "geogp": json.dumps(self.about)})
        self._writer = pq.ParquetWriter(self._path, self._schema, compression="zstd")

    def put(self, columns: Columns) -> None:
        import pyarrow as pa

        geometry, bounds = self.shapes(columns)
        # Rounded outwards: a box in single precision holds its geometry.
        low = np.nextafter(bounds[:, :2].astype(np.float32), np.float32(-np.inf))
        high = np.nextafter(bounds[:, 2:].astype(np.float32), np.float32(np.inf))
        box = pa.StructArray.from_arrays(
            [pa.array(v) for v in (*low.T, *high.T)], fields=list(self._schema.field("bbox").type)
        )
        arrays = [pa.array(columns[name]) for name in self.columns]
        table = pa.Table.from_arrays([*arrays, box, geometry], schema=self._schema)
        self._writer.write_table(table, row_group_size=GROUP)

    def shapes(self, columns: Columns) -> tuple[Any, NDArray[np.float64]]:
        """Geometries as an Arrow array of WKB, and their W, S, E, N (rows, 4)."""
        lon, lat = columns["lon"], columns["lat"]
        return _points(lon, lat), np.column_stack([lon, lat, lon, lat])

    def close(self) -> list[Output]:
        self._writer.close()
        return [self.output()]

    def count(self) -> int:
        import pyarrow.parquet as pq

        return int(pq.read_metadata(self._path).num_rows)

    def abort(self) -> None:
        if hasattr(self, "_writer"):
            self._writer.close()


def _points(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> Any:
    """Little-endian WKB points as one Arrow binary array."""
    wkb = np.zeros(lon.size, dtype=[("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])
    wkb["order"], wkb["type"], wkb["x"], wkb["y"] = 1, 1, lon, lat
    return as_binary(wkb)


def as_binary(records: NDArray[Any]) -> Any:
    """Records of one length as an Arrow binary array."""
    import pyarrow as pa

    offsets = np.arange(records.size + 1, dtype=np.int32) * records.dtype.itemsize
    return pa.Array.from_buffers(
        pa.binary(), records.size, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(records.tobytes())]
    )

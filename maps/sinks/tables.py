"""Tables of pixels for other programs: CSV, and a GeoPackage of squares."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maps.bands import Band
from maps.clock import in_gdal
from maps.sinks.base import Output
from maps.sinks.geoparquet import as_binary
from maps.sinks.rows import Columns, RowSink


class CsvSink(RowSink):
    """`prediction.csv`, and beside it `prediction.csv-metadata.json` (CSV on the Web): units, words, source, licence."""

    kind, file = "csv", "prediction.csv"
    sidecar = "prediction.csv-metadata.json"

    @classmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        return [cls.file, cls.sidecar]

    def open(self) -> None:
        self._file = self._path.open("wb")
        self._file.write((",".join(self.columns) + "\n").encode())

    def put(self, columns: Columns) -> None:
        import pyarrow as pa
        from pyarrow.csv import WriteOptions, write_csv

        degrees = {name: np.round(columns[name], 7) for name in ("lon", "lat")}
        bands = {
            band.name: pa.array(columns[band.name], from_pandas=True) for band in self.job.bands
        }  # NaN is empty
        write_csv(pa.table(columns | degrees | bands), self._file, WriteOptions(include_header=False))

    def close(self) -> list[Output]:
        self._file.close()
        bands = {
            b.name: {"titles": b.title, "dc:description": b.about, "schema:unitText": b.unit}
            for b in self.job.bands
        }
        columns = [
            {"name": name, "datatype": "string" if v.dtype.kind == "U" else "number", **bands.get(name, {})}
            for name, v in self.columns.items()
        ]
        named = {key: self.about[key] for key in ("title", "source", "license") if key in self.about}
        told = {
            "@context": "http://www.w3.org/ns/csvw",
            "url": self.file,
            **{f"dc:{key}": words for key, words in named.items()},
            "tableSchema": {"columns": columns},
            "geogp": self.about,
        }
        path = self.folder / self.sidecar
        path.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", "utf-8")
        return [self.output(), Output(path, "metadata", self.sidecar, ())]

    def count(self) -> int:
        with self._path.open("rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(2**20), b"")) - 1

    def abort(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


class GpkgSink(RowSink):
    """`prediction.gpkg`, layer `prediction`: each pixel as a square in the grid's CRS, with lon, lat and the bands."""

    kind, file = "gpkg", "prediction.gpkg"
    layer = "prediction"

    def open(self) -> None:
        self._written = False

    def put(self, columns: Columns) -> None:
        import pyarrow as pa
        from pyogrio.raw import write_arrow

        geometry = as_binary(self._squares(columns["x"], columns["y"]))
        kept = {name: v for name, v in columns.items() if name not in ("x", "y")}
        table = pa.table({**kept, "geometry": geometry})
        about: dict[str, Any] = {} if self._written else {"layer_metadata": {"geogp": json.dumps(self.about)}}
        with in_gdal(), _on_a_disk():
            write_arrow(
                table,
                self._path,
                layer=self.layer,
                driver="GPKG",
                geometry_name="geometry",
                geometry_type="Polygon",
                crs=self.job.crs_wkt,
                append=self._written,
                **about,
            )
        self._written = True

    def _squares(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[Any]:
        """Little-endian WKB of the pixels around centres: one ring of five points."""
        a = self.job.geobox.affine
        wkb = np.zeros(
            x.size,
            dtype=[
                ("order", "u1"),
                ("type", "<u4"),
                ("rings", "<u4"),
                ("points", "<u4"),
                ("xy", "<f8", (5, 2)),
            ],
        )
        wkb["order"], wkb["type"], wkb["rings"], wkb["points"] = 1, 3, 1, 5
        for i, (u, v) in enumerate(((-0.5, -0.5), (-0.5, 0.5), (0.5, 0.5), (0.5, -0.5), (-0.5, -0.5))):
            wkb["xy"][:, i, 0] = x + a.a * u + a.b * v
            wkb["xy"][:, i, 1] = y + a.d * u + a.e * v
        return wkb

    def close(self) -> list[Output]:
        if not self._written:
            self.put(self.columns)
        return [self.output()]

    def count(self) -> int:
        import pyogrio

        return int(pyogrio.read_info(self._path, layer=self.layer, force_feature_count=True)["features"])


@contextmanager
def _on_a_disk() -> Iterator[None]:
    """A full disk is said to be one: SQLite takes back what it wrote, and GDAL tells of that, or of its commit, alone."""
    from pyogrio.errors import DataLayerError

    try:
        yield
    except DataLayerError as error:
        if not any(word in str(error) for word in ("ROLLBACK", "disk")):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error

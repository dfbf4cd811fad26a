"""Pixels as rows of a table: what the table formats share."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS, Transformer

from maps.bands import Band
from maps.grid import Window
from maps.mercator import quadkeys, tile_zoom
from maps.sinks.base import Job, Output, Sink

#: Rows handed on together, at least: they lie together, so that a reader of a small place skips the others.
GROUP = 65_536
Columns = dict[str, NDArray[Any]]


class RowSink(Sink):
    """One row per pixel inside that has a value: x, y (grid CRS), lon, lat, the bands; on a grid of map tiles `quadkey`.

    Rows come in blocks of at least `GROUP` (the last one fewer), each sorted along a Z-shaped curve; memory is that of a
    block and a window.
    """

    kind: str
    file: str

    @classmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        return [cls.file]

    def begin(self, job: Job) -> None:
        self.job = job
        self._to_lonlat = Transformer.from_crs(CRS.from_wkt(job.crs_wkt), "EPSG:4326", always_xy=True)
        self._path = self.folder / self.file
        self._zoom = tile_zoom(job.geobox)
        self._x = np.asarray(job.ds["x"].values, dtype=np.float64)
        self._y = np.asarray(job.ds["y"].values, dtype=np.float64)
        self._held: list[Columns] = []
        self._waiting, self._rows = 0, 0
        self.open()

    def write(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], inside: NDArray[np.bool_]
    ) -> None:
        known = inside & np.any([np.isfinite(p) for p in planes.values()], axis=0)
        if not known.any():
            return
        columns = self.rows(window, planes, known)
        self._held.append(columns)
        self._waiting += len(columns["x"])
        if self._waiting >= GROUP:
            self._pass_on()

    @property
    def columns(self) -> Columns:
        """The columns in their order, without a row."""
        places = {name: np.empty(0) for name in ("x", "y", "lon", "lat")}
        keys = {} if self._zoom is None else {"quadkey": np.empty(0, "U1")}
        return places | keys | {band.name: np.empty(0, np.float32) for band in self.job.bands}

    def rows(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], known: NDArray[np.bool_]
    ) -> Columns:
        """The rows of a window: columns x, y, lon, lat, .. of one length."""
        rows, cols = np.nonzero(known)
        x, y = self._x[window.x0 + cols], self._y[window.y0 + rows]
        lon, lat = self._to_lonlat.transform(x, y)
        out = {"x": x, "y": y, "lon": np.asarray(lon), "lat": np.asarray(lat)}
        if self._zoom is not None:
            out["quadkey"] = quadkeys(out["lon"], out["lat"], self._zoom)
        return out | {band.name: planes[band.name][rows, cols] for band in self.job.bands}

    def _pass_on(self) -> None:
        if not self._waiting:
            return
        whole = {name: np.concatenate([part[name] for part in self._held]) for name in self._held[0]}
        self._held, self._waiting = [], 0
        order = np.argsort(_along_a_curve(self.job, whole["x"], whole["y"]), kind="stable")
        self._rows += len(order)
        self.put({name: values[order] for name, values in whole.items()})

    def finish(self) -> list[Output]:
        self._pass_on()
        outputs = self.close()
        if (found := self.count()) != self._rows:
            raise OSError(
                f"{self.file} was written but does not read back whole ({found} of {self._rows} rows)."
            )
        return outputs

    @property
    def about(self) -> dict[str, str]:
        """What a file says of itself: the Dataset's attributes and the CRS, as text."""
        return {k: str(v) for k, v in self.job.attrs.items()} | {"crs": self.job.crs_wkt}

    def output(self) -> Output:
        return Output(self._path, self.kind, self.file, tuple(b.name for b in self.job.bands))

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def put(self, columns: Columns) -> None:
        """Write a sorted block of rows."""

    @abstractmethod
    def close(self) -> list[Output]:
        """Close the file; what was made."""

    @abstractmethod
    def count(self) -> int:
        """Rows in the closed file."""


def _along_a_curve(job: Job, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Each pixel's key along a Z-shaped curve: the bits of its column and row in turn."""
    inverse = ~job.geobox.affine
    key = np.zeros(len(x), dtype=np.uint64)
    for axis, (a, b, c) in enumerate(((inverse.a, inverse.b, inverse.c), (inverse.d, inverse.e, inverse.f))):
        bits = np.clip(np.floor(a * x + b * y + c), 0, 2**31).astype(np.uint64)
        for shift in (16, 8, 4, 2, 1):
            mask = np.uint64((2**64 - 1) // (2**shift + 1))  # runs of `shift` ones and as many zeros
            bits = (bits | (bits << np.uint64(shift))) & mask
        key |= bits << np.uint64(axis)
    return key

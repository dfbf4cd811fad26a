"""The contract between the render loop and the file formats."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox

from maps.bands import Band
from maps.grid import BLOCK, Window, wkt_of
from maps.layers import LAYERS
from maps.words import quarter_of


@dataclass(frozen=True)
class Job:
    """What is being rendered: the grid, the bands and the words that go with them."""

    ds: xr.Dataset  # for attributes and coordinates; its values come window by window
    geobox: GeoBox
    bands: tuple[Band, ...]
    side: int = BLOCK  # window side in pixels

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.geobox.shape
        return int(height), int(width)

    @property
    def crs_wkt(self) -> str:
        return wkt_of(self.geobox)

    @property
    def variables(self) -> tuple[str, ...]:
        """The Dataset's variables that the bands are planes of."""
        return tuple(dict.fromkeys(band.key for band in self.bands))

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The thresholds of all bands that have one."""
        return tuple(dict.fromkeys(b.threshold for b in self.bands if b.threshold is not None))

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each dimension."""
        sizes = dict(zip(("y", "x"), self.shape, strict=True))
        return sizes | ({"threshold": len(self.thresholds)} if self.thresholds else {})

    def chunks(self, key: str) -> tuple[int, ...]:
        """The chunk of a variable: one threshold, a block of pixels."""
        most = {"threshold": 1, "y": BLOCK, "x": BLOCK}
        return tuple(min(self.sizes[dim], most[dim]) for dim in LAYERS[key].dims)

    def place(self, band: Band, window: Window) -> tuple[int | slice, ...]:
        """Where a window of a band lies in the band's variable."""
        rows, cols = window.slices
        return (rows, cols) if band.threshold is None else (self.thresholds.index(band.threshold), rows, cols)

    @property
    def attrs(self) -> dict[str, Any]:
        """The Dataset's attributes, those that are None or empty left out."""
        attrs = {**self.ds.attrs, "quarter": quarter_of(self.ds)}
        return {str(k): v for k, v in attrs.items() if v is not None and v != ""}


@dataclass(frozen=True)
class Output:
    """A finished file or folder, still under its temporary name."""

    path: Path
    kind: str
    name: str  # final name in the output folder
    layers: tuple[str, ...]


class Sink(ABC):
    """Takes rendered windows and leaves checked files in a temporary folder."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.options = folder, options

    @classmethod
    @abstractmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        """Final names of what will be written, known beforehand so that existing ones can be refused."""

    @abstractmethod
    def begin(self, job: Job) -> None: ...

    @abstractmethod
    def write(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], inside: NDArray[np.bool_]
    ) -> None:
        """One window: band name -> (rows, columns), NaN outside the region. Windows without a pixel never come."""

    @abstractmethod
    def finish(self) -> list[Output]:
        """Close, flush to disk, re-open and check."""

    def abort(self) -> None:  # noqa: B027 - a sink without open handles has nothing to do
        """Close handles after a failure; the folder is removed by the caller."""

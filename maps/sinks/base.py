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

from maps.grid import BLOCK, Window
from maps.layers import Band


@dataclass(frozen=True)
class Plan:
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
        return str(self.geobox.crs.wkt)  # type: ignore[union-attr]

    @property
    def variables(self) -> dict[str, list[Band]]:
        """Dataset variable -> its bands (several for the thresholds of `exceedance`)."""
        grouped: dict[str, list[Band]] = {}
        for band in self.bands:
            grouped.setdefault(band.key, []).append(band)
        return grouped

    @property
    def attrs(self) -> dict[str, Any]:
        """The Dataset's attributes, those that are None or empty left out."""
        return {str(k): v for k, v in self.ds.attrs.items() if v is not None and v != ""}


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
    def begin(self, plan: Plan) -> None: ...

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

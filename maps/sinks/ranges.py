"""The least and the greatest value of each layer, for the manifest; no file of its own."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from maps.bands import Band
from maps.grid import Window
from maps.sinks.base import Job, Output, Sink


class Ranges(Sink):
    """`found`: layer -> (least, greatest) of what was rendered, in its unit; layers without a value are left out."""

    found: dict[str, tuple[float, float]]

    @classmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        return []

    def begin(self, job: Job) -> None:
        self.found = {}

    def write(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], inside: NDArray[np.bool_]
    ) -> None:
        for name, plane in planes.items():
            values = plane[np.isfinite(plane)]
            if values.size:
                low, high = self.found.get(name, (np.inf, -np.inf))
                self.found[name] = (min(low, float(values.min())), max(high, float(values.max())))

    def finish(self) -> list[Output]:
        return []

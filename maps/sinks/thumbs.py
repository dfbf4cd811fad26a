"""A small copy of what is rendered, kept while it passes: for legends, which need all of a map at once."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from maps.colours import Scale, scales
from maps.grid import Window
from maps.layers import LAYERS
from maps.sinks.base import Job

#: Pixels kept of each band.
MOST = 250_000


class Thumb:
    """Every k-th row and column of a map, so that about `MOST` pixels remain, and the legends that follow."""

    def __init__(self, job: Job) -> None:
        height, width = job.shape
        self.job = job
        step = max(1, int(np.ceil(np.sqrt(height * width / MOST))))
        self._at = np.arange(height)[step // 2 :: step], np.arange(width)[step // 2 :: step]
        if not (len(self._at[0]) and len(self._at[1])):  # a strip
            self._at = np.arange(height)[:: min(step, height)], np.arange(width)[:: min(step, width)]
        sizes = {"y": len(self._at[0]), "x": len(self._at[1]), "threshold": len(job.thresholds)}
        self._values = {
            key: np.full([sizes[dim] for dim in LAYERS[key].dims], np.nan, np.float32)
            for key in job.variables
        }

    def write(self, window: Window, planes: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep what of a window is kept."""
        y, x = self._at
        rows = slice(*np.searchsorted(y, (window.y0, window.y1)))
        cols = slice(*np.searchsorted(x, (window.x0, window.x1)))
        for band in self.job.bands:
            part = planes[band.name][np.ix_(y[rows] - window.y0, x[cols] - window.x0)]
            at = () if band.threshold is None else (self.job.thresholds.index(band.threshold),)
            self._values[band.key][(*at, rows, cols)] = part

    def scales(self, limits: Mapping[str, tuple[float, float]] | None = None) -> dict[str, Scale]:
        """The legend of each quantity: layers of one quantity share it, as on figures and pages."""
        data = {key: (LAYERS[key].dims, values) for key, values in self._values.items()}
        coords = {"threshold": list(self.job.thresholds)} if self.job.thresholds else {}
        return scales(xr.Dataset(data, coords, dict(self.job.ds.attrs)), self.job.bands, limits)

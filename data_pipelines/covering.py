"""Which stretches of the Z-order curve a place can hold: what lets readers pass over the rest of a file."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from data_pipelines import quadkey, zorder

Codes = NDArray[np.int64]

#: Cells of this zoom, 1.4 degrees wide; bits of a tile's code within one.
ZOOM = 8
WITHIN = 2 * (quadkey.ZOOM - ZOOM)


@dataclass(frozen=True, eq=False)
class Covering:
    """Cells of zoom 8 that a place meets: cells (65536,) by their code."""

    cells: NDArray[np.bool_]

    @classmethod
    def of(
        cls, window: tuple[int, int, int, int], meets: Callable[[Codes, Codes, int], NDArray[np.bool_]]
    ) -> "Covering":
        """The covering of a place by its window of zoom-16 tiles (first column, first row, how many follow) and a function
        that says which cells x, y of a zoom it meets."""
        shift = quadkey.ZOOM - ZOOM
        x0, y0, width, height = window
        across = np.unique((np.arange(x0 >> shift, (x0 + width >> shift) + 1)) % (1 << ZOOM))
        down = np.arange(y0 >> shift, (y0 + height >> shift) + 1)
        x, y = (axis.ravel() for axis in np.meshgrid(across, down))
        cells = np.zeros(1 << 2 * ZOOM, bool)
        met = meets(x, y, ZOOM)
        cells[zorder.of_tiles(x[met], y[met])] = True
        return cls(cells)

    def near(self, codes: Codes) -> NDArray[np.bool_]:
        """Which tiles lie in a cell that the place meets, (N,)."""
        return self.cells[codes >> WITHIN]

    def may_hold(self, first: str, last: str) -> bool:
        """Whether keys between two keys can lie in the place; True where these are no keys."""
        ends = np.array([first.encode("ascii", "replace"), last.encode("ascii", "replace")])
        if ends.dtype != np.dtype(f"S{quadkey.ZOOM}"):
            return True
        codes, valid = zorder.of_keys(ends)
        if not valid.all():
            return True
        low, high = codes.tolist()
        at = int(np.searchsorted(self.ranges[:, 1], low))
        return at < len(self.ranges) and bool(self.ranges[at, 0] <= high)

    @cached_property
    def ranges(self) -> Codes:
        """First and last code of each stretch, (K, 2), in order."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], self.cells, [False]]).astype(np.int8)))
        first, end = edges[::2], edges[1::2]
        return np.stack([first << WITHIN, (end << WITHIN) - 1], axis=1)

"""The pixels of a map that have a value, as places of a run: for what needs them all at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS, Transformer

from app.errors import InvalidInput
from app.workflow.grids import Grid
from geogp.run import Run

#: Pixels that are drawn together: a draw of so many local-field pixels takes seconds.
MOST = 100_000


@dataclass(frozen=True, eq=False)
class Pixels:
    """Pixels of a grid with a value: rows and columns (n,), and their places xy (n, 2) in the run's CRS."""

    shape: tuple[int, int]
    row: NDArray[np.int64]
    col: NDArray[np.int64]
    xy: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.row)

    def plane(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Values (n,) as the grid has them: (rows, columns), NaN elsewhere."""
        out = np.full(self.shape, np.nan, dtype=np.float32)
        out[self.row, self.col] = values
        return out


def pixels_of(run: Run, grid: Grid, what: str, *, jointly: bool = True) -> Pixels:
    """The pixels of a grid inside the region, or within the reach of the data.

    Parameters
    ----------
    what : for which they are wanted, in words
    jointly : whether the method draws them together, of which some take few

    Raises
    ------
    InvalidInput
        more than the method draws jointly, or none.
    """
    most = min(MOST, run.model.most_places or MOST) if jointly else MOST
    if grid.n_inside > most and grid.boundary is not None:
        raise _too_many(grid.n_inside, most, what)
    if grid.boundary is None:
        row, col = (v.ravel() for v in np.indices(grid.shape)) if grid.n_pixels <= 50 * most else _none()
        if not len(row):
            raise _too_many(grid.n_pixels, most, what)
    else:
        row, col = np.nonzero(grid.where(grid.geobox))
    a = grid.geobox.affine
    x, y = a.c + a.a * (col + 0.5) + a.b * (row + 0.5), a.f + a.d * (col + 0.5) + a.e * (row + 0.5)
    own = CRS.from_wkt(grid.wkt)
    if own != run.crs:
        x, y = Transformer.from_crs(own, run.crs, always_xy=True).transform(x, y)
    xy = np.column_stack([x, y])
    kept = np.isfinite(xy).all(axis=1)
    if grid.max_distance_m is not None:
        kept &= np.isfinite(run.support.distances_m(xy, grid.max_distance_m))
    if kept.sum() > most:
        raise _too_many(int(kept.sum()), most, what)
    if not kept.any():
        raise InvalidInput(
            "No pixel of the map lies inside the region; choose other --bounds or a finer --resolution."
        )
    return Pixels(grid.shape, row[kept], col[kept], xy[kept])


def _none() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)


def _too_many(n: int, most: int, what: str) -> InvalidInput:
    return InvalidInput(
        f"{what[0].upper()}{what[1:]} are of at most {most:,} pixels together, and this map has {n:,}; take a coarser "
        "--resolution or --bounds."
    )

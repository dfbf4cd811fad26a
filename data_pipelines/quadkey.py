"""Indices of Web-Mercator tiles and the ground they cover, in plain numpy; their keys are in `zorder`.

References
----------
Microsoft, "Bing Maps Tile System"; EPSG:3857 for the projection.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

ZOOM = 16  # Ookla's tiles: 610.8 m at the equator
MAX_LATITUDE = 85.0511287798066  # where the Web-Mercator square ends


class Bounds(NamedTuple):
    """West, south, east, north of each tile, in degrees."""

    west: NDArray[np.float64]
    south: NDArray[np.float64]
    east: NDArray[np.float64]
    north: NDArray[np.float64]


def bounds(x: ArrayLike, y: ArrayLike, zoom: int = ZOOM) -> Bounds:
    """West, south, east and north edges of tiles, degrees of WGS84, each (N,).

    Examples
    --------
    >>> [float(edge[0].round(2)) for edge in bounds([0], [0], zoom=1)]
    [-180.0, 0.0, 0.0, 85.05]
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    n = 2.0**zoom
    return Bounds(x / n * 360 - 180, _latitude(y + 1, n), (x + 1) / n * 360 - 180, _latitude(y, n))


def centre(x: ArrayLike, y: ArrayLike, zoom: int = ZOOM) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Longitude and latitude of tile centres (the middle in Web Mercator, as Ookla's tile_x, tile_y).

    Examples
    --------
    >>> [float(v.round(2)) for v in centre(0, 0, zoom=1)]
    [-90.0, 66.51]
    """
    n = 2.0**zoom
    return (np.asarray(x, np.float64) + 0.5) / n * 360 - 180, _latitude(np.asarray(y, np.float64) + 0.5, n)


def tile_of(lon: ArrayLike, lat: ArrayLike, zoom: int = ZOOM) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the tiles that hold points; latitudes beyond the Mercator square go to its edge rows.

    Examples
    --------
    >>> [int(index) for index in tile_of(-157.85, 21.3)]
    [4032, 28797]
    """
    n = 1 << zoom
    x = np.floor((np.asarray(lon, np.float64) + 180) / 360 * n).astype(np.int64) % n
    φ = np.radians(np.clip(np.asarray(lat, np.float64), -MAX_LATITUDE, MAX_LATITUDE))
    y = np.floor((1 - np.arcsinh(np.tan(φ)) / np.pi) / 2 * n)
    return x, np.clip(y, 0, n - 1).astype(np.int64)


def _latitude(row: NDArray[np.float64], n: float) -> NDArray[np.float64]:
    return np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * row / n))))

"""Tile keys, tile indices and the ground they cover, in plain numpy.

A quadkey of `zoom` digits 0-3 names one Web-Mercator tile: digit = (bit of x) + 2 * (bit of y), most
significant first. Decoding packs those bits straight into integers, so a million keys take about 0.1 s.
Sorted quadkeys follow the Z-order curve: a block of tiles lies between its north-west and south-east keys.

References
----------
Microsoft, "Bing Maps Tile System" (quadkeys); EPSG:3857 for the projection.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped
from numpy.typing import ArrayLike, NDArray

ZOOM = 16  # Ookla's tiles: 610.8 m at the equator
MAX_LATITUDE = 85.0511287798066  # where the Web-Mercator square ends


class Bounds(NamedTuple):
    """West, south, east, north of each tile, in degrees."""

    west: NDArray[np.float64]
    south: NDArray[np.float64]
    east: NDArray[np.float64]
    north: NDArray[np.float64]


def encode(x: ArrayLike, y: ArrayLike, zoom: int = ZOOM) -> Shaped[np.ndarray, " N"]:
    """Quadkeys of tile indices.

    Parameters
    ----------
    x, y : (N,) integers in [0, 2**zoom), counted from the west and from the north
    zoom : digits of a key, 1 to 31

    Returns
    -------
    (N,) strings of `zoom` digits

    Raises
    ------
    ValueError
        An index outside [0, 2**zoom).

    Examples
    --------
    >>> encode([3], [5], zoom=3)
    array(['213'], dtype='<U3')
    """
    xy = np.stack([np.atleast_1d(np.asarray(x, np.int64)), np.atleast_1d(np.asarray(y, np.int64))])
    if xy.size and (xy.min() < 0 or xy.max() >= 1 << zoom):
        raise ValueError(f"tile indices must lie in [0, {1 << zoom}); got {xy.min()} to {xy.max()}.")
    bits = np.unpackbits(xy.astype(">u4")[..., None].view(np.uint8), axis=-1)[..., 32 - zoom :]
    digits = np.ascontiguousarray(bits[0] + 2 * bits[1] + np.uint8(ord("0")))
    return digits.view(f"S{zoom}").ravel().astype(f"U{zoom}")


def decode(
    keys: ArrayLike, zoom: int = ZOOM
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
    """Tile indices of quadkeys, and which keys could be read.

    Parameters
    ----------
    keys : (N,) strings or bytes; fixed-width bytes ("S16") are the fast case
    zoom : digits a key must have

    Returns
    -------
    x, y : (N,) integers, 0 where the key is undecodable
    valid : (N,) False for a key of another length or with a character other than 0-3

    Examples
    --------
    >>> decode(["213", "21", "2x3"], zoom=3)
    (array([3, 0, 0]), array([5, 0, 0]), array([ True, False, False]))
    """
    array = np.atleast_1d(np.asarray(keys))
    if array.dtype.kind == "O":
        array = np.array(["" if k is None else str(k) for k in array])
    if array.dtype.kind == "U":
        array = np.char.encode(array, "ascii", "replace")
    valid = np.char.str_len(array) == zoom
    digits = np.ascontiguousarray(array.astype(f"S{zoom}")).view(np.uint8).reshape(-1, zoom) - np.uint8(48)
    valid &= (digits <= 3).all(axis=1)
    digits[~valid] = 0
    bits = np.zeros((2, len(digits), 32), np.uint8)
    bits[0, :, 32 - zoom :] = digits & 1
    bits[1, :, 32 - zoom :] = digits >> 1
    x, y = np.packbits(bits, axis=-1).view(">u4")[..., 0].astype(np.int64)
    return x, y, valid


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
    >>> x, y = tile_of(-157.85, 21.3)
    >>> str(encode(x, y)[0])
    '0222111113222202'
    """
    n = 1 << zoom
    x = np.floor((np.asarray(lon, np.float64) + 180) / 360 * n).astype(np.int64) % n
    φ = np.radians(np.clip(np.asarray(lat, np.float64), -MAX_LATITUDE, MAX_LATITUDE))
    y = np.floor((1 - np.arcsinh(np.tan(φ)) / np.pi) / 2 * n)
    return x, np.clip(y, 0, n - 1).astype(np.int64)


def pack(x: ArrayLike, y: ArrayLike) -> NDArray[np.int64]:
    """One integer a zoom-16 tile, for sorting and for telling tiles apart.

    Examples
    --------
    >>> unpack(pack([3, 65535], [5, 0]))
    (array([    3, 65535]), array([5, 0]))
    """
    return np.asarray(x, np.int64) << ZOOM | np.asarray(y, np.int64)


def unpack(codes: Int[np.ndarray, " N"]) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Tile indices of packed tiles."""
    return codes >> ZOOM, codes & ((1 << ZOOM) - 1)


def _latitude(row: NDArray[np.float64], n: float) -> NDArray[np.float64]:
    return np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * row / n))))

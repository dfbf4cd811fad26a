"""Zoom-16 tiles as integers: a quadkey's sixteen digits are the 32 bits of its place on the Z-order curve.

A digit is (bit of x) + 2 * (bit of y), the most significant first. Integers sort as the keys do, and a block of tiles lies
between those of its north-west and south-east corners. Seven million keys take half a second this way, and memory for eight bytes each.

References
----------
Microsoft, "Bing Maps Tile System" (quadkeys).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from data_pipelines import quadkey

Codes = NDArray[np.int64]

#: Of a digit 0..3 as a byte: the bits that all have, and what they are.
_FIXED, _THESE = np.uint64(0xFCFCFCFCFCFCFCFC), np.uint64(0x3030303030303030)
#: Two bits a byte come together in a 16-bit number: shift, then keep.
_GATHER = ((6, 0x000F000F000F000F), (12, 0x000000FF000000FF), (24, 0x000000000000FFFF))
#: A zero before each bit of a 16-bit number.
_SPREAD = ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555))


def of_tiles(x: ArrayLike, y: ArrayLike) -> Codes:
    """Codes of tile indices (N,), counted from the west and from the north.

    Raises
    ------
    ValueError
        An index outside [0, 65536).

    Examples
    --------
    >>> of_tiles([0, 1, 0, 65535], [0, 0, 1, 65535]).tolist()
    [0, 1, 2, 4294967295]
    """
    x, y = np.asarray(x, np.int64), np.asarray(y, np.int64)
    for axis in (x, y):
        if axis.size and (axis.min() < 0 or axis.max() >= 1 << quadkey.ZOOM):
            raise ValueError(
                f"tile indices must lie in [0, {1 << quadkey.ZOOM}); got {axis.min()} to {axis.max()}."
            )
    return _spread(x) | _spread(y) << 1


def tiles(codes: ArrayLike) -> tuple[Codes, Codes]:
    """Tile indices x, y of codes (N,).

    Examples
    --------
    >>> [axis.tolist() for axis in tiles(of_tiles([3, 65535], [5, 0]))]
    [[3, 65535], [5, 0]]
    """
    codes = np.asarray(codes, np.int64)
    return _every_other(codes), _every_other(codes >> 1)


def of_keys(keys: NDArray[np.bytes_]) -> tuple[Codes, NDArray[np.bool_]]:
    """Codes of sixteen-digit keys (N,) of type "S16", and which of them are keys; the code of one that is none is 0.

    Examples
    --------
    >>> of_keys(np.array([b"0000000000000012", b"000000000000001x"], "S16"))
    (array([6, 0]), array([ True, False]))
    """
    halves = np.ascontiguousarray(keys).view(">u8").reshape(-1, 2).astype(np.uint64)
    valid = ((halves & _FIXED) == _THESE).all(axis=1)
    halves &= ~_FIXED
    for shift, kept in _GATHER:
        halves = (halves | halves >> np.uint64(shift)) & np.uint64(kept)
    codes = (halves[:, 0] << np.uint64(16) | halves[:, 1]).astype(np.int64)
    return np.where(valid, codes, 0), valid


def keys(codes: ArrayLike) -> NDArray[np.bytes_]:
    """Quadkeys of codes (N,), of type "S16".

    Examples
    --------
    >>> keys([6]).tolist()
    [b'0000000000000012']
    """
    shifts = np.arange(2 * quadkey.ZOOM - 2, -1, -2)
    digits = (np.asarray(codes, np.int64)[:, None] >> shifts & 3).astype(np.uint8) + np.uint8(ord("0"))
    return np.ascontiguousarray(digits).view(f"S{quadkey.ZOOM}").ravel()


def quadkeys(x: ArrayLike, y: ArrayLike) -> NDArray[np.str_]:
    """Quadkeys of tile indices (N,), as text.

    Examples
    --------
    >>> quadkeys(*quadkey.tile_of([-157.85], [21.3])).tolist()
    ['0222111113222202']
    """
    return keys(of_tiles(x, y)).astype(f"U{quadkey.ZOOM}")


def _spread(v: Codes) -> Codes:
    for shift, kept in _SPREAD:
        v = (v | v << shift) & kept
    return v


def _every_other(v: Codes) -> Codes:
    v = v & _SPREAD[-1][1]
    for (shift, _), kept in zip(reversed(_SPREAD), (0x33333333, 0x0F0F0F0F, 0x00FF00FF, 0x0000FFFF)):
        v = (v | v >> shift) & kept
    return v

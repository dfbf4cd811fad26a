"""Arrays as PNG, indexed where a colour map suffices, which is small and quick to write; and what colours mean."""

import io
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maps.colours import Scale, table
from maps.words import number


def colour_index(values: NDArray[Any], scale: Scale) -> NDArray[np.uint8]:
    """0 for NaN, 1 to 255 along the scale."""
    known = np.isfinite(values)  # a region of islands fills little of its rectangle
    out = np.zeros(values.shape, np.uint8)
    out[known] = scale.fraction(values[known]) * 254 + 1.5
    return out


def legend(scale: Scale, colours: NDArray[np.uint8]) -> dict[str, Any]:
    """How colours (n, 3) along a scale are read, JSON-able: a ramp and ticks as (position, text)."""
    ramp = colours[np.linspace(0, len(colours) - 1, 33).round().astype(int)]
    ticks = [[round(float(scale.fraction(np.array(t))), 4), number(t)] for t in scale.ticks(6)]
    return {"ramp": hexes(ramp), "ticks": ticks}


def hexes(colours: NDArray[np.uint8]) -> list[str]:
    """Colours (n, 3) as #rrggbb."""
    return ["#" + bytes(c.tolist()).hex() for c in colours]


def paint_png(values: NDArray[Any], scale: Scale, colours: str) -> bytes:
    """Values as an indexed PNG: 255 colours of a map and a transparent one for NaN."""
    steps = table(colours)[np.linspace(0, 255, 255).round().astype(int)]
    return indexed_png(colour_index(values, scale), [(0, 0, 0), *steps.tolist()])


def hatch_png(marked: NDArray[np.bool_]) -> bytes:
    """Diagonal lines over the marked pixels, transparent elsewhere."""
    rows, cols = np.indices(marked.shape)
    return indexed_png((marked & ((rows + cols) % 6 < 1)).astype(np.uint8), [(0, 0, 0), (30, 36, 48)])


def indexed_png(index: NDArray[np.uint8], colours: Sequence[Sequence[int]]) -> bytes:
    """A PNG of colour numbers; number 0 is transparent."""
    from PIL import Image

    image = Image.fromarray(index)
    image = image.convert("P") if image.mode != "P" else image
    image.putpalette([int(c) for colour in colours for c in colour])
    out = io.BytesIO()
    image.save(out, "PNG", transparency=0, compress_level=3)
    return out.getvalue()


def rgba_png(rgba: NDArray[np.uint8]) -> bytes:
    """A PNG of RGBA (H, W, 4)."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(rgba).save(out, "PNG", compress_level=3)
    return out.getvalue()


@cache
def empty_png(side: int) -> bytes:
    """A transparent square."""
    return indexed_png(np.zeros((side, side), np.uint8), [(0, 0, 0)])

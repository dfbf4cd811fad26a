"""The sheet a map is drawn on: which rectangle it shows, how large it is on paper, what it leaves out; and the words around
it, in lines that fit the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer
from shapely.geometry.base import BaseGeometry

from maps.bands import Band, bands, complete
from maps.colours import FADED
from maps.grid import geobox_of, is_geographic, wkt_of
from maps.layers import ENDS, LAYERS
from maps.region import Lines, around, polygon, to_crs
from maps.render import bleed, frame, in_memory
from maps.words import subtitle

LEGEND_INCHES, TOP_INCHES, EDGE_INCHES, FOOT_INCHES = 1.25, 0.85, 0.3, 0.54
WIDEST, TALLEST = 2.6, 0.7  # width / height: a strip of islands still deserves a readable map
#: Points of the heading, of the line under it and of the foot; inches from one line of each to the next.
HEADING, UNDER, FOOT = (14.0, 0.24), (9.0, 0.17), (7.5, 0.16)
#: Lines that a text may take: nobody reads more over a map.
MOST_LINES = 4
#: Of the foot, lines that `FOOT_INCHES` has room for.
USUAL = 2


@dataclass(frozen=True)
class Sheet:
    """A rectangle in the grid's CRS: the region (or all that has a value) with a margin.

    box : the grid; shape : the region in its CRS, or None
    bounds : W, S, E, N of the rectangle; squeeze : in degrees, how much shorter a step east is than one north
    notes : what is left out of the picture, in words
    """

    box: GeoBox
    shape: BaseGeometry | None
    bounds: tuple[float, float, float, float]
    squeeze: float
    notes: tuple[str, ...]

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top of the grid's pixels, as matplotlib asks for them."""
        a, (rows, cols) = self.box.affine, self.box.shape
        return a.c, a.c + cols * a.a, a.f + rows * a.e, a.f

    @property
    def aspect(self) -> float:
        """Width / height as drawn."""
        west, south, east, north = self.bounds
        return (east - west) * self.squeeze / (north - south)

    @cached_property
    def to_lonlat(self) -> Transformer:
        return Transformer.from_crs(CRS.from_wkt(wkt_of(self.box)), "EPSG:4326", always_xy=True)

    @cached_property
    def from_lonlat(self) -> Transformer:
        return Transformer.from_crs("EPSG:4326", CRS.from_wkt(wkt_of(self.box)), always_xy=True)

    def height_inches(self, width: float, words: "Caption") -> float:
        """Of a figure `width` inches wide."""
        return (width - 2 * EDGE_INCHES - LEGEND_INCHES) / self.aspect + words.top_inches + words.foot_inches

    def place(self, width: float, words: "Caption") -> tuple[float, float, float, float]:
        """Left, bottom, width, height of the map in such a figure, as shares of it."""
        inner = width - 2 * EDGE_INCHES - LEGEND_INCHES
        height = self.height_inches(width, words)
        return EDGE_INCHES / width, words.foot_inches / height, inner / width, inner / self.aspect / height


def prepare(
    ds: xr.Dataset,
    layers: Sequence[str],
    geometry: Mapping[str, Any] | None,
    max_pixels: int,
    note: str = "",
) -> tuple[xr.Dataset, Sheet]:
    """The layers (and those that share their legends) thinned into memory, and the sheet they are drawn on."""
    ds = complete(ds)
    chosen = [band for name in layers for band in bands(ds, ["median" if name == FADED else name])]
    quantities = {band.layer.quantity for band in chosen}
    if FADED in layers:
        quantities.add(ENDS)
    keys = [key for key, layer in LAYERS.items() if layer.quantity in quantities and key in ds.data_vars]
    small, inside = in_memory(ds, geometry=geometry, layers=keys, max_pixels=max_pixels)
    box = geobox_of(small)
    if geometry is None:
        known = np.any([np.isfinite(band.of(small).values) for band in bands(small, derive=False)], axis=0)
        return small, sheet_of(box, None, known, note)
    shape = to_crs(polygon(geometry), wkt_of(box))
    if is_geographic(box):
        shape = around(shape, box.extent.boundingbox.left)
    return bleed(small, inside), sheet_of(box, shape, inside, note)


def sheet_of(
    box: GeoBox, shape: BaseGeometry | None, shown: Bool[np.ndarray, "H W"], note: str = ""
) -> Sheet:
    """The sheet around the pixels shown, (rows, columns) of the grid; `note` tells what was left out before."""
    a, (rows, cols) = box.affine, box.shape
    xs, ys = tuple(sorted((a.c, a.c + cols * a.a))), tuple(sorted((a.f, a.f + rows * a.e)))
    window, outlying = frame(shown)
    west, east = sorted((a.c + window.x0 * a.a, a.c + window.x1 * a.a))
    south, north = sorted((a.f + window.y0 * a.e, a.f + window.y1 * a.e))
    margin = 0.04 * max(east - west, north - south)
    if (west, east, south, north) == (*xs, *ys):
        margin = 0.0
    squeeze = float(np.cos(np.radians((south + north) / 2))) if is_geographic(box) else 1.0
    wide, high = (east - west) * squeeze + 2 * margin, north - south + 2 * margin
    west, south, east, north = west - margin, south - margin, east + margin, north + margin
    if wide / high > WIDEST:
        extra = wide / WIDEST - high
        south, north = south - extra / 2, north + extra / 2
    if wide / high < TALLEST:
        extra = (high * TALLEST - wide) / squeeze
        west, east = west - extra / 2, east + extra / 2
    beyond = f"outlying parts, {100 * outlying:.1g}% of the area, are not shown" if outlying > 0 else ""
    return Sheet(box, shape, (west, south, east, north), squeeze, tuple(n for n in (note, beyond) if n))


# -- the words around it -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Caption:
    """Lines of each text; what they need beyond a heading, a line under it and two at the foot makes the paper higher."""

    heading: tuple[str, ...]
    under: tuple[str, ...]
    foot: tuple[str, ...]

    @property
    def top_inches(self) -> float:
        return TOP_INCHES + (len(self.heading) - 1) * HEADING[1] + (max(len(self.under), 1) - 1) * UNDER[1]

    @property
    def foot_inches(self) -> float:
        return FOOT_INCHES + max(0, len(self.foot) - USUAL) * FOOT[1]


def caption_of(
    ds: xr.Dataset,
    sheet: Sheet,
    band: Band,
    heading: str,
    of: Mapping[str, bool],
    *,
    width: float,
    point: tuple[float, float] | None = None,
    credit: str = "",
) -> Caption:
    """The words around a figure `width` inches wide; `of` as `maps.bands.subject` says, `credit` as `credited` says it."""
    under = [subtitle(ds, **of), str(ds.attrs.get("title") or "Prediction")]
    if point is not None:
        lon, lat = point
        under.insert(
            0, f"★ {abs(lat):.3f}° {'N' if lat >= 0 else 'S'}, {abs(lon):.3f}° {'E' if lon >= 0 else 'W'}"
        )
    about = band.about if band.about[1:2] == "(" else _sentence(band.about)
    credits_ = [
        f"{word}: {ds.attrs[key]}."
        for word, key in (("Model", "method"), ("Source", "source"))
        if ds.attrs.get(key)
    ]
    foot = [f"{about}.", " ".join(f"{_sentence(note)}." for note in sheet.notes)]
    foot.append(" ".join(filter(None, [*credits_, credit])))
    inches = width - 2 * EDGE_INCHES
    return Caption(
        wrapped(heading, inches, HEADING[0], bold=True),
        wrapped("  |  ".join(dict.fromkeys(filter(None, under))), inches, UNDER[0]),
        tuple(line for text in foot for line in wrapped(text, inches, FOOT[0])),
    )


def credited(credit: str, places: Sequence[Mapping[str, Any]], lines: Lines) -> str:
    """Whose names and lines are drawn, in a sentence; nothing where none are.

    >>> credited("Somebody", [{"name": "Here"}], ()), credited("Somebody", (), ())
    ('Names and lines: Somebody.', '')
    """
    return f"Names and lines: {credit}." if credit and (places or lines) else ""


def wrapped(text: str, inches: float, size: float, *, bold: bool = False) -> tuple[str, ...]:
    """Lines of at most a width, cut between words, and within one that alone is too long; the fifth and later are left out.

    >>> wrapped("a b c", 10.0, 9.0), wrapped("", 10.0, 9.0)
    (('a b c',), ())
    """
    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")

    def fits(line: str) -> bool:
        return bool(text_to_path.get_text_width_height_descent(line, font, False)[0] <= 72 * inches)

    lines: list[str] = []
    words = text.split(" ") if text else []
    while words and len(lines) <= MOST_LINES:
        taken = 1
        while taken < len(words) and fits(" ".join(words[: taken + 1])):
            taken += 1
        line, words = " ".join(words[:taken]), words[taken:]
        if taken == 1 and not fits(line):
            most = max((k for k in range(1, min(len(line), 400)) if fits(line[:k])), default=1)
            line, words = line[:most], [line[most:], *words]
        lines.append(line.strip(" "))
    if len(lines) > MOST_LINES:
        last = lines[MOST_LINES - 1]
        while last and not fits(last + "…"):
            last = last[:-1]
        lines = [*lines[: MOST_LINES - 1], last + "…"]
    return tuple(lines)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]

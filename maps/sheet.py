"""The sheet a map is drawn on: which rectangle it shows, how large it is on paper, and what it leaves out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer
from shapely.geometry.base import BaseGeometry

from maps.bands import bands, complete
from maps.colours import FADED
from maps.grid import geobox_of, is_geographic, wkt_of
from maps.layers import ENDS, LAYERS
from maps.region import around, polygon, to_crs
from maps.render import bleed, frame, in_memory

LEGEND_INCHES, TOP_INCHES, EDGE_INCHES, FOOT_INCHES, NOTE_INCHES = 1.25, 0.85, 0.3, 0.54, 0.16
WIDEST, TALLEST = 2.6, 0.7  # width / height: a strip of islands still deserves a readable map


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

    def height_inches(self, width: float) -> float:
        """Of a figure `width` inches wide."""
        return (width - 2 * EDGE_INCHES - LEGEND_INCHES) / self.aspect + TOP_INCHES + self.foot_inches

    @property
    def foot_inches(self) -> float:
        return FOOT_INCHES + (NOTE_INCHES if self.notes else 0.0)

    def place(self, width: float) -> tuple[float, float, float, float]:
        """Left, bottom, width, height of the map in such a figure, as shares of it."""
        inner = width - 2 * EDGE_INCHES - LEGEND_INCHES
        height = self.height_inches(width)
        return EDGE_INCHES / width, self.foot_inches / height, inner / width, inner / self.aspect / height


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

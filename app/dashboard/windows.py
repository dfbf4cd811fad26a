"""Detail beyond the planes, from the model itself: distributions at the pixels of a window, worked out while somebody looks
there. Nobody needs to export a nation to see a town.

Pixels are those of `geogp export` at the usual side, or every k-th of them where a window holds too many to wait for.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import shapely
from cachetools import LRUCache
from odc.geo.geobox import GeoBox
from pyproj import Transformer

from app.dashboard.making import Making
from app.dashboard.setting import Box, Choices, window
from app.workflow.grids import Grid, clipped
from app.workflow.page import PageGrid, picture_grid, quarter_packs, thinned
from maps.errors import InvalidInput
from maps.grid import pixel_of, wkt_of
from maps.mercator import mercator_grid
from maps.page_data import region_of
from maps.region import polygon, to_crs

#: Pixels of a first look and of a window, about: one and ten seconds of a model of 400,000 rows.
LOOK, MOST = 3_000, 40_000
#: Times as many of a window's rectangle, where few have values.
SPARSE = 10
#: They count as finer from this share of the side of the page's pixels on.
FINER = 0.5
#: Bytes of windows that are remembered.
KEPT = 96 * 2**20
#: Before the step in the name of a window's pixels, by which addresses speak of them; no folder is called so.
MARK = "~"
Progress = Callable[[int, int], None]
Span = tuple[int, int]


class Packs(NamedTuple):
    """Planes at the usual number of tests, and at the others, if there are any: told together, they cost no more."""

    usual: bytes
    others: bytes | None


def _bytes(packs: Packs) -> int:
    return len(packs.usual) + len(packs.others or b"") + 1


@dataclass(frozen=True)
class View:
    """Every `step`-th pixel of a window of rows and columns of the finest grid, in a quarter."""

    quarter: str | None
    rows: Span
    columns: Span
    step: int


@dataclass(frozen=True)
class Pixels:
    """Every `step`-th pixel of the finest grid: where the middle of the one around a place lies."""

    name: str
    grid: Grid
    step: int

    def centre(self, lat: float, lon: float) -> tuple[float, float] | None:
        """Longitude and latitude; None outside."""
        try:
            row, column = pixel_of(self.grid.geobox, lon, lat)
        except InvalidInput:
            return None
        # As `thinned` takes them of a window that begins at a multiple of the step.
        row, column = (v // self.step * self.step + self.step // 2 for v in (row, column))
        x, y = self.grid.geobox.affine * (column + 0.5, row + 0.5)
        found = Transformer.from_crs(self.grid.wkt, "EPSG:4326", always_xy=True).transform(x, y)
        return float(found[0]), float(found[1])


class Windows:
    """The finest pixels of a run, where its page's are large.

    Parameters
    ----------
    page : the run's page
    grid : the finest pixels on its ground
    """

    def __init__(self, page: PageGrid, grid: Grid):
        self.page, self.grid = page, grid
        self._side_m = abs(page.geobox.affine.a)
        self._kept: LRUCache[View, Packs] = LRUCache(KEPT, getsizeof=_bytes)
        self._lock = threading.Lock()
        self.making: Making[Packs] = Making(self._made)

    def document(self) -> dict[str, Any] | None:
        """What the page's script needs to know, JSON-able; None where the page has nearly the finest pixels itself."""
        if not self._finer(1):
            return None
        share = self.grid.resolution / self._side_m
        return {"side_m": share * mercator_grid(self.page.geobox).pixel_m, "mark": MARK}

    def named(self, name: str) -> Pixels | None:
        """The pixels that an address speaks of."""
        step = name.removeprefix(MARK)
        if step == name or not (step.isdecimal() and len(step) < 5 and int(step) and self._finer(int(step))):
            return None
        return Pixels(name, self.grid, int(step))

    def view(self, params: Mapping[str, str], choices: Choices) -> View | None:
        """What an address asks for: `box` W,S,E,N in degrees, `look` for a first look; None where the page shows as much.

        Raises
        ------
        InvalidInput
            a window that is none, or a setting that is none.
        """
        setting = choices.read(params)
        found = self._part(window(params))
        if found is None:
            return None
        rows, columns, share = found
        whole = (rows[1] - rows[0]) * (columns[1] - columns[0])
        many = max(share, 1 / SPARSE) * whole / (LOOK if params.get("look") else MOST)
        step = max(1, math.ceil(math.sqrt(many)))
        if not self._finer(step):
            return None
        rows, columns = ((low // step * step, -(-high // step) * step) for low, high in (rows, columns))
        return View(setting.quarter, rows, columns, step)

    def kept(self, view: View) -> Packs | None:
        """A window that was made before, at the usual number of tests and at the others; b"" where no pixel has a value."""
        with self._lock:
            return self._kept.get(view)

    def _finer(self, step: int) -> bool:
        return step * self.grid.resolution < 1.001 * FINER * self._side_m

    def _part(self, box: Box) -> tuple[Span, Span, float] | None:
        """Rows and columns of the finest pixels in a box of degrees, and about what share of them has values."""
        lon, lat = np.meshgrid(np.linspace(box[0], box[2], 9), np.linspace(box[1], box[3], 9))
        xy = self.page.run.from_degrees(lon.ravel(), lat.ravel())
        xy = xy[np.isfinite(xy).all(axis=1)]
        if not len(xy):
            return None

        def within(geobox: GeoBox, more: int) -> tuple[Span, Span]:
            u, v = ~geobox.affine * (xy[:, 0], xy[:, 1])
            spans = []
            for at, most in ((v, geobox.shape[0]), (u, geobox.shape[1])):
                low, high = math.floor(at.min()) - more, math.floor(at.max()) + 1 + more
                spans.append((min(max(low, 0), most), min(max(high, 0), most)))
            return spans[0], spans[1]

        rows, columns = within(self.page.geobox, 1)  # a window may lie within one of the page's pixels
        known = self.page.places[0][slice(*rows), slice(*columns)]
        rows, columns = within(self.grid.geobox, 0)
        if not known.any() or rows[0] == rows[1] or columns[0] == columns[1]:
            return None
        return rows, columns, float(known.mean())

    def _made(self, view: View, progress: Progress) -> Packs:
        if (known := self.kept(view)) is not None:
            return known
        cut = self.grid.geobox[slice(*view.rows), slice(*view.columns)]
        thin, _ = thinned(cut, view.step)
        boundary = self.grid.boundary
        if boundary is not None:  # the coast of a nation is long
            boundary = clipped(boundary, mercator_grid(thin).bounds_lonlat)
        part, made = PageGrid(self.page.run, thin, boundary, self.grid.max_distance_m), Packs(b"", None)
        if (boundary is None or _meet(boundary, thin)) and part.places[0].any():
            about = {**picture_grid(thin), "step": view.step, "region": region_of(boundary, thin)}
            made = Packs(*quarter_packs(part, view.quarter, progress, about=about))
        with self._lock:
            if _bytes(made) <= self._kept.maxsize:
                self._kept[view] = made
        return made


def _meet(boundary: Mapping[str, Any], box: GeoBox) -> bool:
    """Whether a region has ground in a grid."""
    if not shapely.geometry.shape(boundary).area > 0:
        return False
    own = box.boundingbox
    corners = shapely.box(own.left, own.bottom, own.right, own.top)
    return bool(to_crs(polygon(boundary), wkt_of(box)).intersects(corners))

"""Figures and the page of a map: drawn from one small copy in memory, of the part of the region that has data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from app.workflow.grids import Grid, with_data
from geogp.run import Run
from maps.colours import Suppressing
from maps.region import NEAR_M, Lines, polygon, to_crs
from maps.render import in_memory

#: Pixels of a figure and of a page.
FIGURE_PIXELS, PAGE_PIXELS, MOST = 1_000_000, 300_000, 4_000_000


@dataclass(frozen=True, eq=False)
class Picture:
    """What pictures show: a Dataset, the outline that belongs to it, and what was left out."""

    ds: xr.Dataset
    boundary: dict[str, Any] | None
    fill: float
    note: str = ""


def near(run: Run, grid: Grid) -> tuple[dict[str, Any] | None, tuple[slice, slice], str]:
    """What every picture of a run shows of a grid: the region's parts, the rows and columns around them, and in words
    what is left out. A far islet would shrink all else to a speck; one beside the others is shown."""
    whole = (slice(0, grid.shape[0]), slice(0, grid.shape[1]))
    if grid.boundary is None:
        return None, whole, ""
    boundary, left_out = grid.boundary, grid.left_out
    if left_out is None:
        boundary, left_out = with_data(run, grid.boundary)
    if not left_out:
        return grid.boundary, whole, ""
    left, bottom, right, top = to_crs(polygon(boundary), grid.wkt).bounds
    a, margin = grid.geobox.affine, 2 * grid.resolution
    x = a.c + a.a * (np.arange(grid.shape[1]) + 0.5)
    y = a.f + a.e * (np.arange(grid.shape[0]) + 0.5)
    columns = np.flatnonzero((x > left - margin) & (x < right + margin))
    rows = np.flatnonzero((y > bottom - margin) & (y < top + margin))
    note = f"pictures leave out {left_out} parts of the region beyond {NEAR_M / 1000:g} km of any data"
    cut = (slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1))
    return boundary, cut, note


def picture_of(run: Run, ds: xr.Dataset, grid: Grid) -> Picture:
    """The part of a map around its data."""
    boundary, (rows, columns), note = near(run, grid)
    cut = ds.isel(y=rows, x=columns)
    pixels = (rows.stop - rows.start) * (columns.stop - columns.start)
    return Picture(cut, boundary, min(1.0, grid.n_inside / pixels), note)


def draw(
    picture: Picture,
    folder: Path,
    *,
    pictures: Sequence[str],
    page: bool,
    layers: Sequence[str] | None,
    places: Sequence[dict[str, Any]] = (),
    lines: Lines = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
    suppressed: Suppressing | None = None,
    credit: str = "",
) -> list[tuple[Path, str, list[str]]]:
    """A PNG for each layer of `pictures` and `map.html` of the Dataset's own layers, in a folder.

    Parameters
    ----------
    limits, suppressed : quantity -> (low, high) of the legends, and the palette of "faded", where other pictures have the same
    credit : of places and lines

    Returns
    -------
    (path, kind, layers) of each file
    """
    # matplotlib and folium take seconds, and `near` needs neither
    from maps.figures import map_figure, write_png
    from maps.web import write_html

    # A region of islands fills little of its rectangle: its pixels are thinned by what is inside.
    small, _ = in_memory(
        picture.ds,
        geometry=picture.boundary,
        layers=layers,
        max_pixels=int(min(MOST, FIGURE_PIXELS / picture.fill)),
    )
    made: list[tuple[Path, str, list[str]]] = []
    for name in pictures:
        figure = map_figure(
            small,
            name,
            geometry=picture.boundary,
            places=places,
            lines=lines,
            limits=limits,
            suppressed=suppressed,
            note=picture.note,
            credit=credit,
        )
        made.append((write_png(figure, folder / f"{name}.png"), "figure", [name]))
    if page:
        path = write_html(
            small,
            folder / "map.html",
            geometry=picture.boundary,
            layers=layers,
            places=places,
            lines=lines,
            limits=limits,
            note=picture.note,
            credit=credit,
            max_pixels=int(min(MOST, PAGE_PIXELS / picture.fill)),
        )
        made.append((path, "html", list(layers or [])))
    return made

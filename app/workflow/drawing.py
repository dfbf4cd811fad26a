"""Figures and the page of a map: drawn from one small copy in memory, of the part of the region that has data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import shapely
import xarray as xr

from app.workflow.grids import Grid
from geogp.run import Run
from maps.figures import map_figure, write_png
from maps.region import NEAR_M, near_data, polygon, to_crs
from maps.render import in_memory
from maps.web import write_html

#: Pixels of a figure and of a page.
FIGURE_PIXELS, PAGE_PIXELS, MOST = 1_000_000, 300_000, 4_000_000


@dataclass(frozen=True, eq=False)
class Picture:
    """What pictures show: a Dataset, the outline that belongs to it, and what was left out."""

    ds: xr.Dataset
    boundary: dict[str, Any] | None
    fill: float
    note: str = ""


def picture_of(run: Run, ds: xr.Dataset, grid: Grid) -> Picture:
    """The part of a map around its data: a far islet would shrink everything else to a speck."""
    fill = grid.n_inside / grid.n_pixels
    if grid.boundary is None:
        return Picture(ds, None, fill)
    region = polygon(grid.boundary)
    near = near_data(region, run.support.positions_m, run.data["crs"])
    if near.all():
        return Picture(ds, grid.boundary, fill)
    shape = shapely.MultiPolygon(list(shapely.get_parts(region)[near]))
    left, bottom, right, top = to_crs(shape, grid.wkt).bounds
    margin = 2 * grid.resolution
    x, y = ds["x"].values, ds["y"].values
    columns = np.flatnonzero((x > left - margin) & (x < right + margin))
    rows = np.flatnonzero((y > bottom - margin) & (y < top + margin))
    cut = ds.isel(y=slice(rows[0], rows[-1] + 1), x=slice(columns[0], columns[-1] + 1))
    note = (
        f"pictures leave out {int((~near).sum())} parts of the region beyond {NEAR_M / 1000:g} km of any data"
    )
    return Picture(
        cut, dict(shapely.geometry.mapping(shape)), min(1.0, grid.n_inside / (len(rows) * len(columns))), note
    )


def draw(
    picture: Picture,
    folder: Path,
    *,
    pictures: Sequence[str],
    page: bool,
    layers: Sequence[str] | None,
    places: Sequence[dict[str, Any]] = (),
) -> list[tuple[Path, str, list[str]]]:
    """A PNG for each layer of `pictures` and `map.html`, in a folder.

    Returns
    -------
    (path, kind, layers) of each file
    """
    # A region of islands fills little of its rectangle: its pixels are thinned by what is inside.
    small, _ = in_memory(
        picture.ds,
        geometry=picture.boundary,
        layers=layers,
        max_pixels=int(min(MOST, FIGURE_PIXELS / picture.fill)),
    )
    made: list[tuple[Path, str, list[str]]] = []
    for name in pictures:
        figure = map_figure(small, name, geometry=picture.boundary, places=places, note=picture.note)
        made.append((write_png(figure, folder / f"{name}.png"), "figure", [name]))
    if page:
        shown = int(min(MOST, PAGE_PIXELS / picture.fill))
        path = write_html(
            small,
            folder / "map.html",
            geometry=picture.boundary,
            layers=layers,
            places=places,
            note=picture.note,
            max_pixels=shown,
        )
        made.append((path, "html", list(layers or [])))
    return made

"""Figures: each layer of a map, several side by side, kernel slices.

Every function returns a matplotlib `Figure` made with the object API, so nothing global is touched and threads
may draw side by side; `write_png` saves one atomically.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from maps.atomic import refuse_existing, replacing
from maps.bands import bands, subject
from maps.cartography import caption_for, draw_map, title_of
from maps.colours import FADED, Suppressing
from maps.errors import InvalidInput
from maps.legends import SOFT, STYLE
from maps.region import Lines
from maps.sheet import credited, prepare, wrapped
from maps.words import subtitle


class Picture(Figure):
    """A figure that a notebook shows, though nobody there has asked pyplot to."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()


def _figure(width: float, height: float) -> Figure:
    figure = Picture(figsize=(width, height), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def write_png(figure: Figure, path: str | Path, *, overwrite: bool = False, dpi: int = 150) -> Path:
    """Save a figure atomically; InvalidInput if `path` exists and `overwrite` is not set."""
    path = Path(path)
    refuse_existing(path, overwrite)
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=dpi, metadata={"Software": None})
    return path


def map_figure(
    ds: xr.Dataset,
    layer: str = "median",
    *,
    geometry: Mapping[str, Any] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
    lines: Lines = (),
    credit: str = "",
    limits: Mapping[str, tuple[float, float]] | None = None,
    suppressed: Suppressing | None = None,
    point: tuple[float, float] | None = None,
    note: str = "",
    max_pixels: int = 1_000_000,
    width: float = 8.0,
    ax: Axes | None = None,
) -> Figure:
    """One layer as a map with legend, scale bar, north arrow, graticule and the region's line.

    Parameters
    ----------
    ds : prediction Dataset, lazy or in memory
    layer : "median", .., "exceedance_100" ("exceedance" for the first threshold), or "faded": the median under a
        value-suppressing palette with its two-dimensional legend
    geometry : GeoJSON polygon in EPSG:4326 to mask and outline
    places : {"name", "lon", "lat"} labels
    lines : [(lon, lat), ..] each, such as of counties
    credit : whose `places` and `lines` are, said where any are drawn
    limits : quantity -> (low, high) to hold the legend fixed between maps
    suppressed : the palette of "faded", to hold it fixed, too
    point : (lon, lat) to mark, such as a kernel slice's reference
    note : what is left out of the picture, in words for people
    max_pixels : more are thinned
    width : inches
    ax : matplotlib axes to draw into, in fewer words; default a figure of its own

    Raises
    ------
    InvalidInput : no such layer, or an unusable region

    Examples
    --------
    >>> write_png(map_figure(ds, "pi_width"), "pi_width.png").name
    'pi_width.png'
    """
    small, sheet = prepare(ds, [layer], geometry, max_pixels, note)
    axes, caption = ax, None
    if axes is None:
        caption = caption_for(
            small, layer, sheet, width=width, point=point, credit=credited(credit, places, lines)
        )
        figure = _figure(width, sheet.height_inches(width, caption))
        axes = figure.add_axes(sheet.place(width, caption))
    whole = axes.get_figure(root=True)
    assert isinstance(whole, Figure)  # axes that were removed have none
    draw_map(
        whole,
        axes,
        small,
        layer,
        sheet,
        limits=limits,
        suppressed=suppressed,
        places=places,
        lines=lines,
        point=point,
        caption=caption,
    )
    return whole


def maps_figure(
    ds: xr.Dataset,
    layers: Iterable[str] = ("median", "pi_width", "exceedance"),
    *,
    geometry: Mapping[str, Any] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
    lines: Lines = (),
    credit: str = "",
    limits: Mapping[str, tuple[float, float]] | None = None,
    note: str = "",
    max_pixels: int = 500_000,
    width: float = 12.0,
) -> Figure:
    """Several layers side by side under one heading. Parameters as `map_figure`."""
    names = list(layers)
    small, sheet = prepare(ds, names, geometry, max_pixels, note)
    of = subject(
        [band for name in names for band in bands(small, ["median" if name == FADED else name])],
        faded=FADED in names,
    )
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    each = width / columns
    panel = (each - 0.5) / sheet.aspect + 1.15
    inches = width - 0.5
    title = wrapped(title_of(small), inches, 15, bold=True)
    under = wrapped("  |  ".join(filter(None, [subtitle(small, **of), *sheet.notes])), inches, 10)
    foot = wrapped(credited(credit, places, lines), inches, 7.5)
    top = 0.75 + 0.26 * (len(title) - 1) + 0.18 * (max(1, len(under)) - 1)
    height = rows * panel + top + 0.16 * len(foot)
    figure = _figure(width, height)

    def say(y: float, text: str, **options: Any) -> None:
        figure.text(0.25 / width, y / height, text, parse_math=False, **options)

    for i, line in enumerate(title):
        say(height - 0.18 - 0.26 * i, line, size=15, weight="bold", va="top", **STYLE)
    for i, line in enumerate(under):
        say(height - 0.22 - 0.26 * len(title) - 0.18 * i, line, size=10, color=SOFT, va="top")
    for i, line in enumerate(foot[::-1]):
        say(0.08 + 0.16 * i, line, size=7.5, color=SOFT, va="bottom")
    for i, name in enumerate(names):
        row, col = divmod(i, columns)
        bottom = height - top - (row + 1) * panel + 0.72
        box = (
            (col * each + 0.25) / width,
            bottom / height,
            (each - 0.5) / width,
            (each - 0.5) / sheet.aspect / height,
        )
        axes = figure.add_axes(box)
        draw_map(
            figure,
            axes,
            small,
            name,
            sheet,
            limits=limits,
            places=places,
            lines=lines,
            point=None,
        )
    return figure


def slice_figure(
    ds: xr.Dataset,
    *,
    reference: tuple[float, float] | None = None,
    layer: str = "correlation",
    geometry: Mapping[str, Any] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
    lines: Lines = (),
    credit: str = "",
    max_pixels: int = 1_000_000,
    width: float = 8.0,
) -> Figure:
    """A kernel slice k(., x_ref) as a map, the reference point marked.

    `reference` is (lon, lat); None takes the attributes `reference_lon`, `reference_lat` of the Dataset.
    """
    if reference is None:
        if not {"reference_lon", "reference_lat"} <= set(ds.attrs):
            raise InvalidInput("A kernel slice needs its reference point: pass reference=(lon, lat).")
        reference = (float(ds.attrs["reference_lon"]), float(ds.attrs["reference_lat"]))
    return map_figure(
        ds,
        layer,
        geometry=geometry,
        places=places,
        lines=lines,
        credit=credit,
        point=reference,
        max_pixels=max_pixels,
        width=width,
    )

"""Figures: each layer of a map, kernel slices, curves with bands, reliability and PIT.

Every function returns a matplotlib `Figure` made with the object API, so nothing global is touched and threads
may draw side by side; `write_png` saves one atomically.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from maps.atomic import refuse_existing, replacing
from maps.cartography import draw_map, height_inches, map_box, prepare, title_of
from maps.colours import table
from maps.errors import InvalidInput
from maps.layers import subtitle
from maps.legends import INK, SOFT, STYLE


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=150, facecolor="white")
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
    limits: Mapping[str, tuple[float, float]] | None = None,
    point: tuple[float, float] | None = None,
    max_pixels: int = 1_000_000,
    width: float = 8.0,
) -> Figure:
    """One layer as a map with legend, scale bar, north arrow, graticule and the region's line.

    Parameters
    ----------
    ds : prediction Dataset, lazy or in memory
    layer : "median", .., "exceedance_100" ("exceedance" for the first threshold), or "faded": the median under a
        value-suppressing palette with its two-dimensional legend
    geometry : GeoJSON polygon in EPSG:4326 to mask and outline
    places : {"name", "lon", "lat"} labels
    limits : quantity -> (low, high) to hold the legend fixed between maps
    point : (lon, lat) to mark, such as a kernel slice's reference
    max_pixels : more are thinned
    width : inches

    Raises
    ------
    InvalidInput : no such layer, or an unusable region

    Examples
    --------
    >>> write_png(map_figure(ds, "pi_width"), "pi_width.png")         # doctest: +SKIP
    """
    small, view = prepare(ds, [layer], geometry, max_pixels)
    figure = _figure(width, height_inches(view, width))
    axes = figure.add_axes(map_box(view, width))
    draw_map(figure, axes, small, layer, view, limits=limits, places=places, point=point)
    return figure


def maps_figure(
    ds: xr.Dataset,
    layers: Iterable[str] = ("median", "pi_width", "exceedance"),
    *,
    geometry: Mapping[str, Any] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
    max_pixels: int = 500_000,
    width: float = 12.0,
) -> Figure:
    """Several layers side by side under one heading. Parameters as `map_figure`."""
    names = list(layers)
    small, view = prepare(ds, names, geometry, max_pixels)
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    each = width / columns
    panel = (each - 0.5) / view.aspect + 1.15
    height = rows * panel + 0.75
    figure = _figure(width, height)
    figure.text(
        0.25 / width,
        1 - 0.18 / height,
        title_of(small),
        size=15,
        parse_math=False,
        weight="bold",
        va="top",
        **STYLE,
    )
    figure.text(
        0.25 / width, 1 - 0.48 / height, subtitle(small), size=10, parse_math=False, color=SOFT, va="top"
    )
    for i, name in enumerate(names):
        row, col = divmod(i, columns)
        bottom = height - 0.75 - (row + 1) * panel + 0.72
        box = (
            (col * each + 0.25) / width,
            bottom / height,
            (each - 0.5) / width,
            (each - 0.5) / view.aspect / height,
        )
        axes = figure.add_axes(box)
        draw_map(figure, axes, small, name, view, limits=limits, places=places, point=None, compact=True)
    return figure


def slice_figure(
    ds: xr.Dataset,
    *,
    reference: tuple[float, float] | None = None,
    layer: str = "correlation",
    geometry: Mapping[str, Any] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
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
        ds, layer, geometry=geometry, places=places, point=reference, max_pixels=max_pixels, width=width
    )


# ---- figures of the papers ---------------------------------------------------------------------------------------------


def _plain(width: float, height: float, xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = _figure(width, height)
    axes = figure.add_axes((0.62 / width, 0.55 / height, 1 - 0.82 / width, 1 - 0.95 / height))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set(edgecolor="#8a95a3", linewidth=0.8)
    axes.tick_params(colors=INK, labelsize=8.5, width=0.7, length=3)
    axes.set_xlabel(xlabel, parse_math=False, size=9.5, color=INK)
    axes.set_ylabel(ylabel, parse_math=False, size=9.5, color=INK)
    axes.grid(color="#e6eaef", linewidth=0.7)
    axes.set_axisbelow(True)
    return figure, axes


def band_figure(
    x: NDArray[Any],
    mean: NDArray[Any],
    sd: NDArray[Any],
    *,
    observations: tuple[NDArray[Any], NDArray[Any]] | None = None,
    truth: tuple[NDArray[Any], NDArray[Any]] | None = None,
    title: str = "",
    xlabel: str = "x",
    ylabel: str = "y",
) -> Figure:
    """A 1-D prediction: mean and mean ± 2 sd, with observations and the true (mean, sd) if known.

    Parameters
    ----------
    x, mean, sd : (n,); sorted by x here
    observations : (x, y), each (m,)
    truth : (mean, sd) at `x`, each (n,), drawn dashed
    """
    x, mean, sd = (np.asarray(v, dtype=float).ravel() for v in (x, mean, sd))
    if not x.size == mean.size == sd.size:
        raise InvalidInput(f"x, mean and sd must be equally long; got {x.size}, {mean.size} and {sd.size}.")
    order = np.argsort(x)
    blue, orange = "#1f5f8b", "#c8602a"
    figure, axes = _plain(6.4, 3.8, xlabel, ylabel)
    if observations is not None:
        axes.plot(
            *observations, ".", ms=3.2, color="#5b6776", alpha=0.6, mew=0, zorder=3, label="observations"
        )
    low, high = (mean - 2 * sd)[order], (mean + 2 * sd)[order]
    axes.fill_between(x[order], low, high, color=blue, alpha=0.22, lw=0, zorder=2, label="mean ± 2 sd")
    axes.plot(x[order], mean[order], color=blue, lw=1.8, zorder=4, label="mean")
    if truth is not None:
        centre, spread = (np.asarray(v, dtype=float).ravel()[order] for v in truth)
        axes.plot(x[order], centre, color=orange, lw=1.2, ls="--", zorder=5, label="truth")
        for sign in (-2, 2):
            axes.plot(x[order], centre + sign * spread, color=orange, lw=0.9, ls=":", zorder=3)
    axes.margins(x=0)
    axes.legend(
        frameon=False, fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.1
    )
    if title:
        figure.text(0.62 / 6.4, 0.99, title, parse_math=False, size=11.5, weight="bold", va="top", **STYLE)
        axes.set_position((0.62 / 6.4, 0.55 / 3.8, 1 - 0.82 / 6.4, 1 - 1.25 / 3.8))
    return figure


def reliability_figure(
    levels: NDArray[Any],
    coverage: Mapping[str, NDArray[Any]] | NDArray[Any],
    *,
    counts: Mapping[str, int] | int | None = None,
    title: str = "Reliability of the prediction intervals",
) -> Figure:
    """Observed coverage against nominal level; on the diagonal the intervals hold what they promise.

    Parameters
    ----------
    levels : (k,) nominal levels in (0, 1)
    coverage : (k,) shares of held-out values inside, or one such array per stratum
    counts : held-out values (per stratum): draws the band of ± 2 binomial sd about the diagonal for the fewest
    """
    levels = np.asarray(levels, dtype=float)
    series = dict(coverage) if isinstance(coverage, Mapping) else {"observed": np.asarray(coverage)}
    figure, axes = _plain(4.6, 4.5, "nominal level", "share of held-out values inside")
    axes.plot([0, 1], [0, 1], color="#8a95a3", lw=1, zorder=1)
    fewest = min(counts.values()) if isinstance(counts, Mapping) and counts else counts
    if isinstance(fewest, int) and fewest > 0:
        p = np.linspace(0, 1, 101)
        half = 2 * np.sqrt(p * (1 - p) / fewest)
        label = f"± 2 binomial sd, n = {fewest}"
        axes.fill_between(p, p - half, p + half, color="#8a95a3", alpha=0.2, lw=0, zorder=0, label=label)
    for i, (name, share) in enumerate(series.items()):
        n = f" (n = {counts[name]})" if isinstance(counts, Mapping) and name in counts else ""
        colour = tuple(table("batlow")[int(20 + 190 * i / max(len(series) - 1, 1))] / 255)
        axes.plot(
            levels, np.asarray(share, dtype=float), "o-", ms=4, lw=1.4, color=colour, label=f"{name}{n}"
        )
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    figure.text(0.13, 0.985, title, parse_math=False, size=11, weight="bold", va="top", **STYLE)
    return figure


def pit_figure(
    pit: NDArray[Any], *, bins: int = 20, title: str = "Probability integral transform of held-out values"
) -> Figure:
    """Histogram of F(y): flat when calibrated, a bowl when intervals are too narrow, a hill when too wide.

    `pit` is (n,) in [0, 1]; the band is ± 2 binomial sd about flat.
    """
    pit = np.asarray(pit, dtype=float).ravel()
    pit = pit[np.isfinite(pit)]
    if pit.size == 0 or pit.min() < 0 or pit.max() > 1:
        raise InvalidInput("PIT values must lie in [0, 1] and there must be some.")
    figure, axes = _plain(5.6, 3.5, "F(y), the predictive distribution at the held-out value", "density")
    half = 2 * np.sqrt((1 / bins) * (1 - 1 / bins) / pit.size) * bins
    axes.axhspan(
        1 - half, 1 + half, color="#8a95a3", alpha=0.22, lw=0, label=f"± 2 binomial sd, n = {pit.size}"
    )
    axes.hist(
        pit, bins=bins, range=(0, 1), density=True, color="#1f5f8b", alpha=0.85, edgecolor="white", lw=0.6
    )
    axes.axhline(1, color=INK, lw=0.9)
    axes.set_xlim(0, 1)
    axes.legend(frameon=False, fontsize=8, loc="upper center")
    axes.set_ylim(0, max(1.35, 1.15 * axes.get_ylim()[1]))
    figure.text(0.11, 0.985, title, parse_math=False, size=11, weight="bold", va="top", **STYLE)
    return figure

"""Legends of a map figure: a ramp, or the value-suppressing palette's rows; and the key to the hatching."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

from maps.bands import Band
from maps.colours import NO_SUPPORT, Scale, Suppressing, table

INK, SOFT, SEA, LINE = "#1d2733", "#5b6776", "#eef2f5", "#cdd5de"
STYLE: dict[str, Any] = {"family": "DejaVu Sans", "color": INK}
HALO = [withStroke(linewidth=2.2, foreground="white", alpha=0.85)]


def draw_legend(
    figure: Figure,
    axes: Axes,
    band: Band,
    scale: Scale,
    faded: Suppressing | None,
    compact: bool,
    unsupported: bool,
) -> None:
    """Beside the map the ramp or the palette's rows, and the key to the hatching; a compact map has its ramp below."""
    if compact:
        _ramp_below(figure, axes, band, scale)
        return
    if faded is not None:
        _faded_legend(figure, axes.get_position(), faded, band)
    else:
        _ramp_beside(figure, axes, band, scale)
    if unsupported:
        _hatch_key(figure, axes.get_position())


def _ramp_below(figure: Figure, axes: Axes, band: Band, scale: Scale) -> None:
    box, wide, high = axes.get_position(), figure.get_figwidth(), figure.get_figheight()
    bar = figure.add_axes((box.x0 + 0.1 / wide, box.y0 - 0.24 / high, box.width - 0.2 / wide, 0.12 / high))
    bar.imshow(table(band.colours)[None, :, :], aspect="auto", extent=(0, 1, 0, 1))
    where, texts = zip(*scale.labels(6), strict=True)
    bar.set_xticks(where, texts)
    bar.set_yticks([])
    bar.set_xlabel(band.unit_text or band.layer.heading, size=7.5, color=SOFT, labelpad=1, parse_math=False)
    _finish(bar, 7)


def _ramp_beside(figure: Figure, axes: Axes, band: Band, scale: Scale) -> None:
    box, wide, high = axes.get_position(), figure.get_figwidth(), figure.get_figheight()
    x0, tall = box.x1 + 0.2 / wide, min(0.75 * box.height, 3.2 / high)
    bar = figure.add_axes((x0, box.y1 - tall - 0.32 / high, 0.17 / wide, tall))
    figure.text(x0, box.y1, band.unit_text or band.layer.heading, size=9, va="top", weight="bold", **STYLE)
    bar.imshow(table(band.colours)[::-1, None, :], aspect="auto", extent=(0, 1, 0, 1))
    bar.yaxis.tick_right()
    where, texts = zip(*scale.labels(9), strict=True)
    bar.set_yticks(where, texts)
    bar.set_xticks([])
    _finish(bar, 8.5)


def _finish(bar: Axes, size: float) -> None:
    bar.tick_params(length=2.5, width=0.6, labelsize=size, colors=INK, pad=2)
    for spine in bar.spines.values():
        spine.set(edgecolor="#8a95a3", linewidth=0.6)


def _hatch_key(figure: Figure, box: Bbox) -> None:
    wide, high = figure.get_figwidth(), figure.get_figheight()
    swatch = figure.add_axes((box.x1 + 0.2 / wide, box.y0 + 0.24 / high, 0.28 / wide, 0.16 / high))
    swatch.set_xticks([])
    swatch.set_yticks([])
    swatch.patch.set(facecolor="#f7f8fa", edgecolor=NO_SUPPORT, hatch="//////")
    for spine in swatch.spines.values():
        spine.set(edgecolor="#b9c1cb", linewidth=0.6)
    figure.text(box.x1 + 0.54 / wide, box.y0 + 0.32 / high, "no\nprediction", size=7, va="center", color=SOFT)


def _faded_legend(figure: Figure, box: Bbox, faded: Suppressing, band: Band) -> None:
    """Rows of 8, 4, 2 and 1 colours: value across, interval width down."""
    wide, high = figure.get_figwidth(), figure.get_figheight()
    x0, y1 = box.x1 + 0.16 / wide, box.y1
    figure.text(x0, y1, band.unit_text, size=9, va="top", weight="bold", parse_math=False, **STYLE)
    legend = figure.add_axes((x0, y1 - 2.75 / high, 0.62 / wide, 2.5 / high))
    for x, row in enumerate(faded.palette()):
        step = 1 / len(row)
        for k, rgb in enumerate(row):
            colour = tuple(c / 255 for c in rgb)
            legend.add_patch(
                Rectangle((x, k * step + 0.003), 0.94, step - 0.006, facecolor=colour, linewidth=0)
            )
    legend.set_xlim(0, faded.rows)
    legend.set_ylim(0, 1)
    labels = faded.value.labels(8)
    legend.yaxis.tick_right()
    legend.set_yticks([w for w, _ in labels], [t for _, t in labels])
    legend.set_xticks([1, 2, 3], faded.edge_texts(), rotation=90)
    legend.tick_params(length=2, width=0.6, labelsize=7.5, colors=INK, pad=2)
    for spine in legend.spines.values():
        spine.set_visible(False)
    ratio = "a factor\neither way" if faded.ratio else "upper -\nlower end"
    figure.text(x0, y1 - 3.28 / high, f"how sure:\n{ratio} →", size=7, va="top", color=SOFT)

"""Legends of a map figure: a ramp, or the value-suppressing palette's rows; and the key to the hatching."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from maps.colours import NO_SUPPORT, Scale, Suppressing, table
from maps.layers import Band

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
    box = axes.get_position()
    wide, high = figure.get_figwidth(), figure.get_figheight()
    if compact:
        bar = figure.add_axes(
            (box.x0 + 0.1 / wide, box.y0 - 0.24 / high, box.width - 0.2 / wide, 0.12 / high)
        )
    elif faded is not None:
        _faded_legend(figure, box, faded, band)
        bar = None
    else:
        tall = min(0.75 * box.height, 3.2 / high)
        bar = figure.add_axes((box.x1 + 0.2 / wide, box.y1 - tall - 0.32 / high, 0.17 / wide, tall))
        figure.text(
            box.x1 + 0.2 / wide,
            box.y1,
            band.unit_text or _pure(band),
            size=9,
            va="top",
            weight="bold",
            **STYLE,
        )
    if bar is not None:
        ramp = table(band.layer.colours)[None, :, :]
        labels = scale.labels(6 if compact else 9)
        where, texts = [w for w, _ in labels], [t for _, t in labels]
        if compact:
            bar.imshow(ramp, aspect="auto", extent=(0, 1, 0, 1))
            bar.set_xticks(where, texts)
            bar.set_yticks([])
            bar.set_xlabel(band.unit_text or _pure(band), size=7.5, color=SOFT, labelpad=1, parse_math=False)
        else:
            bar.imshow(ramp.transpose(1, 0, 2)[::-1], aspect="auto", extent=(0, 1, 0, 1))
            bar.yaxis.tick_right()
            bar.set_yticks(where, texts)
            bar.set_xticks([])
        bar.tick_params(length=2.5, width=0.6, labelsize=7 if compact else 8.5, colors=INK, pad=2)
        for spine in bar.spines.values():
            spine.set(edgecolor="#8a95a3", linewidth=0.6)
    if unsupported and not compact:
        swatch = figure.add_axes((box.x1 + 0.2 / wide, box.y0 + 0.24 / high, 0.28 / wide, 0.16 / high))
        swatch.set_xticks([])
        swatch.set_yticks([])
        swatch.patch.set(facecolor="#f7f8fa", edgecolor=NO_SUPPORT, hatch="//////")
        for spine in swatch.spines.values():
            spine.set(edgecolor="#b9c1cb", linewidth=0.6)
        figure.text(
            box.x1 + 0.54 / wide, box.y0 + 0.32 / high, "no\nprediction", size=7, va="center", color=SOFT
        )


def _pure(band: Band) -> str:
    return {"probability": "probability", "share": "share", "sd": "sd (log10)"}.get(band.layer.quantity, "")


def _faded_legend(figure: Figure, box: Any, faded: Suppressing, band: Band) -> None:
    """Rows of 8, 4, 2 and 1 colours: value across, interval width down."""
    wide, high = figure.get_figwidth(), figure.get_figheight()
    x0, y1 = box.x1 + 0.16 / wide, box.y1
    figure.text(x0, y1, band.unit_text, size=9, va="top", weight="bold", parse_math=False, **STYLE)
    legend = figure.add_axes((x0, y1 - 2.75 / high, 0.62 / wide, 2.5 / high))
    levels = faded.levels
    for level, row in enumerate(faded.palette()):
        step = 1 / len(row)
        for k, rgb in enumerate(row):
            colour = tuple(c / 255 for c in rgb)
            legend.add_patch(
                Rectangle((level, k * step + 0.003), 0.94, step - 0.006, facecolor=colour, linewidth=0)
            )
    legend.set_xlim(0, levels)
    legend.set_ylim(0, 1)
    labels = faded.value.labels(8)
    legend.yaxis.tick_right()
    legend.set_yticks([w for w, _ in labels], [t for _, t in labels])
    legend.set_xticks([1, 2, 3], faded.edge_texts(), rotation=90)
    legend.tick_params(length=2, width=0.6, labelsize=7.5, colors=INK, pad=2)
    for spine in legend.spines.values():
        spine.set_visible(False)
    ratio = "upper / lower end" if faded.ratio else "upper - lower end"
    figure.text(x0, y1 - 3.28 / high, f"interval width\n({ratio})\nwider →", size=7, va="top", color=SOFT)

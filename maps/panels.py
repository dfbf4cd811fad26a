"""Small multiples of lines: how the reproductions of the papers are drawn.

figure = panels_figure(result.to_dict()["panels"], title=result.title)
write_png(figure, "dbk-fig1.png")
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cmcrameri import cm
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from maps.errors import InvalidInput

WIDTH_IN, HEIGHT_IN = 3.6, 2.7
#: Lines of these are grey: dashed for the paper's numbers, dotted for the truth.
REFERENCES = ("paper", "truth", "true", "oracle")
GREY = "#666666"


def panels_figure(panels: Sequence[Mapping[str, Any]], *, title: str = "") -> Figure:
    """One set of axes for each panel, at most four side by side.

    Parameters
    ----------
    panels : mappings with title, x_label, y_label, log_x, log_y and lines; a line has label, x, y, a half-width
        band or None and perhaps points (drawn as dots)

    Raises
    ------
    InvalidInput
        without panels.

    Examples
    --------
    >>> line = {"label": "ours", "x": [1, 2], "y": [3, 4], "band": None}
    >>> panel = {"title": "t", "x_label": "x", "y_label": "y", "log_x": False, "log_y": False, "lines": [line]}
    >>> len(panels_figure([panel]).axes)
    1
    """
    if not panels:
        raise InvalidInput("there is nothing to draw: this reproduction is a table alone.")
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH_IN * columns, HEIGHT_IN * rows + 0.4), layout="constrained")
    if title:
        # About 14 characters an inch at this size: a figure of one panel needs two lines.
        words = textwrap.fill(title, int(14 * WIDTH_IN * columns))
        figure.suptitle(words, fontsize=11 if columns > 1 else 10, x=0.01, ha="left")
    for k, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, k + 1)
        _draw(axes, panel["lines"])
        axes.set_title(panel["title"], fontsize=9, loc="left")
        axes.set_xlabel(panel["x_label"], fontsize=8)
        axes.set_ylabel(panel["y_label"], fontsize=8)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        if panel["log_x"]:
            axes.set_xscale("log")
            _plain_ticks(axes.xaxis, [v for line in panel["lines"] for v in line["x"]])
        if panel["log_y"]:
            axes.set_yscale("log")
            _plain_ticks(axes.yaxis, [v for line in panel["lines"] for v in line["y"]])
        if panel["lines"]:
            axes.legend(fontsize=7, frameon=False)
    return figure


def _draw(axes: Axes, lines: Sequence[Mapping[str, Any]]) -> None:
    """Ours in colours with their bands, what they are held against in grey, data as dots."""
    # Up to .8 of the map: its pale end would vanish on white.
    ours = [line for line in lines if not (line.get("points") or _given(line))]
    colours = iter(cm.batlow(np.linspace(0.05, 0.8, max(len(ours), 2))))
    for line in lines:
        if line.get("points"):
            axes.plot(line["x"], line["y"], ".", color=GREY, ms=2.5, alpha=0.7, mew=0, label=line["label"])
            continue
        given = _given(line)
        colour = GREY if given else next(colours)
        axes.plot(
            line["x"],
            line["y"],
            color=colour,
            lw=1.0 if given else 1.4,
            ls="-" if not given else "--" if str(line["label"]).startswith("paper") else ":",
            marker="o" if len(line["x"]) <= 12 else None,
            ms=2.5 if given else 3.5,
            label=line["label"],
        )
        if line["band"] is not None:
            y, half = np.asarray(line["y"]), np.asarray(line["band"])
            axes.fill_between(line["x"], y - half, y + half, color=colour, alpha=0.2, lw=0)


def _given(line: Mapping[str, Any]) -> bool:
    """Whether a line is what ours is held against."""
    return str(line["label"]).startswith(REFERENCES)


def _plain_ticks(axis: Axis, values: Sequence[float]) -> None:
    """Ticks of a logarithmic axis at 1, 2, 5 of each decade, or at decades alone over more than three; no powers."""
    known = np.array([v for v in values if np.isfinite(v) and v > 0])
    decades = np.log10(known.max() / known.min()) if len(known) else 1.0
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades <= 3 else (1.0,)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda v, _: np.format_float_positional(v, precision=6, trim="-")))

"""Figures by which a reviewer judges a run: what its predictions of held-out rows were worth."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geogp.predictive import Predictive
from maps.colours import Scale
from maps.words import number

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

INK, SOFT, FIRST, SECOND = "#1d2733", "#8a95a3", "#14505c", "#c8743c"
#: Cells of the ground in which errors are gathered, along the longer side; and the fewest rows of one.
CELLS, FEWEST = 24, 8
#: Rows that a violin is drawn of.
FEWEST_WIDTHS = 20


@dataclass(frozen=True)
class Picture:
    """An image for a page: a data URL and what it shows, in words."""

    data: str
    words: str

    @classmethod
    def of(cls, figure: Figure, words: str, dpi: int = 110) -> "Picture":
        """A figure as PNG."""
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
        return cls("data:image/png;base64," + base64.b64encode(out.getvalue()).decode(), words)


def plain_axes(width: float = 4.6, height: float = 3.4) -> tuple[Figure, Any]:
    """A figure of one plot."""
    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.tick_params(labelsize=8, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def reliability(certificate: Mapping[str, Any]) -> Picture:
    """Coverage achieved against promised, by group, with the band of chance of all rows."""
    figure, axes = plain_axes()
    levels = np.array(certificate["levels"])
    groups = certificate["groups"]
    low, high = np.array(groups["all"]["band"]).T
    axes.fill_between(levels, low, high, color=SOFT, alpha=0.35, linewidth=0, label="by chance (all rows)")
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=0.8)
    for name, group in groups.items():
        if group["judged"] or name == "all":
            width = 2.0 if name == "all" else 1.0
            axes.plot(levels, group["achieved"], marker="o", markersize=3, linewidth=width, label=name)
    axes.set_xlabel("promised", size=9)
    axes.set_ylabel("held", size=9)
    axes.set_xlim(levels.min() - 0.03, 1)
    axes.set_ylim(levels.min() - 0.05, 1)
    axes.legend(fontsize=7, frameon=False)
    return Picture.of(
        figure,
        "Reliability: what prediction intervals promised and what they held, by group of held-out rows.",
    )


def pit(predictive: Predictive, t: Array) -> Picture:
    """Histogram of the predictive distribution at what was measured: flat where it is right."""
    values = predictive.cdf(t)
    figure, axes = plain_axes()
    bins = int(np.clip(len(t) // 25, 5, 20))
    count = axes.hist(values, bins=bins, range=(0, 1), color=FIRST, rwidth=0.92)[0]
    even, sd = len(t) / bins, np.sqrt(len(t) / bins * (1 - 1 / bins))
    axes.axhspan(even - 2 * sd, even + 2 * sd, color=SOFT, alpha=0.35, linewidth=0, zorder=0)
    axes.set_ylim(0, max(count.max(), even + 2 * sd) * 1.08)
    axes.set_xlabel("share of the predictive distribution below what was measured", size=9)
    axes.set_ylabel("rows", size=9)
    words = "Probability integral transform of held-out rows: flat where predictions are right; the band is ±2 sd of chance."
    return Picture.of(figure, words)


def widths(predictive: Predictive, value: Any, groups: Mapping[str, Flags], unit: str) -> Picture | None:
    """Violins of the widths of 95% intervals by group; None where no group has enough rows."""
    lower, upper = predictive.interval(0.95)
    width = value(upper) - value(lower)
    named = {name: width[mask] for name, mask in groups.items() if mask.sum() >= FEWEST_WIDTHS}
    if not named:
        return None
    figure, axes = plain_axes()
    logs = [np.log10(np.maximum(v, 1e-9)) for v in named.values()]
    parts = axes.violinplot(logs, showmedians=True, widths=0.8)
    for body in parts["bodies"]:
        body.set(facecolor=FIRST, alpha=0.6)
    axes.set_xticks(range(1, len(named) + 1), list(named), fontsize=8)
    ends = np.percentile(np.concatenate(logs), (0.5, 99.5))
    axes.set_ylim(ends[0] - 0.1, ends[1] + 0.1)
    low, high = axes.get_ylim()
    ticks = Scale(10**low, 10**high, "log").ticks(6)
    axes.set_yticks(np.log10(ticks), [number(v) for v in ticks])
    axes.set_ylabel(f"width{', ' + unit if unit else ''}", size=9)
    return Picture.of(
        figure, "Widths of the 95% prediction intervals of held-out rows, by group; the line is the median."
    )


def errors_by_cell(predictive: Predictive, t: Array, xy: Array) -> Picture | None:
    """Empirical against predictive sd in cells of the ground; None where no cell has enough rows."""
    span = np.ptp(xy, axis=0).max() / CELLS
    cell = np.unique(
        np.floor((xy - xy.min(axis=0)) / max(span, 1e-9)).astype(int), axis=0, return_inverse=True
    )[1].ravel()
    n = np.bincount(cell)
    # Central 68% stand for an sd whatever the tails: the surface's and the noise's together.
    lower, upper = predictive.interval(0.6827)
    told = np.sqrt(np.bincount(cell, ((upper - lower) / 2) ** 2) / np.maximum(n, 1))
    error = np.sqrt(np.bincount(cell, (t - predictive.median()) ** 2) / np.maximum(n, 1))
    kept = n >= FEWEST
    if not kept.any():
        return None
    figure, axes = plain_axes()
    axes.scatter(
        told[kept], error[kept], s=6 + 0.6 * np.minimum(n[kept], 100), color=FIRST, alpha=0.6, linewidth=0
    )
    most = 1.08 * max(told[kept].max(), error[kept].max())
    axes.plot([0, most], [0, most], color=SOFT, linewidth=0.8)
    axes.set(xlim=(0, most), ylim=(0, most))
    axes.set_xlabel("predicted sd, on the model's scale", size=9)
    axes.set_ylabel("root mean square error", size=9)
    return Picture.of(
        figure,
        f"Errors and predicted sd of held-out rows in cells of the ground with {FEWEST} or more of them.",
    )

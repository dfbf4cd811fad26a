"""Charts of the marked place, for Streamlit."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from app.dashboard.point import Curve, percent
from app.dashboard.view import View

BLUE, RED = "#3f86c1", "#c2554d"  # told apart by colour-blind eyes and by their shapes, on white and on black
HEIGHT = 260


def chances(curve: Curve, view: View, unit: str) -> Any:
    """P(a new average > x): the central interval shaded, the threshold marked."""
    frame = pd.DataFrame({"x": curve.x, "p": curve.p})
    tail = (1 - view.level) / 2
    inside = frame[(frame.p >= tail) & (frame.p <= 1 - tail)]
    title = f"more than x {unit}".rstrip()
    x = alt.X("x:Q", title=unit or "x", scale=alt.Scale(nice=False))
    y = alt.Y("p:Q", title="chance of more than x", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    told = [alt.Tooltip("x:Q", title=title, format=".3~g"), alt.Tooltip("p:Q", title="chance", format=".0%")]
    band = alt.Chart(inside).mark_area(color=BLUE, opacity=0.2).encode(x, y)
    line = alt.Chart(frame).mark_line(color=BLUE, strokeWidth=2.5).encode(x, y, tooltip=told)
    layers = [band, line]
    if curve.x.min() <= view.threshold <= curve.x.max():
        p = float(np.interp(view.threshold, curve.x, curve.p))
        mark = pd.DataFrame(
            {"x": [view.threshold], "p": [p], "said": [f"> {view.threshold:g}: {percent(p)}"]}
        )
        rule = alt.Chart(mark).mark_rule(color=RED, strokeDash=[4, 3]).encode(x)
        text = (
            alt.Chart(mark)
            .mark_text(color=RED, align="left", dx=6, dy=-8, fontSize=13)
            .encode(x, y, text="said:N")
        )
        layers += [rule, alt.Chart(mark).mark_point(color=RED, filled=True, size=60).encode(x, y), text]
    return alt.layer(*layers).properties(height=HEIGHT)


def history(rows: list[dict[str, Any]], view: View, unit: str) -> Any:
    """Median and interval by quarter, the quarter of the map marked."""
    frame = pd.DataFrame(rows).dropna()
    x = alt.X("quarter:O", title=None, axis=alt.Axis(labelAngle=0, labelOverlap=True))
    told = [
        alt.Tooltip("quarter:O"),
        *(alt.Tooltip(f"{k}:Q", format=".3~g") for k in ("median", "lower", "upper")),
    ]
    scale = alt.Scale(zero=False, nice=True)
    band = (
        alt.Chart(frame)
        .mark_area(color=BLUE, opacity=0.2)
        .encode(x, alt.Y("lower:Q", title=unit or None, scale=scale), alt.Y2("upper:Q"))
    )
    line = (
        alt.Chart(frame)
        .mark_line(color=BLUE, strokeWidth=2.5, point=alt.OverlayMarkDef(color=BLUE))
        .encode(x, alt.Y("median:Q", scale=scale), tooltip=told)
    )
    now = (
        alt.Chart(frame[frame.quarter == view.quarter])
        .mark_point(color=RED, filled=True, size=110)
        .encode(x, alt.Y("median:Q", scale=scale), tooltip=told)
    )
    return alt.layer(band, line, now).properties(height=HEIGHT)


def profile(rings: tuple[Any, Any, Any, Any]) -> Any:
    """Correlation with the marked place by distance: median and the middle 80% of places in each ring."""
    frame = pd.DataFrame(dict(zip(("km", "median", "low", "high"), rings)))
    x = alt.X("km:Q", title="km from here", scale=alt.Scale(nice=False))
    y = alt.Scale(zero=False)
    band = (
        alt.Chart(frame)
        .mark_area(color=BLUE, opacity=0.2)
        .encode(x, alt.Y("low:Q", title="correlation", scale=y), alt.Y2("high:Q"))
    )
    line = alt.Chart(frame).mark_line(color=BLUE, strokeWidth=2.5).encode(x, alt.Y("median:Q", scale=y))
    return alt.layer(band, line).properties(height=HEIGHT)

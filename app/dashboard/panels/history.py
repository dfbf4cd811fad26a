"""The marked place through the quarters of the run."""

from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

from app.dashboard.atlas import Atlas
from app.dashboard.panels.base import Panel, Scene
from app.dashboard.panels.style import BLUE, HEIGHT, RED, rows, show
from app.dashboard.setting import Setting


def draw(scene: Scene) -> None:
    atlas, setting = scene.atlas, scene.setting

    def drawn() -> Any:
        return chart(through_time(atlas, *scene.marked, setting), setting, atlas.unit)

    show(atlas, ("history", atlas.centre(*scene.marked), setting), drawn)


def through_time(atlas: Atlas, lat: float, lon: float, setting: Setting) -> list[dict[str, Any]]:
    """Median and interval of every quarter of the run at a place."""
    out = []
    for quarter in atlas.choices.quarters:
        values = atlas.values(lat, lon, replace(setting, quarter=quarter))
        out.append({"quarter": quarter, **{key: values[key] for key in ("median", "lower", "upper")}})
    return out


def chart(quarters: list[dict[str, Any]], setting: Setting, unit: str) -> Any:
    """Median and interval by quarter, the quarter of the map marked."""
    frame = pd.DataFrame(quarters).dropna()
    x = alt.X("quarter:O", title=None, axis=alt.Axis(labelAngle=0, labelOverlap=True))
    told = [
        alt.Tooltip("quarter:O"),
        *(alt.Tooltip(f"{k}:Q", format=".3~g") for k in ("median", "lower", "upper")),
    ]
    scale = alt.Scale(zero=False, nice=True)
    band = (
        alt.Chart(rows(frame))
        .mark_area(color=BLUE, opacity=0.2)
        .encode(x, alt.Y("lower:Q", title=unit or None, scale=scale), alt.Y2("upper:Q"))
    )
    line = (
        alt.Chart(rows(frame))
        .mark_line(color=BLUE, strokeWidth=2.5, point=alt.OverlayMarkDef(color=BLUE))
        .encode(x, alt.Y("median:Q", scale=scale), tooltip=told)
    )
    now = (
        alt.Chart(rows(frame[frame.quarter == setting.quarter]))
        .mark_point(color=RED, filled=True, size=110)
        .encode(x, alt.Y("median:Q", scale=scale), tooltip=told)
    )
    return alt.layer(band, line, now).properties(height=HEIGHT)


PANEL = Panel("Through the quarters", "tab", draw, lambda scene: len(scene.atlas.choices.quarters) > 1)

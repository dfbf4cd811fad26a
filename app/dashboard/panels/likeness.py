"""The kernel slice of the marked place: a picture of it, and correlation by distance."""

from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from app.dashboard.panels.base import Panel, Scene
from app.dashboard.panels.style import BLUE, HEIGHT, rows, show
from app.dashboard.words import literal


def draw(scene: Scene) -> None:
    found = scene.atlas.slices.of(*scene.marked, scene.setting.quarter)
    st.markdown(literal(found.words))
    picture, profile = st.columns([2, 3])
    picture.image(found.picture(), caption="Red: similar. Also a layer of the map: “Similar to here”.")
    key = "likeness", scene.atlas.centre(*scene.marked), scene.setting.quarter
    show(scene.atlas, key, lambda: chart(found.profile), profile)


def chart(rings: tuple[Any, Any, Any, Any]) -> Any:
    """Correlation with the marked place by distance: median and the middle 80% of places in each ring."""
    frame = pd.DataFrame(dict(zip(("km", "median", "low", "high"), rings)))
    x = alt.X("km:Q", title="km from here", scale=alt.Scale(nice=False))
    y = alt.Scale(zero=False)
    band = (
        alt.Chart(rows(frame))
        .mark_area(color=BLUE, opacity=0.2)
        .encode(x, alt.Y("low:Q", title="correlation", scale=y), alt.Y2("high:Q"))
    )
    line = alt.Chart(rows(frame)).mark_line(color=BLUE, strokeWidth=2.5).encode(x, alt.Y("median:Q", scale=y))
    return alt.layer(band, line).properties(height=HEIGHT)


PANEL = Panel("Similar to here", "tab", draw)

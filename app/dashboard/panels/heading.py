"""What is mapped, where, and by which method."""

import streamlit as st

from app.dashboard.panels.base import Panel, Scene
from app.dashboard.words import literal
from app.workflow.outputs import place_of


def draw(scene: Scene) -> None:
    run = scene.atlas.run
    st.title(literal(run.target.heading), anchor=False)
    parts = [part for part in (place_of(run.data), str(run.data.get("type") or "")) if part]
    st.caption(literal(" · ".join([*parts, f"method {run.model.method}", run.path.name])))


PANEL = Panel("", "top", draw)

"""What is mapped, where, and by which method."""

import streamlit as st

from app.dashboard.panels.base import Panel, Scene
from app.dashboard.words import literal


def draw(scene: Scene) -> None:
    run = scene.atlas.run
    st.title(literal(run.target.words.capitalize()), anchor=False)
    parts = [str(run.data[k]) for k in ("region", "type") if run.data.get(k)]
    st.caption(literal(" · ".join([*parts, f"method {run.model.method}", run.path.name])))


PANEL = Panel("", "top", draw)

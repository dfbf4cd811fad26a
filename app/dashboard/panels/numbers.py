"""The marked place in numbers: median, interval, the chance of more than the threshold, and how honest that is."""

import streamlit as st

from app.dashboard.panels.base import Panel, Scene
from app.dashboard.panels.coverage import measured
from app.dashboard.setting import Setting
from app.dashboard.words import degrees, literal, percent, plain
from maps.words import exact


def draw(scene: Scene) -> None:
    atlas, setting, (lat, lon) = scene.atlas, scene.setting, scene.marked
    when = f" in {setting.quarter.replace('Q', ' Q')}" if setting.quarter else ""
    st.subheader(f"At {degrees(lat, lon)}{when}", anchor=False)
    st.caption(literal(_of(setting, tiles=atlas.run.target.of_averages)))
    values = atlas.reading(lat, lon, setting)["values"]
    unit = f" {atlas.unit}" if atlas.unit else ""
    shown = {
        "Median": plain(values["median"]) + unit,
        f"{100 * setting.level:g}% prediction interval": (
            f"{plain(values['lower'])} to {plain(values['upper'])}{unit}"
        ),
        f"P(> {exact(setting.threshold)}{unit})": percent(values["exceedance"]),
    }
    beside = measured(atlas.run, setting.level)
    if beside is not None:
        shown["Held-out rows inside such intervals"] = f"{100 * beside[0]:.1f}%"
    with st.container(horizontal=True, key="numbers"):
        for label, value in shown.items():
            st.metric(literal(label), literal(value), width="content")


def _of(setting: Setting, *, tiles: bool) -> str:
    if setting.tests is None:
        return "Of a new measurement."
    many = "" if setting.tests == 1 else "s"
    if tiles:
        return f"Of the average of a new tile with {exact(setting.tests)} test{many}."
    return f"Of a new value with {exact(setting.tests)} measurement{many} behind it."


PANEL = Panel("", "place", draw)

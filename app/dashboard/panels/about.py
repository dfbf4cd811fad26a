"""What the numbers mean, which run this is, and the command that writes these maps to files."""

import shlex

import streamlit as st

from app.dashboard.panels.base import Panel, Scene
from app.dashboard.setting import Setting
from app.dashboard.words import literal
from app.workflow.grids import length_words
from app.workflow.scoring import far_m_of
from data_pipelines.words import many
from geogp.run import Run
from geogp.targets import digits


def draw(scene: Scene) -> None:
    run, unit = scene.atlas.run, scene.atlas.unit
    of = f" in {literal(unit)}" if unit else ""
    far = length_words(far_m_of(run.data.get("source"), run.support)) if run.has_support else ""
    what, new, measured = (
        ("the **measured average of a new tile**, not the service on offer", "average", "no test")
        if run.target.of_averages
        else ("**a new measurement**", "measurement", "nothing measured")
    )
    st.markdown(
        f"Every number describes {what}. The median{of} is the value that half of new {new}s exceed; the interval holds a "
        f"new {new} with the stated probability."
        + (
            f" Hatched: {measured} within {far}, so the map leans on what it learned elsewhere."
            if far
            else ""
        )
    )
    st.text(f"Method {run.model.method}, {many(run.model.n_rows_, 'row')}\n{run.path}")
    st.caption("These maps as files:")
    st.code(command(run, scene.setting), language=None, wrap_lines=True)


def command(run: Run, setting: Setting) -> str:
    """The command line that writes what is shown."""
    parts = ["geogp", "export", str(run.path), "-o", "maps", "--format", "cog"]
    if setting.quarter is not None:
        parts += ["--quarter", setting.quarter]
    if setting.tests is not None:
        parts += ["--tests", digits(setting.tests)]
    return shlex.join([*parts, "--level", digits(setting.level), "--thresholds", digits(setting.threshold)])


PANEL = Panel("About this map", "fold", draw)

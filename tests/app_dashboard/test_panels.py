"""A panel is one file and one line: a made-up one stands on the page where it says, and nowhere else."""

import importlib.util
from pathlib import Path

import pytest

from app.dashboard.panels import PANELS, Panel

from .test_page import AT, opened, texts

SOURCE = """
import streamlit as st

from app.dashboard.panels.base import Panel, Scene


def draw(scene: Scene) -> None:
    median = float(scene.atlas.at(*scene.marked, scene.setting)["median"].values[0, 0]) if scene.at else None
    st.caption(f"compass says {median}")


PANEL = Panel("Compass", "SPOT", draw, lambda scene: scene.setting.threshold < 1000)
"""


@pytest.fixture
def added(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Panel:
    """The panel of a new file, with its line in the registry."""
    (tmp_path / "compass.py").write_text(SOURCE.replace("SPOT", request.param))
    spec = importlib.util.spec_from_file_location("compass", tmp_path / "compass.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(PANELS, "compass", module.PANEL)
    panel: Panel = module.PANEL
    return panel


@pytest.mark.parametrize("added", ["top", "sidebar", "fold"], indirect=True)
def test_a_new_panel_beside_the_map(shown: object, added: Panel) -> None:
    page = opened()
    assert not page.exception
    said = [caption.value for caption in page.sidebar.caption]
    assert "compass says None" in said
    titles = [e.value for e in page.sidebar.subheader] + [e.label for e in page.sidebar.expander]
    assert "Compass" in titles
    assert (said[1] == "compass says None") == (added.spot == "top")  # the first is the heading's
    assert "compass" not in texts(opened(t="2000"))


@pytest.mark.parametrize("added", ["place", "tab"], indirect=True)
def test_a_new_panel_of_the_marked_place(shown: object, added: Panel) -> None:
    assert "compass" not in texts(opened())
    page = opened(at=AT)
    assert not page.exception
    assert [tab.label for tab in page.tabs][3:] == (["Compass"] if added.spot == "tab" else [])
    if added.spot == "tab":  # one is open at a time, the first to begin with
        assert "compass" not in texts(page)
        page.session_state["tab"] = "Compass"
        page.run()
    assert page.metric[0].value.removesuffix(" Mbit/s").isdigit()
    (told,) = [c.value for c in page.main.caption if "compass" in c.value]
    assert float(told.removeprefix("compass says ")) == pytest.approx(
        float(page.metric[0].value.removesuffix(" Mbit/s")), abs=0.5
    )


def test_what_a_panel_says_does_not_depend_on_the_others(
    shown: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(PANELS):
        monkeypatch.delitem(PANELS, name)
    page = opened(at=AT)
    assert not page.exception and not page.tabs and not page.metric

"""Streamlit's pages, beside the map: what the panels say of a place. A rerun only calls functions."""

from collections.abc import Callable
from html import escape
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

from app.dashboard.atlas import Atlas
from app.dashboard.holding import held
from app.dashboard.panels import PANELS, Panel, Scene
from app.dashboard.paths import TITLES
from app.dashboard.setting import MOST_TESTS, Setting, place
from app.dashboard.sheets import SHEETS
from app.dashboard.sheets.bar import bar
from app.dashboard.words import degrees, literal
from app.errors import InvalidInput
from geogp.scores import LEVELS
from maps.page_data import LEAST, MOST
from maps.words import exact

STYLE = Path(__file__).parent / "page.css"


def page() -> None:
    """All of Streamlit's pages, or one sentence when the run cannot be shown."""
    st.set_page_config(page_title="GeoGP", layout="wide", initial_sidebar_state="auto")
    st.html(STYLE)
    shown = [st.Page(_drawn(name), title=title, url_path=name) for name, title in TITLES.items()]
    st.navigation([st.Page(start, default=True), *shown], position="hidden").run()


def _drawn(name: str) -> Callable[[], None]:
    def drawn() -> None:
        of_place() if name == "place" else sheet(name)

    return drawn


def sheet(name: str) -> None:
    """A page of `SHEETS`."""
    bar(name, TITLES[name])
    atlas = _opened()
    if atlas is not None:
        SHEETS[name](atlas)


def start() -> None:
    """Where Streamlit begins: the ways on."""
    bar("", "GeoGP")


def of_place() -> None:
    """What the panels say of the place in the address."""
    atlas = _opened()
    if atlas is None:
        return
    with st.sidebar:
        top = st.container()
        setting = settings(atlas)
    scene = Scene(atlas.of(st.query_params.get("finer")), setting, marked())
    with top:
        beside(scene, "top")
    with st.sidebar:
        beside(scene, "sidebar", "fold")
    back = escape(urlencode(address(setting) | {"of": atlas.of_what}))
    st.html(f'<a class="back" href="/?{back}">← Map</a>')
    below(scene)


def address(setting: Setting) -> dict[str, str]:
    """The address of the map with these settings; where it looked is as it was."""
    return st.query_params.to_dict() | setting.params


def marked() -> tuple[float, float] | None:
    """The place in the address, if it names one."""
    try:
        lat, lon = st.query_params.get("at", "").split(",")
        return place({"lat": lat, "lon": lon})
    except (InvalidInput, ValueError):  # none, or no place
        return None


def _opened() -> Atlas | None:
    """The atlas of the run, or None when it cannot be shown, which is then said."""
    try:
        return held(st.query_params.get("run")).atlas()
    except ValueError as error:
        if not hasattr(error, "exit_code"):
            raise
        with st.container(key="failed"):
            st.error(literal(str(error)), icon=None)
            if st.button("Try again"):
                st.rerun()
        return None


def panels(scene: Scene, *spots: str) -> list[Panel]:
    """The panels that stand in one of the spots and have something to say."""
    return [panel for panel in PANELS.values() if panel.spot in spots and panel.shows(scene)]


def beside(scene: Scene, *spots: str) -> None:
    """Panels of the sidebar."""
    for panel in panels(scene, *spots):
        if panel.spot == "fold":
            with st.expander(panel.title):
                panel.draw(scene)
            continue
        if panel.title:
            st.subheader(panel.title, anchor=False, divider=False)
        panel.draw(scene)


def below(scene: Scene) -> None:
    """Panels of the marked place."""
    if scene.at is None:
        with st.container(key="empty"):
            st.caption(
                "Mark a place on the map, and follow “Chances, and what is similar to here” on its card."
            )
        return
    with st.container(key="details"):
        if not scene.atlas.contains(*scene.at):
            lat, lon = scene.at
            st.info(f"{degrees(lat, lon)} lies outside the mapped region; mark a place inside.", icon=None)
            return
        beside(scene, "place")
        shown = panels(scene, "tab")
        tabs = st.tabs([panel.title for panel in shown], key="tab", on_change="rerun") if shown else []
        for tab, panel in zip(tabs, shown):
            if tab.open:
                with tab:
                    panel.draw(scene)


# -- settings --------------------------------------------------------------------------------------


def settings(atlas: Atlas) -> Setting:
    """Quarter, threshold, tests and level; the address decides where they start."""
    if "start" not in st.session_state:
        given = st.query_params.to_dict()
        if given.get("of", atlas.of_what) != atlas.of_what:  # limits and counts of another run's values
            given = {name: value for name, value in given.items() if name not in ("t", "n")}
        st.session_state.start = atlas.choices.lenient(given)
    start: Setting = st.session_state.start
    quarter = _quarter(atlas, start)
    threshold = _threshold(atlas, start)
    level = st.segmented_control(
        "Prediction interval",
        LEVELS,
        default=start.level,
        format_func=lambda v: f"{100 * v:g}%",
        key="level",
        required=True,
        help="How often a new measured average should fall inside.",
    )
    return Setting(quarter, _tests(atlas, start), float(level), threshold)


def _quarter(atlas: Atlas, start: Setting) -> str | None:
    quarters = atlas.choices.quarters
    if len(quarters) == 1:
        st.caption(f"Quarter {quarters[0].replace('Q', ' Q')}, the only one of this run")
    if len(quarters) < 2:
        return start.quarter
    return st.select_slider(
        "Quarter",
        quarters,
        value=start.quarter,
        key="quarter",
        format_func=lambda q: q.replace("Q", " Q"),
    )


def _threshold(atlas: Atlas, start: Setting) -> float:
    """A number, and buttons of the usual ones."""

    def chosen() -> None:
        if st.session_state.preset is not None:
            st.session_state.threshold = st.session_state.preset

    if "threshold" not in st.session_state:
        st.session_state.threshold = start.threshold
    now, usual = st.session_state.threshold, atlas.run.thresholds
    value = st.number_input(
        "Threshold" + (f" ({literal(atlas.unit)})" if atlas.unit else ""),
        min_value=LEAST if atlas.choices.positive else -MOST,
        max_value=MOST,
        step=5.0,
        format="%g",
        key="threshold",
        help="The map of the probability that a new average exceeds this.",
    )
    st.session_state.preset = now if now in usual else None
    st.pills(
        "Presets",
        usual,
        key="preset",
        on_change=chosen,
        format_func=exact,
        label_visibility="collapsed",
    )
    return float(value) if value is not None else start.threshold


def _tests(atlas: Atlas, start: Setting) -> float | None:
    if start.tests is None:
        return None
    tests, usual = atlas.run.target.of_averages, exact(atlas.choices.tests or start.tests)
    help_ = (
        "The average of many tests scatters less than one of few. "
        f"Half of the training tiles had {usual} or fewer."
        if tests
        else f"What many stand behind scatters less. Half of the training rows had {usual} or fewer."
    )
    return float(
        st.number_input(
            "Tests behind a new tile average" if tests else "Measurements behind a new value",
            min_value=1,
            max_value=MOST_TESTS,
            value=round(start.tests or 1),
            key="tests",
            help=help_,
        )
    )

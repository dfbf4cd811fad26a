"""The parts of the page. Imported once; a rerun only calls functions."""

import gc
import shlex

import pandas as pd
import streamlit as st
import streamlit.components.v1 as components

from app.dashboard import charts
from app.dashboard.atlas import Atlas
from app.dashboard.holding import held
from app.dashboard.point import exceedance_curve, percent, plain, reading, through_time
from app.dashboard.view import LEVELS, View, place
from app.workflow.certifying import certificate_of

FEW = 500  # rows of a stratum below which its share says little

# Streamlit collects garbage after every rerun; what is imported by now lives as long as the process.
gc.collect()
gc.freeze()

STYLE = """<style>
.stMainBlockContainer { padding: 0 0 2rem; max-width: none; }
.stMainBlockContainer > div > .stVerticalBlock { gap: .5rem; }
.stApp:not(:has([data-testid="stExpandSidebarButton"])) .stAppHeader { height: 0; min-height: 0; background: none; }
.stApp:has([data-testid="stExpandSidebarButton"]) .stAppHeader { height: 3rem; min-height: 3rem; }
.stApp:has([data-testid="stExpandSidebarButton"]) .stMainBlockContainer { padding-top: 3rem; }
[data-testid="stExpandSidebarButton"] { width: auto !important; padding: 0 .5rem !important; }
[data-testid="stExpandSidebarButton"]::after { content: "Quarter, threshold, coverage"; margin-left: .4rem; font-size: .875rem; white-space: nowrap; }
.stSidebar [data-testid="stSidebarHeader"] { height: 2.5rem; margin-bottom: 0; }
.st-key-numbers { gap: .5rem 2.2rem; }
.st-key-numbers > div { width: auto !important; min-width: 0 !important; flex: 0 1 auto !important; }
.st-key-numbers [data-testid="stMetricValue"] { font-size: 1.5rem; }
@media (max-width: 700px) { .st-key-numbers [data-testid="stMetricValue"] { font-size: 1.2rem; } }
iframe.stCustomComponentV1 { display: block; width: 100%; }
.st-key-details { padding: .4rem 1.25rem 0; }
.st-key-details h3 { font-size: 1.25rem; padding: .3rem 0 .1rem; }
.st-key-empty, .st-key-failed { padding: 1rem 1.25rem; }
.stSidebar h1 { font-size: 1.3rem; padding: 0 0 .1rem; }
.stSidebar [data-testid="stSidebarUserContent"] { padding-bottom: 1rem; }
</style>"""


def page() -> None:
    """The whole page, or one sentence when the run cannot be shown."""
    st.set_page_config(page_title="GeoGP", layout="wide", initial_sidebar_state="auto")
    st.html(STYLE)
    try:
        atlas = held().atlas()
    except ValueError as error:
        if not hasattr(error, "exit_code"):
            raise
        with st.container(key="failed"):
            st.error(_literal(str(error)), icon=None)
            if st.button("Try again"):
                st.rerun()
        return
    with st.sidebar:
        heading(atlas)
        view = settings(atlas)
        coverage(atlas, view)
        about(atlas, view)
    found = map_of(view)
    details(atlas, view, found)


def map_of(view: View) -> tuple[float, float] | None:
    """The map, and the place marked on it."""
    draw = components.declare_component("geogp_map", url="/geogp/map/")
    told = draw(setting=view.params, key="map", default=None, height=560)
    if told is None:  # the map has not spoken yet: the address may name a place
        text = st.query_params.get("at", "")
        parts = text.split(",") if text.count(",") == 1 else ["", ""]
        told = {"at": parts}
    if not isinstance(told, dict) or not told.get("at"):
        return None
    try:
        lat, lon = told["at"]
        return place({"lat": str(lat), "lon": str(lon)})
    except (ValueError, TypeError):
        return None


def heading(atlas: Atlas) -> None:
    st.title(_literal(atlas.target.words.capitalize()), anchor=False)
    parts = [str(atlas.data[k]) for k in ("region", "type") if atlas.data.get(k)]
    st.caption(_literal(" · ".join([*parts, f"method {atlas.run.model.method}", atlas.run.path.name])))


def settings(atlas: Atlas) -> View:
    """Quarter, threshold, tests and level; the address decides where they start."""
    choices = atlas.choices
    if "start" not in st.session_state:
        st.session_state.start = choices.lenient(st.query_params.to_dict())
    start: View = st.session_state.start
    quarter, tests = start.quarter, start.tests
    if len(choices.quarters) > 1:
        quarter = st.select_slider(
            "Quarter",
            choices.quarters,
            value=start.quarter,
            key="quarter",
            format_func=lambda q: q.replace("Q", " Q"),
        )
    elif choices.quarters:
        st.caption(f"Quarter {choices.quarters[0].replace('Q', ' Q')}, the only one of this run")
    unit = f" ({_literal(atlas.unit)})" if atlas.unit else ""
    threshold = _threshold(atlas, start, unit)
    level = st.segmented_control(
        "Prediction interval",
        LEVELS,
        default=start.level,
        format_func=lambda v: f"{100 * v:g}%",
        key="level",
        required=True,
        help="How often a new measured average should fall inside.",
    )
    if tests is not None:
        tests = st.number_input(
            "Tests behind a new tile average",
            min_value=1,
            max_value=100_000,
            value=round(start.tests or 1),
            key="tests",
            help="The average of many tests scatters less than one of few. "
            f"Half of the training tiles had {choices.tests:g} or fewer.",
        )
        tests = float(tests)
    return View(quarter, tests, float(level), threshold)


def _threshold(atlas: Atlas, start: View, unit: str) -> float:
    def preset() -> None:
        if st.session_state.preset is not None:
            st.session_state.threshold = st.session_state.preset

    if "threshold" not in st.session_state:
        st.session_state.threshold = start.threshold
    now = st.session_state.threshold
    value = st.number_input(
        f"Threshold{unit}",
        min_value=1e-6 if atlas.choices.positive else None,
        max_value=1e9,
        step=5.0,
        format="%g",
        key="threshold",
        help="The map of the probability that a new average exceeds this.",
    )
    st.session_state.preset = now if now in atlas.presets else None
    st.pills(
        "Presets",
        atlas.presets,
        key="preset",
        on_change=preset,
        format_func=lambda t: f"{t:g}",
        label_visibility="collapsed",
    )
    return float(value) if value is not None else start.threshold


def measured(atlas: Atlas, level: float) -> tuple[float, int] | None:
    """(share of held-out rows inside the interval of a level, how many rows), when the run was evaluated."""
    scores = atlas.run.facts.get("scores") or {}
    value = (scores.get("scores") or {}).get(f"coverage{100 * level:g}")
    return None if value is None else (float(value), int(scores.get("n_test") or 0))


def coverage(atlas: Atlas, view: View) -> None:
    """How often held-out rows fell inside, beside what was promised."""
    st.subheader("Is the interval honest?", anchor=False, divider=False)
    found = measured(atlas, view.level)
    if found is None:
        st.caption(
            "This run was not scored on held-out rows; `geogp evaluate` does, and the shares appear here."
        )
        return
    share, n = found
    scores = atlas.run.facts["scores"]
    split = {"random": "random rows", "block": "whole blocks of land", "forward": "later quarters"}.get(
        str(scores.get("split") or atlas.run.facts.get("split")), "rows"
    )
    st.markdown(
        f"On {n:,} held-out rows ({split}), **{100 * share:.1f}%** fell inside the {100 * view.level:g}% interval."
    )
    rows = certified(atlas, view.level) or by_stratum(scores.get("strata") or {}, view.level)
    if rows:
        st.table(pd.DataFrame(rows).set_index("where"), border="horizontal")


def certified(atlas: Atlas, level: float) -> list[dict[str, str]]:
    """The certificate's groups at a level: share inside and the band of an honest interval; empty without one."""
    document = certificate_of(atlas.run)
    if document is None or level not in document["levels"]:
        return []
    at = document["levels"].index(level)
    rows = []
    for name, group in document["groups"].items():
        if name == "all":
            continue
        low, high = group["band"][at]
        band = f"{100 * low:.0f}–{100 * high:.0f}%"
        judged = {True: band, False: f"not {band}", None: "too few"}[group["within"][at]]
        rows.append(
            {
                "where": _literal(str(name)),
                "inside": f"{100 * group['achieved'][at]:.1f}%",
                "honest": judged,
                "rows": f"{group['n']:,}",
            }
        )
    return rows


def by_stratum(strata: dict, level: float) -> list[dict[str, str]]:
    """The same from the scores of a run without a certificate."""
    key = f"coverage{100 * level:g}"
    return [
        {
            "where": _literal(str(name)),
            "inside": f"{100 * s[key]:.1f}%",
            "rows": f"{int(s['n']):,}" + ("" if s["n"] >= FEW else " (too few)"),
        }
        for name, s in strata.items()
        if isinstance(s, dict) and s.get("n") and s.get(key) is not None
    ]


def about(atlas: Atlas, view: View) -> None:
    """What the numbers mean, which run this is, and the command that writes these maps to files."""
    with st.expander("About this map"):
        unit = f" in {_literal(atlas.unit)}" if atlas.unit else ""
        st.markdown(
            "Every number describes the **measured average of a new tile**, not the service on offer. "
            f"The median{unit} is the value that half of new averages exceed; the interval holds a new average with "
            "the stated probability. Hatched: no test within 5 km, so the map leans on what it learned elsewhere."
        )
        st.text(f"Method {atlas.run.model.method}, {atlas.run.model.n_rows_:,} rows\n{atlas.run.path}")
        st.caption("These maps as files:")
        st.code(command(atlas, view), language=None, wrap_lines=True)


def command(atlas: Atlas, view: View) -> str:
    """The command line that writes what is shown."""
    parts = ["geogp", "export", str(atlas.run.path), "-o", "maps", "--format", "cog"]
    if view.quarter is not None:
        parts += ["--quarter", view.quarter]
    if view.tests is not None:
        parts += ["--tests", f"{view.tests:g}"]
    return shlex.join([*parts, "--level", f"{view.level:g}", "--thresholds", f"{view.threshold:g}"])


def details(atlas: Atlas, view: View, at: tuple[float, float] | None) -> None:
    """Below the map: the marked place."""
    if at is None:
        with st.container(key="empty"):
            st.caption(
                "Mark a place on the map to see its chances, its quarters and what the model thinks is similar to it."
            )
        return
    lat, lon = at
    found = reading(atlas, lat, lon, view)
    with st.container(key="details"):
        side = f"{abs(lat):.4f}° {'N' if lat >= 0 else 'S'}, {abs(lon):.4f}° {'E' if lon >= 0 else 'W'}"
        if not found["inside"]:
            st.info(f"{side} lies outside the mapped region; mark a place inside.", icon=None)
            return
        when = f" in {view.quarter.replace('Q', ' Q')}" if view.quarter else ""
        st.subheader(f"At {side}{when}", anchor=False)
        st.caption(_literal(_what(atlas, view)))
        values = found["values"]
        unit = f" {atlas.unit}" if atlas.unit else ""
        with st.container(horizontal=True, key="numbers"):
            st.metric("Median", _literal(plain(values["median"]) + unit), width="content")
            st.metric(
                f"{100 * view.level:g}% prediction interval",
                _literal(f"{plain(values['lower'])} to {plain(values['upper'])}{unit}"),
                width="content",
            )
            st.metric(
                _literal(f"P(> {view.threshold:g}{unit})"),
                _literal(percent(values["exceedance"])),
                width="content",
            )
            beside = measured(atlas, view.level)
            if beside is not None:
                st.metric("Held-out rows inside such intervals", f"{100 * beside[0]:.1f}%", width="content")
        names = ("Chances", "Through the quarters", "Similar to here")
        tabs = st.tabs(names, key="tab", on_change="rerun")
        for tab, show in zip(tabs, (chances, history, likeness)):
            if tab.open:
                with tab:
                    show(atlas, view, at)


def _what(atlas: Atlas, view: View) -> str:
    if view.tests is None:
        return "Of a new measurement."
    return f"Of the average of a new tile with {view.tests:g} test{'' if view.tests == 1 else 's'}."


def chances(atlas: Atlas, view: View, at: tuple[float, float]) -> None:
    """P(a new average > x), with the interval shaded and the threshold marked."""
    st.altair_chart(charts.chances(exceedance_curve(atlas, *at, view), view, atlas.unit))


def history(atlas: Atlas, view: View, at: tuple[float, float]) -> None:
    """Median and interval of every quarter."""
    if len(atlas.choices.quarters) < 2:
        st.caption("This run knows one quarter only.")
        return
    st.altair_chart(charts.history(through_time(atlas, *at, view), view, atlas.unit))


def likeness(atlas: Atlas, view: View, at: tuple[float, float]) -> None:
    """The kernel slice: a picture of it, and correlation by distance."""
    found = held().slices().of(*at, view)
    st.markdown(_literal(found.words))
    picture, profile = st.columns([2, 3])
    picture.image(
        found.picture(marked=True), caption="Red: similar. Also a layer of the map: “Similar to here”."
    )
    profile.altair_chart(charts.profile(found.profile))


def _literal(text: str) -> str:
    """Text as it is: nothing in it is Markdown, LaTeX, an icon or HTML."""
    out = text
    for mark in "\\`*_{}[]()#+-!|<>~$:":
        out = out.replace(mark, "\\" + mark)
    return out

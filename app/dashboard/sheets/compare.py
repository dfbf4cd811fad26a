"""Compare: runs, methods and peers on the same held-out rows, by stratum; how reliable their intervals are; their errors."""

import shlex
from html import escape
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from app.dashboard import scores
from app.dashboard.atlas import Atlas
from app.dashboard.holding import held, names
from app.dashboard.jobs import jobs
from app.dashboard.sheets.bar import outcome, table
from app.dashboard.words import literal
from app.errors import InvalidInput
from app.peers import PEERS
from app.workflow.certifying import unscored_words
from geogp.methods import METHODS

HEIGHT = 300
MOST_METHODS = 6


def draw(atlas: Atlas) -> None:
    runs = {name: held(name).atlas().run for name in names()}
    runs = {atlas.name: atlas.run} | runs  # what the map shows first comes first
    entries = [e for e in (scores.of_run(name, run) for name, run in runs.items()) if e is not None]
    for name in runs.keys() - {e.run for e in entries}:
        st.caption(literal(f"{name} {unscored_words(runs[name])}"))
    job = jobs().get(st.query_params.get("compared", ""))
    with st.expander("Fit other methods on the same rows", expanded=job is not None and not job.over):
        _form(atlas)
        if job is not None and outcome(job):
            st.caption("The same from the command line:")
            st.code(job.shown, language=None, wrap_lines=True)
    if job is not None and job.state == "done":
        entries += scores.of_job(job)
    if not entries:
        return
    kinds = list(dict.fromkeys(e.about for e in entries))
    kind = st.selectbox("Rows", kinds, key="kind") if len(kinds) > 1 else kinds[0]
    entries = [e for e in entries if e.about == kind]
    stratum = st.segmented_control(
        "Stratum", scores.strata_of(entries), default=scores.ALL, required=True, key="stratum"
    )
    st.caption(
        literal(
            f"{kind}. Scores on the standardised scale of the model; smaller is better, and 95% should be inside."
        )
    )
    _table(scores.table(entries, str(stratum)))
    left, right = st.columns(2)
    with left:
        st.subheader("Are the intervals reliable?", anchor=False)
        st.altair_chart(_reliability(scores.reliability(entries, str(stratum))))
        st.caption(
            "What intervals held less what they promise, in percentage points; inside the grey bar chance alone explains it."
        )
    with right:
        st.subheader("Errors on held-out rows", anchor=False)
        shown = {e.run: runs[e.run] for e in entries if e.run}
        if st.toggle(
            "Predict them", key="predict", help="One prediction of up to 3,000 held-out rows of each run."
        ):
            _violins(shown, str(stratum))


def _form(atlas: Atlas) -> None:
    run = atlas.run
    split = str(run.facts.get("split"))
    known = [*METHODS, *(name for name, peer in PEERS.items() if peer.installed)]
    chosen = st.multiselect(
        "Methods and peers", known, max_selections=MOST_METHODS, key="methods",
        help="Each is fitted in a process of its own; the default takes minutes.",
    )  # fmt: skip
    path = str(run.data.get("path") or "")
    if st.button("Fit and compare", key="fit", disabled=not chosen or split == "none"):
        line = ["compare", path, "--methods", ",".join(chosen), "--split", split, "--target", run.target.name]
        line += ["--seed", str(run.facts.get("seed", 0))]
        try:
            job = jobs().start(
                "Comparison",
                [*line, "--json"],
                name="compared",
                shown=shlex.join(["geogp", *line]),
                of=atlas.id,
            )
        except InvalidInput as error:
            st.error(literal(str(error)), icon=None)
            return
        st.query_params["compared"] = job.id
        st.rerun()


def _table(frame: pd.DataFrame) -> None:
    if not len(frame):
        st.caption("No entry has rows in this stratum.")
        return
    heads = [head for head in frame.columns if head != "few"]
    body = []
    for row in frame.to_dict("records"):
        cells = [_cell(head, row[head]) for head in heads]
        cells[1] += " <small>too few to judge</small>" if row["few"] else ""
        body.append(cells)
    table(heads, body)


def _cell(head: str, value: Any) -> str:
    if value is None or pd.isna(value):
        return ""
    if isinstance(value, str):
        return escape(value)
    if head in ("rows", "seconds", "MB"):
        return f"{value:,.0f}"
    return f"{100 * value:.1f}%" if head.startswith("inside") else f"{value:.3f}"


def _reliability(frame: pd.DataFrame) -> Any:
    """Held less promised in points at each level, beside what chance explains."""
    points = frame.assign(
        off=100 * (frame.held - frame.promised),
        low=100 * (frame.low - frame.promised),
        high=100 * (frame.high - frame.promised),
        level=[f"{100 * p:g}%" for p in frame.promised],
    )
    x = alt.X("level:O", title="promised", axis=alt.Axis(labelAngle=0))
    band = (
        alt.Chart(points)
        .mark_bar(color="gray", opacity=0.15, width=46)
        .encode(x, alt.Y("low:Q"), alt.Y2("high:Q"))
    )
    rule = alt.Chart(pd.DataFrame({"off": [0.0]})).mark_rule(strokeDash=[4, 3]).encode(alt.Y("off:Q"))
    marks = alt.Chart(points).mark_point(filled=True, size=90).encode(
        x, alt.Y("off:Q", title="held less promised, points"), alt.XOffset("method:N"),
        alt.Color("method:N", scale=alt.Scale(scheme="tableau10")), alt.Shape("method:N"),
        [alt.Tooltip("method:N"), alt.Tooltip("held:Q", format=".1%"), alt.Tooltip("promised:Q", format=".0%")],
    )  # fmt: skip
    return alt.layer(band, rule, marks).properties(height=HEIGHT)


def _violins(runs: dict[str, Any], stratum: str) -> None:
    """The distribution of errors of each run, and of the shares below the values."""
    frames = []
    for name, run in runs.items():
        try:
            with st.spinner(literal(f"Predicting the held-out rows of {name}")):
                found = scores.errors(run)
        except ValueError as error:
            st.caption(literal(f"{name}: {error}"))
            continue
        frames.append(found[found.group == stratum].assign(run=name))
    if not frames or not sum(map(len, frames)):
        return
    frame = pd.concat(frames)
    reach = float(frame.error.abs().quantile(0.995))
    violin = alt.Chart(frame[["run", "error"]]).transform_density(
        "error", as_=["error", "density"], groupby=["run"], extent=[-reach, reach]
    ).mark_area(orient="horizontal", opacity=0.6).encode(
        alt.Y("error:Q", title="value less median, in sds of the target"),
        alt.X("density:Q", stack="center", axis=None), alt.Color("run:N", legend=None), alt.Column("run:N", title=None),
    ).properties(width=130, height=HEIGHT - 40)  # fmt: skip
    st.altair_chart(violin, width="content")
    middle = frame.groupby("run").error.agg(["median", lambda e: e.abs().median()])
    said = [
        f"{name}: median {row.iloc[0]:+.2f}, half within {row.iloc[1]:.2f}" for name, row in middle.iterrows()
    ]
    st.caption(literal("; ".join(said)))

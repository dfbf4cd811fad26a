"""Train: a file, a method, a target; fitted by `geogp fit` in a process of its own, scored, and put among the runs."""

import re
import shlex
from html import escape
from pathlib import Path
from typing import Any, get_args

import streamlit as st

from app.choices import CountedBy
from app.dashboard.areas import kept
from app.dashboard.atlas import Atlas
from app.dashboard.holding import add, held, names
from app.dashboard.jobs import OUT, Job, jobs
from app.dashboard.sheets.bar import asked, outcome, table
from app.dashboard.words import literal
from app.errors import InvalidInput
from geogp.methods import DEFAULT, METHODS
from geogp.targets import TARGETS

OWN = "A file of your own"
SPLITS = {
    "random": "random rows",
    "block": "whole blocks of land",
    "forward": "the last quarters",
    "none": "nothing",
}


def draw(atlas: Atlas) -> None:
    st.caption(
        "A fit runs in a process of its own, one after the other: look at the map meanwhile, or close this page."
    )
    _form(atlas)
    job = jobs().get(st.query_params.get("job", ""))
    if job is not None:
        done = outcome(job, "Starting it again with the same settings goes on where it stopped.")
        st.code(job.shown, language=None, wrap_lines=True)
        if done:
            _done(job)
    st.subheader("Runs shown here", anchor=False)
    table(["run", "target", "method", "rows", "scored"], [_row(name) for name in names()])


def _row(name: str) -> list[str]:
    run = held(name).atlas().run
    link = f'<a href="/{asked({"run": name})}" target="_self">{escape(name)}</a>'
    scores = run.scores or {}
    scored = f"{100 * scores['scores']['coverage95']:.1f}% inside 95%" if "scores" in scores else "no"
    return [link, run.target.words, run.model.method, f"{run.model.n_rows_:,}", scored]


def _form(atlas: Atlas) -> None:
    own = Path(str(atlas.run.data.get("path") or ""))
    sources = [*([own.name] if own.is_file() else []), OWN]
    with st.container(border=True, key="asked"):
        left, middle, right = st.columns(3)
        source = left.selectbox("Observations", sources, key="source")
        file = None
        if source == OWN:
            file = left.file_uploader(
                "Made by `geogp ingest`", type=["parquet"], key="file", max_upload_size=100
            )
        target = left.selectbox(
            "Target", list(TARGETS), index=list(TARGETS).index(atlas.run.target.name), key="target"
        )
        method = middle.selectbox("Method", list(METHODS), index=list(METHODS).index(DEFAULT), key="method", help="The page Methods tells of each.")  # fmt: skip
        split = middle.selectbox(
            "Hold out, to score it on", list(SPLITS), format_func=SPLITS.__getitem__, key="split"
        )
        name = right.text_input("Name of the run", f"{target}-{method}", key="name", max_chars=60)
        counts = right.selectbox("What counts measurements", get_args(CountedBy), key="counts")
        st.caption(literal(f"It is written to {atlas.run.path.resolve().parent}."))
        if st.button("Train", type="primary", key="train", disabled=source == OWN and file is None):
            try:
                path = own if file is None else kept(file.getvalue(), ".parquet")
                shown = own if file is None else Path(file.name)
                job = start(
                    atlas, path, str(shown), name, target=target, method=method, split=split, counts=counts
                )
            except InvalidInput as error:
                st.error(literal(str(error)), icon=None)
                return
            st.query_params["job"] = job.id
            st.rerun()


def start(atlas: Atlas, path: Path, words: str, name: str, **options: str) -> Job:
    """The job that fits a run beside that of the map.

    Parameters
    ----------
    path, words : of the observations, and as they are called
    name : of the run's folder
    options : of `geogp fit`: target, method, split, counts

    Raises
    ------
    InvalidInput
        a name that is none, or taken.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}", name):
        raise InvalidInput(f"A run's name is made of letters, digits, dots, - and _; got {name[:60]!r}.")
    at = atlas.run.path.resolve().parent / name
    if at.exists():
        raise InvalidInput(f"There is a folder {name} already; choose another name.")
    line = [part for option, value in options.items() for part in (f"--{option}", value)]
    shown = shlex.join(["geogp", "fit", words, *line, "-o", name])
    return jobs().start(f"Training {name}", ["fit", str(path.resolve()), *line, "-o", OUT], name=name, shown=shown, at=at)  # fmt: skip


def _done(job: Job) -> None:
    """The new run among the others, and its scores when it held something out."""
    known = {held(name).path.resolve(): name for name in names()}
    name = known.get(job.result.resolve()) or add(job.result)
    try:
        run: Any = held(name).atlas().run
    except ValueError as error:
        st.error(literal(str(error)), icon=None)
        return
    st.html(f'<a href="/{asked({"run": name})}" target="_self">Open {escape(name)} on the map</a>')
    if run.scores is None and run.facts.get("split") != "none":
        scoring = jobs().start(
            f"Scoring {name}",
            ["evaluate", str(job.result)],
            name="scores",
            shown=f"geogp evaluate {name}",
            of=job.id,
        )
        outcome(scoring)

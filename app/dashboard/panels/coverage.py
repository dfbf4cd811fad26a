"""How often held-out rows fell inside the interval, beside what was promised."""

from typing import Any

import pandas as pd
import streamlit as st

from app.dashboard.panels.base import Panel, Scene
from app.dashboard.words import literal
from app.workflow.certifying import certificate_of, unscored_words
from data_pipelines.words import many
from geogp.run import Run
from geogp.scores import SMALLEST_GROUP

SPLITS = {"random": "random rows", "block": "whole blocks of land", "forward": "later quarters"}


def measured(run: Run, level: float) -> tuple[float, int] | None:
    """(share of held-out rows inside the interval of a level, how many rows), when the run was evaluated."""
    scores = run.scores or {}
    value = (scores.get("scores") or {}).get(f"coverage{100 * level:g}")
    return None if value is None else (float(value), int(scores.get("n_test") or 0))


def draw(scene: Scene) -> None:
    run, level = scene.atlas.run, scene.setting.level
    found = measured(run, level)
    if found is None:
        st.caption(literal(f"This run {unscored_words(run)}"))
        return
    share, n = found
    scores = run.scores or {}
    split = SPLITS.get(str(scores.get("split") or run.facts.get("split")), "rows")
    st.markdown(
        f"On {many(n, 'held-out row')} ({split}), **{100 * share:.1f}%** fell inside the {100 * level:g}% interval."
    )
    rows = certified(certificate_of(run), level) or by_stratum(scores.get("strata") or {}, level)
    if rows:
        st.table(pd.DataFrame(rows).set_index("where"), border="horizontal")


def certified(document: dict[str, Any] | None, level: float) -> list[dict[str, str]]:
    """A certificate's groups at a level: share inside and the band of an honest interval; empty without one."""
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
                "where": f"{literal(str(name))} ({group['n']:,})",
                "inside": f"{100 * group['achieved'][at]:.1f}%",
                "honest": judged,
            }
        )
    return rows


def by_stratum(strata: dict[str, Any], level: float) -> list[dict[str, str]]:
    """The same from the scores of a run without a certificate."""
    key = f"coverage{100 * level:g}"
    return [
        {
            "where": literal(str(name)),
            "inside": f"{100 * s[key]:.1f}%",
            "rows": f"{int(s['n']):,}" + ("" if s["n"] >= SMALLEST_GROUP else " (too few)"),
        }
        for name, s in strata.items()
        if isinstance(s, dict) and s.get("n") and s.get(key) is not None
    ]


PANEL = Panel("Is the interval honest?", "sidebar", draw)

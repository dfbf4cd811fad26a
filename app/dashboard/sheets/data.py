"""Data: what a run learned from, through time; what was read, kept, dropped and why; what was odd and kept."""

import json
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from app.dashboard.atlas import Atlas
from app.dashboard.sheets.bar import table
from app.dashboard.words import literal
from app.workflow.outputs import place_of
from data_pipelines.quarters import is_quarter

HEIGHT = 240
KINDS = ["read", "kept", "learned from"]


def draw(atlas: Atlas) -> None:
    run = atlas.run
    document = document_of(run)
    data = run.data | document
    st.markdown(literal(sentence(data, run.facts.get("rows") or {})))
    if not document:
        st.caption(
            literal(f"The file {data.get('path')} is not there; what follows is what the run itself records.")
        )
    frame = through_time(data, (run.facts.get("rows") or {}).get("known") or {})
    if len(frame):
        st.subheader("Rows through time", anchor=False)
        st.altair_chart(_chart(frame))
    st.subheader("Dropped, and why", anchor=False)
    dropped = dropped_of(data, run.facts.get("rows") or {})
    table(["why", "rows"], [[escape(why), f"{n:,}"] for why, n in dropped]) if dropped else st.caption(
        "Nothing was dropped."
    )
    odd = [*((data.get("flagged") or {}).items())]
    if odd:
        st.subheader("Odd, but kept", anchor=False)
        table(["what", "rows"], [[escape(str(k).replace("_", " ")), f"{int(n):,}"] for k, n in odd])
    for key, words in (
        ("missing_quarters", "Quarters that were not published"),
        ("thin_quarters", "Quarters with few rows"),
    ):
        if data.get(key):
            st.caption(literal(f"{words}: {', '.join(map(str, data[key]))}."))
    st.subheader("Where it comes from", anchor=False)
    sources = [[escape(Path(str(s.get("url", ""))).name), escape(str(s.get("quarter") or "")), f"{s.get('rows_read') or 0:,}", f"{s.get('rows_kept') or 0:,}", f"<code>{escape(str(s.get('sha256') or '')[:12])}</code>"] for s in data.get("sources") or []]  # fmt: skip
    table(["file", "quarter", "rows read", "kept", "sha256"], sources) if sources else st.caption(
        "The file does not say."
    )


def document_of(run: Any) -> dict[str, Any]:
    """What the observations file says of itself; empty where it is gone or is another than the run learned from."""
    import pyarrow.parquet as parquet

    path = Path(str(run.data.get("path") or ""))
    try:
        found = json.loads((parquet.read_schema(path).metadata or {}).get(b"geogp", b"{}"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def sentence(data: dict[str, Any], rows: dict[str, Any]) -> str:
    """What was read and kept."""
    where = ", ".join(str(v) for v in (data.get("source"), data.get("type"), place_of(data)) if v)
    read, kept = data.get("rows_read"), data.get("rows_kept") or data.get("rows")
    what = f"averages over {data['averaged_rows']:,} rows" if data.get("averaged_rows") else "rows"
    parts = [f"{where}: {kept:,} {what}" + (f" of {read:,} read" if read else "") if kept else where]
    if rows.get("fitted"):
        parts.append(
            f"{rows['fitted']:,} of them fitted, {rows.get('val', 0):,} for validation, {rows.get('test', 0):,} held out"
        )
    urban = (data.get("urban") or {}).get("share_of_rows")
    if urban is not None:
        parts.append(f"{100 * urban:.0f}% of them urban")
    return "; ".join(parts) + "."


def through_time(data: dict[str, Any], known: dict[str, int]) -> pd.DataFrame:
    """quarter, kind, rows: read and kept of the files, and those that the run learned from."""
    rows: dict[tuple[str, str], int] = {}
    for source in data.get("sources") or []:
        for kind in ("rows_read", "rows_kept"):
            if source.get("quarter") and source.get(kind) is not None:
                key = (str(source["quarter"]), kind.replace("rows_", ""))
                rows[key] = rows.get(key, 0) + int(source[kind])
    # Rows without quarters are known as "all", or by the file that they were added from.
    rows |= {(str(q), "learned from"): int(n) for q, n in known.items() if is_quarter(str(q))}
    return pd.DataFrame(
        [(q, kind, n) for (q, kind), n in sorted(rows.items())], columns=["quarter", "kind", "rows"]
    )


def dropped_of(data: dict[str, Any], rows: dict[str, Any]) -> list[tuple[str, int]]:
    """(why, how many) of all that was left out at ingest and at the fit, the most first."""
    found = [*(data.get("dropped") or {}).items(), *(rows.get("dropped") or {}).items()]
    return sorted(((str(why).replace("_", " "), int(n)) for why, n in found if n), key=lambda row: -row[1])


def _chart(frame: pd.DataFrame) -> Any:
    return (
        alt.Chart(frame)
        .mark_bar()
        .encode(
            alt.X("quarter:O", title=None, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            alt.Y("rows:Q", title="rows"),
            alt.XOffset("kind:N", sort=KINDS),
            alt.Color("kind:N", title=None, sort=KINDS, scale=alt.Scale(scheme="tableau10")),
            [alt.Tooltip("quarter:O"), alt.Tooltip("kind:N"), alt.Tooltip("rows:Q", format=",")],
        )
        .properties(height=HEIGHT)
    )

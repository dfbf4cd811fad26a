"""Areas: a table of means, intervals, shares below limits and ranks, or of their change, each row linked to the map."""

from html import escape
from pathlib import Path
from typing import Any

import streamlit as st

from app.dashboard import areas
from app.dashboard.atlas import Atlas
from app.dashboard.holding import held, names, polygons
from app.dashboard.jobs import Job, jobs
from app.dashboard.sheets.bar import asked, outcome, table
from app.dashboard.words import literal
from app.errors import InvalidInput
from app.workflow.outputs import level_note, place_noun, shares_words
from data_pipelines.words import many
from geogp.targets import Target, target
from maps.words import exact, padded, signed

#: Rows shown at once.
SHOWN = 300
OWN, HEXAGONS = "A file of your own", "Hexagons"
#: The map goes to an area, wherever it was.
ELSEWHERE = {"z": "", "lat": "", "lon": "", "at": ""}
SIZES = {4: "45 km", 5: "17 km", 6: "6.5 km", 7: "2.4 km"}  # across, on average
ORDERS = ("the {worst} first", "the {best} first", "by name", "the least certain first")


def draw(atlas: Atlas) -> None:
    st.caption(
        "Means of the surface over areas with their intervals, from draws of all places together: neighbours err together."
    )
    _form(atlas)
    job = jobs().get(st.query_params.get("areas", ""))
    if job is None:
        if "areas" in st.query_params:
            st.info("This table is not known any more; compute it again.", icon=None)
        return
    if outcome(job):
        _shown(atlas, job)


# -- what is asked ---------------------------------------------------------------------------------------


def _form(atlas: Atlas) -> None:
    given = polygons()
    sources = [*([given.name] if given else []), HEXAGONS, OWN]
    quarters = list(atlas.choices.quarters)
    with st.container(border=True, key="asked"):
        left, middle, right = st.columns(3)
        source = left.selectbox("Areas", sources, key="source")
        file, size = None, 5
        if source == OWN:
            file = left.file_uploader(
                "Polygons", type=[kind.lstrip(".") for kind in areas.KINDS], key="file", max_upload_size=100
            )
        elif source == HEXAGONS:
            size = left.selectbox(
                "Across", areas.RESOLUTIONS, index=1, format_func=SIZES.__getitem__, key="size"
            )
        since = None
        quarter = None
        if quarters:
            start = st.query_params.get("q", "")
            at = quarters.index(start) if start in quarters else len(quarters) - 1
            quarter = middle.selectbox("Quarter", quarters, index=at, format_func=_spaced, key="of")
            earlier = quarters[: quarters.index(quarter)]
            if earlier:
                since = middle.selectbox(
                    "Change since", [None, *earlier], format_func=lambda q: "no" if q is None else _spaced(q),
                    key="since",
                )  # fmt: skip
        usual = ", ".join(exact(c) for c in atlas.run.thresholds)
        limits = right.text_input(
            "Shares below" + (f" ({literal(atlas.unit)})" if atlas.unit else ""),
            usual,
            key="limits",
            disabled=since is not None,
        )
        beside = None if since is not None else _beside(atlas, right)
        if st.button("Compute", type="primary", key="compute", disabled=source == OWN and file is None):
            try:
                path, words = _file(atlas, source, size, file, given)
                thresholds = _numbers(limits)
                wanted = areas.Asked(path, words, quarter, since, thresholds, beside)
                job = areas.start(atlas, wanted)
            except InvalidInput as error:
                st.error(literal(str(error)), icon=None)
                return
            st.query_params["areas"] = job.id
            st.query_params.pop("area", None)
            st.rerun()


def _beside(atlas: Atlas, column: Any) -> tuple[Path, float, float] | None:
    """Another run, whose limit may be missed instead."""
    others = [name for name in names() if held(name).path.resolve() != atlas.run.path.resolve()]
    if not others:
        return None
    other = column.selectbox(
        "Or missed in", [None, *others], format_func=lambda n: n or "no other run", key="beside"
    )
    if other is None:
        return None
    first, second = column.columns(2)
    below = first.number_input(
        f"Below in {literal(atlas.name)}", value=float(atlas.run.thresholds[-1]), format="%g", key="below"
    )
    theirs = held(other).atlas().run
    with_below = second.number_input(
        f"Below in {literal(other)}", value=float(theirs.thresholds[-1]), format="%g", key="with_below"
    )
    return held(other).path.resolve(), float(below), float(with_below)


def _file(atlas: Atlas, source: str, size: int, file: Any, given: Path | None) -> tuple[Path, str]:
    """The polygons, and what they are called."""
    if source == HEXAGONS:
        return areas.hexagons(atlas, size), f"hexagons_{size}.geojson"
    if source == OWN:
        return areas.brought(file.name, file.getvalue()), Path(file.name).name
    assert given is not None
    return given.resolve(), str(given)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InvalidInput(
            f"Limits are numbers with commas between, such as 25, 100; got {text[:40]!r}."
        ) from None


# -- the table -------------------------------------------------------------------------------------------


def _shown(atlas: Atlas, job: Job) -> None:
    found = areas.found_of(job)
    inside = [row for row in found.rows if row.inside]
    chosen = found.row(st.query_params.get("area", ""))
    title = "Change of the mean level" if found.is_change else "Mean level"
    when = str(found.facts.get("quarter") or "")
    when = _spaced(f"{found.facts['from']} to {found.facts['to']}" if found.is_change else when)
    st.subheader(literal(f"{title} of {atlas.run.target.words}, {when}".rstrip(", ")), anchor=False)
    if chosen is not None:
        st.info(literal(f"{chosen.name}: {areas.sentence(found, chosen)}"), icon=None)
    left, right = st.columns([2, 3])
    goal = atlas.run.target
    order = left.selectbox(
        "Order", ORDERS, format_func=lambda text: text.format(worst=goal.worst, best=goal.best), key="order"
    )
    wanted = right.text_input("Only names with", key="only").lower()
    rows = sorted(_ordered(found, inside, order, goal), key=lambda row: row is not chosen)
    rows = [row for row in rows if wanted in row.name.lower()]
    header, cells = _cells(found)
    query = st.query_params.to_dict()
    body = []
    for row in rows[:SHOWN]:
        link = "/" + asked(query | {"areas": job.id, "area": row.key} | ELSEWHERE)
        name = f'<a href="{link}" target="_self" title="Show on the map">{escape(row.name)}</a>'
        body.append([name, *cells(row)])
    table(header, body, chosen=0 if chosen in rows else None)
    outside = len(found.rows) - len(inside)
    notes = [
        many(len(inside), "area")
        + (f", {outside:,} more {'lies' if outside == 1 else 'lie'} outside the region" if outside else "")
    ]
    if len(rows) > SHOWN:
        notes.append(f"the first {SHOWN:,} are shown")
    if "with" in found.facts:
        notes.append(f"either missed: {found.facts['with']['either']}")
    notes.append(level_note(found.facts))
    if not found.is_change:
        notes.append("measured: data near on half of the ground or more; partly: on a tenth; filled: on less")
    st.caption(literal("; ".join(notes) + "."))
    path = job.result / "areas.gpkg" if job.result.is_dir() else job.result
    st.download_button("Download as GeoPackage", path.read_bytes(), "areas.gpkg", on_click="ignore")
    st.caption("The same from the command line:")
    st.code(job.shown, language=None, wrap_lines=True)


def _ordered(found: areas.Found, rows: list[areas.Row], order: str, goal: Target) -> list[areas.Row]:
    sd, first = ("change_sd", "change") if found.is_change else ("sd", "rank")
    how = ORDERS.index(order)
    if how == 2:
        return sorted(rows, key=lambda row: row.name)
    if how == 3:
        return sorted(rows, key=lambda row: -row.values[sd])
    # Ranks begin at the worst; of changes that is a fall, or a rise where lower is better.
    falling = found.is_change and not goal.lowest_first
    return sorted(rows, key=lambda row: row.values[first], reverse=(how == 1) != falling)


def _cells(found: areas.Found) -> tuple[list[str], Any]:
    """The header, and what makes a row's cells behind its name, as HTML."""
    level = f"{100 * found.facts['level']:g}% interval"
    unit = "" if found.facts["unit"] == "1" else f", {escape(found.facts['unit'])}"
    if found.is_change:
        header = [
            "area",
            str(found.facts["from"]),
            str(found.facts["to"]),
            f"change{unit}",
            level,
            "P(better)" if found.p_better == "p_improved_0" else "P(higher)",
        ]

        def changed(row: areas.Row) -> list[str]:
            v = row.values
            span = f"{signed(v['change_lower'], 3)} to {signed(v['change_upper'], 3)}"
            return [padded(v["mean_from"], 3), padded(v["mean_to"], 3), signed(v["change"], 3), span, f"{100 * v[found.p_better]:.0f}%"]  # fmt: skip

        return header, changed
    shares = [*found.limits, *(["share_either_missed"] if "with" in found.facts else [])]
    noun = place_noun(target(found.facts["target"]))
    header = [
        "area",
        f"mean{unit}",
        level,
        *map(escape, shares_words(found.facts)),
        "rank",
        f"{noun}s",
        "evidence",
    ]

    def averaged(row: areas.Row) -> list[str]:
        v = row.values
        out = [padded(v["mean"], 3), f"{padded(v['lower'], 3)} to {padded(v['upper'], 3)}"]
        for name in shares:
            low, high = 100 * v[f"{name}_lower"], 100 * v[f"{name}_upper"]
            out.append(f"{100 * v[name]:.1f}% <small>{low:.1f} to {high:.1f}</small>")
        rank = f"{v['rank']:.0f} <small>{v['rank_lower']:.0f} to {v['rank_upper']:.0f}</small>"
        return [*out, rank, f"{v['n_tiles']:,.0f}", escape(str(v["evidence"]))]

    return header, averaged


def _spaced(quarter: str) -> str:
    return quarter.replace("Q", " Q")

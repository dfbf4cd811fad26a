"""What all pages beside the map have in common: the bar of links, jobs in progress, tables."""

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import urlencode

import streamlit as st

from app.dashboard.holding import held, names
from app.dashboard.jobs import Job, jobs
from app.dashboard.paths import pages
from app.dashboard.words import literal
from app.workflow.outputs import titled

#: Of an address, what belongs to one run.
OF_A_RUN = ("areas", "area", "compared", "other", "ot", "br", "bq", "bl")
#: Of a bar whose job is not over.
NEARLY = 0.97
#: Seconds between two looks at a job.
LOOK = 1.0


def bar(here: str, title: str) -> None:
    """Links to the other pages, which keep the address, which run they are about, and the page's own title."""
    query = st.query_params.to_dict()
    links = []
    for page in pages():
        mark = ' aria-current="page"' if page["href"].endswith(f"/{here}") else ""
        links.append(
            f'<a href="{page["href"]}{asked(query)}" target="_self"{mark}>{escape(page["name"])}</a>'
        )
    st.html(f'<nav class="bar" aria-label="Pages">{"".join(links)}</nav>{_about(query)}')
    st.title(title, anchor=False)


def _about(query: Mapping[str, str]) -> str:
    """The run's title and, where there are several, links to the others."""
    shown = query.get("run") or next(iter(names()), "")
    try:
        atlas = held(shown).atlas()
    except ValueError:  # said below
        return ""
    said = f"<b>{escape(titled(atlas.run))}</b>"
    for name in names() if len(names()) > 1 else ():
        kept = {k: v for k, v in query.items() if k not in OF_A_RUN} | {"run": name}
        mark = ' aria-current="true"' if name == shown else ""
        said += f'<a href="{asked(kept)}" target="_self"{mark}>{escape(name)}</a>'
    return f'<nav class="bar about" aria-label="Run">{said}</nav>'


def asked(query: Mapping[str, str]) -> str:
    """A query as the end of a link in HTML; nothing for none."""
    return f"?{escape(urlencode(query))}" if query else ""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], chosen: int | None = None) -> None:
    """A table of cells that are HTML already; numbers are flush right from the second column on."""
    head = "".join(f"<th>{cell}</th>" for cell in header)
    body = ""
    for k, row in enumerate(rows):
        mark = ' class="chosen"' if k == chosen else ""
        body += f"<tr{mark}>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    st.html(
        f'<div class="table" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


@st.fragment(run_every=LOOK)
def watch(key: str) -> None:
    """How far a job is, and a way to end it; the page runs again when it is over."""
    job = jobs().get(key)
    if job is None or job.over:
        st.rerun()
        return
    said = "waits for the one before" if job.state == "waiting" else (job.what or job.told[-1:] or "starting")
    said = said if isinstance(said, str) else said[0]
    if job.share >= 1.0:  # of what it last told; what is left tells nothing
        said += " is done, finishing"
    st.progress(min(job.share, NEARLY), text=literal(f"{job.title}: {said}, {job.seconds:.0f} s"))
    if st.button("Cancel", key=f"cancel-{key}"):
        jobs().cancel(job)
        st.rerun()


def outcome(job: Job, cancelled: str = "Nothing of it is left.") -> bool:
    """Whether a job is done; until then its progress is shown, or why it failed."""
    if not job.over:
        watch(job.id)
    elif job.state == "failed":
        st.error(literal(job.problem), icon=None)
    elif job.state == "cancelled":
        st.info(f"This was cancelled. {cancelled}", icon=None)
    return job.state == "done"

"""Methods: what each is made of, in plain words and formulas, from the table of methods."""

import streamlit as st

from app.dashboard.atlas import Atlas
from geogp.methods import METHODS
from geogp.pages import page

#: Of every method, for those who do not read formulas.
PLAIN = (
    "Every method here takes measurements with their counts and gives, for every place, what a new average is expected to be "
    "and how far it may be off. Near data it follows them as closely as their noise allows; away from data it leans on what "
    "it learned of the whole, and says so by a wider interval. They differ in how places are taken to go together, which is the "
    "kernel, and in how much of it they can afford to compute."
)


def draw(atlas: Atlas) -> None:
    st.markdown(PLAIN)
    known = list(METHODS)
    own = atlas.run.model.method
    chosen = st.selectbox(
        "Method",
        known,
        index=known.index(own) if own in known else 0,
        format_func=lambda name: f"{name}: {METHODS[name].summary}",
        key="method",
    )
    if chosen == own:
        st.caption("The method of this run.")
    st.markdown(page(chosen).replace("\n## ", "\n#### ").replace("# ", "### ", 1))

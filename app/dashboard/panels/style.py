"""What the charts have in common."""

from collections.abc import Callable, Hashable
from copy import deepcopy
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from app.dashboard.atlas import Atlas
from geogp.storage.files import finite

BLUE, RED = "#3f86c1", "#c2554d"  # told apart by colour-blind eyes and by their shapes, on white and on black
HEIGHT = 260


def rows(frame: pd.DataFrame) -> alt.Data:
    """A chart's data as it goes into its specification, past the settings of altair that all threads share; no
    NaN, which is no JSON."""
    return alt.Data(values=finite(frame.to_dict("records")))


def specified(chart: Any) -> dict[str, Any]:
    """The specification of a chart of `rows`, without altair's own sizes, which Streamlit's page would take.

    Not held to the schema of Vega-Lite, which takes longer than all else: a test does that.
    """
    return {key: value for key, value in chart.to_dict(validate=False).items() if key != "config"}


def show(atlas: Atlas, key: Hashable, make: Callable[[], Any], where: Any = st) -> None:
    """Draw the chart that `make` gives, made once for a key.

    `st.altair_chart` makes it again for everybody, one at a time: with fifty people that was what they waited for.
    """
    where.vega_lite_chart(deepcopy(atlas.once(key, lambda: specified(make()))))

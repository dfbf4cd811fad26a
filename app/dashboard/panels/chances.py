"""P(a new average > x) at the marked place."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from app.dashboard.panels.base import Panel, Scene
from app.dashboard.panels.style import BLUE, HEIGHT, RED, rows, show
from app.dashboard.setting import Setting
from app.dashboard.words import percent
from geogp.run import Run
from maps.words import exact

Line = tuple[NDArray[np.float64], NDArray[np.float64]]
#: Share of a distribution beyond which nothing is drawn.
MOST = 0.998


def draw(scene: Scene) -> None:
    atlas, setting = scene.atlas, scene.setting
    centre = atlas.centre(*scene.marked)

    def drawn() -> Any:
        return chart(exceedance_curve(atlas.run, *centre, setting), setting, atlas.unit)

    show(atlas, ("chances", centre, setting), drawn)


def exceedance_curve(run: Run, lat: float, lon: float, setting: Setting, points: int = 121) -> Line:
    """x over the interval of a new average at a place and half of what lies beyond it, and P(the average > x).

    As far as the threshold where that lies within the central 99.8%: farther out heavy tails are long and empty.
    """
    inputs = run.inputs(run.from_degrees(lon, lat), setting.quarter)
    predictive = run.model.predictive(inputs, setting.tests)
    (low, high), (least, most) = (
        [float(end[0]) for end in predictive.interval(share)] for share in (0.5 + 0.5 * setting.level, MOST)
    )
    threshold = float(run.target.to_score(setting.threshold))
    if least <= threshold <= most:
        low, high = min(low, threshold), max(high, threshold)
    t = np.linspace(low, high, points)
    return run.target.from_score(t), np.array([float(predictive.exceedance(float(v))[0]) for v in t])


def chart(curve: Line, setting: Setting, unit: str) -> Any:
    """The curve with the central interval shaded and the threshold marked."""
    frame = pd.DataFrame({"x": curve[0], "p": curve[1]})
    tail = (1 - setting.level) / 2
    inside = frame[(frame.p >= tail) & (frame.p <= 1 - tail)]
    title = f"more than x {unit}".rstrip()
    x = alt.X("x:Q", title=unit or "x", scale=alt.Scale(nice=False))
    y = alt.Y("p:Q", title="chance of more than x", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    told = [alt.Tooltip("x:Q", title=title, format=".3~g"), alt.Tooltip("p:Q", title="chance", format=".0%")]
    band = alt.Chart(rows(inside)).mark_area(color=BLUE, opacity=0.2).encode(x, y)
    line = alt.Chart(rows(frame)).mark_line(color=BLUE, strokeWidth=2.5).encode(x, y, tooltip=told)
    layers = [band, line]
    if curve[0].min() <= setting.threshold <= curve[0].max():
        p = float(np.interp(setting.threshold, *curve))
        mark = pd.DataFrame(
            {"x": [setting.threshold], "p": [p], "said": [f"> {exact(setting.threshold)}: {percent(p)}"]}
        )
        late = setting.threshold > 0.5 * (curve[0][0] + curve[0][-1])  # the words go where there is room
        side: dict[str, Any] = {"align": "right", "dx": -6} if late else {"align": "left", "dx": 6}
        rule = alt.Chart(rows(mark)).mark_rule(color=RED, strokeDash=[4, 3]).encode(x)
        text = (
            alt.Chart(rows(mark)).mark_text(color=RED, dy=-8, fontSize=13, **side).encode(x, y, text="said:N")
        )
        layers += [rule, alt.Chart(rows(mark)).mark_point(color=RED, filled=True, size=60).encode(x, y), text]
    return alt.layer(*layers).properties(height=HEIGHT)


PANEL = Panel("Chances", "tab", draw)

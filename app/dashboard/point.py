"""What the model says at one place: in words, through the quarters, and as a distribution. Exact, from the model."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyproj import Transformer

from app.dashboard.atlas import Atlas
from app.dashboard.view import View
from geogp.run import quarter_to_years
from geogp.targets import target


def plain(value: float) -> str:
    """A value as people say it: whole numbers from 10 on, two digits below.

    >>> plain(90.4), plain(3.14159), plain(0.0)
    ('90', '3.1', '0')
    """
    if not np.isfinite(value):
        return "no value"
    if abs(value) >= 10:
        return f"{value:,.0f}"
    return f"{float(f'{value:.2g}'):g}"


def percent(p: float) -> str:
    """A probability in percent; never 0% or 100%, which no model can mean.

    >>> percent(0.374), percent(0.0001), percent(0.9999)
    ('37%', '< 1%', '> 99%')
    """
    if not np.isfinite(p):
        return "no value"
    return "< 1%" if p < 0.005 else "> 99%" if p > 0.995 else f"{100 * p:.0f}%"


def reading(atlas: Atlas, lat: float, lon: float, view: View) -> dict[str, Any]:
    """Everything the page says about a place, JSON-able.

    Returns
    -------
    lat, lon, inside; where `inside`: words ("90 Mbit/s; 95% prediction interval 48 to 132; P(> 100) = 37%"),
    `values` by layer, `texts` by layer, `nearest_km` to a training place, `far` when that is beyond 5 km
    """
    out: dict[str, Any] = {"lat": lat, "lon": lon, "inside": atlas.ground.contains(lat, lon)}
    if atlas.ground.support is not None:
        away = atlas.ground.support.distance_m(lat, lon)
        out["nearest_km"] = round(away / 1000, 2) if np.isfinite(away) else None
    if not out["inside"]:
        return out
    ds = atlas.at(lat, lon, view).load()
    values = {str(k): float(v.values.ravel()[0]) for k, v in ds.data_vars.items()}
    unit = f" {atlas.unit}" if atlas.unit else ""
    chance = percent(values["exceedance"])
    out["words"] = (
        f"{plain(values['median'])}{unit}; {100 * view.level:g}% prediction interval "
        f"{plain(values['lower'])} to {plain(values['upper'])}; "
        f"P(> {view.threshold:g}) {chance if chance[0] in '<>' else '= ' + chance}"
    )
    out["values"] = {k: v if np.isfinite(v) else None for k, v in values.items()}
    out["texts"] = {
        k: percent(v) if k in ("exceedance", "explained") else plain(v) + (unit if ds[k].units != "1" else "")
        for k, v in values.items()
    }
    return out


@dataclass(frozen=True)
class Curve:
    """A line for a chart: P(a new average > x)."""

    x: np.ndarray
    p: np.ndarray


def inputs(atlas: Atlas, lat: float, lon: float, view: View) -> np.ndarray:
    """The model's input row of a place: (1, D)."""
    to = Transformer.from_crs("EPSG:4326", atlas.data["crs"], always_xy=True)
    row = [*to.transform(lon, lat)]
    if view.quarter is not None:
        row.append(quarter_to_years(view.quarter))
    return np.array([row], dtype=np.float64)


def exceedance_curve(atlas: Atlas, lat: float, lon: float, view: View, points: int = 121) -> Curve:
    """P(a new average > x) at a place for x over the central 99.8% of its distribution."""
    goal = target(atlas.run.facts["target"])
    predictive = atlas.run.model.predictive(inputs(atlas, lat, lon, view), view.tests)
    low, high = predictive.interval(0.998)
    t = np.linspace(float(low[0]), float(high[0]), points)
    x = goal.from_score(t)
    return Curve(x, np.array([float(predictive.exceedance(float(v))[0]) for v in t]))


def through_time(atlas: Atlas, lat: float, lon: float, view: View) -> list[dict[str, Any]]:
    """Median and interval of every quarter of the run at a place."""
    rows = []
    for quarter in atlas.choices.quarters:
        ds = atlas.at(lat, lon, replace(view, quarter=quarter))[["median", "lower", "upper"]].load()
        rows.append(
            {"quarter": quarter} | {str(k): float(v.values.ravel()[0]) for k, v in ds.data_vars.items()}
        )
    return rows

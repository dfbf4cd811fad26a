import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from app.dashboard.atlas import Atlas
from app.dashboard.panels import chances, history, likeness
from app.dashboard.panels.chances import exceedance_curve
from app.dashboard.panels.history import through_time
from app.dashboard.panels.style import show, specified
from app.dashboard.setting import Setting
from app.dashboard.slices import Slices
from app.dashboard.words import percent, plain
from app.errors import InvalidInput
from geogp.predictive import Predictive

from .conftest import LAT, LATITUDE, LON, LONGITUDE, peak_of


def test_a_place_in_words_is_the_models_own(atlas: Atlas) -> None:
    setting = replace(atlas.choices.default, tests=9.0, threshold=70.0)
    model = atlas.run.model
    row, column = atlas.pixel(LATITUDE, LONGITUDE)
    centre = np.array([atlas.page.geobox.affine * (column + 0.5, row + 0.5)])
    assert np.abs(centre - (6000, 0)).max() <= 250.1  # of the pixel that holds the place
    X = atlas.run.inputs(centre, setting.quarter)
    assert X[0, 2] == 2023.875
    lower, upper = (10 ** (float(v[0]) - 3) for v in model.interval(X, 0.95, counts=9.0))
    median = 10 ** (float(model.predictive(X, 9.0).median()[0]) - 3)
    p = float(model.exceedance(X, np.log10(70_000), counts=9.0)[0])
    told = percent(p) if percent(p)[0] in "<>" else f"= {percent(p)}"
    found = atlas.reading(LATITUDE, LONGITUDE, setting)
    assert found["words"] == (
        f"{plain(median)} Mbit/s; 95% prediction interval {plain(lower)} to {plain(upper)}; P(> 70) {told}"
    )
    assert found["values"]["pi_width"] == pytest.approx(upper - lower, rel=1e-3)


def test_more_tests_and_a_lower_level_narrow_the_interval(atlas: Atlas) -> None:
    setting = atlas.choices.default

    def width(v) -> float:
        return atlas.reading(LAT, LON, v)["values"]["pi_width"]

    assert width(replace(setting, tests=100.0)) < width(setting) < width(replace(setting, tests=1.0))
    assert width(replace(setting, level=0.5)) < width(replace(setting, level=0.8)) < width(setting)


@pytest.mark.parametrize(
    ("lat", "lon"), [(LAT + 3, LON), (90.0, 0.0), (-90.0, 0.0), (0.0, -180.0), (85.06, 179.999)]
)
def test_outside_nothing_is_claimed(atlas: Atlas, lat: float, lon: float) -> None:
    assert not atlas.contains(lat, lon)
    with pytest.raises(InvalidInput, match="outside the mapped region"):
        atlas.reading(lat, lon, atlas.choices.default)


def test_the_curve_of_chances_falls_over_the_interval_and_half_of_what_lies_beyond(atlas: Atlas) -> None:
    setting = atlas.choices.default
    x, p = exceedance_curve(atlas.run, *atlas.centre(LAT, LON), setting)
    assert (np.diff(x) > 0).all() and (np.diff(p) < 0).all()
    np.testing.assert_allclose(p[[0, -1]], (0.9875, 0.0125), atol=1e-6)
    at = atlas.reading(LAT, LON, replace(setting, threshold=float(x[60])))
    assert at["values"]["exceedance"] == pytest.approx(p[60], abs=1e-3)


def test_the_curve_of_chances_reaches_a_threshold_that_is_not_out_of_the_question(atlas: Atlas) -> None:
    setting, centre = replace(atlas.choices.default, level=0.5), atlas.centre(LAT, LON)
    predictive = atlas.run.model.predictive(
        atlas.run.inputs(atlas.run.from_degrees(*reversed(centre)), setting.quarter), setting.tests
    )
    for share, ends in ((0.995, (0.875, 0.005)), (0.005, (0.995, 0.125)), (0.9995, (0.875, 0.125))):
        threshold = float(atlas.run.target.from_score(predictive.quantile(share))[0])
        _, p = exceedance_curve(atlas.run, *centre, replace(setting, threshold=threshold))
        np.testing.assert_allclose(p[[0, -1]], ends, atol=1e-6)


def test_what_is_said_of_the_threshold_stays_within_the_chart(atlas: Atlas) -> None:
    curve = exceedance_curve(atlas.run, *atlas.centre(LAT, LON), atlas.choices.default)
    for at, align in ((5, "left"), (len(curve[0]) - 5, "right")):
        drawn = chances.chart(curve, replace(atlas.choices.default, threshold=float(curve[0][at])), "Mbit/s")
        words = drawn.to_dict(validate=False)["layer"][-1]["mark"]
        assert words["align"] == align and (words["dx"] > 0) == (align == "left")


def test_a_place_is_asked_of_the_model_once_a_setting(atlas: Atlas, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = replace(atlas.choices.default, threshold=61.0)
    fresh = {str(k): float(v.values.ravel()[0]) for k, v in atlas.at(LAT, LON, setting).load().items()}
    asked, ask = list[Setting](), atlas.at
    monkeypatch.setattr(Atlas, "at", lambda self, lat, lon, s: asked.append(s) or ask(lat, lon, s))
    first = atlas.values(LAT, LON, setting)
    assert first == fresh
    first.clear()  # what is handed out is the caller's own
    assert atlas.values(LAT, LON, setting) == fresh and atlas.reading(LAT, LON, setting)["values"] == fresh
    other = atlas.values(LAT, LON, replace(setting, tests=50.0))
    assert other["pi_width"] < fresh["pi_width"] and [s.tests for s in asked] == [setting.tests, 50.0]


def test_a_chart_is_made_once_and_holds_what_was_computed(atlas: Atlas) -> None:
    """Of the rows, the same as Streamlit takes from a chart of a table."""
    drawn, made = list[dict](), list[int]()

    class Page:
        def vega_lite_chart(self, spec: dict) -> None:
            drawn.append(deepcopy(spec))
            spec.clear()  # as Streamlit does with what it takes out

    setting = replace(atlas.choices.default, threshold=47.0)
    curve = exceedance_curve(atlas.run, *atlas.centre(LAT, LON), setting)

    def chart() -> object:
        made.append(1)
        return chances.chart(curve, setting, "Mbit/s")

    for _ in range(2):
        show(atlas, "a chart of this test", chart, Page())
    assert drawn[0] == drawn[1] and len(made) == 1 and "config" not in drawn[0]
    band, line, rule, *_ = drawn[0]["layer"]
    told = line["data"]["values"]
    np.testing.assert_array_equal([[row["x"], row["p"]] for row in told], np.transpose(curve))
    assert line["encoding"]["x"]["field"] == "x" and line["encoding"]["y"]["type"] == "quantitative"
    inside = band["data"]["values"]
    assert inside == [row for row in told if 0.025 <= row["p"] <= 0.975]
    assert rule["data"]["values"][0]["x"] == 47.0


def test_the_charts_are_vega_lite(atlas: Atlas) -> None:
    """They are drawn without asking the schema, which takes longer than all else."""
    setting = atlas.choices.default
    curve = exceedance_curve(atlas.run, *atlas.centre(LAT, LON), setting)
    chances.chart(curve, setting, "Mbit/s").to_dict(validate=True)
    history.chart(through_time(atlas, LAT, LON, setting), setting, "Mbit/s").to_dict(validate=True)
    likeness.chart(atlas.slices.of(LAT, LON, setting.quarter).profile).to_dict(validate=True)


def test_a_ring_without_places_is_a_gap_in_its_chart() -> None:
    rings = tuple(np.array([1.0, np.nan, 3.0]) for _ in range(4))
    json.dumps(specified(likeness.chart(rings)), allow_nan=False)


def test_what_many_ask_at_once_is_made_once_and_an_error_is_tried_again(atlas: Atlas) -> None:
    begun, made = threading.Barrier(5), list[int]()

    def make() -> int:
        made.append(1)
        time.sleep(0.2)
        return 7

    def ask(_: int) -> int:
        begun.wait(10)
        return atlas.once("many ask for this", make)

    with ThreadPoolExecutor(5) as people:
        assert list(people.map(ask, range(5))) == [7] * 5 and len(made) == 1
    for problem in ("first", "second"):

        def fail(problem: str = problem) -> None:
            raise InvalidInput(problem)

        with pytest.raises(InvalidInput, match=problem):
            atlas.once("fails", fail)
    assert atlas.once("fails", lambda: 3) == 3


def test_every_quarter_is_told(atlas: Atlas) -> None:
    rows = through_time(atlas, LAT, LON, atlas.choices.default)
    assert [r["quarter"] for r in rows] == ["2023Q3", "2023Q4"]
    assert all(r["lower"] < r["median"] < r["upper"] for r in rows)


@pytest.mark.parametrize("run", ["atlas", "peaked"])
def test_the_quarters_of_a_place_are_those_of_the_model(run: str, request: pytest.FixtureRequest) -> None:
    """The page computes the chart from these: any level, any number of tests."""
    atlas = request.getfixturevalue(run)
    usual, place = atlas.choices.tests, (LATITUDE, LONGITUDE)
    for row in atlas.history(*place):
        setting = replace(atlas.choices.default, quarter=row["quarter"])
        told = row["counts"][f"{usual:.10g}"]
        predictive = Predictive(
            np.array([told["location"]]),
            np.array([told["scale"]]),
            np.array([1 / told["inverse_df"]]) if told["inverse_df"] else None,
            atlas.run.model.transform_,
            np.array([told["log_skewness"]]),
            peak=peak_of({name: np.array([v]) for name, v in told.items()}),
        )
        assert (predictive.peak is None) == (run == "atlas")
        ends = [float(atlas.target.from_score(v)[0]) for v in (predictive.median(), *predictive.interval())]
        ds = atlas.at(*place, setting)
        expected = [float(ds[key].values[0, 0]) for key in ("median", "lower", "upper")]
        np.testing.assert_allclose(ends, expected, rtol=1e-5)


def test_a_slice_is_one_at_its_place_and_known_everywhere(atlas: Atlas) -> None:
    found = atlas.slices.of(LATITUDE, LONGITUDE, atlas.choices.default.quarter)
    np.testing.assert_array_equal(np.isfinite(found.correlation), np.isfinite(found.distance_km))
    nearest = np.unravel_index(np.nanargmin(found.distance_km), found.distance_km.shape)
    assert found.correlation[nearest] > 0.95
    assert np.nanmin(found.correlation) >= -1 and np.nanmax(found.correlation) <= 1
    # The island is about 0.1256 (1 + 0.25^2 / 2) square degrees times 0.8: pixels must add up to it.
    area = 0.2**2 * np.pi * (1 + 0.25**2 / 2) * 0.8 * 111.32 * np.cos(np.radians(LAT)) * 110.92
    assert np.nansum(found.area_km2) == pytest.approx(area, rel=0.03)
    assert np.mean(found.correlation[np.isfinite(found.correlation)] >= found.alike) == pytest.approx(
        0.1, abs=0.02
    )
    km, middle, low, high = found.profile
    assert (np.diff(km) > 0).all() and (low <= middle).all() and (middle <= high).all()
    assert "correlation" in found.words


def test_a_slice_is_kept(atlas: Atlas) -> None:
    slices = Slices(atlas.page)
    first = slices.of(LAT, LON, "2023Q4")
    assert slices.of(LAT, LON, "2023Q4") is first
    assert slices.of(LAT, LON, "2023Q3") is not first


@pytest.mark.parametrize(
    ("value", "said"),
    [(90.4, "90"), (1234.5, "1,234"), (3.14159, "3.1"), (0.0, "0"), (float("nan"), "no value")],
)
def test_numbers_as_people_say_them(value: float, said: str) -> None:
    assert plain(value) == said


def test_no_probability_is_certain() -> None:
    assert [percent(p) for p in (0.0, 0.374, 1.0)] == ["< 1%", "37%", "> 99%"]

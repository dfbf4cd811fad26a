"""Titles, references and licences are those of the table's source; captions and scores say what they are of."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from odc.geo.geobox import GeoBox

import geogp
from app.console import _widths
from app.workflow.outputs import attribution, counted_by, level_note, surface_of, titled
from app.workflow.steps.areas import Areas
from app.workflow.steps.change import Change
from app.workflow.steps.evaluate import Evaluation
from app.workflow.steps.excursions import Excursions
from app.workflow.together import Together
from data_pipelines.sources import SOURCES
from geogp.areas import Correlation
from geogp.run import Run
from geogp.targets import TARGETS, digits
from maps.figures import map_figure
from tests.geogp.test_contracts import field, small

CRS = "EPSG:32604"
BOX = GeoBox.from_bbox((0, 0, 10, 10), CRS, resolution=2)
ZINC = {
    "source": "csv",
    "type": None,
    "region": None,
    "crs": CRS,
    "sources": [{"url": "meuse/zinc.csv"}],
    "value_name": "lead",
}


@pytest.mark.parametrize("room", [200, 60, 34, 10])
def test_tables_break_between_words(room):
    rows = [["area", "95% interval", "below 100"], ["Honolulu", "217.5 - 242.3", "0.6% (0.2 - 1.2)"]]
    widths = _widths(rows, room)
    assert all(w >= len(word) for row in rows for w, cell in zip(widths, row) for word in cell.split())
    assert sum(widths) == min(max(room - 9, 8 + 8 + 5), 8 + 13 + 16)  # as wide as words, at most as cells


def run_of(target, data, counts=None):
    X, y = field()
    return Run(
        Path("run"), {"target": target, "method": "sgpr", "data": data}, small("sgpr").fit(X, y, counts)
    )


def test_a_table_of_zinc_is_not_ooklas():
    run = run_of("value", ZINC)
    assert titled(run) == "Lead, zinc"
    assert attribution(run) == {"source": "a table of measurements (zinc.csv); GeoGP method sgpr"}
    by_whom = run_of("value", {**ZINC, "credit": "Rikken and van Rijn"})
    assert attribution(by_whom) == {"source": "Rikken and van Rijn; GeoGP method sgpr"}
    assert titled(run_of("value", {**ZINC, "value_name": None})) == "Value, zinc"
    ds = geogp.predict(run, BOX)
    words = str(ds.attrs) + "".join(str(v.attrs) for v in ds.variables.values())
    assert "tile" not in words and "Ookla" not in words and "service" not in words
    assert ds["median"].attrs["long_name"] == "lead: median of new measurements (all times)"
    bare = {"quarter", "x", "y", "spatial_ref"}
    assert all("lead" in v.attrs["long_name"] for name, v in ds.variables.items() if name not in bare)
    assert surface_of(run) == "" and ds.attrs["center"] == "mean"


@pytest.mark.parametrize(
    ("name", "heading"), [("pH", "pH"), ("no2", "no2"), ("Härte", "Härte"), ("lead", "Lead")]
)
def test_a_name_is_written_as_its_people_write_it(name, heading):
    run = run_of("value", {**ZINC, "value_name": name})
    assert titled(run) == f"{heading}, zinc"
    assert geogp.predict(run, BOX).attrs["title"].startswith(f"{heading}: posterior median")


def test_the_count_of_others_is_not_of_tests():
    counts = np.full(60, 6.0)
    assert surface_of(run_of("value", ZINC, counts)) == "averages of 6 measurements (the reference count)"
    ours = {"source": "ookla", "type": "fixed", "region": "HI", "crs": CRS}
    assert (
        surface_of(run_of("download", ours, np.ones(60))) == "tile averages of 1 test (the reference count)"
    )
    run = run_of("download", ours, counts)
    run.facts["counts"] = "devices"
    assert surface_of(run) == "tile averages of 6 devices (the reference count)"
    assert (
        counted_by(run.target, "both") == "count" and counted_by(TARGETS["value"], "tests") == "measurements"
    )


def test_a_box_is_called_by_its_ends():
    run = run_of(
        "latency", {"source": "ookla", "type": "mobile", "region": "bbox", "bbox": [-116.05, 44, -104, 49]}
    )
    assert titled(run) == "Mobile latency, 116° W to 104° W, 44° N to 49° N"


def test_a_figure_of_no_quarter_does_not_begin_with_a_bar(monkeypatch):
    from maps import cartography

    said = []
    monkeypatch.setattr(cartography, "_say", lambda figure, axes, y, text, *a, **k: said.append(text))
    ds = geogp.predict(run_of("value", ZINC), BOX)[["median"]].load()
    map_figure(ds.assign_attrs(title="Lead, zinc"), "median")
    assert "Lead, zinc" in said and not any(text.startswith(" ") for text in said)


def test_ooklas_tiles_are():
    run = run_of(
        "download", {"source": "ookla", "type": "fixed", "region": "HI", "crs": CRS}, np.full(60, 6.0)
    )
    ookla = SOURCES["ookla"]
    assert titled(run) == "Fixed download speed, HI"
    assert attribution(run) == {
        "source": f"{ookla.credit}; GeoGP method sgpr",
        "references": ookla.reference,
        "license": ookla.licence,
    }
    assert surface_of(run) == "tile averages of 6 tests (the reference count)"
    assert "service on offer" in geogp.predict(run, BOX).attrs["comment"]


@pytest.mark.parametrize(
    ("target", "center", "said"),
    [
        ("download", "mean", "with t log10 of kbit/s; "),
        ("value", "median", "with t the value itself, RMSE of the median for want of a mean; "),
        ("value", None, "with t the value itself; "),  # scored before a centre was said
    ],
)
def test_a_table_of_scores_says_what_t_is(target, center, said):
    document = {
        "method": "sgpr", "target": target, "part": "test", "split": "random", "target_mean": 1.0, "target_sd": 2.0,
        "scores_native": {"unit": "1", "mae": 1.0, "crps": 1.0}, **({} if center is None else {"center": center}),
    }  # fmt: skip
    assert said in Evaluation(Path("run"), document).title()


def test_a_kernel_is_called_non_stationary_only_where_it_varies():
    for module in (geogp, __import__("geogp.slices").slices):
        assert "non-stationary" not in (module.__doc__ or "")


@pytest.mark.parametrize(
    ("limit", "value", "said", "shown"),
    [
        (4.2e12, 1.23456e12, "4.2e+12", "1.235e+12"),
        (4e-7, 1.23456e-8, "4e-7", "1.235e-8"),
        (25000.0, 12345.6, "25000", "12346"),
        (25.0, 19.0, "25", "19.00"),
    ],
)
def test_tables_and_sentences_write_numbers_one_way(limit, value, said, shown):
    """Without an exponent from a millionth to a billion, with one beyond: in heads, cells and sentences alike."""
    facts = {"target": "value", "unit": "mm", "level": 0.95, "thresholds": [limit], "ranked_by": "ground"}
    ends = {"mean": value, "lower": value, "upper": value, "rank": 1, "rank_lower": 1, "rank_upper": 1}
    share = {f"share_below_{digits(limit)}{end}": 0.5 for end in ("", "_lower", "_upper")}
    row = {"area_km2": 1234567.0, "n_points": 5, "evidence": "filled", **ends, **share}
    found = Areas(pd.DataFrame([row]), ["North"], None, (Path("a.csv"),), facts)
    assert found.header[4] == f"level below {said}"
    assert found.rows()[0][1:4] == ["1,234,567", shown, f"{shown} to {shown}"]

    facts |= {"improved": "higher", "at_least": [limit], "from": "2022Q1", "to": "2022Q2"}
    differences = {f"change{end}": value for end in ("", "_lower", "_upper")}
    row = {"n_points": 5, "mean_from": value, "mean_to": -value, **differences}
    row[f"p_higher_{digits(limit)}"] = 0.5
    changed = Change(Path("c"), {"files": []}, facts, ["North"], pd.DataFrame([row]), 1.0)
    assert changed.header[-1] == f"P(higher by {said})"
    assert changed.rows() == [["North", shown, f"-{shown}", f"+{shown}", f"+{shown} to +{shown}", "0.500"]]

    sets = {"sets": [{"threshold": limit, "set_km2": 1234567.0, "set_share": 0.5, "single_km2": 0.4567}]}
    rows = Excursions(Path("e"), {"files": [1]}, {**facts, **sets}, 1.0).rows()
    assert rows == [[f"{said} mm", "1,234,567", "50.0%", "0.457"]]

    run = run_of("value", ZINC)
    pair = Together(run, run, (limit, limit), Correlation(0.5, 0.1, 0.5, 0.1, 0.5, 1), "held-out")
    assert pair.words == f"lead below {said} or lead below {said}"
    assert pair.note().endswith("learned from 1 held-out row")


def test_the_level_of_a_change_has_no_shares():
    words = "the level is what many tests at each place would average to"
    assert level_note({"target": "download", "at_least": [0.0], "from": "2022Q1"}) == words
    assert level_note({"target": "download", "thresholds": [], "ranked_by": "ground"}) == words
    over = {"target": "download", "thresholds": [25.0], "ranked_by": "people"}
    assert level_note(over).startswith(f"{words}; shares are of the people, not of tests")

"""Which of a table's values are better is said at ingest; ranks, probabilities, colours and words follow."""

import json
from itertools import pairwise

import geopandas
import numpy as np
import pandas as pd
import pytest
import rasterio
import shapely

from app.dashboard.areas import Found, Row, sentence
from app.dashboard.sheets.areas import ORDERS, _ordered
from data_pipelines.geoparquet import read
from geogp.run import load
from geogp.targets import TARGETS

SAID = {"lower": ("--better", "lower"), "higher": ("--better", "higher"), "": ()}


@pytest.fixture(scope="module")
def surveys(tmp_path_factory):
    """By what was said, a run of zinc that rises eastwards and in time; four areas in a row, "a" the western."""
    from app.cli import main

    folder = tmp_path_factory.mktemp("better")
    rng = np.random.default_rng(0)
    lon, lat = 5.7 + rng.uniform(0, 0.004, 160), 50.9 + rng.uniform(0, 0.0018, 160)
    later = np.arange(160) % 2
    value = 100 + 2e4 * (lon - 5.7) + 15 * later + rng.normal(0, 2, 160)
    pd.DataFrame(
        {"lon": lon, "lat": lat, "zinc": value, "when": np.where(later, "2022-02-15", "2021-11-15")}
    ).to_csv(folder / "s.csv", index=False)
    edges = 5.7 + 0.001 * np.arange(5)
    boxes = [shapely.box(a, 50.9, b, 50.9018) for a, b in pairwise(edges)]
    geopandas.GeoDataFrame({"GEOID": list("abcd")}, geometry=boxes, crs=4326).to_parquet(
        folder / "areas.parquet"
    )
    for name, said in SAID.items():
        table, out = str(folder / f"{name}.parquet"), str(folder / f"run_{name}")
        columns = "x=lon,y=lat,value=zinc,time=when"
        line = ["ingest", "--source", "csv", str(folder / "s.csv"), "--columns", columns, "-q", *said]
        assert main([*line, "-o", table]) == 0
        line = ["fit", table, "--target", "value", "--method", "local-gp", "--set", "steps=20", "-q"]
        assert main([*line, "-o", out]) == 0
    return folder


def test_the_table_and_its_run_keep_what_was_said(surveys):
    for better in SAID:
        assert read(surveys / f"{better}.parquet")[1]["value_better"] == (better or None)
        goal = load(surveys / f"run_{better}").target
        assert goal.better == better and goal.words == "zinc"
    assert TARGETS["value"].better == "" and TARGETS["latency"].called("rain", "higher").better == "lower"


@pytest.mark.parametrize("better", SAID)
def test_ranks_begin_at_the_worst_or_at_the_lowest(cli, surveys, better, tmp_path):
    made = cli(
        "areas", surveys / f"run_{better}", "--areas", surveys / "areas.parquet", "-o", tmp_path / "a.csv"
    )
    assert made.code == 0, made.err
    table = pd.read_csv(tmp_path / "a.csv").set_index("GEOID")
    first = "d" if better == "lower" else "a"
    word = "worst" if better else "lowest"
    assert table["rank"].idxmin() == first
    assert table[f"p_{word}_1"][first] > 0.99 and ("p_worst_1" in table) == bool(better)


@pytest.mark.parametrize("better", SAID)
def test_change_improves_rises_or_falls(cli, surveys, better, tmp_path):
    out = tmp_path / "change"
    line = ["change", surveys / f"run_{better}", "--from", "2021Q4", "--to", "2022Q1", "-o", out]
    made = cli(*line, "--at-least", "0", "--areas", surveys / "areas.parquet", "--json")
    assert made.code == 0, made.err
    word = "improved" if better else "risen"
    table = geopandas.read_file(out / "areas.gpkg")
    p = table[f"p_{word}_0"]
    assert (p < 0.01).all() if better == "lower" else (p > 0.99).all()
    assert json.loads(made.out)["improved"] == word
    with rasterio.open(out / "improved_0.tif") as raster:
        title, share = raster.tags(1)["long_name"], np.nanmean(raster.read(1, masked=True).filled(np.nan))
    assert f"has {word} by at least 0" in title
    assert share < 0.05 if better == "lower" else share > 0.95


def test_tables_on_the_terminal_do_not_judge_unasked(cli, surveys, tmp_path):
    for better in SAID:
        line = ["change", surveys / f"run_{better}", "--areas", surveys / "areas.parquet"]
        made = cli(*line, "--from", "2021Q4", "--to", "2022Q1", "-o", tmp_path / f"change_{better}")
        assert made.code == 0, made.err
        assert ("P(improved" in made.out) == bool(better) and ("P(risen" in made.out) == (not better)


def test_the_dashboard_orders_and_speaks_as_told():
    def ordered(rows, order, better, facts):
        found = Found(facts, rows)
        return "".join(
            row.key for row in _ordered(found, rows, ORDERS[order], TARGETS["value"].called("zinc", better))
        )

    change = {"from": "2021Q4", "to": "2022Q1", "unit": "1", "improved": "risen"}
    rows = [Row(key, key, {"change": c}, None) for key, c in zip("abc", (-5.0, 0.0, 5.0))]
    assert [ordered(rows, 0, better, change) for better in ("higher", "", "lower")] == ["abc", "abc", "cba"]
    assert [ordered(rows, 1, better, change) for better in ("higher", "", "lower")] == ["cba", "cba", "abc"]
    words = {"risen": "higher at 90%", "improved": "better at 90%"}
    for improved, said in words.items():
        values = {"change": 5.0, "change_lower": 1.0, "change_upper": 9.0, f"p_{improved}_0": 0.9}
        row = Row("a", "a", values, None)
        assert said in sentence(Found({**change, "improved": improved}, [row]), row)


def test_what_is_no_direction_is_refused(cli, surveys, tmp_path):
    line = ["ingest", "--source", "csv", surveys / "s.csv", "--columns", "x=lon,y=lat,value=zinc"]
    assert cli(*line, "--better", "big", "-o", tmp_path / "o.parquet").code == 2
    made = cli("ingest", "--better", "lower", "--region", "HI", "-o", tmp_path / "o.parquet")
    assert made.code == 3 and "does not read better" in made.err and not list(tmp_path.iterdir())

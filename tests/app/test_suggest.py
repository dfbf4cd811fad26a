"""`geogp suggest`: a list of tiles to measure, the most useful first."""

import json

import geopandas
import numpy as np
import pytest
import shapely
from pyproj import Transformer

import app.workflow.steps.suggest as suggesting
from app.workflow import suggest
from data_pipelines import quadkey, zorder
from geogp import storage
from geogp.run import load


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Cells few enough for a second."""
    monkeypatch.setattr(suggesting, "CELLS", 200)


def test_tiles_in_the_order_of_their_use(cli, run, world, tmp_path):
    out = tmp_path / "points.geojson"
    result = cli("suggest", run, "-n", 6, "-o", out, "--json", "--tests", 10)
    assert result.code == 0, result.err
    document, written = json.loads(result.out), json.loads(out.read_text())
    assert document["schema"] == 1 and document["quarter"] == "2023Q4" and document["tests"] == 10
    assert document["file"] == "points.geojson" and str(tmp_path) not in result.out + out.read_text()
    assert document["points"] == [f["properties"] for f in written["features"]]
    assert written["type"] == "FeatureCollection" and written["geogp"]["method"] == "dbk-silu"
    points = document["points"]
    assert [p["rank"] for p in points] == [1, 2, 3, 4, 5, 6]
    for p, feature in zip(points, written["features"]):
        assert feature["geometry"] == {"type": "Point", "coordinates": [p["lon"], p["lat"]]}
        x, y = quadkey.tile_of([p["lon"]], [p["lat"]])
        lon, lat = quadkey.centre(x, y)
        assert zorder.quadkeys(x, y)[0] == p["quadkey"]
        assert (p["lon"], p["lat"]) == pytest.approx((lon[0], lat[0]), abs=1e-6)
        assert p["latent_sd_after"] < p["latent_sd_before"] and p["noise_sd"] > 0
        assert p["map_variance_after"] < p["map_variance_before"]
        assert shapely.contains_xy(world.land().buffer(0.01), p["lon"], p["lat"])
    assert len({p["quadkey"] for p in points}) == 6
    np.testing.assert_allclose(
        [p["map_variance_before"] for p in points[1:]], [p["map_variance_after"] for p in points[:-1]]
    )
    assert len(geopandas.read_file(out)) == 6
    # The numbers are the model's own.
    loaded = load(run)
    first = points[0]
    to_plane = Transformer.from_crs(4326, loaded.facts["data"]["crs"], always_xy=True)
    X = np.array([[*to_plane.transform(first["lon"], first["lat"]), 2023.875]])
    sd = loaded.model.predict(X, return_std=True, latent=True)[1][0]
    assert first["latent_sd_before"] == pytest.approx(sd, rel=1e-3)


def test_a_table_for_people(cli, run, tmp_path):
    result = cli("suggest", run, "-n", 2, "-o", tmp_path / "points.geojson")
    assert result.code == 0 and "rank" in result.out and "%" in result.out
    assert "2 places for the map among" in result.err and "cells of" in result.err


def test_within_polygons(cli, run, world, tmp_path):
    west, south = world.to_degrees(-15.0, -15.0)
    east, north = world.to_degrees(15.0, 15.0)
    box = shapely.box(west, south, east, north)
    geopandas.GeoDataFrame(geometry=[box], crs=4326).to_file(tmp_path / "box.gpkg")
    line = (
        "suggest",
        run,
        "-n",
        5,
        "--within",
        tmp_path / "box.gpkg",
        "-o",
        tmp_path / "points.geojson",
        "--json",
    )
    near, far = json.loads(cli(*line).out), suggest(run, 5, tmp_path / "all.geojson").facts
    for p in near["points"]:
        assert box.buffer(1e-6).contains(shapely.Point(p["lon"], p["lat"]))
    assert near["cell_m"] < far["cell_m"]


def test_without_boundary_and_without_tiles(run, tmp_path):
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    facts = json.loads((copy / "run.json").read_text())
    storage.update_facts(copy, {"data": {**facts["data"], "boundary": None, "source": "csv"}})
    found = suggest(copy, 3, tmp_path / "points.geojson")
    assert found.quadkeys is None and "quadkey" not in found.points()[0]
    assert 50 < found.facts["n_candidates"] <= 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-n", 0), "-n is the number of places"),
        (("-n", 100_000), "take fewer"),
        (("--quarter", "last"), "last"),
        (("--tests", 0), "--tests"),
        (("--within", "nowhere.gpkg"), "does not exist"),
        (("--within", "OUTSIDE"), "meets the region"),
        (("-o", "points.csv"), ".geojson"),
        (("-o", "no/such/points.geojson"), "does not exist"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(options, words, cli, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outside = tmp_path / "outside.geojson"
    geopandas.GeoDataFrame(geometry=[shapely.box(10, 10, 11, 11)], crs=4326).to_file(outside)
    line = [outside if option == "OUTSIDE" else option for option in options]
    output = () if "-o" in options else ("-o", "points.geojson")
    result = cli("suggest", run, *output, *line)
    assert result.code == 3 and words in result.err and result.out == "", result.err
    assert len(result.err.strip().splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["outside.geojson"]


def test_an_existing_file_is_refused_unless_overwritten(cli, run, tmp_path):
    out = tmp_path / "points.geojson"
    out.write_text("precious")
    line = ("suggest", run, "-n", 1, "-o", out)
    result = cli(*line)
    assert result.code == 3 and "--overwrite" in result.err and out.read_text() == "precious"
    assert cli(*line, "--overwrite").code == 0 and json.loads(out.read_text())
    assert [p.name for p in tmp_path.iterdir()] == ["points.geojson"]


def test_a_choice_is_tried_on_rows_that_the_run_knows(cli, run, world, tmp_path):
    out = tmp_path / "points.geojson"
    result = cli("suggest", run, "-n", 5, "-o", out, "--check", "--json")
    assert result.code == 0, result.err
    check = json.loads(result.out)["check"]
    assert check == json.loads(out.read_text())["geogp"]["check"]
    assert check["n_parts"] == 4 and check["n_chosen"] == 5 and check["n_judged"] > 20
    assert check["random_promised"] > 0 and 0 < check["promised"] < check["error_before"]
    said = f"{100 * check['achieved'] / check['error_before']:.1f}% (standard error"
    assert "Checked in 4 parts" in result.err and said in result.err and "places at random" in result.err
    west, south = world.to_degrees(-110.0, -110.0)
    east, north = world.to_degrees(60.0, 110.0)
    box = tmp_path / "box.gpkg"
    geopandas.GeoDataFrame(geometry=[shapely.box(west, south, east, north)], crs=4326).to_file(box)
    for goal in (("--area", box), ("--within", box), ("--boundary", 100), ("--budget-km", 50)):
        line = ("suggest", run, "-n", 3, "-o", out, "--check", "--json", "--overwrite", *goal)
        result = cli(*line)
        assert result.code == 0, result.err
        other = json.loads(result.out)["check"]
        assert (other["n_judged"] < check["n_judged"]) == (box in goal)


def test_a_check_that_cannot_be_made_is_refused_at_once(cli, run, tmp_path, monkeypatch):
    line = ("suggest", run, "-n", 5, "-o", tmp_path / "points.geojson", "--check")
    moved = cli(*line, "--data", tmp_path / "moved.parquet")
    assert moved.code == 3 and "--data" in moved.err
    monkeypatch.setattr(suggesting, "updatable", dict)
    result = cli(*line)
    assert result.code == 3 and "cannot forget any without being fitted again" in result.err
    assert len(result.err.strip().splitlines()) == 1 and not (tmp_path / "points.geojson").exists()

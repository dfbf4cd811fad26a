"""Tables that are not Ookla's: what is said and drawn of them is about them."""

import json
import re

import numpy as np
import pytest

import geogp
from app.workflow.grids import grid_of
from app.workflow.reviewing.learned import slices
from geogp.run import load
from maps.bands import bands


def written(folder, rows, header="lon,lat,nitrate"):
    """A CSV of rows (n, k)."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "survey.csv"
    file.write_text("\n".join([header, *(",".join(f"{v:.6g}" for v in row) for row in rows)]))
    return file


def survey(n, seed=0):
    """Longitude, latitude and a value between 20 and 60, in New Zealand."""
    rng = np.random.default_rng(seed)
    lon, lat = 170 + rng.uniform(0, 2, n), -44 + rng.uniform(0, 1.5, n)
    return np.column_stack([lon, lat, 40 + 12 * np.sin(2 * lon) + rng.normal(0, 3, n)])


@pytest.fixture
def fitted(cli, tmp_path):
    """A function: rows to a run."""

    def run(rows, *, columns="x=lon,y=lat,value=nitrate", header="lon,lat,nitrate"):
        file = written(tmp_path / "in", rows, header)
        line = ("ingest", "--source", "csv", file, "--columns", columns, "-o", tmp_path / "t.parquet")
        assert cli(*line).code == 0
        line = ("fit", tmp_path / "t.parquet", "--target", "value", "-o", tmp_path / "run")
        result = cli(*line, "--method", "local-gp", "--set", "steps=20")
        assert result.code == 0, result.err
        return load(tmp_path / "run")

    return run


def test_a_wild_value_does_not_choose_the_threshold(fitted):
    rows = survey(100)
    rows[7, 2] = 1e6
    run = fitted(rows)
    (threshold,) = run.thresholds
    below = np.mean(rows[:, 2] < threshold)
    assert 0.4 < below < 0.6, threshold


def test_a_curved_scale_is_called_so(fitted, cli, tmp_path):
    rows = survey(300)
    rows[:, 2] = np.exp(rows[:, 2] / 8)
    run = fitted(rows)
    ds = geogp.predict(run, grid_of(run).geobox)
    assert ds.attrs["model_scale"] == "stretched log10 of the value"
    for name in ("latent_sd", "noise_sd"):
        assert "log10 of the value" in ds[name].attrs["long_name"] and ds[name].attrs["units"] == "1"
        (band,) = bands(ds, [name])
        assert "(stretched log10 of the value)" in band.about
    result = cli("suggest", run.path, "-n", 2, "-o", tmp_path / "p.geojson", "--json")
    assert "log10 of the value" in json.loads(result.out)["unit"], result.err


def test_a_survey_has_no_cities_and_roads(fitted):
    run = fitted(survey(60))
    P = run.support.positions_m
    picture = slices(run, (P, run.support.distances_m(P)), None)
    assert picture is not None and "where data are densest (" in picture.words and "road" not in picture.words


def test_a_flat_scale_has_the_unit_of_the_data(fitted):
    run = fitted(survey(100))
    run.facts["data"]["value_unit"] = "mg/l"
    box = grid_of(run).geobox
    assert geogp.predict(run, box)["latent_sd"].attrs["units"] == "mg/l"
    assert geogp.kernel_slice(run, box, (171, -43))["covariance"].attrs["units"] == "(mg/l)2"


def test_a_report_of_a_method_that_draws_few_places_at_once(cli, tmp_path, compared_here):
    """Its basis is drawn on more pixels than it can draw together, which nobody asks of it."""
    file = written(tmp_path, survey(120))
    line = ("ingest", "--source", "csv", file, "--columns", "value=nitrate", "-o", tmp_path / "t.parquet")
    assert cli(*line).code == 0
    line = (tmp_path / "t.parquet", "--target", "value", "--split", "random")
    assert cli("fit", *line, "--method", "sgpr", "--rank", 16, "-o", tmp_path / "run").code == 0
    result = cli("report", tmp_path / "run", "-o", tmp_path / "r.html")
    assert result.code == 0, result.err
    assert "strongest functions" in (tmp_path / "r.html").read_text()
    result = cli("compare", *line, "--methods", "knn")
    assert result.out.startswith("nitrate, split random, best NLL first"), result.err


@pytest.mark.parametrize(
    ("crs", "words"),
    [(None, r"of \d+ m,"), ("EPSG:4326", r"of 0\.\d+ degree,"), ("EPSG:2264", r"of .* US survey foot,")],
)
def test_a_pixel_is_said_in_its_unit(fitted, cli, tmp_path, crs, words):
    run = fitted(survey(60))
    line = (
        "export",
        run.path,
        "-o",
        tmp_path / "out",
        "--format",
        "cog",
        "--layers",
        "median",
        "--resolution",
        9000,
    )
    result = cli(*line, *(() if crs is None else ("--crs", crs)))
    assert re.search(rf"pixels {words}", result.err), result.err

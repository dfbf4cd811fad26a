"""Covariates: columns of a table, or rasters, that a fit learns by and that a map must know at its places."""

import json
from dataclasses import replace
from pathlib import Path

import geopandas
import numpy as np
import pandas as pd
import pytest
import rasterio
import shapely

from app.dashboard.holding import Holding
from app.dashboard.setting import choices_of
from app.workflow.rasters.covariates import covariates_of, opened
from app.workflow.rows import observations_of
from data_pipelines.geoparquet import read
from geogp.run import load

WEST, SOUTH, SIDE, PIXELS = 5.7, 50.9, 0.004, 80
SMALL = ("--method", "local-gp", "--set", "steps=40", "-q")


def hills(lon, lat):
    """A height that no plane follows, rough at a scale that 150 places do not tell."""
    return 50 + 10 * np.sin((lon - WEST) / 1.2e-4) * np.cos((lat - SOUTH) / 1.1e-4)


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    """A table whose value follows the height, a raster of the height, and a run each that learned by column and by raster."""
    from app.cli import main

    folder = tmp_path_factory.mktemp("covariates")
    rng = np.random.default_rng(0)
    lon, lat = WEST + rng.uniform(0, SIDE, 300), SOUTH + rng.uniform(0, SIDE, 300)
    height = hills(lon, lat)
    when = np.where(np.arange(300) % 2, "2022-02-15", "2021-11-15")
    zinc = 100 + 5 * height + rng.normal(0, 3, 300)
    frame = pd.DataFrame({"lon": lon, "lat": lat, "zinc": zinc, "height": height, "when": when})
    frame[:250].to_csv(folder / "s.csv", index=False)
    frame[250:].to_csv(folder / "unseen.csv", index=False)
    step = (SIDE + 0.002) / PIXELS
    centres = (np.arange(PIXELS) + 0.5) * step - 0.001
    values = hills(WEST + centres[None, :], SOUTH + centres[::-1, None]).astype(np.float32)
    shape = {"driver": "GTiff", "width": PIXELS, "height": PIXELS, "count": 1, "dtype": "float32"}
    transform = rasterio.Affine(step, 0, WEST - 0.001, 0, -step, SOUTH + SIDE + 0.001)
    with rasterio.open(folder / "dem.tif", "w", crs="EPSG:4326", transform=transform, **shape) as raster:
        raster.write(values, 1)
    line = [
        "ingest",
        "--source",
        "csv",
        str(folder / "s.csv"),
        "--columns",
        "x=lon,y=lat,value=zinc,time=when",
    ]
    table = str(folder / "s.parquet")
    assert main([*line, "--covariates", "height", "-q", "-o", table]) == 0
    for name, said in (("column", "height"), ("raster", f"height={folder / 'dem.tif'}"), ("without", None)):
        more = [] if said is None else ["--covariates", said]
        assert main(["fit", table, "--target", "value", *SMALL, *more, "-o", str(folder / name)]) == 0
    box = shapely.box(WEST, SOUTH, WEST + SIDE, SOUTH + SIDE)
    geopandas.GeoDataFrame({"GEOID": ["a"]}, geometry=[box], crs=4326).to_parquet(folder / "areas.parquet")
    return folder


def test_methods_and_peers_are_compared_on_what_they_learn_by(survey, cli, compared_here):
    line = (
        "compare",
        survey / "s.parquet",
        "--methods",
        "local-gp,knn",
        "--split",
        "random",
        "--set",
        "steps=40",
    )
    blind, seeing = (json.loads(cli(*line, *more, "--json").out) for more in ((), ("--covariates", "height")))
    error = {
        k: {r["method"]: r["scores"]["mae"] for r in d["rows"]}
        for k, d in (("blind", blind), ("seeing", seeing))
    }
    assert error["seeing"]["local-gp"] < 0.5 * error["blind"]["local-gp"]
    assert error["seeing"]["knn"] == error["blind"]["knn"]
    assert "knn (places alone)" in cli(*line, "--covariates", "height").out
    lacking = cli(*line, "--covariates", "depth")
    assert lacking.code == 3 and "no column depth, it has height" in lacking.err


def test_a_fit_says_that_a_column_is_not_on_maps(survey, cli, tmp_path):
    said = {}
    for name, given in (("column", "height"), ("raster", f"height={survey / 'dem.tif'}")):
        result = cli(
            "fit", survey / "s.parquet", *SMALL[:-1], "--covariates", given, "-o", tmp_path / name
        )  # fmt: skip
        said[name] = result.out + result.err
    assert "need height as a raster: --covariates height=FILE.tif" in said["column"]
    assert "as a raster" not in said["raster"]


def test_the_table_keeps_its_columns(survey):
    table, metadata = read(survey / "s.parquet")
    assert metadata["covariates"] == ["height"] and table.column("height").null_count == 0
    plain = pd.read_csv(survey / "s.csv").set_index(["lon", "lat"])["height"]
    kept = table.select(["lon", "lat", "height"]).to_pandas().set_index(["lon", "lat"])["height"]
    pd.testing.assert_series_equal(kept.sort_index(), plain.sort_index())


def test_a_covariate_is_learned_from_and_told_at_places(cli, survey, tmp_path):
    """Held-out values follow the height; rows without a height have no values; the table's column goes before a raster."""
    errors = {}
    for name in ("column", "raster", "without"):
        made = cli(
            "at", survey / name, survey / "unseen.csv", "-o", tmp_path / f"{name}.csv", "--quarter", "2022Q1"
        )
        assert made.code == 0, made.err
        told = pd.read_csv(tmp_path / f"{name}.csv")
        errors[name] = float((told["median"] - told["zinc"]).abs().mean())
    assert errors["column"] < 0.4 * errors["without"] and errors["raster"] < 0.6 * errors["without"]
    empty = pd.read_csv(survey / "unseen.csv")
    empty.loc[:4, "height"] = np.nan
    empty.to_csv(tmp_path / "empty.csv", index=False)
    made = cli("at", survey / "column", tmp_path / "empty.csv", "-o", tmp_path / "e.csv", "--json")
    assert made.code == 0 and "5 of 50 rows lack height" in made.out
    assert pd.read_csv(tmp_path / "e.csv")["median"].isna().sum() == 5


def test_a_raster_tells_every_map_its_covariates(cli, survey, tmp_path):
    """Maps of the run by column, given the raster, are the predictions at the raster's values."""
    given = ("--covariates", f"height={survey / 'dem.tif'}")
    line = (
        "export",
        survey / "column",
        *given,
        "--resolution",
        "20",
        "--layers",
        "median",
        "--format",
        "cog",
    )
    made = cli(*line, "-o", tmp_path / "maps")
    assert made.code == 0, made.err
    run = opened(survey / "column", given[1])
    with rasterio.open(tmp_path / "maps" / "median.tif") as raster:
        values = raster.read(1, masked=True)
        row, column = (int(k[len(k) // 2]) for k in np.nonzero(~values.mask))
        place = np.array([raster.xy(row, column)])
    X = run.inputs(place)
    assert X.shape == (1, 4) and X[0, 3] == pytest.approx(
        float(hills(*map(np.array, run.to_degrees(place)))[0]), abs=4
    )
    predicted = run.target.from_score(run.model.interval(X, 1e-9)[0])
    assert float(values[row, column]) == pytest.approx(float(predicted[0]), rel=1e-4)
    areas = ("--areas", survey / "areas.parquet")
    for words in (
        ("areas", survey / "column", *given, *areas, "--resolution", "40", "-o", tmp_path / "a.csv"),
        (
            "change",
            survey / "column",
            *given,
            "--from",
            "2021Q4",
            "--to",
            "2022Q1",
            "-o",
            tmp_path / "c",
            *areas,
        ),
        ("suggest", survey / "column", *given, "-n", "2", "-o", tmp_path / "p.geojson"),
        (
            "excursions",
            survey / "column",
            *given,
            "--above",
            "350",
            "--resolution",
            "60",
            "-o",
            tmp_path / "x",
        ),
        ("areas", survey / "raster", *areas, "--resolution", "40", "-o", tmp_path / "b.csv"),  # it remembers
    ):
        made = cli(*words)
        assert made.code == 0, (words[0], made.err)
    by_column, by_raster = (pd.read_csv(tmp_path / name) for name in ("a.csv", "b.csv"))
    assert by_column["mean"][0] == pytest.approx(350, abs=10) == by_raster["mean"][0]
    assert observations_of(run).X[:, 3].std() == pytest.approx(5, abs=1)


def test_the_change_of_one_quarter_to_the_next_keeps_the_covariates(survey):
    """Time is a column of its own: only it differs between the quarters."""
    run = opened(survey / "column", f"height={survey / 'dem.tif'}")
    places = run.support.positions_m[:5]
    before, after = run.inputs(places, "2021Q4"), run.inputs(places, "2022Q1")
    np.testing.assert_array_equal(before[:, [0, 1, 3]], after[:, [0, 1, 3]])
    np.testing.assert_allclose(after[:, 2] - before[:, 2], 0.25)


@pytest.mark.parametrize(
    "command", ["export", "areas", "change", "suggest", "slice", "report", "excursions", "at"]
)
def test_what_is_lacking_is_said_in_one_sentence(cli, survey, command, tmp_path):
    more = {
        "areas": ("--areas", survey / "areas.parquet"),
        "change": ("--from", "2021Q4", "--to", "2022Q1"),
        "slice": ("--at", "5.702", "50.902"),
        "at": (tmp_path / "bare.csv",),
    }.get(command, ())
    pd.read_csv(survey / "unseen.csv").drop(columns="height").to_csv(tmp_path / "bare.csv", index=False)
    ends = {"areas": "a.csv", "at": "a.csv", "suggest": "p.geojson", "slice": "s.tif", "report": "r.html"}
    made = cli(command, survey / "column", *more, "-o", tmp_path / ends.get(command, "folder"))
    assert made.code == 3, made.err
    assert "height" in made.err and "--covariates height=FILE.tif" in made.err and made.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bare.csv"]


def test_the_dashboard_opens_a_run_whose_rasters_are_known(survey):
    atlas = Holding(survey / "raster").atlas()
    lon, lat = WEST + 0.5 * SIDE, SOUTH + 0.5 * SIDE
    assert np.isfinite(atlas.at(lat, lon, choices_of(atlas.run).default)["median"].values).all()
    with pytest.raises(ValueError, match="height, which nobody has said"):
        Holding(survey / "column").atlas()


def test_a_raster_that_misses_places_or_was_changed_is_refused(cli, survey, tmp_path):
    run = load(survey / "column")
    half = replace(
        run,
        covariates=lambda xy: np.where(xy[:, :1] < np.median(run.support.positions_m[:, 0]), 50.0, np.nan),
    )
    with pytest.raises(ValueError, match=r"height, by which .* is not known at \d+ of 250 places"):
        half.inputs(run.support.positions_m)
    assert np.isnan(half.inputs(run.support.positions_m, gaps=True)[:, 3]).any()
    dem = tmp_path / "dem.tif"
    dem.write_bytes((survey / "dem.tif").read_bytes())
    facts = json.loads(json.dumps(load(survey / "raster").facts))
    facts["covariate_rasters"]["height"]["path"] = str(dem)
    remembering = replace(load(survey / "raster"), facts=facts)
    assert opened(remembering).covariates is not None
    with rasterio.open(dem, "r+") as raster:
        raster.write(raster.read(1) + 1, 1)
    with pytest.raises(ValueError, match="SHA-256 differs"):
        opened(remembering)
    dem.unlink()
    assert opened(remembering).covariates is None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("depth", "has no column depth, it has height"),
        ("region", "holds no numbers"),
        ("height=nowhere.tif", "nowhere.tif"),
        ("height,height", "twice"),
        ("height=", "elevation,dist=dist.tif"),
    ],
)
def test_a_fit_refuses_what_is_no_covariate(cli, survey, said, words, tmp_path):
    made = cli("fit", survey / "s.parquet", "--target", "value", "--covariates", said, "-o", tmp_path / "run")
    assert made.code in (2, 3) and words in made.err and not list(tmp_path.iterdir())


def test_names_that_a_run_or_a_table_does_not_know_are_refused(cli, survey, tmp_path):
    for run, said, words in (
        ("without", "height=dem.tif", "was fitted without covariates"),
        ("column", "depth=dem.tif", "was fitted by height; there is no depth"),
        ("column", "height", "height=FILE.tif"),
    ):
        made = cli("export", survey / run, "--covariates", said, "-o", tmp_path / "maps")
        assert made.code == 3 and words in made.err
    line = ("ingest", "--source", "csv", survey / "s.csv", "--columns", "x=lon,y=lat,value=zinc")
    for said, words in (("depth", "no column 'depth'"), ("lon", "column lon of their own")):
        made = cli(*line, "--covariates", said, "-o", tmp_path / "o.parquet")
        assert made.code == 3 and words in made.err
    assert covariates_of(" height ,dist= a.tif") == {"height": None, "dist": "a.tif"}
    assert not list(Path(tmp_path).iterdir())

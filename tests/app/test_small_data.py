"""A survey of 200 m brings its own scales: no constant of Ookla's tiles decides its map."""

import json
import re

import geopandas
import numpy as np
import pytest
import rasterio
import shapely
import xarray as xr
from scipy.spatial import cKDTree

from app.workflow.evidence import near_m_of
from app.workflow.grids import grid_of, usual_reach_m, usual_side_m
from geogp.run import load


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    from app.cli import main

    folder = tmp_path_factory.mktemp("survey")
    rng = np.random.default_rng(0)
    lon, lat = 5.7 + rng.uniform(0, 0.0028, 150), 50.9 + rng.uniform(0, 0.0018, 150)
    value = 100 + 2e4 * (lon - 5.7) + rng.normal(0, 3, 150)
    (folder / "s.csv").write_text(
        "\n".join(["lon,lat,zinc", *(f"{a},{b},{c}" for a, b, c in zip(lon, lat, value))])
    )
    line = ["ingest", "--source", "csv", str(folder / "s.csv"), "--columns", "x=lon,y=lat,value=zinc", "-q"]
    assert main([*line, "--value-unit", "ppm", "-o", str(folder / "s.parquet")]) == 0
    fit = [
        "fit",
        str(folder / "s.parquet"),
        "--target",
        "value",
        "--method",
        "local-gp",
        "--set",
        "steps=20",
        "-q",
    ]
    assert main([*fit, "-o", str(folder / "run")]) == 0
    return folder / "run"


def test_scales_follow_the_spacing(survey):
    run = load(survey)
    P = run.support.positions_m
    gaps = cKDTree(P).query(P, k=2)[0][:, 1]
    assert np.quantile(gaps, 0.9) < 40  # a survey of some 200 m
    assert usual_reach_m(run) == pytest.approx(3 * np.quantile(gaps, 0.9))
    assert near_m_of(run) == pytest.approx(np.quantile(gaps, 0.9))
    assert usual_side_m(run) == pytest.approx(0.5 * np.median(gaps), rel=0.5)
    grid = grid_of(run)
    assert grid.resolution == usual_side_m(run) and 500 < grid.n_pixels < 100_000


def test_suggestions_lie_among_the_survey(cli, survey, tmp_path):
    result = cli("suggest", survey, "-n", 3, "-o", tmp_path / "p.geojson", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["cell_m"] < 40


def test_all_that_is_written_says_zinc_and_nothing_of_tiles(cli, survey, tmp_path):
    out = tmp_path / "maps"
    made = cli("export", survey, "-o", out, "--format", "cog,csv", "--layers", "median,exceedance")
    assert made.code == 0, made.err
    with rasterio.open(out / "median.tif") as raster:
        tags = raster.tags()
        assert tags["title"] == "Zinc, s" and tags["source"].startswith("a table of measurements (s.csv);")
        assert raster.descriptions[0] == "Median zinc"
    for path in [*out.glob("*.json"), *out.glob("*.tif"), *out.glob("*.csv")]:
        assert not re.search(
            rb"ookla|mbit|tile average|service on offer", path.read_bytes(), re.IGNORECASE
        ), path
    many = ("--format", "netcdf,zarr,geoparquet,csv", "--layers", "median,latent_sd,exceedance,pi_width")
    assert cli("export", survey, "-o", tmp_path / "more", *many, "--samples", "2").code == 0
    plain = {"x", "y", "spatial_ref", "sample"}
    for name in ("prediction.nc", "prediction.zarr", "samples.nc"):
        with xr.open_dataset(tmp_path / "more" / name, decode_times=False) as ds:
            named = {k: v.attrs["long_name"] for k, v in ds.variables.items() if k not in plain}
        assert named and all("zinc" in words.lower() for words in named.values()), named
    assert cli("slice", survey, "--at", 5.7014, 50.9009, "-o", tmp_path / "slice.tif").code == 0
    with rasterio.open(tmp_path / "slice.tif") as raster:
        assert "zinc" in str(raster.tags()).lower()
    report = cli("report", survey, "-o", tmp_path / "r.html")
    words = (tmp_path / "r.html").read_text()
    assert report.code == 0 and "the level of zinc" in words and "service on offer" not in words
    asked = cli("suggest", survey, "-n", 2, "-o", tmp_path / "p.geojson")
    assert asked.code == 0 and "Where to measure zinc next" in asked.out


def test_a_target_that_is_none_is_told_its_name(cli, survey, tmp_path):
    """The column was zinc in the file; in the table it is `value`."""
    for target in ("upload", "zinc"):
        result = cli("fit", survey.parent / "s.parquet", "--target", target, "-o", tmp_path / "run")
        assert result.code in (2, 3) and "value" in result.err
        assert ("--target value" in result.err) == (target == "upload") and "Value error" not in result.err


def test_what_a_table_has_alone_needs_no_name(cli, survey, tmp_path, compared_here):
    table = survey.parent / "s.parquet"
    asked = ("--methods", "knn", "--split", "random", "--json")
    first, second = (
        json.loads(cli("compare", table, *asked, *more).out) for more in ((), ("--target", "value"))
    )
    for row in (first["rows"][0], second["rows"][0]):
        del row["fit_seconds"], row["peak_rss_mb"]
    assert first == second and first["target"] == "value"
    result = cli("fit", table, "-o", tmp_path / "run", "--method", "local-gp", "--set", "steps=5")
    assert result.code == 0 and load(tmp_path / "run").target.name == "value", result.err


def table_of(cli, folder, columns, row):
    """A table of sixty places in a square degree, whose cells after the place are `row(longitude)`."""
    rng = np.random.default_rng(0)
    header = ",".join(["lon", "lat", *(name.partition("=")[2] for name in columns.split(","))])
    lines = [header, *(f"{a},{b},{row(a)}" for a, b in rng.uniform(0, 1, (60, 2)))]
    (folder / "t.csv").write_text("\n".join(lines))
    made = cli(
        "ingest", "--source", "csv", folder / "t.csv", "--columns", columns, "-o", folder / "t.parquet"
    )
    assert made.code == 0, made.err
    return folder / "t.parquet"


def test_counts_are_no_target_beside_another(cli, tmp_path, compared_here):
    table = table_of(cli, tmp_path, "value=zinc,count=n", lambda a: f"{2 + a},3")
    (tmp_path / "run.toml").write_text('method = "local-gp"\n[model]\nsteps = 5\n')
    fit = cli("fit", table, "--config", tmp_path / "run.toml", "-o", tmp_path / "run")
    assert fit.code == 0 and load(tmp_path / "run").target.name == "value", fit.err
    compared = cli("compare", table, "--methods", "knn", "--split", "random", "--json")
    assert compared.code == 0 and json.loads(compared.out)["target"] == "value", compared.err
    asked = cli("fit", table, "--target", "upload", "-o", tmp_path / "other")
    assert asked.code == 3 and "it has tests, value; name it with --target value" in asked.err


def test_thresholds_lie_as_far_as_values_do(cli, tmp_path):
    """The default threshold is one of the values, whatever their size."""
    table, places = table_of(cli, tmp_path, "value=euro", lambda a: 1e13 + 1e12 * a), tmp_path / "t.csv"
    fit = cli("fit", table, "--method", "local-gp", "--set", "steps=5", "-o", tmp_path / "run")
    assert fit.code == 0, fit.err
    result = cli("at", tmp_path / "run", places, "-o", tmp_path / "at.csv")
    assert result.code == 0, result.err
    beyond = cli("at", tmp_path / "run", places, "-o", tmp_path / "b.csv", "--thresholds", "1e101")
    assert (
        beyond.code == 3 and "--thresholds must be finite numbers, at most 1e+100; got 1e+101" in beyond.err
    )


def test_what_has_no_unit_is_told_without_one(cli, tmp_path):
    """Tables say 1 where a value is a pure number, people do not."""
    row = "{:.3f},{}"
    table = table_of(
        cli, tmp_path, "value=index,time=when", lambda a: row.format(2 + a, "2023Q3" if a < 0.5 else "2023Q4")
    )
    quick = ("--method", "local-gp", "--set", "steps=5", "-o", tmp_path / "run")
    assert cli("fit", table, *quick).code == 0
    areas = tmp_path / "areas.geojson"
    geopandas.GeoDataFrame({"name": ["a"]}, geometry=[shapely.box(0, 0, 1, 1)], crs=4326).to_file(areas)
    lines = {
        "areas": ("--areas", areas, "-o", tmp_path / "a.csv", "--samples", "50"),
        "change": (
            "--from",
            "2023Q3",
            "--to",
            "2023Q4",
            "--areas",
            areas,
            "-o",
            tmp_path / "c",
            "--samples",
            "50",
        ),
        "excursions": ("--above", "2.5", "-o", tmp_path / "e", "--samples", "100", "--resolution", "20000"),
    }
    told = {command: cli(command, tmp_path / "run", *line) for command, line in lines.items()}
    assert not {command: result.err for command, result in told.items() if result.code}
    assert re.search(r" mean {2,}95% interval ", told["areas"].out)
    assert re.search(r" change {2,}95% interval ", told["change"].out)
    assert re.search(r"^ 2\.5 {2,}", told["excursions"].out, re.MULTILINE)
    asked = ("suggest", tmp_path / "run", "-n", "2", "--boundary", "90", "-o", tmp_path / "s.geojson")
    assert "on one side of 90 everywhere" in cli(*asked).err

"""`geogp fit --method fmgp --predictor FILE.tif`: the map that is its mean, to the bit, with intervals of its own."""

import shutil

import numpy as np
import pytest
import rasterio

import geogp
from app.workflow.rows import read_rows
from geogp import storage
from geogp.run import load

TINY = ("--steps", 40, "--rank", 16, "-q")


@pytest.fixture(scope="module")
def raster(run, tmp_path_factory):
    """The median map of another run, and its interval's width, which is in Mbit/s too."""
    from app.workflow import export

    folder = tmp_path_factory.mktemp("raster")
    export(run, folder, formats=["cog"], layers=["median", "explained"], resolution_m=3000)
    return folder / "median.tif"


def test_the_mean_is_the_raster(cli, table, raster, tmp_path):
    path = tmp_path / "run"
    line = ("fit", table, "--method", "fmgp", "--predictor", raster, "--split", "random", *TINY, "-o", path)
    result = cli(*line)
    assert result.code == 0, result.err
    run = load(path)
    assert run.facts["arguments"]["predictor"] == {"path": str(raster), "sha256": storage.sha256(raster)}
    assert run.facts["model"]["engine"]["predictor"] == "raster"
    raster_file = shutil.move(raster, tmp_path / "elsewhere.tif")  # the run holds what it needs of it
    rows = read_rows(table, "download")
    with rasterio.open(raster_file) as src:
        values = np.array([v[0] for v in src.sample(rows.X[:, :2])])
    known = np.isfinite(values)
    assert known.mean() > 0.9
    mean = geogp.load(path).model.predict(rows.X, counts=rows.counts)
    assert np.array_equal(mean[known], np.log10(values[known].astype(np.float64) * 1000.0))
    assert np.isfinite(mean).all()  # places in the coast's gaps take the nearest pixel
    assert cli("evaluate", path).code == 0
    out = tmp_path / "out"
    assert (
        cli(
            "export", path, "-o", out, "--format", "cog", "--layers", "median,lower", "--resolution", 3000
        ).code
        == 0
    )
    with rasterio.open(out / "median.tif") as a, rasterio.open(raster_file) as b:
        ours, theirs = a.read(1), b.read(1)
    both = np.isfinite(ours) & np.isfinite(theirs)
    assert both.sum() == np.isfinite(theirs).sum()
    np.testing.assert_allclose(ours[both], theirs[both], rtol=1e-5)  # maps keep moments in float32
    shutil.move(raster_file, raster)


@pytest.mark.parametrize(
    ("case", "code", "words"),
    [
        ("other method", 2, "--method fmgp"),
        ("no raster", 3, "cannot be read as a raster"),
        ("other unit", 3, "is in '1'"),
        ("elsewhere", 3, "does not meet the area"),
        ("a corner", 3, "has no value within 3 pixels of"),
        ("negative", 3, "needs positive values"),
        ("no crs", 3, "no CRS"),
    ],
)
def test_what_is_no_predictor_is_one_sentence(cli, table, raster, tmp_path, case, code, words):
    file = tmp_path / "file.tif"
    with rasterio.open(raster) as src:
        values, profile = src.read(), {**src.profile, "driver": "GTiff"}
        if case == "elsewhere":
            profile["transform"] = rasterio.Affine.translation(3e6, 0) * profile["transform"]
        if case == "a corner":
            values[:, 20:], values[:, :, 20:] = np.nan, np.nan
            values[:, :20, :20] = 50.0
        if case == "negative":
            values = -values
        if case == "no crs":
            profile["crs"] = None
    with rasterio.open(file, "w", **profile) as target:
        target.write(values)
    given = {"no raster": table, "other unit": raster.with_name("explained.tif")}.get(case, file)
    method = "sgpr" if case == "other method" else "fmgp"
    result = cli("fit", table, "--method", method, "--predictor", given, *TINY, "-o", tmp_path / "run")
    assert result.code == code and words in result.err and len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()

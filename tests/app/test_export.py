"""`geogp export` and `geogp slice`: files that are whole, valid, masked, and equal to the model's own numbers."""

import hashlib
import json
import os
from xml.etree import ElementTree

import numpy as np
import pytest
import rasterio
import xarray as xr
from pmtiles.reader import MmapSource, Reader
from pyproj import CRS, Transformer

import geogp
import maps.figures
from app.workflow.steps.export import beyond_words
from geogp import storage
from geogp.run import load

COARSE = ("--resolution", 6000)


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    from app.workflow import evaluate, export

    evaluate(run)
    folder = tmp_path_factory.mktemp("export") / "out"
    result = export(
        run,
        folder,
        formats=["cog", "netcdf", "figures", "html"],
        resolution_m=6000,
        layers=["median", "pi_width", "exceedance"],
    )
    return result


def test_the_manifest_describes_every_file(exported):
    manifest = json.loads((exported.folder / "manifest.json").read_text())
    assert manifest == json.loads(json.dumps(exported.manifest)) and manifest["schema"] == 1
    kinds = {entry["path"]: entry["kind"] for entry in manifest["files"]}
    assert kinds == {
        "median.tif": "cog",
        "pi_width.tif": "cog",
        "exceedance_25.tif": "cog",
        "exceedance_100.tif": "cog",
        "median.qml": "style",
        "pi_width.qml": "style",
        "exceedance_25.qml": "style",
        "exceedance_100.qml": "style",
        "prediction.nc": "netcdf",
        "item.json": "stac",
        "median.png": "figure",
        "pi_width.png": "figure",
        "exceedance_25.png": "figure",
        "exceedance_100.png": "figure",
        "map.html": "html",
    }
    for entry in manifest["files"]:
        content = (exported.folder / entry["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"] and len(content) == entry["bytes"]
    assert {p.name for p in exported.folder.iterdir()} == {*kinds, "manifest.json"}


def test_files_carry_the_certificate(exported, run, cli, tmp_path):
    """In short: what the intervals kept, of which rows; nothing from a run that was never evaluated."""
    whole = json.loads((run / "certificate.json").read_text())
    in_short = exported.manifest["certificate"]
    assert (in_short["split"], in_short["part"], in_short["n"]) == ("random", "test", whole["n"])
    assert in_short["groups"]["all"]["achieved"] == pytest.approx(
        whole["groups"]["all"]["achieved"], abs=1e-4
    )
    with xr.open_dataset(exported.folder / "prediction.nc", engine="h5netcdf") as ds:
        assert json.loads(ds.attrs["certificate"]) == in_short
        said = ds.attrs["calibration"]
    assert "95% prediction intervals held" in said and "test part of split random" in said and "urban" in said
    with rasterio.open(exported.folder / "median.tif") as src:
        assert json.loads(src.tags()["certificate"]) == in_short and src.tags()["calibration"] == said
    assert '"Calibration","95% prediction intervals held' in (exported.folder / "map.html").read_text()

    import shutil

    bare = tmp_path / "run"
    shutil.copytree(run, bare)
    from app.workflow import update

    update(bare, forget="2022Q1")  # which takes the certificate of the old run with it
    assert not (bare / "certificate.json").exists()
    assert (
        cli(
            "export", bare, "-o", tmp_path / "out", *COARSE, "--layers", "median", "--format", "cog,zarr"
        ).code
        == 0
    )
    assert "certificate" not in json.loads((tmp_path / "out" / "manifest.json").read_text())
    with rasterio.open(tmp_path / "out" / "median.tif") as src:
        assert "calibration" not in src.tags()


def test_pixels_are_the_models_own(exported, run):
    loaded = load(run)
    with xr.open_dataset(exported.folder / "prediction.nc", engine="h5netcdf") as ds:
        median = ds["median"].values
        rows, cols = np.nonzero(np.isfinite(median))
        i, j = rows[len(rows) // 2], cols[len(cols) // 2]
        X = np.array([[ds["x"].values[j], ds["y"].values[i], 2023.875]])
        assert ds.attrs["quarter"] == "2023Q4" and ds.attrs["title"] == "Fixed download speed, HY"
    expected = 10 ** (loaded.model.predictive(X).median()[0] - 3)
    assert median[i, j] == pytest.approx(expected, rel=1e-4)
    with rasterio.open(exported.folder / "median.tif") as src:
        np.testing.assert_array_equal(src.read(1), median)


def test_the_mask_is_the_region(exported, world):
    import shapely

    with xr.open_dataset(exported.folder / "prediction.nc", engine="h5netcdf") as ds:
        x, y = np.meshgrid(ds["x"].values, ds["y"].values)
        crs, inside = ds["spatial_ref"].attrs["crs_wkt"], np.isfinite(ds["median"].values)
    lon, lat = Transformer.from_crs(crs, 4326, always_xy=True).transform(x, y)
    truth = shapely.contains_xy(world.land(), lon, lat)
    assert (inside != truth).mean() < 0.01


def test_rasters_pass_their_validators(exported, run, tmp_path):
    import subprocess
    import sys

    from rio_cogeo.cogeo import cog_validate

    from app.workflow import slice as write_slice

    slice_ = write_slice(run, (-143.0, 34.0), tmp_path / "slice.tif", resolution_m=6000)
    for path in (*exported.folder.glob("*.tif"), slice_):
        assert cog_validate(path, strict=True, quiet=True)[0], path.name
    checker = os.path.join(os.path.dirname(sys.executable), "compliance-checker")
    done = subprocess.run(
        [checker, "--test=cf:1.8", str(exported.folder / "prediction.nc")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_the_page_asks_for_nothing_outside(exported):
    text = (exported.folder / "map.html").read_text(encoding="utf-8")
    assert "Fixed download speed, HY" in text and "default-src 'none'" in text
    assert "<script src" not in text and "<link" not in text


def test_options_reach_the_map(cli, run, tmp_path):
    out = tmp_path / "out"
    line = ("export", run, "-o", out, "--format", "netcdf", *COARSE, "--quarter", "2022Q1", "--level", "0.8")
    result = cli(
        *line, "--tests", 3, "--thresholds", "10,50", "--layers", "median,exceedance", "--crs", "EPSG:4326"
    )
    assert result.code == 0, result.err
    assert result.out == "" and "2 files" in result.err
    with xr.open_dataset(out / "prediction.nc", engine="h5netcdf") as ds:
        assert ds.attrs["quarter"] == "2022Q1" and ds.attrs["level"] == 0.8 and ds.attrs["tests"] == 3
        assert ds["threshold"].values.tolist() == [10, 50] and set(ds.data_vars) >= {"median", "exceedance"}
        assert -150 < float(ds["x"].mean()) < -135 and "pi_width" not in ds


def test_a_threshold_can_be_asked_for_by_its_layers_name(cli, run, tmp_path):
    line = ("export", run, "-o", tmp_path, "--format", "cog", *COARSE, "--layers", "exceedance_50")
    assert cli(*line).code == 0 and (tmp_path / "exceedance_50.tif").is_file()


def test_like_takes_the_very_pixels_of_a_raster(cli, run, exported, tmp_path):
    like = exported.folder / "median.tif"
    assert cli("export", run, "-o", tmp_path, "--format", "cog", "--layers", "mean", "--like", like).code == 0
    with rasterio.open(like) as a, rasterio.open(tmp_path / "mean.tif") as b:
        assert (a.transform, a.shape, a.crs) == (b.transform, b.shape, b.crs)
        np.testing.assert_array_equal(np.isnan(a.read(1)), np.isnan(b.read(1)))


def test_a_dry_run_writes_nothing(cli, run, tmp_path):
    out = tmp_path / "out"
    result = cli("export", run, "-o", out, *COARSE, "--dry-run", "--json")
    document = json.loads(result.out)
    assert result.code == 0 and result.err == "" and not out.exists()
    assert document["dry_run"] and document["pixels"] == document["width"] * document["height"]
    assert 0 < document["pixels_inside"] < document["pixels"]
    assert document["bytes"] > 0 and document["seconds"] > 0
    assert "pixels" in cli("export", run, "-o", out, *COARSE, "--dry-run").out


BAD = {
    "no run": ([], "is not a run folder"),
    "format": (["--format", "pdf"], "pdf"),
    "layer": (["--layers", "speed"], "speed"),
    "threshold layer": (["--layers", "exceedance_fast"], "exceedance_fast"),
    "quarter": (["--quarter", "2023-4"], "2023-4"),
    "level": (["--level", "95"], "95"),
    "tests": (["--tests", "0"], "--tests"),
    "threshold": (["--thresholds", "-5"], "-5"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_one_sentence_and_leaves_nothing(case, cli, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options, fragment = BAD[case]
    result = cli("export", "nowhere" if case == "no run" else run, "-o", "out", *COARSE, *options)
    assert result.code == 3 and fragment in result.err
    assert len(result.err.strip().splitlines()) == 1 and result.out == ""
    assert list(tmp_path.iterdir()) == []


def test_existing_files_are_refused_unless_overwritten(cli, run, tmp_path):
    for name, kind in (
        ("median.tif", "cog"),
        ("median.png", "figures"),
        ("map.html", "html"),
        ("prediction.nc", "netcdf"),
    ):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / name).write_text("precious")
        line = ("export", run, "-o", folder, "--format", kind, "--layers", "median", *COARSE)
        result = cli(*line)
        assert result.code == 3 and name in result.err and (folder / name).read_text() == "precious"
        assert cli(*line, "--overwrite").code == 0 and (folder / name).read_bytes() != b"precious"
        style = {"median.qml"} if kind == "cog" else set()
        assert {p.name for p in folder.iterdir()} == {name, "item.json", "manifest.json", *style}


def test_an_interrupted_export_leaves_nothing(run, tmp_path):
    from app.errors import Interrupted
    from app.workflow import export

    def stop(done, total, words):
        raise Interrupted

    with pytest.raises(Interrupted):
        export(run, tmp_path / "out", resolution_m=6000, progress=stop)
    assert not (tmp_path / "out").exists()


def test_an_interrupted_export_goes_on(run, tmp_path, monkeypatch):
    """It says so, asks the model for nothing again, and ends in the files of an unbroken one; of other tests it starts anew."""
    from app.errors import Interrupted
    from app.workflow import export

    for place in ("app.workflow.steps.export", "maps.sinks.journal"):
        monkeypatch.setattr(f"{place}.FEWEST", 1)  # one window is all that this map has
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    asked, engine = [], type(load(run).model.engine_)
    own = engine.moments

    def moments(self, X, *counts, **more):
        asked.append(len(X))
        return own(self, X, *counts, **more)

    def stop(*_):
        raise Interrupted

    monkeypatch.setattr(engine, "moments", moments)
    wanted = {"formats": ["cog"], "resolution_m": 6000, "layers": ["median"]}
    export(run, tmp_path / "whole", **wanted)
    colours, once = asked[0], sum(asked)  # the places that the scale of colours is made from come first
    with pytest.raises(Interrupted) as stopped:
        export(run, tmp_path / "out", progress=stop, **wanted)
    assert stopped.value.words == "the same command goes on after 1 of 1 windows"
    assert sum(asked) == 2 * once > 0 and (tmp_path / ".out.windows").is_dir()
    export(run, tmp_path / "out", **wanted)
    assert sum(asked) == 2 * once + colours and not (tmp_path / ".out.windows").exists()
    assert (tmp_path / "out/median.tif").read_bytes() == (tmp_path / "whole/median.tif").read_bytes()
    with pytest.raises(Interrupted):
        export(run, tmp_path / "again", progress=stop, **wanted)
    export(run, tmp_path / "again", tests=1, **wanted)
    assert sum(asked) == 4 * once + colours


def test_a_distance_to_data_holds_inside_the_region_too(cli, run, exported, tmp_path):
    line = ("export", run, "-o", tmp_path / "out", "--format", "cog", "--layers", "median", *COARSE)
    result = cli(*line, "--max-distance", 2000)
    assert result.code == 0, result.err
    with rasterio.open(tmp_path / "out" / "median.tif") as src:
        kept, transform = np.isfinite(src.read(1)), src.transform
    with rasterio.open(exported.folder / "median.tif") as src:
        inside = np.isfinite(src.read(1))
    x, y = transform * (
        np.arange(kept.size) % kept.shape[1] + 0.5,
        np.arange(kept.size) // kept.shape[1] + 0.5,
    )
    near = np.isfinite(load(run).support.distances_m(np.column_stack([x, y]), 2000)).reshape(kept.shape)
    np.testing.assert_array_equal(kept, inside & near)
    assert 0.1 < kept.sum() / inside.sum() < 0.9
    told = cli(*line, "--max-distance", 2000, "--overwrite", "--dry-run", "--json")
    # Judged by some 1,700 pixels that are drawn: standard error 6%.
    assert json.loads(told.out)["pixels_inside"] == pytest.approx(kept.sum(), rel=0.2)


def test_the_manifest_tells_the_range_of_each_layer(exported):
    for name, (low, high) in exported.manifest["ranges"].items():
        with rasterio.open(exported.folder / f"{name}.tif") as src:
            values = src.read(1)
        assert (low, high) == pytest.approx((np.nanmin(values), np.nanmax(values)))
    assert {"median", "pi_width", "exceedance_25"} <= set(exported.manifest["ranges"])


def test_medians_beyond_what_was_measured_are_said(run):
    loaded = load(run)
    low, high = 10 ** (np.array(loaded.model.target_range_) - 3)
    assert beyond_words(loaded, (low * 1.01, high * 0.99)) == beyond_words(loaded, None) == ""
    assert beyond_words(loaded, (low, high + 1e-6)) == ""  # no more than rounding
    said = beyond_words(loaded, (low * 1.01, high * 1.5))
    assert (
        f"to {high * 1.5:.4g} Mbit/s, measured was {low:.4g} to {high:.4g}" in said
        and "--max-distance" in said
    )


def test_a_region_without_boundary_is_masked_by_its_support(cli, run, tmp_path):
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    facts = json.loads((copy / "run.json").read_text())
    storage.update_facts(copy, {"data": {**facts["data"], "boundary": None}})
    line = ("export", copy, "-o", tmp_path / "out", "--format", "cog", "--layers", "median", *COARSE)
    result = cli(*line, "--max-distance", 9000)
    assert result.code == 0 and "9 km" in result.err
    with rasterio.open(tmp_path / "out" / "median.tif") as src:
        values, transform = src.read(1), src.transform
    rows, cols = np.nonzero(np.isfinite(values))
    places = load(copy).tensors("support")["positions_m"].numpy()
    for row, col in list(zip(rows, cols))[::25]:
        x, y = transform * (col + 0.5, row + 0.5)
        assert np.hypot(*(places - [x, y]).T).min() <= 9000


def test_slice_has_two_bands_and_is_one_at_its_place(cli, run, world, tmp_path):
    output = tmp_path / "slice.tif"
    lon, lat = world.to_degrees(0.0, 0.0)
    result = cli("slice", run, "--at", f"{lon:.6f}", f"{lat:.6f}", "-o", output, "--resolution", 3000)
    assert result.code == 0 and result.out == "", result.err
    with rasterio.open(output) as src:
        assert src.count == 2
        covariance, correlation = src.read()
        x, y = Transformer.from_crs(4326, src.crs, always_xy=True).transform(lon, lat)
        row, col = src.index(x, y)
        centre = src.transform * (col + 0.5, row + 0.5)
    assert correlation[row, col] > 0.95 and np.nanmax(np.abs(correlation)) <= 1
    loaded = load(run)
    at, ref = np.array([[*centre, 2023.875]]), np.array([x, y, 2023.875])
    assert covariance[row, col] == pytest.approx(loaded.model.kernel_slice(at, ref)[0], rel=1e-4)
    assert cli("slice", run, "--at", lon, lat, "-o", output).code == 3
    earlier = cli(
        "slice",
        run,
        "--at",
        lon,
        lat,
        "--quarter",
        "2022Q1",
        "-o",
        output,
        "--overwrite",
        "--resolution",
        3000,
    )
    assert earlier.code == 0


@pytest.mark.parametrize("at", [("34.0", "-143.0"), ("500", "10"), ("10", "50"), ("-143", "40")])
def test_a_place_that_is_none_or_outside_is_refused(at, cli, run, tmp_path):
    result = cli("slice", run, "--at", *at, "-o", tmp_path / "slice.tif")
    assert result.code == 3 and "LON LAT" in result.err and list(tmp_path.iterdir()) == []


def test_the_python_way_gives_the_same_dataset(run):
    from app.workflow.grids import grid_of
    from app.workflow.steps.export import prediction

    loaded = geogp.load(run)
    ds = prediction(loaded, grid_of(loaded, resolution_m=12000))
    assert ds.sizes["y"] > 5 and float(ds["exceedance"].max()) <= 1


def test_any_other_measurement_goes_the_whole_way(cli, tmp_path):
    """Points without time, count, region or labels: ingest, fit, evaluate, export by support."""
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(5, 6, 300), rng.uniform(50, 51, 300)
    value = 3 * np.sin(6 * lon) + rng.normal(0, 0.3, 300)
    csv, table, run = tmp_path / "rain.csv", tmp_path / "rain.parquet", tmp_path / "run"
    csv.write_text("\n".join(["lon,lat,mm", *(f"{a},{b},{c}" for a, b, c in zip(lon, lat, value))]))
    columns = "x=lon,y=lat,value=mm"
    assert (
        cli("ingest", "--source", "csv", csv, "--columns", columns, "--value-unit", "mm", "-o", table).code
        == 0
    )
    line = ("fit", table, "--target", "value", "--method", "dbk-silu", "--split", "random", "--epochs", 5)
    assert cli(*line, "--rank", 16, "--hidden", 16, "-o", run).code == 0
    document = json.loads(cli("evaluate", run, "--json").out)
    assert document["scores_mbps"] is None and document["scores_native"]["unit"] == "mm"
    assert set(document["strata"]) == {"near", "far"}
    result = cli("export", run, "-o", tmp_path / "out", "--format", "netcdf", "--resolution", 5000)
    assert result.code == 0 and "no boundary" in result.err
    with xr.open_dataset(tmp_path / "out" / "prediction.nc", engine="h5netcdf") as ds:
        assert ds["median"].attrs["units"] == "mm" and np.isfinite(ds["median"].values).any()


def test_samples_are_coherent_maps_of_the_surface(cli, run, tmp_path):
    """Neighbouring pixels rise and fall together, with the surface's own spread."""
    line = (
        "export",
        run,
        "-o",
        tmp_path / "out",
        "--format",
        "netcdf",
        "--layers",
        "latent_median,latent_sd",
    )
    result = cli(*line, "--resolution", 12_000, "--samples", 300)
    assert result.code == 0, result.err
    with xr.open_dataset(tmp_path / "out" / "samples.nc", engine="h5netcdf") as ds:
        draws = np.log10(ds["surface"].values) + 3
        assert ds["surface"].attrs["units"] == "Mbit/s" and "GeoGP method" in ds.attrs["source"]
        assert CRS.from_wkt(ds["spatial_ref"].attrs["crs_wkt"]).is_projected
    with xr.open_dataset(tmp_path / "out" / "prediction.nc", engine="h5netcdf") as ds:
        median, sd = np.log10(ds["latent_median"].values) + 3, ds["latent_sd"].values
    np.testing.assert_array_equal(np.isnan(draws[0]), np.isnan(median))
    inside = np.isfinite(median)
    assert np.abs(draws.mean(0) - median)[inside].max() < 5 * sd[inside].max() / np.sqrt(300)
    np.testing.assert_allclose(draws.std(0)[inside], sd[inside], rtol=5 / np.sqrt(600))
    errors = draws - draws.mean(0)
    pairs = inside[:, :-1] & inside[:, 1:]
    near = (errors[:, :, :-1] * errors[:, :, 1:]).mean(0)[pairs] / (draws.std(0) ** 2)[:, :-1][pairs]
    assert np.median(near) > 0.2


def test_pixels_can_be_the_tiles(cli, run, table, tmp_path):
    import pandas as pd
    import pyarrow.parquet as pq

    west, south, east, north = -143.4, 33.9, -143.0, 34.2
    line = ("export", run, "-o", tmp_path / "out", "--format", "csv", "--layers", "median", "--tiles")
    assert cli(*line, "--bounds", west, south, east, north).code == 0
    found = pd.read_csv(tmp_path / "out" / "prediction.csv", dtype={"quadkey": str}).set_index("quadkey")
    known = pq.read_table(table).to_pandas()
    known = known[known["quadkey"].isin(found.index)].drop_duplicates("quadkey")
    assert len(known) > 5
    np.testing.assert_allclose(found.loc[known["quadkey"], "lon"], known["lon"], atol=1e-6)
    result = cli(*line, "--resolution", 100, "--overwrite")
    assert result.code == 3 and "--tiles chooses" in result.err


def test_an_estimate_counts_what_the_mask_leaves_and_too_little_memory_is_refused(cli, run, tmp_path):
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    facts = json.loads((copy / "run.json").read_text())
    storage.update_facts(copy, {"data": {**facts["data"], "boundary": None}})
    where = ("-o", tmp_path / "out", "--format", "cog", "--layers", "median", *COARSE, "--max-distance", 9000)
    guess = json.loads(cli("export", copy, *where, "--dry-run", "--json").out)
    assert guess["memory"] > 2**28
    small = cli("export", copy, *where, "--max-memory", "100MiB")
    assert small.code == 3 and "--max-memory" in small.err and not (tmp_path / "out").exists()
    assert cli("export", copy, *where).code == 0
    with rasterio.open(tmp_path / "out" / "median.tif") as src:
        assert np.isfinite(src.read(1)).sum() == pytest.approx(guess["pixels_inside"], rel=0.1)


def test_a_run_has_one_scale_of_colours_wherever_it_is_seen(run, tmp_path, monkeypatch):
    """Styles, tiles, figures, page and report, of any grid and part: those of the dashboard."""
    from app.workflow import export
    from app.workflow.page import legend_of, usual_page
    from app.workflow.steps import report

    loaded = load(run)
    legend = legend_of(usual_page(loaded))
    scale, faded = legend.scales["level"], legend.faded
    drawn = []

    def kept(*arguments, **options):
        drawn.append(options)
        return map_figure(*arguments, **options)

    map_figure = maps.figures.map_figure
    monkeypatch.setattr(maps.figures, "map_figure", kept)
    monkeypatch.setattr(report, "map_figure", kept)
    lon, lat = loaded.to_degrees(np.median(loaded.support.positions_m, axis=0)[None])
    part = (lon[0] - 0.3, lat[0] - 0.3, lon[0] + 0.3, lat[0] + 0.3)
    asked = {"layers": ["median"], "formats": ["cog", "pmtiles", "figures"]}
    for k, where in enumerate(({"resolution_m": 6000}, {"resolution_m": 2500, "bounds": part})):
        out = tmp_path / str(k)
        export(run, out, **asked, **where)
        style = ElementTree.fromstring((out / "median.qml").read_text().split("\n", 1)[1])
        shader = style.find("pipe/rasterrenderer/rastershader/colorrampshader").attrib
        assert [float(shader[f"{end}imumValue"]) for end in ("min", "max")] == [scale.low, scale.high]
        with (out / "median.pmtiles").open("rb") as file:
            told = Reader(MmapSource(file)).metadata()["geogp"]
        assert [told["legend"][0]["value"], told["legend"][-1]["value"]] == [scale.low, scale.high]
    report.report(run, tmp_path / "r.html")
    assert [options["limits"]["level"] for options in drawn] == 3 * [(scale.low, scale.high)]
    assert drawn[-1]["suppressed"] == faded

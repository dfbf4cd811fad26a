"""`geogp areas`: numbers that are the model's own, files that are whole, and one sentence for what cannot be."""

import json

import geopandas
import numpy as np
import pyarrow.parquet as pq
import pytest
import shapely
import shapely.affinity
import xarray as xr
from pyproj import Transformer

from app.workflow import areas, polygons
from app.workflow.means import covariance_of, of_draws
from app.workflow.polygons import Ground, in_plane, points_in, points_in_each, read_polygons
from app.workflow.steps.areas import READ_BACK, _holds
from geogp import storage
from geogp.areas import area_moments
from geogp.run import load
from tests.quick import in_parts

FEW = ("--resolution", 6000, "--samples", 50)


@pytest.fixture(scope="module")
def field(table, tmp_path_factory):
    """A finished run of a local field."""
    from app.cli import main

    path = tmp_path_factory.mktemp("field") / "run"
    quick = "options={steps=20, n_targets=300, epochs=2, neighbours=24, metric=false}"
    line = ["fit", str(table), "--method", "geogp", "--set", quick, "-o", str(path), "-q"]
    with in_parts():
        assert main(line) == 0
    return path


def boxes(world, *sizes, centre=(0.0, 0.0), crs=4326):
    """A frame of boxes of the world's plane, one for each (left, bottom, right, top) in km."""
    shapes = []
    for left, bottom, right, top in sizes:
        ring = [
            world.to_degrees(x, y) for x, y in ((left, bottom), (right, bottom), (right, top), (left, top))
        ]
        shapes.append(shapely.Polygon(ring))
    names = [f"box {i}" for i in range(len(shapes))]
    return geopandas.GeoDataFrame(
        {"label": range(len(shapes)), "name": names}, geometry=shapes, crs=4326
    ).to_crs(crs)


HALVES = ((-20, -15, 0, 15), (0, -15, 20, 15), (-20, -15, 20, 15))


@pytest.fixture
def file(world, tmp_path):
    path = tmp_path / "boxes.geojson"
    boxes(world, *HALVES).to_file(path)
    return path


def test_areas_are_the_joint_posteriors(cli, field, file, tmp_path):
    out = tmp_path / "areas.parquet"
    result = cli(
        "areas",
        field,
        "--areas",
        file,
        "-o",
        out,
        "--resolution",
        3000,
        "--samples",
        400,
        "--json",
    )
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert document["schema"] == 1 and document["run"] == "run"
    assert (
        document["quarter"] == "2023Q4"
        and document["unit"] == "Mbit/s"
        and document["thresholds"] == [25, 100]
    )
    assert [entry["path"] for entry in document["files"]] == ["areas.parquet", "areas_covariance.nc"]
    assert str(tmp_path) not in result.out
    table = geopandas.read_parquet(out)
    written = pq.read_metadata(out)
    covering = json.loads(written.metadata[b"geo"])["columns"]["geometry"]["covering"]["bbox"]
    assert covering["xmin"] == ["bbox", "xmin"] and "bbox" not in table.columns
    assert {written.row_group(0).column(i).compression for i in range(written.num_columns)} == {"ZSTD"}
    assert table["name"].tolist() == ["box 0", "box 1", "box 2"] and table.crs == 4326
    assert [row["mean"] for row in document["areas"]] == table["mean"].tolist()

    run = load(field)
    assert document["reference_count"] == run.model.reference_count_ > 1
    ground = Ground.of(run)
    shapes = [ground.part(shape) for shape in in_plane(read_polygons(file), run)]
    np.testing.assert_allclose(table["area_km2"], [shape.area / 1e6 for shape in shapes])
    for i, shape in enumerate(shapes):
        P = points_in(shape, round(shape.area / 3000**2))
        assert len(P) == table["n_points"][i] > 20 and shapely.contains_xy(shape, P[:, 0], P[:, 1]).all()
        X = np.column_stack([P, np.full(len(P), 2023.875)])
        found = area_moments(run.model, X, np.full((1, len(P)), 1 / len(P)))
        assert table["latent_mean"][i] == pytest.approx(found.mean[0], rel=1e-6)
        # How much a Student-t observation weighs is a mean over all places that lean on it, here those of one area.
        assert table["latent_sd"][i] == pytest.approx(found.sd[0], rel=1e-3)
        mean, sd = (np.log(10) * v for v in run.model.predict(X, return_std=True, latent=True))
        speed = np.exp(mean + 0.5 * sd**2) / 1000  # of a lognormal
        assert table["mean"][i] == pytest.approx(speed.mean(), abs=4 * table["sd"][i] / np.sqrt(400))
        below = 1 - run.model.exceedance(X, 5.0, latent=True).mean()
        assert table["share_below_100"][i] == pytest.approx(below, abs=0.05)
    assert (table["lower"] < table["median"]).all() and (table["median"] < table["upper"]).all()
    assert (table["share_below_25"] <= table["share_below_100"]).all()
    assert ((table["share_below_100_upper"] <= 1) & (table["share_below_100_lower"] >= 0)).all()

    with xr.open_dataset(tmp_path / "areas_covariance.nc", engine="h5netcdf") as ds:
        exact, drawn = ds["latent_covariance"].values, ds["covariance"].values
        assert ds["name"].values.tolist() == ["box 0", "box 1", "box 2"] and ds.attrs["method"] == "geogp"
        assert ds["covariance"].attrs["units"] == "(Mbit/s)2" and str(tmp_path) not in str(ds.attrs)
    np.testing.assert_allclose(np.sqrt(exact.diagonal()), table["latent_sd"], rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(drawn.diagonal()), table["sd"], rtol=1e-9)
    assert np.linalg.eigvalsh(exact).min() > -1e-12
    # Parts and whole, each by its own points: about additive, and the parts go with the whole.
    share = (table["area_km2"] / table["area_km2"][2]).to_numpy()[:2]
    assert table["latent_mean"][2] == pytest.approx(share @ table["latent_mean"][:2], abs=0.02)
    assert exact[2, 2] == pytest.approx(share @ exact[:2, :2] @ share, rel=0.3)
    assert exact[0, 2] > 0 and exact[1, 2] > 0


def test_any_method_any_format_any_crs(cli, run, world, file, tmp_path):
    """The same polygons as GeoPackage in another CRS give the same numbers; the table is for people."""
    moved = tmp_path / "moved.gpkg"
    boxes(world, *HALVES, crs=3857).to_file(moved)
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for source, out in ((file, first), (moved, second)):
        result = cli("areas", run, "--areas", source, "-o", out, *FEW, "--thresholds", "50", "--level", 0.8)
        assert result.code == 0 and "box 1" in result.out and "80% interval" in result.out, result.err
        assert "below 50" in result.out and "3 areas" in result.err
    a, b = geopandas.read_parquet(first), geopandas.read_parquet(second)
    assert b.crs == 3857
    np.testing.assert_allclose(a["area_km2"], b["area_km2"], rtol=1e-4)
    np.testing.assert_allclose(a["latent_mean"], b["latent_mean"], atol=1e-3)
    again = tmp_path / "c.parquet"
    b.to_parquet(tmp_path / "given.parquet")  # with columns of our own names
    assert cli("areas", run, "--areas", tmp_path / "given.parquet", "-o", again, *FEW).code == 0
    assert {"mean_given", "mean"} <= set(geopandas.read_parquet(again).columns)


def test_what_lies_outside_has_no_numbers(cli, field, world, tmp_path):
    path, out = tmp_path / "boxes.parquet", tmp_path / "areas.parquet"
    boxes(world, (-3, -3, 3, 3), (2000, 500, 2010, 510), (-0.01, -0.01, 0.01, 0.01)).to_parquet(path)
    result = cli("areas", field, "--areas", path, "-o", out, "--samples", 20, "--json")
    assert result.code == 0 and "1 of 3 polygons" in result.err
    rows = json.loads(result.out)["areas"]
    assert rows[1]["mean"] is None and rows[1]["n_points"] == 0 and rows[1]["share_inside"] == 0
    assert rows[2]["n_points"] >= 1 and rows[2]["sd"] > 0  # smaller than any tile
    with xr.open_dataset(tmp_path / "areas_covariance.nc", engine="h5netcdf") as ds:
        assert ds["area"].values.tolist() == [0, 2] and np.isfinite(ds["covariance"].sel(area=0, other=2))


def test_a_run_without_boundary_averages_where_its_data_reach(field, world, tmp_path):
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(field, copy)
    facts = json.loads((copy / "run.json").read_text())
    storage.update_facts(copy, {"data": {**facts["data"], "boundary": None}})
    path = tmp_path / "boxes.geojson"
    boxes(world, (-10, -10, 10, 10), (-300, -300, 300, 300)).to_file(path)
    table = areas(copy, path, tmp_path / "areas.parquet", n_samples=20).table
    assert table["share_inside"][0] > 0.9 and table["share_inside"][1] < 0.5


@pytest.mark.parametrize("meshed", [1, 500, 1 << 18])
def test_points_of_many_polygons_are_those_of_each(meshed, monkeypatch):
    """However many are looked at together, slivers that take a closer mesh and polygons that are not there among them."""
    monkeypatch.setattr(polygons, "MESHED", meshed)
    rng = np.random.default_rng(0)
    parts = []
    for k in range(40):
        x, y, angle = rng.uniform(0, 1e5, 2), rng.uniform(1, 3e4, 2), rng.uniform(0, 90)
        sides = y * (1.0, 1e-4 if k % 5 == 0 else 1.0)
        parts.append(shapely.affinity.rotate(shapely.box(*x, *(x + sides)), angle) if k % 7 else None)
    wanted = rng.integers(0, 120, 40)
    P, owner = points_in_each(parts, wanted)
    each = {k: points_in(part, int(wanted[k])) for k, part in enumerate(parts) if part is not None}
    np.testing.assert_array_equal(P, np.concatenate(list(each.values())))
    np.testing.assert_array_equal(owner, np.repeat(list(each), [len(Q) for Q in each.values()]))
    none, nobody = points_in_each([None, None], [5, 5])
    assert none.shape == (0, 2) and len(nobody) == 0


def test_points_fill_thin_and_tiny_polygons():
    thin = shapely.LineString([(0, 0), (10_000, 9000)]).buffer(20)
    P = points_in(thin, 200)
    assert 100 <= len(P) < 1000 and shapely.contains_xy(thin, P[:, 0], P[:, 1]).all()
    assert len(points_in(shapely.box(0.4, 0.4, 0.41, 0.41), 1)) >= 1
    sliver = shapely.Polygon([(0, 0), (1e6, 1e-4), (1e6, 0)])
    assert len(points_in(sliver, 10)) >= 1


BAD = {
    "no file": ("nowhere.geojson", (), "does not exist"),
    "not a vector file": ("text.geojson", (), "cannot be read"),
    "empty": ("empty.geojson", (), "holds no polygon"),
    "without CRS": ("bare.parquet", (), "coordinate reference system"),
    "bow tie": ("bow.geojson", (), "Row 1 of bow.geojson is not valid (Self-intersection"),
    "point": ("point.geojson", (), "Row 0 of point.geojson is a Point"),
    "outside": ("outside.geojson", (), "No polygon of outside.geojson meets the region"),
    "quarter": ("good.geojson", ("--quarter", "2023-4"), "2023-4"),
    "level": ("good.geojson", ("--level", "95"), "--level"),
    "threshold": ("good.geojson", ("--thresholds", "-5"), "-5"),
    "resolution": ("good.geojson", ("--resolution", "0"), "--resolution"),
    "too fine": ("good.geojson", ("--resolution", "10"), "coarser"),
    "samples": ("good.geojson", ("--samples", "1"), "--samples"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_one_sentence_and_leaves_nothing(case, cli, run, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, options, words = BAD[case]
    good = boxes(world, *HALVES)
    bow = shapely.Polygon([(-143, 34), (-142, 35), (-142, 34), (-143, 35)])
    frames = {
        "good.geojson": good, "bow.geojson": geopandas.GeoDataFrame(geometry=[good.geometry[0], bow], crs=4326),
        "point.geojson": geopandas.GeoDataFrame(geometry=[shapely.Point(-143, 34)], crs=4326),
        "outside.geojson": boxes(world, (2000, 500, 2010, 510)),
    }  # fmt: skip
    if name in frames:
        frames[name].to_file(name)
    (tmp_path / "text.geojson").write_text("no polygons here")
    (tmp_path / "empty.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    good.set_crs(None, allow_override=True).to_parquet("bare.parquet")
    before = sorted(p.name for p in tmp_path.iterdir())
    result = cli("areas", run, "--areas", name, "-o", "out.parquet", *options)
    assert result.code == 3 and words in result.err and result.out == "", result.err
    assert len(result.err.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_existing_files_are_refused_unless_overwritten(cli, run, file, tmp_path):
    for name in ("areas.parquet", "areas_covariance.nc"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("precious")
        line = ("areas", run, "--areas", file, "-o", folder / "areas.parquet", *FEW)
        result = cli(*line)
        assert result.code == 3 and name in result.err and (folder / name).read_text() == "precious"
        assert cli(*line, "--overwrite").code == 0 and (folder / name).read_bytes() != b"precious"
        assert {p.name for p in folder.iterdir()} == {"areas.parquet", "areas_covariance.nc"}
    result = cli("areas", run, "--areas", file, "-o", tmp_path / "areas.txt")
    assert result.code == 3 and ".gpkg" in result.err
    assert cli("areas", run, "-o", tmp_path / "areas.parquet").code == 2
    assert cli("areas", tmp_path / "no-run", "--areas", file, "-o", tmp_path / "a.parquet").code == 3


def test_dense_methods_say_how_many_places_they_take(cli, table, file, tmp_path, monkeypatch):
    path = tmp_path / "run"
    line = ("fit", table, "--method", "sgpr", "--rank", "16", "--epochs", "2", "-o", path, "-q")
    assert cli(*line).code == 0
    monkeypatch.setattr("geogp.engines.base.MOST_DENSE", 200)
    out = tmp_path / "areas.parquet"
    assert cli("areas", path, "--areas", file, "-o", out, "--samples", 20).code == 0
    assert geopandas.read_parquet(out)["n_points"].sum() <= 200
    result = cli("areas", path, "--areas", file, "-o", out, "--resolution", 1000, "--overwrite")
    assert result.code == 3 and "at most 200" in result.err


def test_degrees_of_the_world_are_those_of_its_run(world, run):
    """The boxes above lie where they say."""
    loaded = load(run)
    east, north = Transformer.from_crs(4326, loaded.facts["data"]["crs"], always_xy=True).transform(
        *world.to_degrees(0.0, 0.0)
    )
    assert Ground.of(loaded).outline.distance(shapely.Point(east, north)) == 0


def test_covariances_of_draws_are_numpys():
    draws = np.random.default_rng(0).normal(3.0, 2.0, (5, 40))
    draws[3] = np.nan
    found = covariance_of(draws)
    np.testing.assert_allclose(found, np.cov(draws), rtol=1e-12)
    assert np.array_equal(found, found.T, equal_nan=True)


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("times", [0, 3, 12, 13, 250, 488, 497, 500])
def test_an_interval_holds_its_mean_and_as_many_draws_as_it_says(times, level):
    """Where 12 of 500 draws lie below a limit and the others above, the share was 2.4% and its interval 0 to 0."""
    rng = np.random.default_rng(times)
    values = np.array(
        [
            rng.permutation(np.arange(500) < times),
            rng.normal(size=500),
            rng.lognormal(0, 4, 500),
            np.full(500, np.nan),
        ]
    )
    found = of_draws(values.astype(np.float64), level)
    ends, mean = (found["lower"], found["upper"]), found["mean"]
    plain = np.quantile(values.astype(np.float64), [(1 - level) / 2, (1 + level) / 2], axis=1)
    for row in range(3):
        assert ends[0][row] <= mean[row] <= ends[1][row]
        inside = (values[row] >= ends[0][row]) & (values[row] <= ends[1][row])
        assert inside.mean() >= level - 0.004  # an end lies between two draws
        if plain[0][row] <= mean[row] <= plain[1][row]:
            assert (ends[0][row], ends[1][row]) == tuple(plain[:, row])
        else:
            assert mean[row] in (ends[0][row], ends[1][row])
    assert np.isnan([v[3] for v in found.values()]).all()


def test_a_rare_share_lies_in_its_interval(cli, field, world, tmp_path):
    """Of a small area a few draws lie below a low limit: `0.8% (0.0 - 0.0)` was printed."""
    boxes(world, (-1, -1, 1, 1), (4, 4, 6, 6), (0, 8, 1, 9)).to_file(tmp_path / "b.geojson")
    limits = [4, 6, 8, 10, 12, 15, 20, 25]
    found = areas(field, tmp_path / "b.geojson", tmp_path / "a.gpkg", thresholds=limits, n_samples=200)
    share, lower, upper = (
        found.table[[f"share_below_{c}{end}" for c in limits]].to_numpy() for end in ("", "_lower", "_upper")
    )
    assert (lower <= share).all() and (share <= upper).all()
    assert ((share == upper) & (share > 0)).any()


@pytest.mark.parametrize("size", [0, 5, READ_BACK, READ_BACK + 3])
def test_a_file_that_lacks_or_changes_a_byte_is_noticed(size, tmp_path):
    written, path = np.arange(size, dtype=np.uint8).tobytes(), tmp_path / "some.nc"
    path.write_bytes(written)
    assert _holds(path, memoryview(written))
    path.write_bytes(written + b"x")
    assert not _holds(path, memoryview(written))
    if size:
        path.write_bytes(written[:-1])
        assert not _holds(path, memoryview(written))
        path.write_bytes(written[:-1] + b"!")
        assert not _holds(path, memoryview(written))


def test_a_neighbours_strip_is_not_ranked(cli, run, world, tmp_path):
    """Of the county beyond the border .5% lies in the region: it neither has a rank nor shifts one, nor counts its people."""
    from maps.region import polygon

    west, south, east, north = polygon(load(run).boundary).bounds
    deep = (east - west) / 4
    shapes = [
        shapely.box(east - deep, south, east, north),
        shapely.box(east - 2 * deep, south, east - deep, north),
        shapely.box(east - deep / 200, south, east + deep, north),
    ]
    frame = geopandas.GeoDataFrame(
        {"name": ["near", "far", "strip"], "pop": [10, 20, 1e6]}, geometry=shapes, crs=4326
    )
    frame.to_file(tmp_path / "a.gpkg")
    line = ("--areas", tmp_path / "a.gpkg", "--weight-column", "pop", *FEW)
    result = cli("areas", run, *line, "-o", tmp_path / "out.gpkg", "--json")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    near, far, strip = document["areas"]
    assert strip["rank"] is None and strip["mean"] is None and {near["rank"], far["rank"]} == {1, 2}
    assert document["whole"]["people"] == 30
    assert (
        "less than 2% of 1 polygon (strip) lies in the region of the run: taken for outside it" in result.err
    )
    assert "1 of 3 polygons lies outside the region of the run and has no numbers" in result.err
    # Asked for alone it is what is wanted.
    frame[2:].to_file(tmp_path / "strip.gpkg")
    result = cli(
        "areas", run, "--areas", tmp_path / "strip.gpkg", *FEW, "-o", tmp_path / "one.gpkg", "--json"
    )
    assert json.loads(result.out)["areas"][0]["rank"] == 1, result.err

"""`geogp areas` by ground, tiles and people: keys, counts, evidence, ranks, and files that people open."""

import json
import shutil

import geopandas
import numpy as np
import pandas as pd
import pytest
import rasterio
import shapely
from rasterio.transform import from_bounds

from app.workflow.evidence import MEASURED, PARTLY, near_m_of
from app.workflow.people import people_of
from app.workflow.polygons import Ground, Inside, in_plane, keys_of, passed_over, read_polygons
from app.workflow.rows import observations_of
from app.workflow.weighing import Places, points_of
from geogp.run import load
from tests.app.test_areas import FEW, boxes

SIZES = ((-40, -24, 0, 24), (0, -24, 20, 24), (-24, -4, -16, 8), (2000, 500, 2010, 510))


@pytest.fixture
def file(world, tmp_path):
    """Four boxes with an id that begins with zeros and a population; the last lies outside."""
    frame = boxes(world, *SIZES).assign(GEOID=["00301", "00102", "00203", "99999"], pop=[100, 300, 8, 5])
    folder = tmp_path / "boxes"
    folder.mkdir()
    frame.to_file(folder / "boxes.shp")
    return shutil.make_archive(str(folder), "zip", folder)


@pytest.fixture
def raster(world, tmp_path):
    """10 people a pixel over the world, all of them east of its middle."""
    path = tmp_path / "people.tif"
    west, south = world.to_degrees(-20, -20)
    east, north = world.to_degrees(20, 20)
    values = np.zeros((200, 200), dtype="float32")
    values[:, 100:] = 10
    with rasterio.open(
        path, "w", driver="GTiff", height=200, width=200, count=1, dtype="float32", crs=4326, nodata=-1,
        transform=from_bounds(west, south, east, north, 200, 200),
    ) as out:  # fmt: skip
        out.write(values, 1)
    return path


def test_the_table_an_office_decides_with(cli, run, file, raster, tmp_path):
    out = tmp_path / "areas.gpkg"
    line = (
        "areas",
        run,
        "--areas",
        file,
        "--weights",
        raster,
        "--worst",
        1,
        "--pairs",
        "00301:00102",
        "--json",
    )
    result = cli(*line, "-o", out, *FEW, "--thresholds", "50")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    table = geopandas.read_file(out)
    assert document["key"] == "GEOID" and table["GEOID"].tolist()[0] == "00301"
    assert document["ranked_by"] == "people" and document["files"][0]["kind"] == "gpkg"
    loaded = load(run)
    parts = [Ground.of(loaded).part(shape) for shape in in_plane(read_polygons(file), loaded)]

    # What was measured there: the rows themselves, counted another way.
    rows = observations_of(loaded)
    fitted = loaded.tensors("split")["fitted"].numpy()
    for i, part in enumerate(parts[:3]):
        inside = fitted & shapely.intersects_xy(part, rows.X[:, 0], rows.X[:, 1])
        assert table["n_tiles"][i] == len(np.unique(rows.X[inside, :2], axis=0)) > 0
        assert table["n_tests"][i] == rows.counts[inside].sum()
    share, near = table["share_near"], near_m_of(loaded)
    assert document["near_m"] == near >= 1000 and np.isnan(share[3])
    said = ["measured" if s >= MEASURED else "partly" if s >= PARTLY else "filled" for s in share[:3]]
    assert table["evidence"].tolist()[:3] == said and table["evidence"][3] in ("", None)

    # Tiles: few tiles are all taken, each as it is.
    tiles = loaded.support.positions_m
    few = np.flatnonzero(shapely.intersects_xy(parts[2], tiles[:, 0], tiles[:, 1]))
    below = 1 - loaded.model.exceedance(loaded.inputs(tiles[few]), np.log10(50_000), latent=True).mean()
    assert 0 < len(few) <= 100 and table["tiles_share_below_50"][2] == pytest.approx(below, abs=0.1)

    # People: as many as the raster has, and where it has them.
    pixels = 10 * 100 * 200
    assert table["people"][1] == pytest.approx(pixels, rel=0.02) and table["people"][0] < 0.02 * pixels
    whole = document["whole"]
    assert whole["people"] == pytest.approx(table["people"].sum())
    assert whole["people_below_50"]["mean"] == pytest.approx(table["people_below_50"].sum())
    assert whole["people_below_50"]["lower"] <= whole["people_below_50"]["mean"]

    # Order: of percentiles, of ranks, and the probabilities of being worst add up.
    names = [f"p{p}" for p in (10, 25, 50, 75, 90)]
    for start in ("", "tiles_", "people_"):
        assert (np.diff(table.loc[1:1, [start + n for n in names]], axis=1) > 0).all()
    assert np.isnan(table["people_mean"][2]) and table["people"][2] == 0  # nobody lives there
    assert table["p_worst_1"].sum() == pytest.approx(1) and np.isnan(table["rank"][3])
    assert np.isnan(table["rank"][2]) and table["rank_lower"][1] <= table["rank"][1] <= table["rank_upper"][1]
    pair = document["pairs"][0]
    assert pair["a"] == "00301" and 0 <= pair["p_a_below_b"] <= 1


def test_every_format_holds_the_same_and_a_column_may_say_the_people(cli, run, file, tmp_path):
    tables = {}
    for suffix in ("csv", "parquet"):
        out = tmp_path / f"{suffix}.{suffix}"
        result = cli("areas", run, "--areas", file, "--weight-column", "pop", "-o", out, *FEW)
        assert result.code == 0 and "evidence" in result.out, result.err
        read = pd.read_csv if suffix == "csv" else geopandas.read_parquet
        tables[suffix] = read(out, **({"dtype": {"GEOID": str}} if suffix == "csv" else {}))
    a, b = tables["csv"], tables["parquet"]
    assert a["GEOID"].tolist() == b["GEOID"].tolist() and set(b.columns) - set(a.columns) == {"geometry"}
    np.testing.assert_allclose(a["mean"], b["mean"])
    assert b["people"].tolist()[:3] == [100, 300, 8]
    np.testing.assert_allclose(b["people_below_25"][:3], b["people"][:3] * b["share_below_25"][:3])


BAD = {
    "a key that is none": (("--key", "nothing"), "no column 'nothing' for --key"),
    "a key that says something twice": (("--key", "same"), "says 1 twice"),
    "no such weight column": (("--weight-column", "nobody"), "no column 'nobody'"),
    "a weight that is no number": (("--weight-column", "GEOID_"), "give numbers of people"),
    "no raster": (("--weights", "nowhere.tif"), "does not exist"),
    "not a raster": (("--weights", "text.tif"), "cannot be read as a raster"),
    "nobody": (("--weights", "nobody.tif"), "has nobody in any of the areas"),
    "worst": (("--worst", "0"), "--worst"),
    "a pair of nobody": (("--pairs", "00301:1"), "--pairs names '1'"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_one_sentence(case, cli, run, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options, words = BAD[case]
    frame = boxes(world, *SIZES[:2]).assign(GEOID=["00301", "00102"], GEOID_=["x", "y"], same=1)
    frame.to_file("areas.gpkg")
    (tmp_path / "text.tif").write_text("no raster")
    with rasterio.open(
        "nobody.tif", "w", driver="GTiff", height=2, width=2, count=1, dtype="float32", crs=4326,
        transform=from_bounds(-180, -90, 180, 90, 2, 2),
    ) as out:  # fmt: skip
        out.write(np.zeros((1, 2, 2), dtype="float32"))
    result = cli("areas", run, "--areas", "areas.gpkg", "-o", "out.csv", *options)
    assert result.code == 3 and words in result.err and result.out == "", result.err
    assert len(result.err.strip().splitlines()) == 1 and not (tmp_path / "out.csv").exists()


def test_keys_are_found_however_they_are_written():
    shapes = [shapely.box(0, 0, 1, 1)] * 2
    frame = geopandas.GeoDataFrame(
        {"STATE": ["15", "15"], "Lau_Id": [3, 4], "name": ["a", "b"]}, geometry=shapes, crs=4326
    )
    assert keys_of(frame) == ("Lau_Id", ["3", "4"]) and keys_of(frame, "name") == ("name", ["a", "b"])
    assert keys_of(frame[["STATE", "geometry"]]) == (None, ["0", "1"])
    assert passed_over(frame, "Lau_Id") == () == passed_over(frame[["STATE", "geometry"]], None)


@pytest.mark.parametrize(
    ("cells", "wrong"),
    [(["1", "1"], "says 1 twice"), (["1", ""], "is empty in row 1"), ([None, "1"], "is empty in row 0")],
)
def test_a_key_that_is_none_is_told_of(cli, run, tmp_path, monkeypatch, cells, wrong):
    """Another column names the rows, and an office that joins by the first one has to hear it."""
    monkeypatch.chdir(tmp_path)
    lon, lat = load(run).to_degrees(load(run).support.positions_m[:1])
    shapes = [shapely.box(lon[0] - 0.1, lat[0] - 0.1, lon[0] + 0.1, lat[0] + 0.1)] * 2
    frame = geopandas.GeoDataFrame({"GEOID": cells, "name": ["a", "b"]}, geometry=shapes, crs=4326)
    assert keys_of(frame) == ("name", ["a", "b"])
    assert passed_over(frame[["GEOID", "geometry"]], None)[0].endswith(
        f"{wrong}, so their numbers name the rows; --key takes another"
    )
    frame.to_file("areas.gpkg")
    told = f"column GEOID {wrong}, so column name names the rows; --key takes another"
    result = cli("areas", run, "--areas", "areas.gpkg", "-o", "out.csv", *FEW)
    assert result.code == 0 and result.err.lower().count(told.lower()) == 1, result.err
    line = ("--areas", "areas.gpkg", *FEW)
    assert "GEOID" not in cli("areas", run, *line, "--key", "name", "-o", "b.csv").err
    change = cli("change", run, "--from", "2023Q3", "--to", "2023Q4", *line, "-o", "out")
    assert change.code == 0 and told.lower() in change.err.lower(), change.err


def test_many_places_are_met_in_their_proportion(run):
    """Of many weighted places few are taken, and their weighted mean is about that of all."""
    rng = np.random.default_rng(0)
    part = shapely.box(0, 0, 10_000, 10_000)
    xy, weight = rng.uniform(0, 10_000, (5000, 2)), rng.gamma(0.3, 1.0, 5000)
    places = Places(xy, np.zeros(5000, dtype=np.int64), weight)
    inside = Inside("areas.gpkg", Ground(part), [part], np.array([part.area]), np.empty(0, dtype=np.int64))
    points = points_of(inside, None, None, {"people": places})
    share = points.shares["people"]
    assert share.sum() == pytest.approx(1) and points.shares["ground"].sum() == pytest.approx(1)
    assert (share > 0).sum() <= 400 < 5000
    exact = weight @ xy / weight.sum()
    np.testing.assert_allclose(share @ points.xy, exact, atol=4 * 2900 / np.sqrt(400))
    assert points.numbers[0] == (points.shares["ground"] > 0).sum()


def test_an_area_between_the_pixels_centres_has_its_share(run, world, tmp_path):
    loaded = load(run)
    path = tmp_path / "coarse.tif"
    west, south = world.to_degrees(-40, -40)
    east, north = world.to_degrees(40, 40)
    with rasterio.open(
        path, "w", driver="GTiff", height=4, width=4, count=1, dtype="float32", crs=4326,
        transform=from_bounds(west, south, east, north, 4, 4),
    ) as out:  # fmt: skip
        out.write(np.full((1, 4, 4), 400, dtype="float32"))
    parts = in_plane(boxes(world, (1, 1, 3, 3)), loaded)  # 4 of the 400 square kilometres of a pixel
    found = people_of(path, parts, loaded)
    assert found.total(1)[0] == pytest.approx(4, rel=0.05)
    assert shapely.distance(parts[0], shapely.points(found.xy)).max() < 20_000


def test_a_raster_of_a_part_says_so(cli, run, world, tmp_path):
    """West of the middle it has no pixel: no means of nobody's, and a word of what is missing."""
    path, file = tmp_path / "east.tif", tmp_path / "boxes.geojson"
    (west, south), (east, north) = world.to_degrees(2, -30), world.to_degrees(30, 30)
    with rasterio.open(
        path, "w", driver="GTiff", height=60, width=60, count=1, dtype="float32", crs=4326,
        transform=from_bounds(west, south, east, north, 60, 60),
    ) as out:  # fmt: skip
        out.write(np.ones((60, 60), "float32"), 1)
    boxes(world, (-20, -10, -4, 10), (-4, -10, 8, 10), (6, -10, 18, 10)).to_file(file)
    result = cli("areas", run, "--areas", file, "--weights", path, "-o", tmp_path / "a.csv", *FEW)
    assert result.code == 0, result.err
    assert "nan" not in result.out and "no people known" in result.out
    said = "east.tif covers 1 of 3 areas whole, 1 in part and 1 not at all: people's means are of the part"
    assert said in result.err

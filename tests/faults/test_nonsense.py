"""What makes no sense, or has no bound, is refused at once with the bound and the remedy; never a silent map."""

import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rasterio

import geogp
from app.errors import InvalidInput, Usage
from app.workflow.grids import grid_of
from data_pipelines.errors import InvalidInput as Refused
from data_pipelines.observations import ingest


@pytest.mark.parametrize(
    "setting",
    [
        {"steps": -1}, {"steps": 0}, {"epochs": -1}, {"batch_size": -1}, {"batch_size": 0}, {"hidden": 0},
        {"rank": 0}, {"rank": True}, {"rank": 2.5}, {"learning_rate": -1.0}, {"learning_rate": 0.0},
        {"learning_rate": float("nan")}, {"kl_weight": float("inf")}, {"crps_weight": -1.0},
        {"rank": 100_000}, {"hidden": 10_000_000}, {"steps": 10**12},
    ],
    ids=str,
)  # fmt: skip
def test_a_setting_that_is_none_is_refused_at_once(setting) -> None:
    X, y = np.random.default_rng(0).uniform(0, 1, (30, 2)), np.arange(30.0)
    model = geogp.GPRegressor("dbk-rbf", **setting)
    started = time.perf_counter()
    with pytest.raises(InvalidInput, match=next(iter(setting))) as caught:
        model.fit(X, y)
    assert time.perf_counter() - started < 0.5 and "\n" not in str(caught.value)
    if setting.get("rank") == 100_000 or setting.get("hidden") == 10_000_000:
        assert "GiB" in str(caught.value) and "or fewer" in str(caught.value)


@pytest.mark.parametrize("text", ["1e400", "1B", "0.5", "9" * 40, "1e99TiB", "-1", "nan", "1.2.3"])
def test_a_memory_that_is_none(text) -> None:
    from app.commands.options import bytes_of

    with pytest.raises(Usage, match="--max-memory"):
        bytes_of(text)


@pytest.fixture
def huge(tmp_path: Path) -> Path:
    """A raster of a million by a million pixels in a few kilobytes."""
    path = tmp_path / "huge.tif"
    side = 10**6
    rasterio.open(
        path, "w", driver="GTiff", width=side, height=side, count=1, dtype="float32", crs="EPSG:4326", sparse_ok=True,
        transform=rasterio.transform.from_origin(-160, 22, 1e-6, 1e-6), tiled=True, blockxsize=65536, blockysize=65536,
    ).close()  # fmt: skip
    assert path.stat().st_size < 10_000
    with rasterio.open(path) as src:
        assert src.shape == (10**6, 10**6)
    return path


def test_a_raster_beyond_all_bounds(huge, run) -> None:
    from maps.errors import InvalidInput as Unusable
    from maps.reader import open_raster

    loaded = geogp.load(run)
    started = time.perf_counter()
    with pytest.raises(InvalidInput, match=r"pixels.*coarser"):
        grid_of(loaded, like=huge)
    with pytest.raises(Unusable, match=r"pixels.*cut it"):
        open_raster(huge)
    assert time.perf_counter() - started < 1.0


def test_a_pixel_larger_than_the_earth(run) -> None:
    with pytest.raises(InvalidInput, match="--resolution must be at most"):
        grid_of(geogp.load(run), resolution_m=1e300)


def raster(path: Path, crs: str, corner: tuple[float, float], side: float) -> Path:
    """Twelve by twelve pixels of one."""
    where = rasterio.transform.from_origin(*corner, side, side)
    with rasterio.open(
        path, "w", driver="GTiff", width=12, height=12, count=1, dtype="float32", crs=crs, transform=where
    ) as file:
        file.write(np.ones((12, 12), "float32"), 1)
    return path


@pytest.mark.parametrize("crs", ["IAU_2015:30100", 'LOCAL_CS["site",UNIT["metre",1]]'])
def test_rasters_and_tables_of_no_place_on_earth(run, tmp_path, crs) -> None:
    """As the pixels of a map, as people, as the CRS of places."""
    from app.workflow.people import people_of
    from app.workflow.places import parts_of

    loaded, file = geogp.load(run), raster(tmp_path / "a.tif", crs, (-156, 20), 0.1)
    with pytest.raises(InvalidInput, match=r"CRS of --like .*a\.tif is not"):
        grid_of(loaded, like=file)
    with pytest.raises(InvalidInput, match=r"CRS of .*a\.tif is not"):
        people_of(file, [], loaded)
    (tmp_path / "p.csv").write_text("lon,lat\n-156,19\n")
    with pytest.raises(InvalidInput, match="is not known to PROJ"):
        list(parts_of(tmp_path / "p.csv", x="lon", y="lat", crs=crs))


@pytest.mark.parametrize("crs", ["[" * 100_000, '{"a":' * 100_000], ids=["list", "object"])
def test_a_crs_that_is_deep_or_long_is_one_sentence(points, tmp_path, crs) -> None:
    """Of a map and of a table; PROJ takes JSON, too."""
    from app.choices import map_crs

    for ask in (
        lambda: map_crs(crs),
        lambda: ingest(source="csv", file=points, columns=COLUMNS, crs=crs, output=tmp_path / "o.parquet"),
    ):
        with pytest.raises((InvalidInput, Refused), match="is not known to PROJ") as caught:
            ask()
        assert len(str(caught.value)) < 200


def test_pixels_that_do_not_meet_the_region(run, tmp_path) -> None:
    """They would make a map without a value."""
    loaded = geogp.load(run)
    lon, lat = loaded.to_degrees(loaded.support.positions_m)
    west, north = lon.min(), lat.max()
    with pytest.raises(InvalidInput, match="does not meet the region"):
        grid_of(loaded, like=raster(tmp_path / "far.tif", "EPSG:4326", (west + 90, north), 0.1))
    for turn in (0, 360):
        there = raster(tmp_path / f"{turn}.tif", "EPSG:4326", (west + turn, north), 0.1)
        assert grid_of(loaded, like=there).n_pixels == 144


def test_the_outline_of_a_map_beyond_its_crs(tmp_path) -> None:
    """All around the grid its CRS has no Earth: the catalogue's item says the whole of it."""
    from pyproj import CRS

    from maps.raster import export
    from tests.faults.made_maps import made_map

    edge = 3e7 * (2 * np.arange(16) + 1 - 16) / 16
    ds = made_map(16).assign_coords(y=edge[::-1], x=edge)
    ds.spatial_ref.attrs["crs_wkt"] = CRS.from_user_input("+proj=laea +lat_0=20 +type=crs").to_wkt()
    export(ds, tmp_path, ["cog"])
    assert json.loads((tmp_path / "item.json").read_text())["bbox"] == [-180, -90, 180, 90]


def test_samples_beyond_all_bounds() -> None:
    from app.workflow.means import check_draws

    with pytest.raises(InvalidInput, match="--samples must be at most"):
        check_draws(10**9)


def test_a_quarter_of_another_age(run) -> None:
    loaded = geogp.load(run)
    for quarter in ("2099Q1", "1950Q1"):
        with pytest.raises(InvalidInput, match="years from the run's quarters"):
            loaded.quarter(quarter)
    assert loaded.quarter(loaded.quarters[-1])


def test_a_reach_around_the_world(run) -> None:
    from dataclasses import replace

    loaded = geogp.load(run)
    bare = replace(loaded, facts={**loaded.facts, "data": {**loaded.data, "boundary": None}})
    with pytest.raises(InvalidInput, match="half way round"):
        grid_of(bare, max_distance_m=1e12)


# -- rows -----------------------------------------------------------------------------------------------


@pytest.fixture
def points(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = [f"{a},{b},{i}" for i, (a, b) in enumerate(rng.uniform([-160, 20], [-158, 22], (12, 2)))]
    path = tmp_path / "points.csv"
    path.write_text("lon,lat,v\n" + "\n".join(rows) + "\n")
    return path


COLUMNS = {"x": "lon", "y": "lat", "value": "v"}


@pytest.mark.parametrize(
    ("crs", "words"),
    [
        ("EPSG:32604", "look like longitude and latitude"),
        ("IAU_2015:30100", "no way from"),
        ("EPSG:4978", "no x and y on a map"),
        ("EPSG:5773", "no x and y on a map"),
    ],
)
def test_degrees_under_a_crs_of_metres_or_of_the_moon(points, tmp_path, crs, words) -> None:
    if crs.startswith("IAU"):  # lunar degrees
        crs = "+proj=longlat +R=1737400 +no_defs"
        crs = "IAU_2015:30100"
    with pytest.raises(Refused) as caught:
        ingest(source="csv", file=points, columns=COLUMNS, crs=crs, output=tmp_path / "o.parquet")
    assert "\n" not in str(caught.value) and (words in str(caught.value) or "not known" in str(caught.value))


def test_a_map_on_another_body_is_one_sentence(run) -> None:
    with pytest.raises(InvalidInput, match="CRS"):
        grid_of(geogp.load(run), crs="IAU_2015:49900")


def test_repeated_rows_and_places_off_the_earth_are_counted(table, tmp_path) -> None:
    from app.workflow.rows import read_rows

    whole = pq.read_table(table)
    twice = pa.concat_tables([whole, whole.slice(0, 50)])
    east = np.array(twice.column("easting_m"))
    east[3] = 1e300
    twice = twice.set_column(twice.column_names.index("easting_m"), "easting_m", pa.array(east))
    path = tmp_path / "twice.parquet"
    pq.write_table(twice, path)
    was, rows = read_rows(table, "download"), read_rows(path, "download")
    assert rows.dropped["repeated"] in (49, 50) and rows.dropped["no_place_or_time"] == 1
    assert rows.usable.sum() == was.usable.sum() - int(was.usable[3])
    assert not rows.usable[whole.num_rows :].any()


def test_a_source_of_another_hash_is_refused(points, tmp_path) -> None:
    from data_pipelines.download import sha256

    out = tmp_path / "o.parquet"
    with pytest.raises(Refused, match=r"points\.csv has the SHA-256"):
        ingest(source="csv", file=points, columns=COLUMNS, expect_sha256=("0" * 64,), output=out)
    assert not out.exists()
    ingest(source="csv", file=points, columns=COLUMNS, expect_sha256=(sha256(points).upper(),), output=out)


def test_a_fit_to_a_changed_source_says_so(points, tmp_path) -> None:
    """The run beside it was fitted to another file of the same name."""
    from app.workflow import fit
    from data_pipelines.errors import DataWarning

    small = {"rank": 8, "hidden": 8, "epochs": 1}
    tables = [tmp_path / name / "o.parquet" for name in "ab"]
    for value, table in enumerate(tables):
        table.parent.mkdir()
        points.write_text(points.read_text().replace(",11\n", f",{11 + value}\n"))
        ingest(source="csv", file=points, columns=COLUMNS, output=table)
    fit(tables[0], output=tmp_path / "run", target="value", method="dbk-rbf", model=small)
    with pytest.warns(DataWarning, match=r"points\.csv is not what .*/run was made from"):
        fit(tables[1], output=tmp_path / "other", target="value", method="dbk-rbf", model=small)


def test_infinite_values_are_counted_by_name() -> None:
    from data_pipelines.observations import for_target

    table = pa.table({"v": [1.0, np.inf, -np.inf, np.nan, None, 0.0]})
    usable, dropped = for_target(table, "v", positive=True)
    assert usable.tolist() == [True, *[False] * 5]
    assert dropped == {"null_v": 2, "nonpositive_v": 1, "infinite_v": 2}


@pytest.mark.parametrize(
    ("role", "value", "words"),
    [
        ("count", "inf", "at most 1,000,000,000"), ("count", "1e300", "at most 1,000,000,000"), ("time", "1e300", "four digits"),
        ("time", "-5", "four digits"), ("time", "99999999", "four digits"), ("time", "0", "four digits"),
    ],
)  # fmt: skip
def test_counts_and_times_that_are_none(tmp_path, role, value, words) -> None:
    path = tmp_path / "points.csv"
    path.write_text(f"lon,lat,v,w\n-156,19.7,1,2022\n-156,19.8,2,{value}\n")
    with pytest.raises(Refused, match=words):
        ingest(source="csv", file=path, columns=COLUMNS | {role: "w"}, output=tmp_path / "o.parquet")


def test_what_a_source_does_not_read_is_refused(points, world_folder, tmp_path) -> None:
    """It was ignored: rows of all times came with `--quarters 2023Q4` of a CSV."""
    out = tmp_path / "o.parquet"
    for name, value in {"quarters": "2023Q4", "root": "https://example.org"}.items():
        with pytest.raises(Refused, match=f"'csv' does not read {name}"):
            ingest(source="csv", file=points, columns=COLUMNS, output=out, **{name: value})
    with pytest.raises(Refused, match="does not read crs"):
        ingest(source="synthetic", root=world_folder, quarters="2022Q1", crs="EPSG:32604", output=out)


def test_values_whose_squares_are_infinite() -> None:
    X, y = np.random.default_rng(0).uniform(0, 1, (30, 2)), np.arange(30.0)
    y[7] = 1e308
    with pytest.raises(InvalidInput, match="1e\\+308"):
        geogp.GPRegressor("dbk-rbf", rank=4, hidden=4, epochs=1).fit(X, y)


# -- places ---------------------------------------------------------------------------------------------


def test_the_whole_world_meets_every_region(run) -> None:
    loaded = geogp.load(run)
    plain = grid_of(loaded, resolution_m=5000.0)
    world = grid_of(loaded, resolution_m=5000.0, bounds=(-180.0, -90.0, 180.0, 90.0))
    assert world.geobox == plain.geobox and world.n_inside == plain.n_inside


def test_bounds_across_180_degrees(tmp_path) -> None:
    """Fiji: a run whose region lies on both sides."""
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(177, 183, 90), rng.uniform(-19, -16, 90)
    path = tmp_path / "fiji.csv"
    path.write_text(
        "lon,lat,v\n" + "".join(f"{(a + 180) % 360 - 180},{b},{a + b}\n" for a, b in zip(lon, lat))
    )
    table = ingest(
        source="csv",
        file=path,
        columns=COLUMNS,
        bbox=(176.0, -20.0, -176.0, -15.0),
        output=tmp_path / "o.parquet",
    ).path
    from app.workflow import fit

    small = {"rank": 8, "hidden": 8, "epochs": 1}
    run = fit(table, output=tmp_path / "run", target="value", method="dbk-rbf", model=small).run
    both = grid_of(run, resolution_m=10_000.0, bounds=(179.0, -19.0, -179.0, -16.0))
    east = grid_of(run, resolution_m=10_000.0, bounds=(-180.0, -19.0, -179.0, -16.0))
    west = grid_of(run, resolution_m=10_000.0, bounds=(179.0, -19.0, 180.0, -16.0))
    assert 18 <= both.shape[1] <= 24 and abs(east.shape[1] + west.shape[1] - both.shape[1]) <= 3
    lon = run.to_degrees([[both.geobox.boundingbox.left, 0.0], [both.geobox.boundingbox.right, 0.0]])[0]
    assert 178 < lon[0] <= 180 and -180 <= lon[1] < -178
    with pytest.raises(InvalidInput, match="do not meet"):
        grid_of(run, bounds=(0.0, -19.0, 20.0, -16.0))

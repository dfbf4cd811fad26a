"""The synthetic world: reproducible, shaped like the published data, and true to what it says."""

import json
import zipfile

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from data_pipelines import quadkey, zorder
from data_pipelines.errors import InvalidInput
from data_pipelines.observations import ingest, read
from data_pipelines.readers import mirror
from data_pipelines.readers.tiles import COLUMNS
from data_pipelines.sources.ookla import OOKLA
from data_pipelines.synthetic import World, load_world, write_world
from data_pipelines.synthetic.tiles import NO_GEOMETRY_QUARTER


def published(root, type="fixed") -> list[pq.ParquetFile]:
    return [pq.ParquetFile(root / mirror.key(type, quarter)) for quarter in World().quarters]


@pytest.fixture(scope="module", params=OOKLA.types)
def rows(request, world_root, tmp_path_factory):
    """Type and ingested rows of both types of the small world."""
    output = tmp_path_factory.mktemp("rows") / "obs.parquet"
    ingest(source="synthetic", type=request.param, root=world_root, output=output)
    return request.param, read(output)[0].to_pandas()


def test_the_same_seed_gives_the_same_bytes(world_root, tmp_path):
    write_world(tmp_path / "again", seed=0, size="small")
    files = sorted(path.relative_to(world_root) for path in world_root.rglob("*") if path.is_file())
    assert len(files) == 2 * 8 + 3 + 3
    for file in files:
        assert (tmp_path / "again" / file).read_bytes() == (world_root / file).read_bytes(), file


def test_another_seed_is_another_world():
    a, b = World(seed=0), World(seed=1)
    assert a.cities != b.cities and not a.land().equals(b.land())


@pytest.mark.parametrize("seed", range(6))
def test_every_seed_is_a_state_with_its_cities_on_land(seed):
    world = World(seed=seed)
    x, y = world.to_km(*shapely.get_coordinates(world.land()).T)
    assert world.land().is_valid and 200 < np.ptp(x) < 400 and 150 < np.ptp(y) < 350
    for _, area in world.urban_areas():
        assert area.is_valid and area.area > 0
        assert shapely.contains(world.land().buffer(0.01), area)


def test_columns_and_types_are_the_published_ones(world_root):
    base = ["quadkey", "tile", "avg_d_kbps", "avg_u_kbps", "avg_lat_ms", "tests", "devices"]
    for quarter, file in zip(World().quarters, published(world_root), strict=True):
        names = file.schema_arrow.names
        assert [name for name in names if name in base] == base
        assert ("avg_lat_down_ms" in names) == (quarter >= "2022Q4")
        assert ("tile_x" in names) == (quarter >= "2023Q2")
        types = {field.type for field in file.schema_arrow if field.name in COLUMNS}
        assert types == {pa.int64()} and file.schema_arrow.field("quadkey").type == pa.string()


def test_oddities_of_the_published_files(world_root):
    sorted_quarters = []
    for quarter, file in zip(World().quarters, published(world_root), strict=True):
        keys = file.read(columns=["quadkey"]).column(0).to_pylist()
        sorted_quarters.append(keys == sorted(keys))
        nulls = file.read(columns=["tile"]).column(0).null_count
        assert nulls == (len(keys) if quarter == NO_GEOMETRY_QUARTER else 0)
    assert sorted_quarters.count(False) == 1
    last = published(world_root)[-1].read().to_pandas()
    assert last.avg_lat_down_ms.isna().any()
    shapes = shapely.from_wkt(last.tile)
    x, y = zorder.tiles(zorder.of_keys(last.quadkey.to_numpy().astype("S16"))[0])
    np.testing.assert_allclose(shapely.bounds(shapes), np.stack(quadkey.bounds(x, y), 1), atol=1e-11)
    np.testing.assert_array_equal(last.tile_x, quadkey.centre(x, y)[0])


def test_census_files_have_the_census_columns(world_root, world):
    states = geopandas.read_file(world.states_file(world_root))
    urban = geopandas.read_file(world.urban_file(world_root))
    assert states.crs.to_epsg() == urban.crs.to_epsg() == 4269
    assert {"STATEFP", "STUSPS", "NAME", "GEOID", "ALAND", "AWATER"} <= set(states)
    assert {"UACE20", "GEOID20", "NAME20", "NAMELSAD20", "ALAND20", "AWATER20"} <= set(urban)
    assert len(urban) == 7 and len(states) == 2
    land = states.ALAND[0]
    x, y = world.to_km(*shapely.get_coordinates(world.land()).T)
    assert land == pytest.approx(shapely.Polygon(np.stack([x, y], 1)).area * 1e6, rel=1e-6)
    with zipfile.ZipFile(world.states_file(world_root)) as archive:
        assert {name.rsplit(".")[-1] for name in archive.namelist()} >= {"shp", "shx", "dbf", "prj"}


def test_counties_part_the_state_about_its_cities(world_root, world):
    counties = geopandas.read_file(world.counties_file(world_root))
    states = geopandas.read_file(world.states_file(world_root))
    assert {"STATEFP", "COUNTYFP", "GEOID", "NAME", "ALAND"} <= set(
        counties
    ) and counties.crs.to_epsg() == 4269
    assert counties.GEOID.is_unique and counties.is_valid.all()
    own = counties[counties.STATEFP == "99"]
    assert own.ALAND.sum() == pytest.approx(states.ALAND[0], rel=1e-6)
    assert own.union_all().symmetric_difference(states.geometry[0]).area < 1e-6
    for city in world.cities:  # each county holds the city that it is named for
        seat = shapely.Point(world.to_degrees(city.x_km, city.y_km))
        assert own[own.contains(seat)].NAME.tolist() == [city.name]


def test_counts_have_the_published_skew(rows):
    type, frame = rows
    single = {"fixed": 0.20, "mobile": 0.38}[type]
    # binomial band of three sd for 700 rows
    assert (frame.tests == 1).mean() == pytest.approx(single, abs=3 * np.sqrt(single * (1 - single) / 700))
    assert frame.tests.max() > 300 and (frame.devices <= frame.tests).all()
    assert 0.2 < frame.urban.mean() < 0.5
    assert frame.quadkey.nunique() < 0.85 * len(frame)  # places recur


def test_rows_follow_the_truth_they_ship_with(rows, world):
    """Standardised residuals are standard normal: mean, sd and 95% coverage within 3.5 sampling sds."""
    type, frame = rows
    median = world.median_log10_kbps(frame.lon, frame.lat, frame.quarter.to_numpy(), type)
    z = (np.log10(frame.download_mbps * 1000) - median) / world.noise_sd(
        frame.lon, frame.lat, frame.tests, type
    )
    n = len(z)
    assert abs(z.mean()) < 3.5 / np.sqrt(n)
    assert abs(z.std() - 1) < 3.5 / np.sqrt(2 * n)
    assert abs((np.abs(z) < 1.95996).mean() - 0.95) < 3.5 * np.sqrt(0.95 * 0.05 / n)
    # the noise really varies: the same holds for single tests and for busy tiles apart
    for part in (z[frame.tests == 1], z[frame.tests > 10]):
        assert abs(part.std() - 1) < 3.5 / np.sqrt(2 * len(part))


def test_the_truth_file_agrees_with_the_functions(world_root, world):
    truth = pq.ParquetFile(world_root / "truth_fixed.parquet").read().to_pandas()
    lon, lat = quadkey.centre(*zorder.tiles(zorder.of_keys(truth.quadkey.to_numpy().astype("S16"))[0]))
    median = world.median_log10_kbps(lon, lat, truth.quarter.to_numpy())
    np.testing.assert_allclose(truth.median_log10_kbps, median)
    assert json.loads((world_root / "truth.json").read_text())["cities"][0]["name"] == world.cities[0].name


def test_the_surface_is_sharp_at_cities_and_rises(world):
    city = world.cities[0]
    edge = city.outline()[0]
    centre = np.array([city.x_km, city.y_km])
    inside, outside = (centre + f * (edge - centre) for f in (0.85, 1.15))
    lon, lat = world.to_degrees(*np.stack([inside, outside], 1))
    high, low = world.median_log10_kbps(lon, lat, "2022Q1")
    assert high - low > 0.3
    single = world.noise_sd(lon, lat, 1)
    assert single[0] < single[1] and (world.noise_sd(lon, lat, 100) < single).all()
    rise = world.median_log10_kbps(lon, lat, "2023Q4") - world.median_log10_kbps(lon, lat, "2022Q1")
    np.testing.assert_allclose(rise, 7 * 0.025)


def test_arrays_of_any_shape(world):
    lon, lat = np.meshgrid(np.linspace(-144, -142, 5), np.linspace(33, 35, 4))
    assert world.median_log10_kbps(lon, lat, "2023Q4").shape == (4, 5)
    assert world.noise_sd(lon, lat, np.ones((4, 5))).shape == (4, 5)
    assert np.shape(world.median_log10_kbps(-143.0, 34.0, "2023Q4")) == ()
    assert np.isfinite(world.median_log10_kbps(lon, lat, "2030Q1")).all()


def test_a_folder_keeps_its_world(tmp_path):
    folder = tmp_path / "w"
    world = write_world(folder, seed=1, size="small")
    before = (folder / "truth.json").stat().st_mtime_ns
    assert write_world(folder, seed=1, size="small") == world == load_world(folder)
    assert (folder / "truth.json").stat().st_mtime_ns == before
    with pytest.raises(InvalidInput, match="holds another synthetic world"):
        write_world(folder, seed=2, size="small")
    assert write_world(folder, seed=2, size="small", overwrite=True).seed == 2
    with pytest.raises(InvalidInput, match="no complete synthetic world"):
        load_world(tmp_path)
    with pytest.raises(InvalidInput, match="Unknown size 'huge'"):
        write_world(tmp_path / "x", size="huge")


@pytest.mark.slow
def test_the_demo_world_has_the_promised_size(tmp_path):
    ingest(source="synthetic", root=tmp_path / "w", output=tmp_path / "obs.parquet")
    table, metadata = read(tmp_path / "obs.parquet")
    assert 12_000 < table.num_rows < 20_000
    assert metadata["dropped"]["outside"] > 0
    assert table.column("tests").to_numpy().max() > 1000

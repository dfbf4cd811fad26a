"""States, boundaries in any CRS, urban areas of both vintages, and files that are none of these."""

import zipfile
from pathlib import Path

import geopandas
import numpy as np
import pytest
import shapely

from data_pipelines import census, quadkey, zorder
from data_pipelines.errors import InvalidInput
from data_pipelines.labels import Labels
from data_pipelines.regions import Region

BOX = shapely.box(-158.3, 21.2, -157.6, 21.8)


def save(path: Path, shapes, crs=4269, **columns) -> Path:
    geopandas.GeoDataFrame(columns or {"id": range(len(shapes))}, geometry=list(shapes), crs=crs).to_file(
        path
    )
    return path


def test_a_state_by_code_in_either_case(world_root, world):
    region, source = census.state("hy", world.states_file(world_root))
    assert region.name == "HY" and len(source.sha256) == 64
    assert shapely.symmetric_difference(region.shape, world.land()).area < 1e-4 * world.land().area


def test_an_unknown_state_lists_the_codes(world_root, world):
    with pytest.raises(InvalidInput, match=r"No state 'ZZ' in .*state_500k.zip; it has HY, LH\."):
        census.state("ZZ", world.states_file(world_root))


def test_a_file_without_states(world_root, world):
    with pytest.raises(InvalidInput, match=r"has no column STUSPS \(it has UACE20"):
        census.state("HY", world.urban_file(world_root))


@pytest.mark.parametrize("crs", [4326, 4269, 32604, 3857, 3338])
def test_boundaries_of_any_crs_are_the_same_place(tmp_path, crs):
    dense = shapely.segmentize(BOX, 0.01)
    frame = geopandas.GeoSeries([dense], crs=4326).to_crs(crs)
    region, _ = census.boundary(save(tmp_path / "oahu.gpkg", frame, crs=crs))
    assert region.name == "oahu"
    assert shapely.symmetric_difference(region.shape, BOX).area < 1e-3 * BOX.area


@pytest.mark.parametrize("suffix", [".geojson", ".shp", ".parquet"])
def test_boundaries_of_any_format(tmp_path, suffix):
    frame = geopandas.GeoDataFrame(geometry=[BOX], crs=4326, data={"id": [1]})
    path = tmp_path / f"place{suffix}"
    frame.to_parquet(path) if suffix == ".parquet" else frame.to_file(path)
    assert census.boundary(path)[0].shape.equals(BOX)


def test_a_projected_boundary_across_180_degrees(tmp_path):
    """Alaska Albers comes back to degrees as a ring that jumps from 180 to -180."""
    ring = shapely.segmentize(shapely.box(178, 51, 190, 53), 0.05)
    albers = geopandas.GeoSeries([ring], crs=4326).to_crs(3338)
    region, _ = census.boundary(save(tmp_path / "aleutians.gpkg", albers, crs=3338))
    assert region.shape.bounds == pytest.approx((178, 51, 190, 53), abs=1e-4)


def test_nad83_is_moved_to_wgs84_by_the_place(tmp_path):
    """In Hawaii the two differ by most of a metre; on the mainland by nothing."""
    shapes = [shapely.Point(-157.8, 21.3).buffer(0.1), shapely.Point(-100, 40).buffer(0.1)]
    frame = census.read_polygons(save(tmp_path / "p.gpkg", shapes))
    moved = [np.subtract(a.centroid.coords[0], b.centroid.coords[0]) for a, b in zip(frame.geometry, shapes)]
    assert 1e-6 < np.abs(moved[0]).max() < 2e-5
    np.testing.assert_allclose(moved[1], 0, atol=1e-9)


def test_boundaries_that_cannot_be_used(tmp_path):
    cases = {
        "absent.shp": (None, "does not exist"),
        "text.txt": ("hello", "cannot be read as a vector file"),
        "table.csv": ("a,b\n1,2\n", "cannot be read as a vector file .*no geometry"),
    }
    for name, (content, match) in cases.items():
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(InvalidInput, match=f"{name}.*{match}") as caught:
            census.boundary(tmp_path / name)
        assert "\n" not in str(caught.value)
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(InvalidInput, match=r"empty.zip cannot be read"):
        census.boundary(tmp_path / "empty.zip")
    with pytest.raises(InvalidInput, match=r"points.gpkg holds no polygon \(Point\)"):
        census.boundary(save(tmp_path / "points.gpkg", [shapely.Point(0, 0)]))


def test_a_boundary_without_crs(tmp_path):
    save(tmp_path / "b.shp", [BOX])
    (tmp_path / "b.prj").unlink()
    with pytest.raises(
        InvalidInput, match=r"b.shp does not say its coordinate reference system; add its .prj"
    ):
        census.boundary(tmp_path / "b.shp")


def test_a_boundary_in_the_wrong_crs(tmp_path):
    metres = shapely.box(600_000, 2_340_000, 610_000, 2_350_000)
    with pytest.raises(InvalidInput, match=r"not degrees|do not exist|no place"):
        census.boundary(save(tmp_path / "b.gpkg", [metres], crs=4326))


def uac(tmp_path: Path, shapes, year: int = 20) -> Path:
    names = [f"P{i}" for i in range(len(shapes))]
    columns = {f"UACE{year}": names, f"NAME{year}": names}
    return save(tmp_path / f"tl_us_uac{year}.shp", shapes, crs=4326, **columns)


@pytest.mark.parametrize(("year", "vintage"), [(10, "2010"), (20, "2020")])
def test_the_vintage_is_told_by_the_columns(tmp_path, year, vintage):
    areas = census.UrbanAreas.read(uac(tmp_path, [BOX], year), Region.from_polygon("", BOX))
    assert areas.vintage == vintage


def test_a_file_that_is_no_urban_areas(world_root, world):
    with pytest.raises(InvalidInput, match="not a Census urban-area file: it has the columns STATEFP"):
        census.UrbanAreas.read(world.states_file(world_root), Region.from_polygon("", world.land()))


def test_share_is_exact_and_the_label_is_the_centres(tmp_path):
    """Half of each of two tiles is urban: west half of one, three quarters of the other's width."""
    x, y = quadkey.tile_of([-157.85, -157.85], [21.3, 21.31])
    tile = quadkey.bounds(x, y)
    shapes = [
        shapely.box(w, s, w + part * (e - w), n) for w, s, e, n, part in zip(*tile, (0.25, 0.75), strict=True)
    ]
    region = Region.from_polygon("", BOX)
    areas = census.UrbanAreas.read(uac(tmp_path, shapes), region)
    np.testing.assert_allclose(areas.share(region.tile_boxes(x, y)), [0.25, 0.75], atol=1e-6)
    assert areas.hold(*quadkey.centre(x, y)).tolist() == [False, True]


def test_large_areas_are_cut_for_speed_without_changing_answers(tmp_path):
    angle = np.linspace(0, 2 * np.pi, 5000, endpoint=False)
    radius = 0.2 * (1 + 0.2 * np.cos(40 * angle))
    hole = shapely.Point(-157.9, 21.5).buffer(0.05).exterior
    star = shapely.Polygon(
        np.stack([-157.95 + radius * np.cos(angle), 21.5 + radius * np.sin(angle)], 1), [hole.coords]
    )
    region = Region.from_polygon("", BOX)
    areas = census.UrbanAreas.read(uac(tmp_path, [star]), region)
    assert max(shapely.get_num_coordinates(areas.shapes)) <= 256
    lon, lat = np.random.default_rng(0).uniform([-158.3, 21.2], [-157.6, 21.8], (2000, 2)).T
    assert (areas.hold(lon, lat) == shapely.intersects_xy(star, lon, lat)).all()
    x, y = quadkey.tile_of(lon[:200], lat[:200])
    boxes = region.tile_boxes(x, y)
    np.testing.assert_allclose(
        areas.share(boxes), shapely.area(shapely.intersection(boxes, star)) / shapely.area(boxes), atol=1e-9
    )


def test_urban_areas_across_180_degrees(tmp_path):
    region = Region.from_polygon(
        "", shapely.MultiPolygon([shapely.box(179, 51, 180, 52), shapely.box(-180, 51, -179, 52)])
    )
    areas = census.UrbanAreas.read(uac(tmp_path, [shapely.box(-180, 51.2, -179.5, 51.8), BOX]), region)
    assert areas.hold([-179.7, 179.7, 180.0], [51.5] * 3).tolist() == [True, False, True]


def test_no_urban_area_near_is_an_answer(tmp_path):
    region = Region.from_polygon("", shapely.box(0, 0, 1, 1))
    areas = census.UrbanAreas.read(uac(tmp_path, [BOX]), region)
    assert areas.hold([0.5], [0.5]).tolist() == [False]
    assert areas.share(region.tile_boxes(*quadkey.tile_of([0.5], [0.5]))).tolist() == [0.0]


# several states


#: Two states that share an edge, the Aleutians as they are cut at 180 degrees, and an island.
STATES = {
    "WW": shapely.box(-10.0, 50.0, -5.0, 55.0),
    "EE": shapely.box(-5.0, 50.0, 0.0, 55.0),
    "AK": shapely.MultiPolygon(
        [shapely.box(178.0, 51.0, 180.0, 53.0), shapely.box(-180.0, 51.0, -170.0, 54.0)]
    ),
    "IS": shapely.MultiPolygon(
        [shapely.box(-20.0, 50.0, -19.0, 51.0), shapely.box(-22.0, 50.0, -21.0, 51.0)]
    ),
}


@pytest.fixture
def states(tmp_path) -> Path:
    return save(tmp_path / "states.gpkg", STATES.values(), STUSPS=list(STATES))


def test_several_states_hold_what_each_of_them_holds_and_say_which(states):
    whole, _ = census.state("ww, ee,AK,IS,WW", states)
    alone = {code: census.state(code, states)[0] for code in STATES}
    assert whole.name == "WW,EE,AK,IS" and [member.name for member in whole.members] == list(STATES)
    rng = np.random.default_rng(0)
    lon = np.concatenate([rng.uniform(-25, 3, 3000), rng.uniform(176, 192, 1000), np.full(200, -5.0)])
    lat = np.concatenate([rng.uniform(49, 56, 3000), rng.uniform(50, 55, 1000), rng.uniform(50, 55, 200)])
    x, y = quadkey.tile_of((lon + 180) % 360 - 180, lat)
    met = {code: region.holds_tiles(x, y) for code, region in alone.items()}
    inside = whole.holds_tiles(x, y)
    assert (inside == np.any(list(met.values()), axis=0)).all() and 1000 < inside.sum() < 4200
    x, y = x[inside], y[inside]
    lon, lat = quadkey.centre(x, y)
    named = whole.names(lon, lat, zorder.of_tiles(x, y))
    assert set(named) == set(STATES)
    centre = {code: region.holds_points(lon, lat) for code, region in alone.items()}
    for code, region in alone.items():
        mine = named == code
        assert region.holds_tiles(x[mine], y[mine]).all()
        assert (centre[code][mine] | ~np.any(list(centre.values()), axis=0)[mine]).all()
    shared = whole.names(np.array([-7.0, -2.0, 179.0, -179.0]), np.full(4, 52.0), None)
    assert shared.tolist() == ["WW", "EE", "AK", "AK"]


def test_the_nation_is_all_states_or_refused(tmp_path, states):
    with pytest.raises(InvalidInput, match=r"No state 'AL' in .*; it has AK, EE, IS, WW"):
        census.state("US", states)
    boxes = [shapely.box(-120 + i, 30, -119 + i, 31) for i in range(len(census.NATION) + 1)]
    path = save(tmp_path / "nation.gpkg", boxes, STUSPS=[*census.NATION, "PR"])
    nation, _ = census.state("us", path)
    assert nation.name == "US" and len(nation.members) == 51
    assert nation.shape.area == pytest.approx(51) and len(nation.boxes()) == 1


@pytest.mark.parametrize("vintage", ["10", "20"])
def test_labels_of_either_vintage_by_centre_and_by_share(tmp_path, vintage):
    """Tiles about an edge of an area in two parts, across 180 degrees: as shapely says of each."""
    parts = [shapely.box(179.9, 51.0, 180.0, 51.2), shapely.box(-180.0, 51.0, -179.903, 51.2)]
    path = save(tmp_path / "urban.gpkg", [shapely.MultiPolygon(parts)], **{f"UACE{vintage}": ["1"]})
    place = Region.from_bbox((179.0, 50.0, -179.0, 52.0))
    labels = Labels.read(path, place)
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(179.85, 180.15, 400), rng.uniform(50.97, 51.23, 400)
    x, y = quadkey.tile_of((lon + 180) % 360 - 180, lat)
    lon, lat = quadkey.centre(x, y)
    found = labels.of(lon, lat, zorder.of_tiles(x, y))
    area = shapely.box(179.9, 51.0, 180.097, 51.2)
    boxes = place.tile_boxes(x, y)
    np.testing.assert_allclose(
        found["urban_share"], shapely.area(shapely.intersection(boxes, area)) / shapely.area(boxes), atol=1e-9
    )
    assert (found["urban"] == shapely.contains_xy(area, lon % 360, lat)).all()
    assert set(found["urban_vintage"]) == {f"20{vintage}"} and 0 < found["urban"].mean() < 1
    assert ((found["urban_share"] > 0) & (found["urban_share"] < 1)).any()
    again = labels.of(lon[::-1], lat[::-1], zorder.of_tiles(x, y)[::-1])
    assert (again["urban_share"][::-1] == found["urban_share"]).all()
    assert labels.record(800)["share_of_rows"] == pytest.approx(found["urban"].mean())

"""Which pixels a map has: bounded by default, exactly as asked otherwise."""

import math

import numpy as np
import pytest
import shapely
from pyproj import CRS

from app.errors import InvalidInput
from app.workflow.drawing import near
from app.workflow.grids import MAX_INSIDE, RESOLUTION_M, grid_of
from geogp.run import Run, Support, load
from maps.region import polygon


@pytest.fixture(scope="module")
def loaded(run):
    return load(run)


def without_boundary(loaded, **data):
    return Run(
        loaded.path,
        {**loaded.facts, "data": {**loaded.facts["data"], "boundary": None, **data}},
        loaded.model,
    )


def test_default_grid_covers_the_region_at_500_m(loaded):
    grid = grid_of(loaded)
    assert grid.resolution == RESOLUTION_M and grid.note == ""
    assert CRS.from_wkt(str(grid.geobox.crs.wkt)).equals(CRS.from_wkt(loaded.facts["data"]["crs"]))
    box, shape = grid.geobox.extent.boundingbox, grid.mask.shape
    assert box.left <= shape.bounds[0] and box.right >= shape.bounds[2]
    assert box.bottom <= shape.bounds[1] and box.top >= shape.bounds[3]
    assert box.left % 500 == 0 and box.top % 500 == 0  # maps of one region line up
    assert grid.n_inside == pytest.approx(shape.area / 500**2, rel=0.01)


def test_a_large_region_gets_coarser_pixels_and_says_so(loaded):
    # a boundary of 60 by 25 degrees about the same centre
    west, south, east, north = -173.0, 22.0, -113.0, 47.0
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    data = {**loaded.facts["data"], "boundary": {"type": "Polygon", "coordinates": [ring]}}
    grid = grid_of(Run(loaded.path, {**loaded.facts, "data": data}, loaded.model))
    assert grid.resolution in (1000.0, 2000.0, 4000.0) and "large" in grid.note
    assert grid.n_pixels < 4 * MAX_INSIDE


def test_the_emptiness_between_far_places_makes_no_pixel_coarser(loaded):
    """Of a run without boundary only what lies near data counts as inside."""
    far = without_boundary(loaded)
    places = loaded.support.positions_m
    some = np.concatenate([places, places[:50] + [800_000.0, 800_000.0]])
    far.__dict__["support"] = Support(some)
    grid = grid_of(far)
    assert grid.n_pixels > MAX_INSIDE and grid.resolution == RESOLUTION_M


def test_bounds_cut_grid_and_mask(loaded, world):
    lon, lat = world.to_degrees(0.0, 0.0)
    whole = grid_of(loaded, resolution_m=1000)
    grid = grid_of(loaded, resolution_m=1000, bounds=(lon - 0.2, lat - 0.2, lon + 0.2, lat + 0.2))
    assert grid.n_pixels < whole.n_pixels / 10
    assert grid.n_inside == pytest.approx(0.4**2 * 111.2**2 * math.cos(math.radians(lat)), rel=0.04)


def test_other_crs(loaded):
    degrees = grid_of(loaded, crs="EPSG:4326", resolution_m=2000)
    assert degrees.resolution == pytest.approx(2000 / 111_320)
    mercator = grid_of(loaded, crs="EPSG:3857", resolution_m=2000)
    assert mercator.resolution == 2000
    own = grid_of(loaded, resolution_m=2000)
    for grid in (
        degrees,
        mercator,
    ):  # a degree of longitude is 0.83 of one of latitude here; Mercator stretches
        assert 0.9 * own.n_inside < grid.n_inside < 1.7 * own.n_inside


def test_windows_of_the_mask_agree_with_the_whole(loaded):
    grid = grid_of(loaded, resolution_m=2000)
    whole = grid.where(grid.geobox)
    assert whole.sum() == grid.n_inside
    part = grid.where(grid.geobox[10:40, 25:70])
    np.testing.assert_array_equal(part, whole[10:40, 25:70])


def test_without_a_boundary_the_map_reaches_as_far_as_its_data(loaded):
    grid = grid_of(without_boundary(loaded), resolution_m=2000)
    places = loaded.tensors("support")["positions_m"].numpy()
    assert grid.max_distance_m >= 2000 and "no boundary" in grid.note
    box = grid.geobox.extent.boundingbox
    assert box.left <= places[:, 0].min() - grid.max_distance_m
    assert grid_of(without_boundary(loaded), max_distance_m=7000).max_distance_m == 7000


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"resolution_m": 0.0}, "--resolution"),
        ({"resolution_m": float("nan")}, "--resolution"),
        ({"resolution_m": 0.001}, "pixels"),
        ({"crs": "EPSG:999999"}, "EPSG:999999"),
        ({"crs": "EPSG:5773"}, "EPSG:5773"),  # heights, no map
        ({"bounds": (-140.0, 33.0, -145.0, 35.0)}, "W S E N"),
        ({"bounds": (10.0, 50.0, 11.0, 51.0)}, "do not meet"),
        ({"like": "nowhere.tif"}, "nowhere.tif"),
        ({"like": "a.tif", "resolution_m": 500.0}, "--like"),
    ],
)
def test_what_cannot_be_is_refused(options, fragment, loaded):
    with pytest.raises(InvalidInput if "nowhere" not in fragment else ValueError, match=fragment) as caught:
        grid_of(loaded, **options)
    assert caught.value.exit_code == 3


def test_a_far_islet_makes_no_map_of_the_sea(loaded, world):
    plain = grid_of(loaded, resolution_m=2000)
    lon, lat = world.to_degrees(400.0, 0.0)
    islet = shapely.box(lon, lat, lon + 0.1, lat + 0.1)
    region = shapely.union_all([polygon(loaded.boundary), islet])
    data = {**loaded.facts["data"], "boundary": shapely.geometry.mapping(region)}
    run = Run(loaded.path, {**loaded.facts, "data": data}, loaded.model)
    grid = grid_of(run, resolution_m=2000)
    assert grid.shape == plain.shape and grid.n_inside == plain.n_inside
    assert near(run, grid)[2] == "pictures leave out 1 parts of the region beyond 50 km of any data"
    assert near(run, plain)[2] == ""
    assert "leaves out 1 part of the region beyond 50 km of any data; --bounds" in grid.note
    asked = grid_of(run, resolution_m=2000, bounds=(lon - 0.1, lat - 0.1, lon + 0.2, lat + 0.2))
    assert 20 < asked.n_inside < 40 and "leaves out" not in asked.note

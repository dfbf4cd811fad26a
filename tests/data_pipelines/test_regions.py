"""Regions: boxes, polygons, 180 degrees, and agreement with the plain polygon test."""

import numpy as np
import pyproj
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely.geometry import shape

from data_pipelines import quadkey, zorder
from data_pipelines.errors import InvalidInput
from data_pipelines.regions import Region, local_crs

# the Aleutians in miniature, as the Census cuts them at 180 degrees
WEST_PART, EAST_PART = shapely.box(178.0, 51.0, 180.0, 53.0), shapely.box(-180.0, 51.0, -170.0, 54.0)
ALEUTIANS = shapely.MultiPolygon([WEST_PART, EAST_PART])


@pytest.mark.parametrize(
    ("bbox", "match"),
    [
        ((-154, 18, -161, 23), "west -154 east of -161; swap them: W S E N is -161 18 -154 23"),
        ((-161, 23, -154, 18), "south 23 not below north 18"),
        ((-161, 18, -161, 23), "no width"),
        ((18, -161, 23, -154), "leaves -180..180 by -90..90"),
        ((0, 0, 1), "four numbers"),
        ((0, 0, float("nan"), 1), "four numbers"),
    ],
)
def test_boxes_that_are_none(bbox, match):
    with pytest.raises(InvalidInput, match=match):
        Region.from_bbox(bbox)


def test_a_box_with_west_beyond_east_crosses_180_degrees():
    region = Region.from_bbox((172.0, 51.0, -163.0, 55.0))
    assert region.holds_points([175, -179, -170, 0, -160], [52] * 5).tolist() == [
        True,
        True,
        True,
        False,
        False,
    ]
    x, y = quadkey.tile_of([175, -179, -170, 0, -160], [52] * 5)
    assert region.holds_tiles(x, y).tolist() == [True, True, True, False, False]
    west, east = zorder.quadkeys(*quadkey.tile_of([175, -170], [52, 52])).tolist()
    assert region.covering.may_hold(west, west) and region.covering.may_hold(east, east)
    assert region.covering.may_hold(min(west, east), max(west, east))
    far = zorder.quadkeys(*quadkey.tile_of([0], [52]))[0]
    assert not region.covering.may_hold(far, far)
    assert region.boxes() == [(172.0, 51.0, 180.0, 55.0), (-180.0, 51.0, -163.0, 55.0)]
    assert region.boundary() is None


def test_a_polygon_on_both_sides_of_180_degrees_is_one_place():
    region = Region.from_polygon("AK", ALEUTIANS)
    west, _, east, _ = region.shape.bounds
    assert east - west == pytest.approx(12)
    assert region.holds_points([179, -175, 175, -160], [52] * 4).tolist() == [True, True, False, False]
    # the CRS is centred on the land, not on the far side of the Earth
    to_metres = pyproj.Transformer.from_crs(4326, region.crs, always_xy=True)
    x, y = to_metres.transform([178, -170], [52, 52])
    assert np.abs([x, y]).max() < 600_000


def test_the_boundary_is_cut_again_at_180_degrees():
    again = shape(Region.from_polygon("AK", ALEUTIANS).boundary())
    assert again.bounds[0] == -180 and again.bounds[2] == 180
    assert shapely.symmetric_difference(again, ALEUTIANS).area < 1e-9


def test_a_ring_that_jumps_over_180_degrees_is_unrolled():
    ring = shapely.Polygon([(178, 51), (-170, 51), (-170, 54), (178, 54)])
    region = Region.from_polygon("", ring)
    assert region.shape.area == pytest.approx(12 * 3)
    assert region.holds_points([180, -175, 0], [52] * 3).tolist() == [True, True, False]


def test_a_wide_polygon_that_does_not_cross_is_left_alone():
    wide = shapely.segmentize(shapely.box(-125, 20, 130, 50), 30)
    assert Region.from_polygon("", wide).shape.equals(wide)


def test_coordinates_that_are_no_degrees():
    with pytest.raises(InvalidInput, match="not degrees"):
        Region.from_polygon("x", shapely.box(500_000, 4_000_000, 600_000, 4_100_000))


def test_no_polygon():
    with pytest.raises(InvalidInput, match="no polygon"):
        Region.from_polygon("x", shapely.LineString([(0, 0), (1, 1)]))


def test_an_invalid_polygon_is_repaired():
    bow = shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    assert Region.from_polygon("x", bow).shape.area == pytest.approx(0.5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_tiles_agree_with_the_polygon_test_on_every_box(seed):
    """Prefilter, unrolling and remembered answers change nothing: the slow test gives the same tiles."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform([-180, -60], [180, 60])
    angle = np.sort(rng.uniform(0, 2 * np.pi, 12))
    radius = rng.uniform(0.01, 0.03, 12)
    ring = shapely.Polygon(centre + np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1))
    region = Region.from_polygon("", shapely.make_valid(ring))
    x0, y0 = quadkey.tile_of(*centre)
    x, y = (
        axis.ravel() for axis in np.meshgrid(np.arange(x0 - 9, x0 + 10) % 2**16, np.arange(y0 - 9, y0 + 10))
    )
    slow = shapely.intersects(region.shape, region.tile_boxes(x, y))
    assert (region.holds_tiles(x, y) == slow).all() and slow.any()
    order = rng.permutation(np.repeat(np.arange(len(x)), 2))
    assert (region.holds_tiles(x[order], y[order]) == slow[order]).all()
    inside = zorder.quadkeys(x, y)[slow].tolist()
    assert all(region.covering.may_hold(key, key) for key in inside)
    assert region.covering.may_hold(min(inside), max(inside)) and region.covering.may_hold("", "none")
    assert len(region.covering.ranges) <= 4  # a small place lies in few cells


def test_the_local_crs_is_equal_area_and_centred():
    crs = local_crs(-156.44, 20.26)
    assert crs.to_cf()["grid_mapping_name"] == "lambert_azimuthal_equal_area"
    assert [axis.unit_name for axis in crs.axis_info] == ["metre", "metre"]
    to_metres = pyproj.Transformer.from_crs(4326, crs, always_xy=True)
    np.testing.assert_allclose(to_metres.transform(-156.4, 20.3), [0, 0], atol=1e-6)
    # a hundredth of a degree squared 200 km off has the area the ellipsoid says
    box = shapely.box(-157.51, 21.49, -157.5, 21.5)
    x, y = to_metres.transform(*shapely.get_coordinates(box).T)
    true = abs(pyproj.Geod(ellps="WGS84").geometry_area_perimeter(box)[0])
    assert shapely.Polygon(np.stack([x, y], 1)).area == pytest.approx(true, rel=1e-4)

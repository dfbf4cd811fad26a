"""Tiles: the geometry of their indices."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines import quadkey, zorder


@given(st.floats(-180, 179.999), st.floats(-85, 85))
def test_a_point_lies_in_its_tile(lon, lat):
    x, y = quadkey.tile_of([lon], [lat])
    west, south, east, north = (edge[0] for edge in quadkey.bounds(x, y))
    assert west - 1e-9 <= lon <= east + 1e-9 and south - 1e-9 <= lat <= north + 1e-9


@given(st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1))
def test_the_centre_lies_in_its_tile(x, y):
    assert [int(v[0]) for v in quadkey.tile_of(*quadkey.centre([x], [y]))] == [x, y]


def test_a_published_tile():
    """Key, corners and tile_x, tile_y as in a published file (Anchorage, 14 digits)."""
    codes, _ = zorder.of_keys(np.array(["0201210121032133"], "S16"))
    x, y = zorder.tiles(codes)
    edges = [float(edge[0]) for edge in quadkey.bounds(x, y)]
    np.testing.assert_allclose(
        edges, [-149.99084472656, 61.196213140839, -149.9853515625, 61.198859699781], atol=1e-11
    )
    lon, lat = quadkey.centre(x, y)
    np.testing.assert_allclose([lon[0], lat[0]], [-149.98809814453125, 61.19753644810308], atol=1e-13)


def test_poles_lie_in_the_edge_rows():
    for zoom in (1, 5, 16):
        assert quadkey.tile_of([0.0, 0.0], [90.0, -90.0], zoom)[1].tolist() == [0, 2**zoom - 1]

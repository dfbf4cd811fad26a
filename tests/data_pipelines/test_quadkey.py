"""Quadkeys: round trips, agreement with the string definition, and the geometry of tiles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines import quadkey

ZOOMS = st.integers(1, 31)


@st.composite
def tiles(draw) -> tuple[int, int, int]:
    zoom = draw(ZOOMS)
    index = st.integers(0, 2**zoom - 1)
    return zoom, draw(index), draw(index)


@given(tiles())
def test_decode_undoes_encode(tile):
    zoom, x, y = tile
    (key,) = quadkey.encode([x], [y], zoom)
    assert [int(v[0]) for v in quadkey.decode([key], zoom)] == [x, y, 1]


@given(tiles())
def test_encode_is_the_published_definition(tile):
    zoom, x, y = tile
    slow = "".join(str((x >> bit & 1) + 2 * (y >> bit & 1)) for bit in reversed(range(zoom)))
    assert quadkey.encode([x], [y], zoom)[0] == slow


@given(st.lists(st.text(max_size=20), min_size=1))
def test_only_sixteen_digits_0_to_3_are_valid(keys):
    *_, valid = quadkey.decode(keys)
    assert valid.tolist() == [len(k) == 16 and set(k) <= set("0123") for k in keys]


def test_none_and_bytes():
    x, y, valid = quadkey.decode([None, "0" * 16])
    assert valid.tolist() == [False, True] and x.tolist() == y.tolist() == [0, 0]
    assert quadkey.decode(np.array([b"3" * 16]))[0] == 2**16 - 1
    assert all(len(part) == 0 for part in quadkey.decode(np.array([], "S16")))
    assert len(quadkey.encode([], [])) == 0


@pytest.mark.parametrize("x", [-1, 2**16])
def test_indices_outside_are_refused(x):
    with pytest.raises(ValueError, match="must lie in"):
        quadkey.encode([x], [0])


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
    x, y, _ = quadkey.decode(["0201210121032133"])
    edges = [float(edge[0]) for edge in quadkey.bounds(x, y)]
    np.testing.assert_allclose(
        edges, [-149.99084472656, 61.196213140839, -149.9853515625, 61.198859699781], atol=1e-11
    )
    lon, lat = quadkey.centre(x, y)
    np.testing.assert_allclose([lon[0], lat[0]], [-149.98809814453125, 61.19753644810308], atol=1e-13)


def test_sorted_keys_of_a_block_lie_between_its_corners():
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(100, 140), np.arange(300, 330)))
    keys = sorted(quadkey.encode(x, y).tolist())
    first, last = quadkey.encode([100, 139], [300, 329])
    assert (keys[0], keys[-1]) == (first, last)


@given(st.lists(st.tuples(*[st.integers(0, 2**16 - 1)] * 2), min_size=1, max_size=20))
def test_packed_tiles_are_told_apart_and_come_back(places):
    x, y = np.array(places).T
    codes = quadkey.pack(x, y)
    assert codes.tolist() == [a * 65_536 + b for a, b in places]
    assert [v.tolist() for v in quadkey.unpack(codes)] == [x.tolist(), y.tolist()]


@pytest.mark.parametrize("odd", ["4", "9", "/", "x", " ", "é"])
@pytest.mark.parametrize("at", [0, 7, 15])
def test_one_wrong_digit_makes_a_key_unreadable(odd, at):
    """The others of the list stay as they are."""
    good = "0123" * 4
    x, y, valid = quadkey.decode([good, good[:at] + odd + good[at + 1 :], good])
    assert valid.tolist() == [True, False, True] and x[1] == y[1] == 0 and x[0] == x[2] > 0


def test_what_lies_outside_is_told():
    with pytest.raises(ValueError, match=r"\[0, 8\); got -2 to 9\."):
        quadkey.encode([3, 9], [-2, 4], zoom=3)


def test_poles_lie_in_the_edge_rows():
    for zoom in (1, 5, 16):
        assert quadkey.tile_of([0.0, 0.0], [90.0, -90.0], zoom)[1].tolist() == [0, 2**zoom - 1]

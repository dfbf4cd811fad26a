"""Tiles as integers, what is remembered of them, and which stretches of them a place can hold."""

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines import quadkey, zorder
from data_pipelines.readers.tiles import decode
from data_pipelines.regions import Region
from data_pipelines.remembered import Remembered

INDICES = st.integers(0, 2**16 - 1)
PLACES = st.lists(st.tuples(INDICES, INDICES), min_size=1, max_size=20)


def published(x: int, y: int) -> str:
    """The key of a tile by the definition, a digit at a time."""
    return "".join(str((x >> bit & 1) + 2 * (y >> bit & 1)) for bit in reversed(range(16)))


@given(PLACES)
def test_keys_are_the_published_definition_and_tell_their_tiles(places):
    x, y = np.array(places).T
    codes, slow = zorder.of_tiles(x, y), [published(*place) for place in places]
    assert codes.tolist() == [int(key, 4) for key in slow]
    assert zorder.quadkeys(x, y).tolist() == slow and zorder.keys(codes).tolist() == [
        k.encode() for k in slow
    ]
    again, valid = zorder.of_keys(np.array(slow, "S16"))
    assert again.tolist() == codes.tolist() and valid.all()
    assert [axis.tolist() for axis in zorder.tiles(codes)] == [x.tolist(), y.tolist()]


def test_codes_sort_as_their_keys_do():
    x, y = np.random.default_rng(0).integers(0, 1 << 16, (2, 5000))
    codes, keys = zorder.of_tiles(x, y), zorder.quadkeys(x, y)
    assert (np.argsort(codes, kind="stable") == np.argsort(keys, kind="stable")).all()


def test_sorted_keys_of_a_block_lie_between_its_corners():
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(100, 140), np.arange(300, 330)))
    keys = sorted(zorder.quadkeys(x, y).tolist())
    first, last = zorder.quadkeys([100, 139], [300, 329])
    assert (keys[0], keys[-1]) == (first, last)


@pytest.mark.parametrize("seed", range(3))
def test_keys_that_are_none_are_told(seed):
    rng = np.random.default_rng(seed)
    letters = np.array(list("0123" * 12 + "4/:ax"))
    keys = ["".join(row) for row in rng.choice(letters, (500, 16))]
    codes, valid = zorder.of_keys(np.array(keys, "S16"))
    told = [set(key) <= set("0123") for key in keys]
    assert valid.tolist() == told and 0 < valid.sum() < 500
    assert codes.tolist() == [int(key, 4) if good else 0 for key, good in zip(keys, told, strict=True)]


@pytest.mark.parametrize("odd", ["4", "9", "/", "x", " ", "\xe9", "\0"])
@pytest.mark.parametrize("at", [0, 7, 8, 15])
def test_one_wrong_digit_makes_a_key_unreadable(odd, at):
    """The others of the list stay as they are."""
    good = "0123" * 4
    wrong = good[:at] + odd + good[at + 1 :]
    codes, valid = zorder.of_keys(np.array([key.encode("latin-1") for key in (good, wrong, good)], "S16"))
    assert valid.tolist() == [True, False, True] and codes.tolist() == [int(good, 4), 0, int(good, 4)]


@given(st.lists(st.none() | st.text(max_size=20) | st.text("0123", min_size=15, max_size=17), min_size=1))
def test_only_sixteen_digits_0_to_3_are_valid_in_a_column(keys):
    codes, valid = decode(pa.array(keys, pa.string()))
    told = [key is not None and len(key) == 16 and set(key) <= set("0123") for key in keys]
    assert valid.tolist() == told
    assert codes.tolist() == [int(key, 4) if good else 0 for key, good in zip(keys, told, strict=True)]


def test_of_no_tiles_there_are_no_keys():
    assert len(zorder.quadkeys([], [])) == len(zorder.of_tiles([], [])) == 0
    assert [len(part) for part in zorder.of_keys(np.array([], "S16"))] == [0, 0]


@pytest.mark.parametrize(
    ("x", "y", "said"), [([3, 65536], [0, 0], "3 to 65536"), ([3, 9], [-2, 4], "-2 to 4")]
)
def test_indices_outside_are_refused(x, y, said):
    with pytest.raises(ValueError, match=rf"must lie in \[0, 65536\); got {said}\."):
        zorder.of_tiles(x, y)


def test_each_tile_is_asked_about_once():
    rng = np.random.default_rng(0)
    asked: list[int] = []

    def ask(codes):
        asked.extend(codes.tolist())
        return codes % 7

    remembered = Remembered(ask)
    for _ in range(20):
        codes = rng.integers(0, 100, rng.integers(0, 60))
        assert (remembered(codes) == codes % 7).all()
    assert len(asked) == len(set(asked)) > 90


@pytest.mark.parametrize(
    "bbox", [(179, -5, -179, 5), (-180, -90, 180, 90), (-0.1, -0.1, 0.1, 0.1), (170, 51, -163, 55)]
)
def test_a_covering_passes_over_no_tile_of_its_place(bbox):
    region = Region.from_bbox(bbox)
    rng = np.random.default_rng(0)
    lon = rng.uniform(bbox[0], bbox[2] + 360 * (bbox[2] < bbox[0]), 3000)
    x, y = quadkey.tile_of((lon + 180) % 360 - 180, rng.uniform(bbox[1], bbox[3], 3000))
    anywhere = rng.integers(0, 1 << 16, (2, 3000))
    x, y = np.concatenate([[x, y], anywhere], axis=1)
    meets = shapely.intersects(region.shape, region.tile_boxes(x, y))
    assert (region.holds_tiles(x, y) == meets).all() and meets[:3000].mean() > 0.99
    codes = zorder.of_tiles(x, y)
    assert region.covering.near(codes)[meets].all()
    low, high = region.covering.ranges.T
    at = np.searchsorted(high, codes)
    within = (at < len(low)) & (low[np.minimum(at, len(low) - 1)] <= codes)
    assert (within == region.covering.near(codes)).all()


def test_across_180_degrees_hardly_anything_is_met():
    region = Region.from_bbox((179, -5, -179, 5))
    assert region.covering.cells.sum() <= 32  # of 65,536

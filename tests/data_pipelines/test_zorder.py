"""Tiles as integers, what is remembered of them, and which stretches of them a place can hold."""

import numpy as np
import pytest
import shapely

from data_pipelines import quadkey, zorder
from data_pipelines.regions import Region
from data_pipelines.remembered import Remembered


def test_codes_are_the_quadkeys_by_both_routes():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 1 << 16, (2, 5000))
    codes = zorder.of_tiles(x, y)
    keys = quadkey.encode(x, y)
    assert zorder.keys(codes).astype("U16").tolist() == keys.tolist()
    again, valid = zorder.of_keys(keys.astype("S16"))
    assert (again == codes).all() and valid.all()
    assert (np.stack(zorder.tiles(codes)) == [x, y]).all()
    assert (np.argsort(codes, kind="stable") == np.argsort(keys, kind="stable")).all()


@pytest.mark.parametrize("seed", range(3))
def test_keys_that_are_none_are_told_as_by_decode(seed):
    rng = np.random.default_rng(seed)
    letters = np.array(list("0123" * 12 + "4/:ax"))
    keys = np.array(["".join(row) for row in rng.choice(letters, (500, 16))], "S16")
    codes, valid = zorder.of_keys(keys)
    x, y, told = quadkey.decode(keys)
    assert (valid == told).all() and 0 < valid.sum() < 500
    assert (codes == np.where(told, zorder.of_tiles(x, y), 0)).all()


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

"""Runs without time, without counts, without a polygon, and of another target."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from app.dashboard.atlas import Atlas
from app.dashboard.caches import DiskCache
from app.dashboard.slices import Slices
from geogp import load
from geogp.run import save

from .conftest import LAEA, LAT, LON, TINY, fit, polygon


@pytest.fixture(scope="module")
def plain_model():
    return fit(time=False, counts=False)


@pytest.mark.parametrize("boundary", [polygon(), None])
@pytest.mark.parametrize("target", ["value", "latency"])
def test_the_map_of_a_plain_run(plain_model, tmp_path: Path, target: str, boundary: object) -> None:
    model, xy = plain_model
    data = {"crs": LAEA, "boundary": boundary, "value_unit": "mm/a"}
    save(
        tmp_path / "run",
        model,
        {"target": target, "data": data},
        extra={"support": {"positions_m": torch.from_numpy(xy)}},
    )
    atlas = Atlas(load(tmp_path / "run"), DiskCache(tmp_path / "cache"), pace=replace(TINY, inside=1500))
    setting = atlas.choices.default
    assert setting.quarter is None and setting.tests is None and atlas.choices.quarters == ()
    assert set(setting.params) == {"level", "t"}
    assert atlas.unit == ("mm/a" if target == "value" else "ms")
    assert atlas.choices.positive == (target == "latency")
    plane = atlas.plane("median", setting)
    np.testing.assert_array_equal(np.isfinite(plane), atlas.canvas.inside)
    assert atlas.layers(setting) and atlas.picture("faded", setting)
    found = atlas.reading(LAT, LON, setting)
    assert atlas.unit in found["words"]
    assert np.isfinite(Slices(atlas.canvas, 500).of(LAT, LON, setting.quarter).alike)
    low, high = (float(v) for v in atlas.target.from_score(np.array(model.target_range_)))
    if target == "value":
        assert low < setting.threshold < high

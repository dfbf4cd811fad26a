"""Runs without time, without counts, without a polygon, and of another target."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from app.dashboard.atlas import Atlas
from app.dashboard.cache import Cache
from app.dashboard.point import reading
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
    atlas = Atlas(load(tmp_path / "run"), Cache(tmp_path / "cache"), pace=replace(TINY, inside=1500))
    view = atlas.choices.default
    assert view.quarter is None and view.tests is None and atlas.choices.quarters == ()
    assert set(view.params) == {"level", "t"}
    assert atlas.unit == ("mm/a" if target == "value" else "ms")
    assert atlas.choices.positive == (target == "latency")
    plane = atlas.plane("median", view)
    np.testing.assert_array_equal(np.isfinite(plane), atlas.ground.inside)
    assert atlas.layers(view) and atlas.picture("faded", view)
    found = reading(atlas, LAT, LON, view)
    assert atlas.unit in found["words"]
    assert np.isfinite(Slices(atlas, 500).of(LAT, LON, view).alike)
    low, high = (float(v) for v in atlas.target.from_score(np.array(model.target_range_)))
    if target == "value":
        assert all(low < t < high for t in atlas.presets)

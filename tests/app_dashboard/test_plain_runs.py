"""Runs without time, without counts, without a polygon, and of another target."""

from pathlib import Path

import numpy as np
import pytest
import torch

from app.caches import DiskCache
from app.dashboard.atlas import Atlas, Wanted
from geogp import load
from geogp.run import save
from maps.packing import unpack

from .conftest import LAEA, LAT, LON, fit, polygon


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
    atlas = Atlas(load(tmp_path / "run"), DiskCache(tmp_path / "cache"))
    setting = atlas.choices.default
    assert setting.quarter is None and setting.tests is None and atlas.choices.quarters == ()
    assert set(setting.params) == {"level", "t"}
    assert atlas.unit == ("mm/a" if target == "value" else "ms")
    assert atlas.choices.positive == (target == "latency")
    spec = atlas.spec()
    assert spec["settings"]["positive"] == atlas.choices.positive == spec["log"]
    assert spec["settings"]["counts"] == [] and spec["unit"] == atlas.unit
    assert spec["place"] == ("tile" if target == "latency" else "place")
    measured = next(layer for layer in spec["layers"] if layer["id"] == "measured")
    assert (
        measured["plain"] == f"Measured {spec['place']}s"
        and f"nearest {spec['place']} is" in measured["about"]
    )
    assert ("within" in {layer["id"] for layer in spec["layers"]}) == (target == "latency")
    first, others = atlas._made(Wanted(None), lambda done, total: None)
    assert others is None and unpack(first)[1]["known"].sum() > 1000
    assert atlas.unit in atlas.reading(LAT, LON, setting)["words"]
    assert np.isfinite(atlas.slices.of(LAT, LON, setting.quarter).alike)
    low, high = (float(v) for v in atlas.target.from_score(np.array(model.target_range_)))
    if target == "value":
        assert low < setting.threshold < high

"""A layer added to the registry of maps, and nothing else, is on the dashboard and never stale."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.dashboard.atlas import Atlas
from app.dashboard.caches import DiskCache
from geogp import load
from maps.layers import LAYERS, Layer

from .conftest import LAT, LON, TINY

FACTOR = Layer(
    title="Ratio of the ends of the {level} prediction interval",
    short="How sure, as a factor",
    about="upper divided by lower end, for new {of}",
    quantity="factor",
    colours="lajolla_r",
    scale="log",
    group="How sure",
    listed=15,
    by_level=True,
    derive=lambda lower, upper: upper / lower,
)


def test_it_is_listed_painted_told_and_follows_the_level(
    run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Atlas(load(run_path), DiskCache(tmp_path), pace=TINY)
    setting = before.choices.default
    assert "factor" not in before.scales  # and its legend now lies in the cache
    monkeypatch.setitem(LAYERS, "factor", FACTOR)
    atlas = Atlas(load(run_path), DiskCache(tmp_path), pace=TINY)
    assert [layer["id"] for layer in atlas.layers(setting)][2:4] == ["factor", "pi_width"]
    assert atlas.picture("factor", setting).startswith(b"\x89PNG")
    values = atlas.plane("factor", setting)
    np.testing.assert_array_equal(np.isfinite(values), atlas.canvas.inside)
    expected = atlas.plane("upper", setting) / atlas.plane("lower", setting)
    np.testing.assert_allclose(values[atlas.canvas.inside], expected[atlas.canvas.inside], rtol=1e-5)
    narrower = atlas.plane("factor", replace(setting, level=0.5))
    assert (narrower[atlas.canvas.inside] < values[atlas.canvas.inside]).all()
    assert atlas.reading(LAT, LON, setting)["values"]["factor"] > 1

"""A layer added to the registry of maps, and nothing else, is on the dashboard and never stale."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.dashboard.atlas import Atlas
from app.dashboard.cache import Cache
from app.dashboard.point import reading
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
    before = Atlas(load(run_path), Cache(tmp_path), pace=TINY)
    view = before.choices.default
    assert "factor" not in before.legend  # and its legend now lies in the cache
    monkeypatch.setitem(LAYERS, "factor", FACTOR)
    atlas = Atlas(load(run_path), Cache(tmp_path), pace=TINY)
    assert [layer["id"] for layer in atlas.layers(view)][2:4] == ["factor", "pi_width"]
    assert atlas.picture("factor", view).startswith(b"\x89PNG")
    values = atlas.plane("factor", view)
    np.testing.assert_array_equal(np.isfinite(values), atlas.ground.inside)
    expected = atlas.plane("upper", view) / atlas.plane("lower", view)
    np.testing.assert_allclose(values[atlas.ground.inside], expected[atlas.ground.inside], rtol=1e-5)
    narrower = atlas.plane("factor", replace(view, level=0.5))
    assert (narrower[atlas.ground.inside] < values[atlas.ground.inside]).all()
    assert reading(atlas, LAT, LON, view)["values"]["factor"] > 1

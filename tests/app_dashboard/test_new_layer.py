"""A layer added to the registry of maps, and nothing else, is on the page with its plane, and never stale."""

from pathlib import Path

import numpy as np
import pytest

from app.caches import DiskCache
from app.dashboard.atlas import Atlas, Wanted
from geogp import load
from maps.bands import complete
from maps.layers import LAYERS, Layer
from maps.packing import unpack

FACTOR = Layer(
    title="Ratio of the ends of the {level} prediction interval",
    short="Ratio of the ends",
    about="upper divided by lower end, for new {of}",
    quantity="ratio",
    colours="lajolla_r",
    scale="log",
    group="How sure",
    listed=15,
    by_level=True,
    derive=lambda lower, upper: upper / lower,
)


def test_it_is_listed_with_its_legend_and_its_plane(
    run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Atlas(load(run_path), DiskCache(tmp_path))
    assert "ratio" not in before.legend.scales  # and its legend now lies in the cache
    before._made(Wanted("2023Q4"), lambda done, total: None)
    monkeypatch.setitem(LAYERS, "ratio", FACTOR)
    atlas = Atlas(load(run_path), DiskCache(tmp_path))
    (entry,) = [layer for layer in atlas.spec()["layers"] if layer["id"] == "ratio"]
    assert entry["plane"] == "ratio" and entry["title"] == "Ratio of the ends of the 95% prediction interval"
    assert "95% intervals" in entry["of"] and entry["scale"]["high"] > entry["scale"]["low"] >= 1
    values = unpack(atlas._made(Wanted("2023Q4"), lambda done, total: None)[0])[1]
    ds = complete(atlas.run.predict(atlas.page.geobox, **atlas.page.options))
    np.testing.assert_allclose(values["ratio"], ds["ratio"].values[values["known"]], rtol=2e-3)

import io
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.dashboard.atlas import FADED, Atlas
from app.dashboard.caches import DiskCache
from app.dashboard.canvas import pixels
from app.errors import InvalidInput
from geogp import load
from maps.layers import listed
from maps.mercator import MERCATOR_HALF, mercator

from .conftest import LATITUDE, LONGITUDE, TINY


def image(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))


@pytest.mark.parametrize("key", listed())
def test_a_layer_is_the_model_at_its_pixels(atlas: Atlas, key: str) -> None:
    setting = replace(atlas.choices.default, threshold=60.0, level=0.8)
    plane = atlas.plane(key, setting)
    assert plane.shape == atlas.canvas.shape
    np.testing.assert_array_equal(np.isfinite(plane), atlas.canvas.inside)
    lon, lat = (v.reshape(plane.shape) for v in pixels(atlas.canvas.geobox))
    rows, cols = np.nonzero(atlas.canvas.inside)
    for k in (0, len(rows) // 2, len(rows) - 1):
        one = atlas.at(lat[rows[k], cols[k]], lon[rows[k], cols[k]], setting)[key].values.ravel()[0]
        np.testing.assert_allclose(plane[rows[k], cols[k]], one, rtol=2e-3)


def test_levels_and_thresholds_do_not_run_the_model_again(run_path: Path, tmp_path: Path) -> None:
    atlas = Atlas(load(run_path), DiskCache(tmp_path), pace=TINY)
    calls: list[int] = []
    engine = atlas.run.model.engine_
    original = engine.moments
    engine.moments = lambda X, n=None: (calls.append(len(X)), original(X, n))[1]
    setting = atlas.choices.default
    atlas.plane("median", setting)
    assert sum(calls) == atlas.canvas.inside.sum()
    for other in (replace(setting, level=0.5), replace(setting, threshold=3.0), replace(setting, level=0.8)):
        atlas.plane("pi_width", other), atlas.plane("exceedance", other)
    assert sum(calls) == atlas.canvas.inside.sum()
    assert type(engine).__module__.startswith("geogp.")  # the run's own, not one put in its place
    atlas.plane("median", replace(setting, quarter="2023Q3"))
    assert sum(calls) == 2 * atlas.canvas.inside.sum()


def test_the_next_start_reads_what_was_computed(run_path: Path, tmp_path: Path) -> None:
    first = Atlas(load(run_path), DiskCache(tmp_path), pace=TINY)
    values = first.plane("median", first.choices.default)
    scales = first.scales
    second = Atlas(load(run_path), DiskCache(tmp_path), pace=TINY)
    second.run.model.engine_.moments = None  # nothing may be computed
    np.testing.assert_array_equal(second.plane("median", first.choices.default), values)
    assert second.scales == scales


@pytest.mark.parametrize("junk", [b"", b"\x93NUMPY junk", b"\x80\x04K\x01."])
def test_a_damaged_cache_is_computed_again(run_path: Path, tmp_path: Path, junk: bytes) -> None:
    atlas = Atlas(load(run_path), DiskCache(tmp_path), pace=TINY)
    for file in ("median_2023Q4_" + f"{atlas.choices.tests:.10g}" + ".npy", "legend.json"):
        path = tmp_path / atlas.id / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(junk)
    values = atlas.plane("median", atlas.choices.default)
    assert np.isfinite(values).sum() == atlas.canvas.inside.sum()
    assert atlas.scales["level"].high > atlas.scales["level"].low > 0


def test_a_cache_that_cannot_be_written_does_no_harm(run_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    atlas = Atlas(load(run_path), DiskCache(tmp_path / "file"), pace=TINY)
    assert np.isfinite(atlas.plane("median", atlas.choices.default)).any()


def test_legends_are_the_same_for_every_setting(atlas: Atlas) -> None:
    setting = atlas.choices.default

    def ticks(v) -> dict:
        return {layer["id"]: (layer["ticks"], layer["ramp"]) for layer in atlas.layers(v)}

    for other in (
        replace(setting, quarter="2023Q3"),
        replace(setting, level=0.5),
        replace(setting, threshold=7.0),
    ):
        assert ticks(other) == ticks(setting)


def test_a_picture_and_its_legend_do_not_wait_for_each_other(
    run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atlas = Atlas(load(run_path), DiskCache(tmp_path), pace=TINY)
    setting, plane, sample = atlas.choices.default, atlas.plane, atlas._sample
    painting, sampling = threading.Event(), threading.Event()
    monkeypatch.setattr(atlas, "plane", lambda *a: (painting.set(), sampling.wait(60), plane(*a))[2])
    monkeypatch.setattr(atlas, "_sample", lambda *a: (sampling.set(), sample(*a))[1])
    visitors = [
        threading.Thread(target=atlas.picture, args=("median", setting), daemon=True),
        threading.Thread(target=lambda: painting.wait(60) and atlas.layers(setting), daemon=True),
    ]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join(60)
    assert not any(visitor.is_alive() for visitor in visitors)


def test_the_list_says_what_and_in_which_unit(atlas: Atlas) -> None:
    layers = {layer["id"]: layer for layer in atlas.layers(replace(atlas.choices.default, threshold=33.0))}
    assert set(layers) == {*listed(), FADED}
    assert layers["median"]["unit"] == layers["pi_width"]["unit"] == "Mbit/s"
    assert "33" in layers["exceedance"]["title"]
    assert len(layers[FADED]["grid"]) == 4


@pytest.mark.parametrize("layer", [*listed(), FADED])
def test_pictures_are_transparent_outside_only(atlas: Atlas, layer: str) -> None:
    painted = image(atlas.picture(layer, atlas.choices.default))
    np.testing.assert_array_equal(painted[..., 3] > 0, atlas.canvas.inside)


def test_colours_follow_the_values(atlas: Atlas) -> None:
    setting = atlas.choices.default
    values, painted = atlas.plane("median", setting), image(atlas.picture("median", setting))
    scale = atlas.scales["level"]
    low, high = (np.unravel_index(f(values), values.shape) for f in (np.nanargmin, np.nanargmax))
    ramp = next(layer for layer in atlas.layers(setting) if layer["id"] == "median")["ramp"]
    for at in (low, high):
        expected = ramp[round(32 * float(scale.fraction(values[at])))].lstrip("#")
        assert np.abs(painted[at][:3].astype(int) - list(bytes.fromhex(expected))).max() < 12


def test_a_square_shows_the_same_colours_as_the_picture(atlas: Atlas) -> None:
    setting, z = atlas.choices.default, 10
    x, y = mercator(np.array(LONGITUDE), np.array(LATITUDE))
    side = 2 * MERCATOR_HALF / 2**z
    i, j = int((x + MERCATOR_HALF) // side), int((MERCATOR_HALF - y) // side)
    square = image(atlas.tile("median", setting, z, i, j))
    assert square.shape == (128, 128, 4)
    row = int((MERCATOR_HALF - y - j * side) / side * 128)
    col = int((x + MERCATOR_HALF - i * side) / side * 128)
    box = atlas.canvas.geobox.affine
    whole = image(atlas.picture("median", setting))[int((y - box.f) / box.e), int((x - box.c) / box.a)]
    assert np.abs(square[row, col].astype(int) - whole).max() < 25


def test_a_square_far_away_is_empty(atlas: Atlas) -> None:
    assert not image(atlas.tile("median", atlas.choices.default, 10, 0, 0))[..., 3].any()


@pytest.mark.parametrize(("z", "x", "y"), [(-1, 0, 0), (17, 0, 0), (3, 8, 0), (3, 0, -1), (10**9, 0, 0)])
def test_a_square_that_does_not_exist_is_refused(atlas: Atlas, z: int, x: int, y: int) -> None:
    with pytest.raises(InvalidInput, match="square"):
        atlas.tile("median", atlas.choices.default, z, x, y)


def test_an_unknown_layer_is_refused(atlas: Atlas) -> None:
    with pytest.raises(InvalidInput, match="no layer"):
        atlas.picture("../run.json", atlas.choices.default)


def test_hatched_pixels_are_far_from_every_place(atlas: Atlas, monkeypatch: pytest.MonkeyPatch) -> None:
    atlas.__dict__.pop("far", None)
    monkeypatch.setattr("app.dashboard.atlas.FAR_M", 600.0)
    far = atlas.far
    atlas.__dict__.pop("far", None)
    assert far is not None
    lon, lat = pixels(atlas.canvas.geobox)
    assert (atlas.canvas.away_m(lon, lat)[far.ravel()] > 600.0).all()
    assert not (far & ~atlas.canvas.inside).any()


def test_scores_do_not_throw_away_computed_maps(run_path: Path, tmp_path: Path) -> None:
    import shutil

    from geogp import storage

    copy = Path(shutil.copytree(run_path, tmp_path / "run"))
    before = Atlas(load(copy), DiskCache(tmp_path / "cache"), pace=TINY).id
    storage.update_facts(copy, {"scores": {}})
    assert Atlas(load(copy), DiskCache(tmp_path / "cache"), pace=TINY).id == before

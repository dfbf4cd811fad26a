"""The lazy Dataset: right values, right attributes, computed once and only where asked."""

import numpy as np
import pytest
from odc.geo.geobox import GeoBox
from pyproj import Transformer

import geogp
import maps.errors
from geogp import blocks as module
from geogp.run import Run
from maps.words import subtitle

CRS = "EPSG:32604"
rng = np.random.default_rng(1)
N = 400
X = np.column_stack(
    [
        rng.uniform(600_000, 640_000, N),
        rng.uniform(2_340_000, 2_380_000, N),
        rng.choice([2022.125, 2022.375], N),
    ]
)
Y = 4.5 + 0.5 * np.sin(X[:, 0] / 8000) + 0.1 * rng.standard_normal(N)
COUNTS = rng.integers(1, 50, N).astype(float)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    model = geogp.GPRegressor(
        method="dbk-rbf", target_transform="identity", spatial=(0, 1), time=2, rank=16, hidden=16, epochs=10
    ).fit(X, Y, COUNTS)
    return Run(
        tmp_path_factory.mktemp("run"),
        {"target": "download", "data": {"crs": CRS, "last_quarter": "2022Q2"}},
        model,
    )


BOX = GeoBox.from_bbox((600_000, 2_340_000, 640_000, 2_380_000), CRS, resolution=1000)


def test_values_are_those_of_the_model_at_the_pixel_centres(run):
    ds = geogp.predict(run, BOX, tests=5, thresholds=(10.0, 50.0))
    x, y = ds.x.values[7], ds.y.values[3]
    here = np.array([[x, y, 2022.375]])
    p = run.model.predictive(here, counts=5.0)
    pixel = ds.isel(x=7, y=3)
    np.testing.assert_allclose(pixel["median"], 10 ** (p.median()[0] - 3), rtol=1e-4)
    lower, upper = p.interval(0.95)
    np.testing.assert_allclose(pixel["lower"], 10 ** (lower[0] - 3), rtol=1e-4)
    np.testing.assert_allclose(pixel["pi_width"], 10 ** (upper[0] - 3) - 10 ** (lower[0] - 3), rtol=1e-4)
    np.testing.assert_allclose(
        pixel["exceedance"], [p.exceedance(4.0)[0], p.exceedance(np.log10(50_000))[0]], rtol=1e-4
    )
    parts = np.hypot(pixel["latent_sd"], pixel["noise_sd"])
    np.testing.assert_allclose(parts, p.sd()[0], rtol=1e-4)


def test_nothing_is_computed_before_it_is_read_and_nothing_twice(run, monkeypatch):
    calls = []
    original = type(run.model.engine_).moments
    monkeypatch.setattr(
        type(run.model.engine_),
        "moments",
        lambda self, X, c=None: (calls.append(len(X)), original(self, X, c))[1],
    )
    ds = geogp.predict(run, BOX)
    assert calls == []
    window = ds.isel(y=slice(5, 9), x=slice(0, 10)).load()
    assert sum(calls) == BOX.shape[0] * BOX.shape[1] and window["median"].shape == (4, 10)
    ds.isel(y=slice(0, 40), x=slice(0, 40)).load()
    assert sum(calls) == BOX.shape[0] * BOX.shape[1]


def test_any_index_reads_the_same_pixels(run):
    ds = geogp.predict(run, BOX, thresholds=(10.0, 20.0, 50.0))
    whole = ds.load().copy(deep=True)
    lazy = geogp.predict(run, BOX, thresholds=(10.0, 20.0, 50.0))
    for key in (
        {"y": slice(None, None, -3)},
        {"x": 5},
        {"y": [3, 1, 8], "x": slice(2, 30, 7)},
        {"y": -1, "x": -2},
    ):
        np.testing.assert_array_equal(lazy["mean"].isel(key), whole["mean"].isel(key))
        np.testing.assert_array_equal(lazy["exceedance"].isel(key), whole["exceedance"].isel(key))
    np.testing.assert_array_equal(
        lazy["exceedance"].isel(threshold=[2, 0]), whole["exceedance"].isel(threshold=[2, 0])
    )


def test_blocks_do_not_show(run, monkeypatch):
    whole = geogp.predict(run, BOX)["latent_sd"].values
    monkeypatch.setattr(module, "BLOCK", 16)
    monkeypatch.setattr(module, "CACHE_BYTES", 10_000)
    np.testing.assert_allclose(geogp.predict(run, BOX)["latent_sd"].values, whole, rtol=1e-5)


def test_pixels_outside_the_mask_are_missing_and_never_computed(run):
    def left(window):
        return np.broadcast_to(np.arange(window.width) < 10, window.shape)

    ds = geogp.predict(run, BOX, where=left)
    values = ds["median"].values
    assert np.isfinite(values[:, :10]).all() and np.isnan(values[:, 10:]).all()


def test_a_grid_in_degrees_meets_the_same_model(run):
    box = GeoBox.from_bbox((-158.0, 21.2, -157.8, 21.4), "EPSG:4326", shape=(6, 6))
    ds = geogp.predict(run, box)
    assert ds["median"].dims == ("y", "x")
    east, north = Transformer.from_crs(4326, CRS, always_xy=True).transform(ds.x.values[2], ds.y.values[1])
    p = run.model.predictive(np.array([[east, north, 2022.375]]))
    np.testing.assert_allclose(ds["median"].isel(y=1, x=2), 10 ** (p.median()[0] - 3), rtol=1e-4)


def test_attributes_say_what_the_map_is_of(run):
    ds = geogp.predict(run, BOX, quarter="2022Q1", tests=7, level=0.8)
    assert ds.attrs["quarter"] == "2022Q1" and ds.attrs["tests"] == 7 and ds.attrs["level"] == 0.8
    assert ds["median"].attrs["units"] == "Mbit/s" and ds["latent_sd"].attrs["units"] == "1"
    assert all(v.dtype == np.float32 for v in ds.data_vars.values())
    assert ds["spatial_ref"].dtype == np.int32


@pytest.mark.parametrize("quarter", ["2022", "2022Q5", "Q1", "2022-01"])
def test_a_malformed_quarter_is_named(run, quarter):
    with pytest.raises(geogp.InvalidInput, match="a quarter is written 2023Q4"):
        geogp.predict(run, BOX, quarter=quarter)


def test_several_quarters_are_a_dimension_of_one_dataset(run):
    both = geogp.predict(run, BOX, quarter=["2022Q1", "2022Q2"], thresholds=(10.0, 50.0))
    assert both["median"].dims == ("quarter", "y", "x") and both["quarter"].values.tolist() == [
        "2022Q1",
        "2022Q2",
    ]
    window = {"y": slice(3, 9, 2), "x": -1}
    for quarter in both["quarter"].values:
        one, chosen = (
            geogp.predict(run, BOX, quarter=str(quarter), thresholds=(10.0, 50.0)),
            both.sel(quarter=quarter),
        )
        for name in ("median", "latent_sd", "exceedance"):
            np.testing.assert_array_equal(chosen[name].isel(window), one[name].isel(window))
    assert float(abs(both["median"].diff("quarter")).max()) > 0
    np.testing.assert_array_equal(both["median"][::-1, 4, 4], both["median"].values[::-1, 4, 4])
    assert both["exceedance"].isel(quarter=[1], threshold=[1, 0], y=0).shape == (1, 2, 40)
    for wrong in ([], ["2022Q1", "2022Q1"], ["2022Q5"]):
        with pytest.raises(geogp.InvalidInput):
            geogp.predict(run, BOX, quarter=wrong)
    with pytest.raises(maps.errors.InvalidInput, match=r"choose one of them, as ds.sel\(quarter='2022Q1'\)"):
        both.geogp.plot()
    assert "2022 Q2" in subtitle(both.sel(quarter="2022Q2")) and "2022" not in subtitle(both)

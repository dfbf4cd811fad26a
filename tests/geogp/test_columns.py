"""Data frames and points as inputs: columns are called by their names, and nothing is warned of."""

import warnings

import geopandas
import numpy as np
import pandas as pd
import pytest
from odc.geo.geobox import GeoBox

import geogp
from geogp import GPRegressor
from geogp.errors import InvalidInput, NotDistanceAware

QUICK = {"method": "local-gp", "options": {"steps": 5}}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "year": 2019 + rng.integers(0, 12, 80) / 4,
            "x": rng.uniform(0, 1e4, 80),
            "y": rng.uniform(0, 1e4, 80),
        }
    )
    return X, pd.Series(np.sin(X["x"] / 2e3) + X["year"] - 2020, name="depth")


def test_names_are_the_columns_of_a_frame(frame):
    X, y = frame
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NotDistanceAware)
        named = GPRegressor(spatial=("x", "y"), time="year", **QUICK).fit(X, y)
        told = named.predict(X[:9], return_std=True)
    numbered = GPRegressor(spatial=(1, 2), time=0, **QUICK).fit(X.to_numpy(), y.to_numpy())
    np.testing.assert_array_equal(told, numbered.predict(X[:9].to_numpy(), return_std=True))
    again = GPRegressor.from_state(*named.state())
    np.testing.assert_array_equal(told[0], again.predict(X[:9].to_numpy()))
    assert named.spatial == ("x", "y") and named.has_time and again.time == 0


@pytest.mark.parametrize("asked", [{"spatial": ("x", "y")}, {"spatial": (0, -1)}, {"spatial": None}], ids=str)
def test_a_grid_is_mapped_whatever_its_columns_are_called(frame, asked):
    X, y = frame
    model = GPRegressor(**asked, **QUICK).fit(X[["x", "y"]], y)
    grid = GeoBox.from_bbox((0, 0, 1e4, 1e4), crs="EPSG:32604", resolution=5000)
    assert geogp.predict(model, grid)["median"].shape == (2, 2)


def test_arrays_that_run_backwards_are_taken(frame):
    X, y = frame[0][["x", "y"]].to_numpy(), frame[1].to_numpy()
    backwards = GPRegressor(**QUICK).fit(X[::-1], y[::-1]).predict(X[:9][::-1])
    np.testing.assert_allclose(backwards[::-1], GPRegressor(**QUICK).fit(X, y).predict(X[:9]), atol=1e-9)


def test_names_beside_points(frame):
    X, y = frame
    points = geopandas.GeoDataFrame(
        {"year": X["year"]}, geometry=geopandas.points_from_xy(X["x"], X["y"]), crs=32604
    )
    named = GPRegressor(spatial=(0, 1), time="year", **QUICK).fit(points, y)
    numbered = GPRegressor(spatial=(0, 1), time=2, **QUICK).fit(X[["x", "y", "year"]].to_numpy(), y)
    np.testing.assert_array_equal(
        named.predict(points[:9]), numbered.predict(X[["x", "y", "year"]][:9].to_numpy())
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"time": "month"}, "no column is called so (they are year, x, y)"),
        ({"time": 5}, "by number below 3; got 5"),
        ({"time": True}, "by number below 3; got True"),
        ({"spatial": "xy"}, "spatial must name two of the 3 columns, or the one along a line; got 'xy'"),
        ({"spatial": ("x", "y"), "time": 1}, "columns of their own"),
    ],
)
def test_columns_that_are_none_are_refused(frame, asked, words):
    with pytest.raises(InvalidInput) as refused:
        GPRegressor(**asked, **QUICK).fit(*frame)
    assert words in str(refused.value)
    with pytest.raises(InvalidInput):
        GPRegressor(**({"time": "year"} | asked), **QUICK).fit(frame[0].to_numpy(), frame[1])


def test_points_of_another_crs_are_refused(frame):
    X, y = frame
    points = geopandas.GeoSeries(geopandas.points_from_xy(5e5 + X["x"], 2e6 + X["y"]), crs=32604)
    model = GPRegressor(**QUICK).fit(points, y)
    again = GPRegressor.from_state(*model.state())
    for fitted in (model, again):
        with pytest.raises(InvalidInput, match=r"in WGS 84 / UTM zone 5N, and .* give points\.to_crs"):
            fitted.predict(points.to_crs(32605))
        same = points.to_crs(32605).to_crs(fitted.crs_)
        np.testing.assert_allclose(fitted.predict(same), model.predict(points), rtol=1e-6)

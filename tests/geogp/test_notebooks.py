"""What a notebook user tries first: completion, points of geopandas, maps of a model in memory or of a folder."""

import geopandas
import numpy as np
import pytest
from odc.geo.geobox import GeoBox

import geogp
from geogp.errors import InvalidInput, NotDistanceAware
from geogp.run import Run

QUICK = {"steps": 5, "n_targets": 50, "metric": False}
BOX = GeoBox.from_bbox((400_000, 0, 410_000, 10_000), crs="EPSG:32604", resolution=2000)


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(400_000, 410_000, 80), rng.uniform(0, 10_000, 80)])
    frame = geopandas.GeoDataFrame(geometry=geopandas.points_from_xy(*X.T), crs=32604)
    return X, np.sin(X[:, 0] / 2000) + 0.1 * rng.standard_normal(80), frame


@pytest.fixture(scope="module")
def model(points):
    X, y, _ = points
    return geogp.GPRegressor("local-gp", options=QUICK).fit(X, y)


def test_completion_offers_what_there_is():
    assert {"GPRegressor", "load", "predict", "values_at", "change_map"} <= set(dir(geogp))
    assert all(getattr(geogp, name) is not None for name in dir(geogp))


def test_points_are_their_coordinates(points, model):
    X, y, frame = points
    want = model.predict(X[:5])
    for given in (frame, frame.geometry):
        again = geogp.GPRegressor("local-gp", options=QUICK).fit(given, y)
        np.testing.assert_array_equal(again.predict(given[:5]), want)
    np.testing.assert_array_equal(model.predict(frame[:5]), want)


def test_other_columns_of_a_frame_follow_its_coordinates(points):
    X, y, frame = points
    high = frame.assign(height=X[:, 1] / 100)
    model = geogp.GPRegressor("local-gp", spatial=(0, 1), options=QUICK).fit(high, y)
    both = np.column_stack([X, X[:, 1] / 100])
    np.testing.assert_array_equal(model.predict(high[:4]), model.predict(both[:4]))


BAD = {
    "degrees": (lambda f: f.to_crs(4326), "are in degrees"),
    "no CRS": (lambda f: f.set_crs(None, allow_override=True), "have no CRS"),
    "polygons": (lambda f: f.set_geometry(f.buffer(10)), "must all be points"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_other_geometries_are_refused_in_a_sentence(case, points):
    change, words = BAD[case]
    with pytest.raises(InvalidInput, match=words):
        geogp.GPRegressor("local-gp", options=QUICK).fit(change(points[2]), points[1])


def test_a_model_is_mapped_on_a_grid(points, model):
    ds = geogp.predict(model, BOX)
    assert ds["median"].shape == BOX.shape
    centres = np.column_stack([v.ravel() for v in np.meshgrid(ds["x"].values, ds["y"].values)])
    assert np.isfinite(model.predict(centres)).all()
    median = model.predictive(centres).median()
    np.testing.assert_allclose(ds["median"].values.ravel(), median, rtol=1e-5, atol=1e-5)
    assert len(ds._repr_html_()) < 50_000 and len(model._repr_html_()) < 50_000
    three = geogp.GPRegressor("local-gp").fit(np.column_stack([points[0], points[1]]), points[1])
    with pytest.raises(InvalidInput, match="3 columns"):
        geogp.predict(three, BOX)


def test_a_folder_is_mapped_and_a_run_shows_itself(points, model, tmp_path):
    from geogp.run import save

    facts = {"target": "value", "method": "local-gp", "data": {"crs": "EPSG:32604", "region": "<b>here</b>"}}
    run = save(tmp_path / "run", model, facts)
    np.testing.assert_array_equal(
        geogp.predict(tmp_path / "run", BOX)["median"].values,
        geogp.predict(str(tmp_path / "run"), BOX)["median"].values,
    )
    shown = run._repr_html_()
    assert isinstance(run, Run) and len(repr(run)) < 200 and len(shown) < 2000
    assert "&lt;b&gt;here" in shown and "http" not in shown
    assert ">value<" in shown  # a target without a unit is not "value, 1"
    facts["data"]["value_unit"] = "mm"
    assert ">value, mm<" in save(tmp_path / "other", model, facts)._repr_html_()
    with pytest.raises(InvalidInput, match="not a finished run"):
        geogp.predict(tmp_path, BOX)


def test_an_estimator_is_kept_and_opened_again(points, tmp_path):
    X, y, frame = points
    model = geogp.GPRegressor("local-gp", options=QUICK).fit(frame, y)
    run = geogp.save(tmp_path / "run", model)
    again = geogp.load(tmp_path / "run")
    assert run.crs == again.crs == frame.crs
    np.testing.assert_array_equal(again.model.predict(X[:5]), model.predict(X[:5]))
    with pytest.raises(InvalidInput, match="exists"):
        geogp.save(tmp_path / "run", model)


def test_a_grid_is_brought_to_the_crs_of_the_points(points):
    _, y, frame = points
    model = geogp.GPRegressor("local-gp", options=QUICK).fit(frame, y)
    bounds = tuple(frame.to_crs(4326).total_bounds)
    degrees = GeoBox.from_bbox(bounds, crs=4326, shape=(6, 5))
    ds = geogp.predict(model, degrees)
    lon, lat = np.meshgrid(ds.x.values, ds.y.values)
    at = geopandas.GeoSeries(geopandas.points_from_xy(lon.ravel(), lat.ravel()), crs=4326).to_crs(32604)
    want = model.predictive(np.column_stack([at.x, at.y])).median()
    np.testing.assert_allclose(ds["median"].values.ravel(), want, rtol=1e-4, atol=1e-5)


def test_the_target_is_no_feature(points):
    _, y, frame = points
    table = frame.assign(zinc=y)
    with pytest.raises(InvalidInput, match="column 'zinc' that is to be predicted"):
        geogp.GPRegressor("local-gp", options=QUICK).fit(table, table["zinc"])


def test_a_method_says_once_that_it_is_not_distance_aware(points):
    X, y, _ = points
    with pytest.warns(NotDistanceAware) as caught:
        for _ in range(3):
            geogp.GPRegressor("vbll", epochs=1, rank=8).fit(X, y)
    assert sum(w.category is NotDistanceAware for w in caught) == 1

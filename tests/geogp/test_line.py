"""The default on one column: places along a line."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from odc.geo.geobox import GeoBox

import geogp
from geogp import GPRegressor
from geogp.field import FieldOptions
from geogp.field.frame import frame_of
from geogp.field.left_out import leave_out

KINDS = {"target_transform": "identity", "random_state": 0}


def line(n=150, seed=0, sd=0.3):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, n)
    return x[:, None], np.sin(x) + sd * rng.standard_normal(n)


@pytest.fixture(scope="module")
def model():
    return GPRegressor(**KINDS).fit(*line())


def test_a_wave_is_found_and_known_as_well_as_it_is_said_to_be(model):
    new, y = line(2000, seed=1)
    truth = np.sin(new[:, 0])
    # Thirty rows a wave whose noise has sd .3: some .3 / sqrt(10) is what can be known.
    assert float(np.sqrt(np.mean((model.predict(new) - truth) ** 2))) < 0.1
    lower, upper = model.interval(new)
    assert 0.92 < ((lower < y) & (y < upper)).mean() < 0.98
    lower, upper = model.interval(new, latent=True)
    assert ((lower < truth) & (truth < upper)).mean() > 0.88


def test_intervals_of_few_rows_hold_what_is_new():
    held, surface = [], []
    for seed in range(8):
        fitted = GPRegressor(**KINDS).fit(*line(12, seed=seed))
        new, y = line(300, seed=100 + seed)
        for values, latent, of in ((y, False, held), (np.sin(new[:, 0]), True, surface)):
            lower, upper = fitted.interval(new, latent=latent)
            of.append(((lower < values) & (values < upper)).mean())
    assert np.mean(held) > 0.85 and np.mean(surface) > 0.7


def test_beyond_the_ends_the_surface_is_less_and_less_known(model):
    sd = model.predict(np.array([[5.0], [10.5], [13.0], [40.0]]), return_std=True, latent=True)[1]
    assert (np.diff(sd) > 0).all()


def test_a_line_is_that_of_two_columns_that_lie_on_one(model):
    X, y = line()
    new = np.linspace(-1, 11, 40)[:, None]
    beside = GPRegressor(**KINDS).fit(np.column_stack([X, np.full(len(X), 7.0)]), y)
    both = beside.predict(np.column_stack([new, np.full(len(new), 7.0)]))
    # All but one weight of the plane, which nothing tells, is the same.
    np.testing.assert_allclose(model.predict(new), both, atol=0.02)


def test_its_unit_and_where_it_begins_say_nothing(model):
    X, y = line()
    other = GPRegressor(**KINDS).fit(5e5 + 1000.0 * X, y)
    np.testing.assert_allclose(other.predict(5e5 + 1000.0 * X), model.predict(X), atol=1e-3)


def test_a_stored_line_is_the_same_and_stays_one(model):
    tensors, facts = model.state()
    again = GPRegressor.from_state(tensors, json.loads(json.dumps(facts)))
    new = np.linspace(-3, 14, 50)[:, None]
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    np.testing.assert_array_equal(again.sample_y(new, 2), model.sample_y(new, 2))
    assert again.choice == model.choice == "method 'geogp': column 0 as places along a line."


def test_one_column_beside_a_time_is_a_line_too():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"year": 2020 + rng.integers(0, 8, 160) / 4, "km": rng.uniform(0, 10, 160)})
    y = np.sin(frame["km"]) + 0.5 * (frame["year"] - 2021) + 0.1 * rng.standard_normal(160)
    model = GPRegressor(time="year", **KINDS).fit(frame, y)
    shape = model.engine_.plan.shape
    assert shape.spatial == (1,) and shape.time == 0
    told = GPRegressor(time="year", spatial=["km"], **KINDS).fit(frame, y)
    np.testing.assert_array_equal(told.predict(frame), model.predict(frame))
    assert float(np.sqrt(np.mean((model.predict(frame) - y) ** 2))) < 0.15
    again = GPRegressor.from_state(*model.state())
    np.testing.assert_array_equal(again.predict(frame.to_numpy()), model.predict(frame))


def test_many_rows_leave_out_singly_in_stretches_and_at_both_ends():
    X = torch.rand(600, 1, generator=torch.Generator().manual_seed(0)).double()
    frame = frame_of(X.numpy(), (0,), None)
    C = frame.coordinates(X)
    left = leave_out(C, frame, FieldOptions())
    assert sorted({out.kind for out in left}) == ["blocks", "rows", "sides"]
    sides = [out for out in left if out.kind == "sides"]
    known = [C[out.reference, 0] for out in sides]
    assert len(sides) == 2
    assert float(known[0].min()) > float(known[1].min()) and float(known[0].max()) > float(known[1].max())


def test_methods_that_need_no_position_take_a_column_for_a_feature():
    X, y = line(60)
    sizes = {"rank": 8, "hidden": 8, "epochs": 2, "target_transform": "identity"}
    assert GPRegressor("dbk-silu", **sizes).fit(X, y).engine_.plan.shape.spatial is None
    with_waves = GPRegressor("dbk-silu", spatial=(0,), **sizes).fit(X, y)
    assert with_waves.engine_.model.encoder.frequencies.shape[1] == 1
    assert np.isfinite(with_waves.predict(X)).all()


def test_a_line_is_no_map(model):
    grid = GeoBox.from_bbox((0, 0, 10, 10), crs="EPSG:32604", resolution=5)
    with pytest.raises(geogp.InvalidInput, match="has 1 columns, and a grid has only easting and northing"):
        geogp.predict(model, grid)
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 10, 40), 2020 + rng.integers(0, 4, 40) / 4])
    in_time = GPRegressor(time=1, **KINDS).fit(X, X[:, 0])
    with pytest.raises(geogp.InvalidInput, match="has 2 columns, and a grid has only easting and northing"):
        geogp.predict(in_time, grid)


def test_too_many_places_are_refused_in_a_sentence():
    X = np.random.default_rng(0).uniform(0, 1, (20, 4))
    with pytest.raises(
        geogp.InvalidInput, match=r"must name two of the 4 columns, or the one along a line; got"
    ):
        GPRegressor(spatial=(0, 1, 2)).fit(X, X[:, 0])


def test_one_dimension_is_no_table(model):
    for call in (lambda x: GPRegressor(**KINDS).fit(x, x), model.predict):
        for x in (np.arange(9.0), [1.0, 2.0], pd.Series([1.0, 2.0])):
            with pytest.raises(geogp.InvalidInput, match=r"one dimension, of \d values.*reshape\(-1, 1\)"):
                call(x)

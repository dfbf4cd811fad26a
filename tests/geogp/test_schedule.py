"""Cycles of the learning rate, when they stop, and the choice of the trace weight."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geogp.train import Progress, Schedule, cycle_rate, past_the_best

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")


@given(st.integers(1, 2000))
@settings(max_examples=60, deadline=None)
def test_cycles_grow_and_end_with_the_training(epochs):
    ends = Schedule().cycle_ends(epochs)
    assert ends[-1] == epochs and ends == sorted(set(ends))
    rates = [cycle_rate(e / 4, ends) for e in range(4 * epochs)]
    assert all(0.0 <= r <= 1.0 for r in rates)
    assert cycle_rate(epochs - 1e-6, ends) < 1e-6


def test_training_stops_when_a_cycle_ends_worse_than_the_one_before():
    def progress(*scores):
        rows = [{"epoch": float(e), "validation": s} for e, s in zip((5, 15, 35), scores)]
        return Progress(epoch=(5, 15, 35)[len(scores) - 1], history=rows)

    ends = [5, 15, 35, 75]
    assert not past_the_best(progress(1.0), ends)
    assert not past_the_best(progress(1.0, 0.9), ends)
    assert past_the_best(progress(1.0, 1.1), ends)
    assert past_the_best(progress(1.0, 0.9, 0.95), ends)


def test_a_network_on_few_rows_is_stopped_before_it_knows_them_by_heart():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (400, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(400)
    model = geogp.GPRegressor(method="dbk-silu", hidden=32, rank=32).fit(X, y)
    new = rng.uniform(0, 10, (2000, 2))
    t = np.sin(new[:, 0]) + 0.3 * rng.standard_normal(2000)
    lower, upper = model.interval(new, level=0.95)
    # By heart, the noise sd is a tenth of the true one and these intervals hold 20%.
    assert ((lower <= t) & (t <= upper)).mean() > 0.85


@pytest.mark.parametrize(("given_weight", "chosen"), [(0.3, {0.3}), (None, {0.01, 0.1, 1.0})])
def test_the_trace_weight_is_chosen_unless_it_is_given(given_weight, chosen):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(700, 3))
    y = X[:, 0] + 0.2 * rng.standard_normal(700)
    held = (X[:200], y[:200], None)
    settings_ = {"method": "dbk-silu", "hidden": 8, "rank": 8, "epochs": 15, "trace_weight": given_weight}
    model = geogp.GPRegressor(**settings_).fit(X[200:], y[200:], validation=held)
    assert model.engine_.facts["trace_weight"] in chosen
    few = geogp.GPRegressor(**settings_).fit(X[200:], y[200:], validation=(X[:50], y[:50], None))
    assert few.engine_.facts["trace_weight"] == (given_weight or 0.01)

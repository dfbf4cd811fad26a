"""The learning rate, averaged parameters, when training stops, and the choice of the trace weight."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
from copy import deepcopy
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geogp import GPRegressor
from geogp.basis.averages import ParameterAverage
from geogp.basis.initialise import warm_start
from geogp.basis.objectives import Weights
from geogp.basis.schedule import Schedule
from geogp.basis.train import Hooks, Watch, minibatch, train
from geogp.data import Data
from geogp.engines.asked import plan_of
from geogp.engines.closed_form import closed_form_schedule
from geogp.engines.lowrank import LowRankEngine
from geogp.methods import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")


@given(st.integers(1, 2000))
@settings(max_examples=60, deadline=None)
def test_the_rate_ends_at_nothing_and_the_last_epoch_is_scored(epochs):
    schedule = Schedule()
    rates = [schedule.rate(t / epochs) for t in range(epochs + 1)]
    assert all(0.0 <= r <= 1.0 for r in rates) and rates[-1] < 1e-12
    scored = [e for e in range(1, epochs + 1) if schedule.is_scored(e, epochs)]
    assert scored[-1] == epochs and len(scored) <= 80
    assert all(later <= 1.1 * earlier + 2 for earlier, later in pairwise(scored))


def problem(n, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + noise * rng.standard_normal(n)


def trained(n=600, schedule=Schedule(epochs=12), watch=Watch(), **hooks):
    X, y = problem(n)
    model = GPRegressor(method="dbk-silu", hidden=8, rank=8)
    plan = plan_of(model.get_params(), 3, False, n)
    net = LowRankEngine.new(plan)
    data = Data(torch.as_tensor(X), torch.as_tensor(y, dtype=torch.float32))
    net.encoder.fit_scaling(data.X)
    warm_start(net, data.X, data.y, None, seed=0)
    loss = minibatch(net, "dppgp", Weights(), n)
    return net, train(net, data, loss, schedule=schedule, watch=watch, hooks=Hooks(**hooks))


def test_a_resumed_training_ends_as_an_unbroken_one_bit_for_bit():
    X, y = problem(300, seed=1)
    held = Data(torch.as_tensor(X), torch.as_tensor(y, dtype=torch.float32))
    saved = {}
    unbroken, _ = trained(
        watch=Watch(held), checkpoint=lambda state: saved.setdefault(state["progress"].epoch, deepcopy(state))
    )
    resumed, progress = trained(watch=Watch(held), resume=saved[5])
    assert progress.epoch == 12
    for a, b in zip(unbroken.state_dict().values(), resumed.state_dict().values()):
        assert torch.equal(a, b)


def test_training_stops_well_past_its_best_epoch():
    X, y = problem(100, seed=1)
    held = Data(torch.as_tensor(X), torch.as_tensor(y, dtype=torch.float32))
    scores = iter([3.0, 2.0, 1.0, *[1.5] * 100])
    schedule = Schedule(epochs=20)
    _, progress = trained(schedule=schedule, watch=Watch(held, lambda model, data: next(scores)))
    assert progress.best_epoch == 2
    assert progress.epoch == 8  # the first epoch from 2.5 times the third on


def test_the_best_state_is_that_of_the_averaged_parameters():
    X, y = problem(100, seed=1)
    held = Data(torch.as_tensor(X), torch.as_tensor(y, dtype=torch.float32))
    states = {}
    model, progress = trained(watch=Watch(held), checkpoint=lambda state: states.update(deepcopy(state)))
    if progress.best_epoch == 11:
        for name, value in states["average"].items():
            assert torch.equal(model.state_dict()[name], value)
    assert not torch.equal(states["average"]["constant_mean"], states["model"]["constant_mean"])


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.floats(0.05, 1.0))
@settings(max_examples=40, deadline=None)
def test_an_average_lies_between_its_values_and_leaves_the_model_alone(values, share):
    layer = torch.nn.Linear(1, 1, bias=False)
    average = ParameterAverage(layer, share)
    for step, value in enumerate(values, start=1):
        torch.nn.init.constant_(layer.weight, value)
        average.update(step)
    own = layer.weight.item()
    with average.worn():
        assert min(values) - 1e-6 <= layer.weight.item() <= max(values) + 1e-6
    assert layer.weight.item() == own


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


def test_full_batch_steps_are_bounded_by_their_work_unless_asked_for():
    row = METHODS["sgpr"]
    epochs = {
        n: closed_form_schedule(Schedule(), row, n, 128).n_epochs(n) for n in (2_000, 70_000, 10_000_000)
    }
    assert epochs[2_000] == 400 and epochs[10_000_000] == 100
    assert 100 < epochs[70_000] < 150
    assert closed_form_schedule(Schedule(epochs=300), row, 70_000, 128).n_epochs(70_000) == 300

"""L-BFGS for losses of all rows: it goes down, ends where the slope does, and turns back from what has no value."""

import math
from copy import deepcopy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from geogp import GPRegressor
from geogp.basis.quasi_newton import FAR, QuasiNewton
from geogp.basis.schedule import Schedule
from geogp.basis.train import Hooks
from geogp.data import Data
from geogp.engines.closed_form import closed_form_schedule, full_batch_backward
from geogp.errors import NumericalFailure
from geogp.linalg import cholesky, warn
from geogp.methods import METHODS

KERNELS = [
    name
    for name, row in METHODS.items()
    if row.engine in ("closed_form", "exact") and closed_form_schedule(Schedule(), row, 300).quasi_newton
]


def field(n=400, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2.0 * X[:, 0]) + np.tanh(X[:, 1] * X[:, -2]) + 0.1 * rng.standard_normal(n)


def fitted(method, validated=True, **hooks):
    X, y = field(d=2 if method == "ski" else 4)  # a grid
    held = (X[300:], y[300:], None) if validated else None
    rank = {} if METHODS[method].engine == "exact" else {"rank": 64}
    return GPRegressor(method, target_transform="identity", **rank).fit(
        X[:300], y[:300], validation=held, hooks=Hooks(**hooks)
    )


@pytest.mark.parametrize("method", KERNELS)
def test_the_loss_falls_to_its_end(method):
    """A step of fixed size overshot: the loss rose, and the fit stopped there as if it had been past its best."""
    told = fitted(method).state()[1]["engine"]
    losses = [h["loss"] for h in told["history"]]
    assert all(later <= before + 1e-9 for before, later in pairwise(losses))
    assert len(losses) == 360 or losses[-5] - losses[-1] < 1e-5
    assert losses[0] - losses[-1] > 0.1
    assert told["history"][-1]["validation"] is not None and told["best_epoch"] <= len(losses)


def test_of_few_rows_the_evidence_says_too_little():
    assert [closed_form_schedule(Schedule(), METHODS["sgpr"], n).quasi_newton for n in (49, 50)] == [
        False,
        True,
    ]


@pytest.mark.parametrize("method", ["sgpr", "fgp"])
def test_no_slope_is_left(method):
    model = fitted(method, validated=False)
    X, y = field()
    z = torch.as_tensor((y[:300] - model.target_mean_) / model.target_sd_)
    learned = model.engine_.model.double()
    learned.zero_grad()
    full_batch_backward(learned, model.engine_.plan.row.objective, Data(torch.as_tensor(X[:300]), z))
    assert max(float(p.grad.abs().max()) for p in learned.parameters() if p.grad is not None) < 5e-3


def test_it_turns_back_from_where_the_loss_has_no_value():
    """Of log(1 - x²) + (x - .99)² · 50 there is nothing beyond 1, and the first steps lead there."""
    x = nn.Parameter(torch.tensor([0.0], dtype=torch.float64))
    beyond = []

    def backward():
        if abs(x.item()) >= 1:
            beyond.append(x.item())
            if len(beyond) % 2:
                raise NumericalFailure("no factor")
            return torch.log(1 - x.square()).sum()  # NaN, and no gradient is filled
        loss = (-torch.log(1 - x.square()) + 50 * (x - 0.99).square() - 3 * x).sum()
        loss.backward()
        return loss

    search = QuasiNewton([x])
    losses = [search.step(backward) for _ in range(30)]
    assert beyond and np.isfinite(losses).all()
    best = np.linspace(-0.999, 0.999, 200_001)
    value = -np.log(1 - best**2) + 50 * (best - 0.99) ** 2 - 3 * best
    assert x.item() == pytest.approx(best[value.argmin()], abs=1e-4)


def test_a_loss_without_a_value_at_the_start_is_said():
    x = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def backward():
        raise NumericalFailure("no factor")

    with pytest.raises(NumericalFailure, match="no factor"):
        QuasiNewton([x]).step(backward)


@pytest.mark.parametrize("first", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_at_the_start_is_said_at_once(first):
    x = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    looked = []

    def backward():
        looked.append(1)
        return x.sum() * first

    with pytest.raises(NumericalFailure, match="not finite where the search stands"):
        QuasiNewton([x]).step(backward)
    assert len(looked) == 1 and bool(torch.isfinite(x).all())


@pytest.mark.parametrize("at", [0, 1])
def test_a_slope_that_is_not_finite_in_one_place_is_said_too(at):
    """Of several parameters one, and of its numbers one."""
    parameters = [nn.Parameter(torch.zeros(2, dtype=torch.float64)) for _ in range(2)]

    def backward():
        loss = sum((p - 1).square().sum() for p in parameters)
        loss.backward()
        parameters[at].grad[1] = math.nan
        return loss

    with pytest.raises(NumericalFailure, match="its slope is not finite where the search stands"):
        QuasiNewton(parameters).step(backward)


def test_a_point_without_a_value_counts_as_far_worse_and_flat():
    x = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def backward():
        loss = x.sum() * math.nan
        loss.backward()
        return loss

    assert QuasiNewton([x])._evaluated(backward, -3.0).item() == -3.0 + FAR * 4.0
    assert x.grad is None


def test_a_step_is_one_iteration():
    x = nn.Parameter(torch.tensor([9.0, -4.0], dtype=torch.float64))

    def backward():
        loss = (x.square() @ torch.tensor([1.0, 30.0], dtype=torch.float64)).cosh().log()
        loss.backward()
        return loss

    search = QuasiNewton([x])
    for done in range(1, 5):
        search.step(backward)
        assert search.state_dict()["state"][0]["n_iter"] == done


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_search_goes_on_in_the_numbers_it_began_in(dtype):
    def search(steps, state=None, at=(0.9, -0.4)):
        x = nn.Parameter(torch.tensor(at, dtype=dtype))
        made = QuasiNewton([x])
        if state is not None:
            made.load_state_dict(state)

        def backward():
            loss = (x.square() @ torch.tensor([1.0, 30.0], dtype=dtype)).cosh().log()
            loss.backward()
            return loss

        losses = [made.step(backward) for _ in range(steps)]
        return losses, x.detach().clone(), made.state_dict()

    whole, end, _ = search(6)
    _, halfway, state = search(3)
    rest, again, _ = search(3, state, halfway.tolist())
    assert rest == whole[3:] and torch.equal(end, again)


def test_no_point_is_evaluated_twice():
    x = nn.Parameter(torch.tensor([3.0, -2.0], dtype=torch.float64))
    looked = []

    def backward():
        looked.append(tuple(x.tolist()))
        loss = (x.square() @ torch.tensor([1.0, 30.0], dtype=torch.float64)).cosh().log()
        loss.backward()
        return loss

    search = QuasiNewton([x])
    for _ in range(12):
        search.step(backward)
    assert len(looked) == len(set(looked)) > 12


@pytest.fixture(scope="module")
def unbroken():
    """A fit, and what it gave to be kept after each of its steps."""
    saved = {}
    whole = fitted(
        "sgpr", checkpoint=lambda state: saved.setdefault(state["progress"].epoch, deepcopy(state))
    )
    return whole, saved


@pytest.mark.parametrize("at", [1, 2, 30])
def test_a_resumed_fit_ends_as_an_unbroken_one_bit_for_bit(unbroken, at):
    whole, saved = unbroken
    again = fitted("sgpr", resume=deepcopy(saved[at]))
    for a, b in zip(whole.state()[0].values(), again.state()[0].values()):
        assert torch.equal(a, b)
    assert len(saved) > 30


def factorised(x, loss, correlation):
    """A loss of x and of nothing of a factor of [[1, c], [c, 1]], which needs more jitter the larger c is beyond 1."""

    def backward():
        c = correlation(x)
        factor = cholesky(torch.stack([torch.stack([c / c, c]), torch.stack([c, c / c])]), what="a pair")
        value = loss(x) + 0.0 * factor.sum()
        value.backward()
        return value

    return backward


def test_points_that_a_search_throws_away_say_nothing(caplog):
    """From 1 on there is no factor, whatever the jitter: the log told of each that was tried."""
    x = nn.Parameter(torch.tensor(0.0, dtype=torch.float64))
    tried = []

    def correlation(x):
        tried.append(x.item())
        return torch.where(x >= 1, 2.0, 0.5) + 0.0 * x

    def loss(x):
        return -torch.log(1 - x.square()) + 50 * (x - 0.99).square() - 3 * x

    search = QuasiNewton([x])
    for _ in range(20):
        search.step(factorised(x, loss, correlation))
    assert max(tried) >= 1 > x.item() > 0.8
    assert not caplog.records
    with pytest.raises(NumericalFailure):
        factorised(x, loss, lambda x: 2.0 + 0.0 * x)()
    assert len(caplog.records) == 3
    # Where a search cannot even begin the log tells what was tried.
    with pytest.raises(NumericalFailure):
        QuasiNewton([x]).step(factorised(x, loss, lambda x: 2.0 + 0.0 * x))
    assert len(caplog.records) == 6


def test_the_points_that_a_search_keeps_say_what_they_need_where_that_changes(caplog):
    x = nn.Parameter(torch.tensor(-30.0, dtype=torch.float64))
    kept = []

    def correlation(x):
        return torch.where(x < -20, 0.5, torch.where(x < 0, 1 + 5e-6, 1 + 5e-5)) + 0.0 * x

    search = QuasiNewton([x])
    for _ in range(12):
        search.step(factorised(x, lambda x: ((x - 5) / 5).square().square(), correlation))
        kept.append(x.item())
    raised = "Cholesky of a pair failed; relative jitter raised to 1e-0"
    assert [sum(low <= x < high for x in kept) > 1 for low, high in ((-20, 0), (0, 9))] == [True, True]
    assert [record.getMessage() for record in caplog.records] == [f"{raised}{n}" for n in (5, 5, 4)]
    warn("and afterwards the log is the log")
    assert caplog.records[-1].getMessage() == "and afterwards the log is the log"

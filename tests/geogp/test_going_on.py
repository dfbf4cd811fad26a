"""Fits that are more than one training: stopped at any moment they go on to the same result."""

import copy

import numpy as np
import pytest

import geogp
from geogp.engines import Hooks
from geogp.engines.averaged import search

SMALL = {"rank": 8, "hidden": 8, "epochs": 3, "random_state": 0, "target_transform": "identity"}
FIELD = {"n_targets": 100, "steps": 3, "epochs": 1, "neighbours": 16, "hidden": 8, "metric": False}
ON_A_BASIS = {**SMALL, "residual": "local", "options": FIELD}


class Enough(Exception):
    """The time that was allowed is over."""


def field(n, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1e4, (n, d))
    return X, np.sin(X[:, 0] / 2e3) + 0.2 * rng.standard_normal(n)


def kept(fit, last=None):
    """All that is given to be kept by a fit, as it is then; with `last` only so much, and the fit ends there."""
    states = []

    def checkpoint(state):
        states.append(copy.deepcopy(state))
        if len(states) == last:
            raise Enough

    if last is None:
        fit(Hooks(checkpoint=checkpoint))
    else:
        with pytest.raises(Enough):
            fit(Hooks(checkpoint=checkpoint))
    return states


@pytest.mark.parametrize("method, asked, n", [
    ("gp-averaged", {"options": {"steps": 3}, "random_state": 0}, 60),
    ("gp-averaged", {"options": {"steps": 2}, "random_state": 0}, 450),
    ("dbk-silu", ON_A_BASIS, 160),
    ("sgpr", ON_A_BASIS, 160),
])  # fmt: skip
def test_a_fit_of_parts_goes_on_from_each_of_them(method, asked, n):
    X, y = field(n)
    spatial = None if method == "gp-averaged" else (0, 1)

    def fit(hooks):
        return geogp.GPRegressor(method, spatial=spatial, **asked).fit(X, y, hooks=hooks)

    said = fit(Hooks()).predict(X[:20], return_std=True)
    moments = len(kept(fit))
    assert moments > 10
    for last in (1, moments // 3, 2 * moments // 3, moments):
        state = kept(fit, last)[-1]
        np.testing.assert_array_equal(fit(Hooks(resume=state)).predict(X[:20], return_std=True), said)


def test_searches_that_are_done_are_not_done_again(monkeypatch):
    X, y = field(60, d=3)
    honest, searched = search.minimize, []
    monkeypatch.setattr(search, "minimize", lambda *a, **k: searched.append(1) or honest(*a, **k))

    def fit(hooks):
        searched.clear()
        geogp.GPRegressor("gp-averaged", random_state=0, options={"steps": 3}).fit(X, y, hooks=hooks)
        return len(searched)

    whole = fit(Hooks())
    states = kept(fit)
    assert whole >= 8 and fit(Hooks(resume=states[-1])) == 0
    halfway = next(s for s in states if len(s["model"]) == 2 * 4)  # two tensors a search
    assert fit(Hooks(resume=halfway)) == whole - 4


def test_the_bases_under_a_field_are_not_trained_again(monkeypatch):
    X, y = field(300)
    trained = []
    engine = geogp.engines.local.BASES["lowrank"]
    honest = engine.fit.__func__
    monkeypatch.setattr(
        engine, "fit", classmethod(lambda cls, *a, **k: trained.append(1) or honest(cls, *a, **k))
    )

    def fit(hooks):
        trained.clear()
        geogp.GPRegressor("dbk-silu", spatial=(0, 1), **ON_A_BASIS).fit(X, y, hooks=hooks)
        return len(trained)

    assert fit(Hooks()) == 4
    first = {}  # state that knows so many of them
    for state in kept(fit):
        known = {name.split("/")[0] for name in state["model"] if "/" in name}
        first.setdefault(len(known & {"basis", "fold 0", "fold 1", "fold 2"}), state)
    for bases in (1, 2, 4):
        assert fit(Hooks(resume=first[bases])) == 4 - bases


@pytest.mark.parametrize("method, asked", [
    ("mgp", {}), ("dnn-m", {"rank": 6}), ("fmgp", {}), ("dbk-silu", {"residual": "distance"}), ("dbk-silu", {"trace_weight": None}),
])  # fmt: skip
def test_a_training_before_or_after_the_one_that_is_kept_may_be_stopped(method, asked):
    X, y = field(550, d=4)
    said, moments = [], []

    def fit(**hooks):
        model = geogp.GPRegressor(method, spatial=(0, 1), **{**SMALL, **asked})
        model.fit(X[:300], y[:300], validation=(X[300:], y[300:], None), hooks=Hooks(**hooks))

    fit(on_part=said.append, moment=lambda: moments.append(1))
    assert moments and said[-1] == "" and said[-2]

    def stop():
        raise Enough

    with pytest.raises(Enough):
        fit(moment=stop)

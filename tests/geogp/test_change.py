"""Change between two moments against the dense posterior covariance of both, and against a known truth."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import geogp
from geogp.areas import Pairs, pairs_at
from geogp.engines.base import PAIRS_AT_ONCE, Engine
from geogp.engines.local import LocalEngine
from geogp.errors import InvalidInput
from geogp.transforms import Identity

METHODS = {
    "local-gp": {"options": {"steps": 15, "n_targets": 200, "neighbours": 24, "metric": False}},
    "gp-rbf": {"epochs": 20},
    "dbk-silu": {"epochs": 10, "rank": 16, "hidden": 16},
}


def rows(seed=0, n=300):
    """Measurements over eight quarters of a surface that rises by 1 where x is large."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 9000, (n, 2)), 2020 + rng.integers(0, 8, n) / 4])
    f = np.sin(X[:, 1] / 2000) + (X[:, 2] - 2020) * (X[:, 0] > 4500) / 1.75
    return X, f + 0.2 * rng.standard_normal(n), rng


def knowing_all(engine):
    """The field given all observations at each place, where it is exact."""
    known = engine.field.known
    options = replace(known.options, neighbours=len(known.seen))
    return LocalEngine(engine.plan, replace(engine.field, known=replace(known, options=options)))


def replace_engine(model, engine):
    other = copy.copy(model)
    other.engine_ = engine
    return other


@pytest.fixture(scope="module", params=list(METHODS))
def fitted(request):
    X, y, rng = rows()
    model = geogp.GPRegressor(
        request.param, spatial=(0, 1), time=2, target_transform="identity", **METHODS[request.param]
    ).fit(X, y)
    if request.param == "local-gp":
        model = replace_engine(model, knowing_all(model.engine_))
    P = rng.uniform(0, 9000, (PAIRS_AT_ONCE + 9, 2))  # more than are asked for at once
    return (
        model,
        np.column_stack([P, np.full(len(P), 2020.0)]),
        np.column_stack([P, np.full(len(P), 2021.75)]),
    )


def test_the_variance_of_a_change_counts_what_both_moments_share(fitted):
    model, before, after = fitted
    pairs = pairs_at(model, before, after)
    some = [0, 5, len(before) - 1]
    for i in some:  # of the two alone, from the engine's own dense covariance
        X = torch.as_tensor(np.stack([before[i], after[i]]))
        C = model.target_sd_**2 * model.engine_.posterior_covariance(X).double().numpy()
        exact = C[0, 0] + C[1, 1] - 2 * C[0, 1]
        s, r = pairs.sd[:, i], pairs.correlation[i]
        np.testing.assert_allclose(s**2, C.diagonal(), rtol=1e-5)
        assert s[0] ** 2 + s[1] ** 2 - 2 * r * s[0] * s[1] == pytest.approx(exact, rel=1e-4, abs=1e-9)
    assert (np.abs(pairs.correlation) <= 1).all()
    mean = model.predict(np.concatenate([before, after])[some + [i + len(before) for i in some]])
    np.testing.assert_allclose(pairs.mean[:, some].ravel(), mean, rtol=1e-5, atol=1e-6)


def test_correlations_by_cells_are_those_of_the_field_given_all():
    X, y, rng = rows(3)
    options = {"steps": 15, "n_targets": 200, "metric": False}
    model = geogp.GPRegressor("local-gp", spatial=(0, 1), time=2, options=options).fit(X, y)
    P = torch.as_tensor(rng.uniform(-2000, 11000, (60, 2)))
    before, after = (torch.cat([P, torch.full((60, 1), t).double()], 1) for t in (2020.25, 2021.75))
    found = []
    for engine in (model.engine_, knowing_all(model.engine_)):
        variance = torch.stack([engine.moments(at).latent_variance for at in (before, after)])
        found.append(engine.correlation(before, after, variance))
    exact = Engine.correlation(engine, before, after, variance)  # through the joint posterior of all pairs
    # Observations are Student-t, and their weights are found in float32, whose rounding differs from machine to machine.
    np.testing.assert_allclose(found[1], exact, atol=5e-6)
    assert np.sqrt(np.mean((found[0] - exact) ** 2)) < 0.1 < exact.std()
    # What else is asked does not matter, nor which came first.
    variance = torch.stack([model.engine_.moments(at).latent_variance for at in (before, after)])
    alone = model.engine_.correlation(before[7:8], after[7:8], variance[:, 7:8])
    turned = model.engine_.correlation(after, before, variance.flip(0))
    np.testing.assert_allclose([alone[0], turned[7]], found[0][7], atol=1e-9)


def test_a_change_is_found_where_there_was_one():
    """What rose by 1 did so by more than a half likelier than what did not, and 95% intervals hold the truth."""
    X, y, rng = rows(0, 500)
    options = {"steps": 15, "n_targets": 200, "neighbours": 24, "metric": False}
    model = geogp.GPRegressor(
        "local-gp", spatial=(0, 1), time=2, target_transform="identity", options=options
    ).fit(X, y)
    P = rng.uniform(500, 8500, (150, 2))
    P = P[np.abs(P[:, 0] - 4500) > 1000]
    one = np.ones(len(P))
    before, after = np.column_stack([P, 2020.0 * one]), np.column_stack([P, 2021.75 * one])
    _, lower, upper, p = pairs_at(model, before, after).differences(lambda y: y, 0.95, [0.5])
    rose = P[:, 0] > 4500
    assert p[rose].mean() > 0.7 and p[~rose].mean() < 0.4
    assert ((lower <= rose) & (rose <= upper)).mean() > 0.9


@pytest.mark.parametrize("r", [-0.5, 0.0, 0.9, 1.0])
def test_the_lattice_gives_gaussian_differences(r):
    from scipy.stats import norm

    mean, sd = np.array([[1.0, 0.0], [1.5, 3.0]]), np.array([[0.5, 1.0], [0.7, 2.0]])
    pairs = Pairs(mean, sd, np.full(2, r), Identity())
    median, lower, upper, p = pairs.differences(lambda y: y, 0.9, [0.2])
    s = np.sqrt(sd[0] ** 2 + sd[1] ** 2 - 2 * r * sd[0] * sd[1])
    np.testing.assert_allclose(median, mean[1] - mean[0], atol=0.01 * s.max())
    np.testing.assert_allclose((upper - lower) / (2 * 1.6449 * s), 1.0, atol=0.02)
    np.testing.assert_allclose(p, norm.sf((0.2 - mean[1] + mean[0]) / s), atol=0.006)
    worse = pairs.differences(lambda y: y, 0.9, [0.2], sign=-1.0)[3]
    np.testing.assert_allclose(worse, norm.cdf((-0.2 - mean[1] + mean[0]) / s), atol=0.006)


def test_pairs_must_be_pairs(fitted):
    model, before, after = fitted
    with pytest.raises(InvalidInput, match="one shape"):
        pairs_at(model, before, after[:3])

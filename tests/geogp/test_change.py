"""Change between two moments against the dense posterior covariance of both, and against a known truth."""

import numpy as np
import pytest
import torch

import geogp
from geogp.areas import Pairs, pairs_at
from geogp.areas.change import PLACES_AT_ONCE, _together
from geogp.errors import InvalidInput
from geogp.transforms import Identity

METHODS = {
    "local-gp": {"options": {"steps": 15, "n_targets": 200, "neighbours": 24}},
    "gp-rbf": {"epochs": 20},
    "dbk-silu": {"epochs": 10, "rank": 16, "hidden": 16},
}


def rows(seed=0, n=300):
    """Measurements over eight quarters of a surface that rises by 1 where x is large."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 9000, (n, 2)), 2020 + rng.integers(0, 8, n) / 4])
    f = np.sin(X[:, 1] / 2000) + (X[:, 2] - 2020) * (X[:, 0] > 4500) / 1.75
    return X, f + 0.2 * rng.standard_normal(n), rng


@pytest.fixture(scope="module", params=list(METHODS))
def fitted(request):
    X, y, rng = rows()
    model = geogp.GPRegressor(
        request.param, spatial=(0, 1), time=2, target_transform="identity", **METHODS[request.param]
    ).fit(X, y)
    P = rng.uniform(0, 9000, (PLACES_AT_ONCE + 9, 2))  # more than are asked for at once
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
        # Of the observations' Student-t weights, which differ from place to place, a batch takes means: a wide kernel
        # shares more rows than a pair alone does.
        rel = 1e-2 if model.method == "local-gp" else 1e-4
        assert s[0] ** 2 + s[1] ** 2 - 2 * r * s[0] * s[1] == pytest.approx(exact, rel=rel, abs=1e-9)
    assert (np.abs(pairs.correlation) <= 1).all()
    mean = model.predict(np.concatenate([before, after])[some + [i + len(before) for i in some]])
    np.testing.assert_allclose(pairs.mean[:, some].ravel(), mean, rtol=1e-5, atol=1e-6)


def test_a_change_is_found_where_there_was_one():
    """What rose by 1 did so by more than a half likelier than what did not, and 95% intervals hold the truth."""
    X, y, rng = rows(0, 500)
    options = {"steps": 15, "n_targets": 200, "neighbours": 24}
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


def test_places_that_follow_each_other_lie_together():
    P = np.random.default_rng(0).uniform(0, 1, (1000, 2))
    order = _together(P)
    assert sorted(order) == list(range(1000))
    sides = [np.ptp(P[order[i : i + PLACES_AT_ONCE]], axis=0).max() for i in range(0, 1000, PLACES_AT_ONCE)]
    assert max(sides) < 0.75


def test_pairs_must_be_pairs(fitted):
    model, before, after = fitted
    with pytest.raises(InvalidInput, match="one shape"):
        pairs_at(model, before, after[:3])

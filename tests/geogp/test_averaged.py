"""Exact Gaussian processes averaged over their hyperparameters: gradients, dense algebra, calibration, what takes over."""

import json

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal

import geogp
from geogp import GPRegressor
from geogp.engines.asked import plan_of
from geogp.engines.averaged.engine import MAX_ROWS
from geogp.engines.averaged.evidence import CORRELATIONS, SMOOTH, Evidence, correlated
from geogp.engines.averaged.search import AVERAGED_BELOW, drawn
from geogp.methods import METHODS

KINDS = {"target_transform": "identity", "random_state": 0}


def table(n=60, d=4, seed=0, sd=0.3):
    """Two columns that matter, one of them discrete, and others that do not."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    X[:, 1] = rng.integers(0, 3, n)
    truth = np.sin(5 * X[:, 0]) + 0.5 * X[:, 1]
    return X, truth + sd * rng.standard_normal(n), truth


def evidence(correlation, counts=None, n=25):
    X, y, _ = table(n)
    Z = (X - X.mean(0)) / X.std(0)
    return Evidence(Z, y - y.mean(), counts, correlation)


@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("counted", [False, True])
def test_the_gradient_is_that_of_differences(correlation, counted):
    of = evidence(correlation, 1.0 / np.arange(1, 26) if counted else None)
    at = of.begun_at(0.7, 0.2) + 0.1 * np.arange(6 + counted)
    np.testing.assert_allclose(of(at)[1], approx_fprime(at, lambda t: of(t)[0], 1e-6), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_the_evidence_is_that_of_the_dense_gaussian(correlation):
    of = evidence(correlation)
    one, other = of.begun_at(0.7, 0.2), of.begun_at(1.9, 0.05)

    def dense(at):
        difference = (of.Z[:, None] - of.Z) / np.exp(at[:4])
        c, _ = correlated(correlation, np.square(difference).sum(-1))
        K = 0.03 + np.exp(at[4]) * c + np.exp(at[5]) * np.eye(25)
        return -multivariate_normal(cov=K).logpdf(of.y)

    found = (of(one)[0] - of._prior(one)[0]) - (of(other)[0] - of._prior(other)[0])
    assert found == pytest.approx(dense(one) - dense(other), abs=1e-8)


@pytest.mark.agrees(
    methods=["gp-averaged"],
    of="posterior mean and covariance",
    with_="the mixture of dense N x N algebra on 40 rows",
    tolerance=1e-8,
    source="Rasmussen and Williams 2006, eq. 2.22-2.24",
)
def test_moments_are_those_of_the_mixture_of_dense_gaussians(tolerance):
    X, y, _ = table(40)
    counts = np.random.default_rng(0).integers(1, 9, 40)
    new = table(15, seed=1)[0]
    model = GPRegressor("gp-averaged", **KINDS).fit(X, y, counts=counts)
    middle, unit = X.mean(0), X.std(0)
    z = (y - model.target_mean_) / model.target_sd_
    means, covariances, weights = [], [], []
    for member in model.engine_.members:
        at = member.drawn.at
        length, v = np.exp(at[:4]), np.exp(at[4])

        def k(A, B, length=length, v=v, kind=member.drawn.correlation):
            difference = ((A - middle) / unit)[:, None] / length - (B - middle) / unit / length
            return 0.03 + v * correlated(kind, np.square(difference).sum(-1))[0]

        K = k(X, X) + np.diag(np.exp(at[5]) + np.exp(at[6]) / counts)
        means.append(k(new, X) @ np.linalg.solve(K, z))
        covariances.append(k(new, new) - k(new, X) @ np.linalg.solve(K, k(X, new)))
        weights.append(member.drawn.weight)
    assert len(weights) > 4 and sum(weights) == pytest.approx(1.0)
    mean = np.average(means, axis=0, weights=weights)
    covariance = sum(w * (S + np.outer(m - mean, m - mean)) for w, m, S in zip(weights, means, covariances))
    moments = model.moments(new, counts=4)
    np.testing.assert_allclose(moments.mean.numpy(), mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(moments.latent_variance.numpy(), np.diag(covariance), rtol=0, atol=tolerance)
    found = model.engine_.posterior_covariance(torch.as_tensor(new))
    np.testing.assert_allclose(found.numpy(), covariance, rtol=0, atol=tolerance)


def test_fifty_rows_of_ten_columns_know_how_little_they_tell():
    held, surface = [], []
    for seed in range(6):
        model = GPRegressor(**KINDS).fit(*table(50, d=10, seed=seed)[:2])
        new, y, truth = table(400, d=10, seed=100 + seed)
        for values, latent, of in ((y, False, held), (truth, True, surface)):
            lower, upper = model.interval(new, latent=latent)
            of.append(((lower < values) & (values < upper)).mean())
    assert 0.92 < np.mean(held) < 0.98 and np.mean(surface) > 0.88


def test_columns_that_say_nothing_are_found_out():
    X, y, _ = table(200, d=6)
    model = GPRegressor(**KINDS).fit(X, y)
    lengths = np.mean([m.drawn.weight * m.drawn.at[:6] for m in model.engine_.members], axis=0)
    assert lengths[2:].min() > lengths[:2].max()
    new, _, truth = table(500, d=6, seed=1)
    assert float(np.sqrt(np.mean((model.predict(new) - truth) ** 2))) < 0.12


def test_many_rows_are_known_by_the_highest_top_alone():
    X, y, truth = table(AVERAGED_BELOW)
    model = GPRegressor(**KINDS).fit(X, y)
    assert len(model.engine_.members) == 1
    assert float(np.sqrt(np.mean((model.predict(X) - truth) ** 2))) < 0.1


def test_a_seed_gives_the_same_draws_whose_weights_sum_to_one():
    one, other = (drawn(evidence(SMOOTH), seed=3) for _ in range(2))
    assert [d.weight for d in one] == [d.weight for d in other]
    assert sum(d.weight for d in one) == pytest.approx(1.0)
    assert all(np.array_equal(a.at, b.at) for a, b in zip(one, other))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_hardly_any_rows_say_hardly_anything(n):
    X, y, _ = table(n)
    model = GPRegressor(**KINDS).fit(X, y)
    mean, sd = model.predict(table(20, seed=1)[0], return_std=True)
    assert np.isfinite(mean).all() and (sd > 0).all()


def test_what_takes_over_goes_by_the_number_of_rows():
    asked = GPRegressor().get_params(deep=False)
    most = METHODS["gp-averaged"].most_rows

    def row(n, columns=3, **changed):
        return plan_of(asked | changed, columns, False, n).row

    assert row(50).engine == row(most).engine == "averaged"
    assert row(most + 1).engine == METHODS["dbk-rbf"].engine
    assert row(50, columns=1).engine == row(50, columns=2).engine == "local"
    assert row(50, spatial=(0, 2)).engine == row(50, time=2).engine == "local"
    assert row(50).name == "geogp"


def test_a_stored_fit_is_carried_by_what_carried_it():
    X, y, _ = table(40)
    model = GPRegressor(**KINDS).fit(X, y)
    tensors, facts = model.state()
    again = GPRegressor.from_state(tensors, json.loads(json.dumps(facts)))
    new = table(30, seed=1)[0]
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    np.testing.assert_array_equal(again.sample_y(new, 3), model.sample_y(new, 3))
    assert again.choice == model.choice
    assert model.choice.startswith("method 'gp-averaged' in place of 'geogp', which needs a position: ")


@pytest.mark.parametrize("columns", [1, 4])
def test_a_run_from_before_is_carried_by_what_took_over_then(columns):
    # What such a run held: the state of the row that stood in, under the default's name.
    X, y, _ = table(60)
    X = X[:, :columns]
    old = GPRegressor("dbk-rbf", rank=8, hidden=8, epochs=2, **KINDS).fit(X, y)
    tensors, facts = old.state()
    del facts["without_position"]
    facts["parameters"] = facts["parameters"] | {"method": "geogp"}
    again = GPRegressor.from_state(tensors, facts)
    assert again.row_.engine == "lowrank"
    np.testing.assert_array_equal(again.predict(X), old.predict(X))


def test_more_rows_than_it_takes_are_refused_in_a_sentence():
    X = np.zeros((MAX_ROWS + 1, 3))
    with pytest.raises(
        geogp.ImpossibleCombination, match="takes at most 5000 rows and got 5001; take 'sgpr', or"
    ):
        GPRegressor("gp-averaged", **KINDS).fit(X, np.arange(len(X)))


def test_an_option_that_is_none_is_refused():
    X, y, _ = table(20)
    with pytest.raises(geogp.ImpossibleCombination, match="has no option 'latent'; it knows steps"):
        GPRegressor("gp-averaged", options={"latent": 2}, **KINDS).fit(X, y)

"""Exact Gaussian processes averaged over their hyperparameters: gradients, dense algebra, calibration, what takes over."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal

import geogp
from geogp import GPRegressor
from geogp.engines.asked import plan_of
from geogp.engines.averaged.engine import MAX_ROWS, AveragedEngine, fitted
from geogp.engines.averaged.evidence import CORRELATIONS, SMOOTH, Evidence, correlated
from geogp.engines.averaged.search import AVERAGED_BELOW, drawn
from geogp.engines.averaged.spread import LeftOut
from geogp.field.student import heavy_tailed
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
@pytest.mark.parametrize("weighed", [False, True])
def test_the_gradient_is_that_of_differences(correlation, counted, weighed):
    of = evidence(correlation, 1.0 / np.arange(1, 26) if counted else None)
    of = replace(of, times=np.linspace(0.5, 9.0, 25) if weighed else None)
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


# -- the spread of new observations ------------------------------------------------------------------


def noisy(n, noise, seed=0):
    """A table with noise(rng, X), and its surface."""
    X, _, truth = table(n, seed=seed)
    return X, truth + noise(np.random.default_rng(50 + seed), X), truth


def heavy(rng, X):
    return 0.3 * rng.standard_t(3, len(X))


def loud_on_one_side(rng, X):
    return np.where(X[:, 0] < 0.5, 0.03, 0.6) * rng.standard_normal(len(X))


def scores_of(model, X, y):
    """Mean NLL, and shares within 50, 80 and 95% intervals."""
    predictive = model.predictive(X)
    ends = (predictive.interval(level) for level in (0.5, 0.8, 0.95))
    return -predictive.log_density(y).mean(), [((lower < y) & (y < upper)).mean() for lower, upper in ends]


def as_before(model):
    """The same members with the spread that they have themselves, as runs of before."""
    tensors, facts = model.state()
    facts = json.loads(json.dumps(facts))
    del facts["engine"]["spread"]
    return GPRegressor.from_state({k: v for k, v in tensors.items() if "missed" not in k}, facts)


@pytest.mark.agrees(
    methods=["gp-averaged"],
    of="rows left out",
    with_="dense algebra on the 29 other rows",
    tolerance=1e-8,
    source="Rasmussen and Williams 2006, eq. 5.12",
)
def test_rows_left_out_are_those_that_the_others_predict(tolerance):
    X, y, _ = table(30)
    counts = np.random.default_rng(0).integers(1, 9, 30)
    model = GPRegressor("gp-averaged", **KINDS).fit(X, y, counts=counts)
    member = model.engine_.members[0]
    mean, surface, noise = member.left_out()
    K = member.covariance(member.Z, member.Z)
    for i in range(30):
        others = np.arange(30) != i
        solved = np.linalg.solve(K[others][:, others] + np.diag(noise[others]), K[others, i])
        assert mean[i] == pytest.approx(solved @ member.y[others], abs=tolerance)
        assert surface[i] == pytest.approx(K[i, i] - solved @ K[others, i], abs=tolerance)


def test_heavy_tails_are_found_and_held():
    model = GPRegressor("gp-averaged", **KINDS).fit(*noisy(300, heavy)[:2])
    new, y, _ = noisy(2000, heavy, seed=1)
    nll, shares = scores_of(model, new, y)
    assert 2.4 < model.engine_.of_new.degrees_of_freedom < 5.0
    assert nll < scores_of(as_before(model), new, y)[0] - 0.05
    np.testing.assert_allclose(shares, [0.5, 0.8, 0.95], atol=0.04)


@pytest.mark.parametrize(("n", "seed"), [(50, 0), (50, 1), (50, 2), (300, 0)])
def test_gaussian_noise_stays_as_it_was(n, seed):
    model = GPRegressor("gp-averaged", **KINDS).fit(*table(n, seed=seed)[:2])
    new, y, _ = table(2000, seed=99)
    found = model.engine_.of_new
    assert found.missed is None and (found.degrees_of_freedom or 30.0) > 10.0
    assert scores_of(model, new, y)[0] < scores_of(as_before(model), new, y)[0] + 0.02


def test_one_row_far_out_does_not_widen_intervals_twofold():
    X, y, _ = table(60)
    far = y.copy()
    far[7] += 20.0
    new = table(500, seed=1)[0]
    clean, spoilt = (np.ptp(GPRegressor(**KINDS).fit(X, v).interval(new), axis=0).mean() for v in (y, far))
    assert spoilt < 1.6 * clean


def test_a_noise_that_differs_from_place_to_place_is_found():
    model = GPRegressor("gp-averaged", **KINDS).fit(*noisy(300, loud_on_one_side)[:2])
    new, y, truth = noisy(2000, loud_on_one_side, seed=1)
    _, sd = model.predict(new, return_std=True)
    quiet, loud = new[:, 0] < 0.45, new[:, 0] > 0.55
    assert np.median(sd[quiet]) < 0.12 and 0.5 < np.median(sd[loud]) < 0.75
    assert scores_of(model, new, y)[0] < scores_of(as_before(model), new, y)[0] - 0.5
    lower, upper = model.interval(new, latent=True)
    assert ((lower < truth) & (truth < upper)).mean() > 0.9
    covariance = model.engine_.posterior_covariance(torch.as_tensor(new[:50])).numpy()
    np.testing.assert_allclose(
        covariance.diagonal(), model.moments(new[:50]).latent_variance.numpy(), atol=1e-12
    )
    assert np.linalg.eigvalsh(covariance).min() > -1e-10


def test_the_surface_does_not_depend_on_how_often_new_rows_are_measured():
    X, y, _ = noisy(300, loud_on_one_side)
    counts = np.random.default_rng(0).integers(1, 9, 300)
    model = GPRegressor("gp-averaged", **KINDS).fit(X, y, counts=counts)
    assert model.engine_.of_new.missed is not None
    once, often = (model.moments(X, counts=n) for n in (1, 50))
    np.testing.assert_array_equal(once.latent_variance, often.latent_variance)
    assert (often.noise_variance >= 0.0).all() and (once.noise_variance > often.noise_variance).all()


def evidence_of(model):
    """Of the rows of a fit."""
    first = model.engine_.members[0]
    return Evidence(first.Z, first.y, first.inverse_counts, SMOOTH)


def test_rows_far_out_are_weighed_less_and_the_surface_gains():
    X, y, truth = noisy(200, heavy)
    model = GPRegressor("gp-averaged", **KINDS).fit(X, y)
    times = model.engine_.members[0].times
    assert times is not None
    off = np.abs(y - truth)
    assert times[off > 1.5].min() > 5.0 and times[off < 0.3].max() < 2.0
    new, _, truth = noisy(1000, heavy, seed=1)
    members, spread = fitted(evidence_of(model), steps=40, seed=0, reweightings=0)
    equal = AveragedEngine(model.engine_.plan, model.engine_.encoder, members, spread)
    unit, middle = model.target_sd_, model.target_mean_
    errors = [
        np.sqrt(np.mean((middle + unit * e.moments(torch.as_tensor(new)).mean.numpy() - truth) ** 2))
        for e in (model.engine_, equal)
    ]
    assert errors[0] < 0.9 * errors[1]


@pytest.mark.parametrize("noise", [heavy, loud_on_one_side])
def test_the_spread_is_kept_with_a_fit_and_fits_of_before_have_their_own(noise):
    X, y, _ = noisy(200, noise)
    model = GPRegressor("gp-averaged", **KINDS).fit(X, y)
    tensors, facts = model.state()
    again = GPRegressor.from_state(tensors, json.loads(json.dumps(facts)))
    for mine, its in zip(model.interval(X), again.interval(X)):
        np.testing.assert_array_equal(mine, its)
    assert again.engine_.spread == model.engine_.spread
    before = as_before(model).moments(X)
    assert before.degrees_of_freedom is None
    members = model.engine_.members
    noise_variance = sum(m.drawn.weight * np.exp(m.drawn.at[4 + 1]) for m in members)
    np.testing.assert_allclose(before.noise_variance, noise_variance)
    np.testing.assert_array_equal(before.mean, model.moments(X).mean)


def test_slight_tails_count_and_weigh_no_row():
    rng = np.random.default_rng(0)
    one = np.ones(20_000)
    told = LeftOut(np.square(rng.standard_t(40, 20_000)), 0.0 * one, one)
    df = told.tails()[0]
    assert df is not None and 30 < df < 100 and not heavy_tailed(df)

"""Factors on the weights' covariance and on the noise, fitted on rows that were not trained on."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geogp.basis.rescale import (
    Factors,
    Spread,
    factors_of,
    fit_factors,
    fit_tails,
    rescale,
    sharpness_score,
    spread_of,
)
from geogp.data import Data
from geogp.engines.lowrank import LowRankEngine

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")


def spread(n=20_000, weights=1.0, noise=1.0, seed=0):
    """Rows whose true variances are the given multiples of what the model says."""
    g = torch.Generator().manual_seed(seed)
    v = 10.0 ** (2.0 * torch.rand(n, generator=g, dtype=torch.float64) - 2.0)
    s = torch.full((n,), 0.05, dtype=torch.float64)
    y = (weights * v + noise * s).sqrt() * torch.randn(n, generator=g, dtype=torch.float64)
    return Spread(y, torch.zeros_like(y), torch.full_like(y, 1e-6), v, s)


@pytest.mark.parametrize(("weights", "noise"), [(1.0, 1.0), (4.0, 0.5), (0.3, 20.0)])
def test_known_factors_are_found(weights, noise):
    found = fit_factors(spread(weights=weights, noise=noise))
    # The log of a variance of n values has sd sqrt(2 / n), .01 here; sharing it between two parts costs tenfold.
    assert found.weights == pytest.approx(weights, rel=0.15)
    assert found.noise == pytest.approx(noise, rel=0.15)


def test_a_noise_that_has_vanished_is_found_again():
    rows = spread(noise=1.0)
    gone = Spread(rows.y, rows.mean, rows.fixed, rows.weight_variance, 1e-6 * rows.noise_variance)
    assert fit_factors(gone).noise == pytest.approx(1e6, rel=0.2)


@given(st.integers(0, 10_000), st.floats(0.01, 100), st.floats(0.01, 100))
@settings(max_examples=20, deadline=None)
def test_factors_never_score_worse_than_none(seed, weights, noise):
    rows = spread(300, weights, noise, seed)
    plain = float(sharpness_score(rows.y, rows.mean, rows.fixed + rows.weight_variance + rows.noise_variance))
    assert fit_factors(rows).score <= plain + 1e-12


def test_the_covariance_of_the_weights_is_kept_below_the_prior():
    assert fit_factors(spread(weights=50.0), 2.0).weights <= 2.0 + 1e-12


def test_degrees_of_freedom_are_found_and_only_where_they_are():
    rows = spread()
    assert fit_tails(rows, fit_factors(rows)).degrees_of_freedom is None
    # The sd of log(nu) from n = 20,000 draws is about 1.4 / sqrt(n) * nu / 2 ~ .02 at nu = 4.
    g = np.random.default_rng(0)
    sd = (rows.fixed + rows.weight_variance + rows.noise_variance).sqrt()
    heavy = replace(rows, y=sd * torch.from_numpy(g.standard_t(4.0, len(sd))))
    found = fit_tails(heavy, fit_factors(heavy))
    assert found.degrees_of_freedom == pytest.approx(4.0, rel=0.15)
    assert found.weights == pytest.approx(1.0, rel=0.15)


def fitted(**keywords):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.standard_normal(900)
    held = (X[:300], y[:300], None)
    settings_ = {"method": "dbk-rbf", "hidden": 16, "rank": 16, "epochs": 20} | keywords
    return geogp.GPRegressor(**settings_).fit(X[300:], y[300:], validation=held), held


@pytest.mark.parametrize("posterior", ["dense", "lowrank"])
def test_rescaling_multiplies_variances_and_leaves_means(posterior):
    model, held = fitted(posterior=posterior, epochs=3)
    net = model.engine_.model
    X, y = torch.as_tensor(held[0]), torch.as_tensor(held[1], dtype=torch.float32)
    before, seen = net.moments(X), spread_of(net, Data(X, y))
    rescale(net, Factors(3.0, 0.5, math.nan))
    after = net.moments(X)
    assert torch.equal(before.mean, after.mean)
    torch.testing.assert_close(after.latent_variance, 3.0 * before.latent_variance, rtol=1e-4, atol=0)
    wanted = 1e-5 + 0.5 * seen.noise_variance.float()
    torch.testing.assert_close(after.noise_variance, wanted, rtol=1e-4, atol=0)


def test_a_fitted_deep_basis_needs_no_more_factors():
    model, held = fitted()
    again = factors_of(
        model.engine_.model, Data(torch.as_tensor(held[0]), model._data(held[0], held[1], None).y)
    )
    assert again.weights == pytest.approx(1.0, abs=0.05)
    assert again.noise == pytest.approx(1.0, abs=0.05)
    assert isinstance(model.engine_, LowRankEngine)
    assert set(model.engine_.facts["factors"]) == {"weights", "noise"}


def test_heavy_tails_reach_the_predictions_of_a_fitted_deep_basis():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = np.sin(X[:, 0]) + 0.5 * rng.standard_t(3.0, 3000)
    held = (X[:1000], y[:1000], None)
    model = geogp.GPRegressor("dbk-rbf", hidden=16, rank=16, epochs=10, random_state=0)
    model.fit(X[1000:], y[1000:], validation=held)
    nu = model.predictive(X[:5]).degrees_of_freedom
    assert nu is not None and (nu < 6.0).all()
    again = geogp.GPRegressor.from_state(*model.state())
    np.testing.assert_array_equal(again.predictive(X[:5]).degrees_of_freedom, nu)
    gaussian, _ = fitted()
    assert gaussian.predictive(X[:5]).degrees_of_freedom is None

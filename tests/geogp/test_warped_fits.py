"""Fits of tiles whose tests pile up at plans: what they find, keep, and say."""

import geogp  # noqa: F401  first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import json
from dataclasses import replace

import numpy as np
import pytest

from geogp.data import Moments
from geogp.estimator import GPRegressor
from geogp.predictive import Predictive
from geogp.transforms import Identity
from tests.geogp.test_warp import TIERS

QUICK = {"steps": 4, "epochs": 4, "options": {"n_targets": 800, "members": 3, "regional": None}}


def tiles(n=3000, seed=0):
    """Tiles of a smooth surface whose tests pile up at two plans."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 60.0, (n, 2))
    tests = rng.choice([1.0, 2.0, 9.0], n)
    v = 0.6 + np.sin(X[:, 0] / 9.0) + 0.5 * rng.standard_normal(n)
    return X, TIERS.inverse(v, TIERS.strength(tests)), tests


@pytest.fixture(scope="module", autouse=True)
def kernels_in_parts():
    """What is asked here hangs on the noise: that of `tests/conftest.py`, for the fits that tests share, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("geogp.field.choose.TOGETHER_BELOW", 0)
        yield


@pytest.fixture(scope="module")
def fit():
    X, y, tests = tiles()
    return GPRegressor(target_transform="identity", random_state=0, **QUICK).fit(X, y, tests)


def test_a_fit_finds_the_plans_and_new_observations_know_them(fit):
    warp = fit.engine_.warp.scaled(fit.target_mean_, fit.target_sd_)
    assert warp.single.max() > 2.0
    X, y, tests = tiles(seed=9)
    bent = fit.predictive(X, tests)
    plain = Predictive(bent.location, bent.scale, bent.degrees_of_freedom, Identity(), bent.log_skewness)
    gained = bent.log_density(y) - plain.log_density(y)
    assert gained.mean() > 0.05 and gained[tests == 1.0].mean() > gained[tests == 9.0].mean()
    assert bent.crps(y).mean() < plain.crps(y).mean() + 1e-3
    lower, upper = fit.interval(X, counts=tests)
    assert 0.92 < ((y >= lower) & (y <= upper)).mean() < 0.98
    mean, sd = fit.predict(X[:6], return_std=True, counts=1.0)
    same, covariance = fit.predict(X[:6], return_cov=True, counts=1.0)
    np.testing.assert_allclose(mean, same)
    np.testing.assert_allclose(np.diag(covariance), sd**2)
    # The surface is on the target's own scale.
    assert isinstance(fit.predictive(X[:3], latent=True).transform, Identity)
    of_nine = fit.scale_of_new(9.0)
    y = np.array([0.3, 1.1])
    np.testing.assert_allclose(fit.predictive(X[:2], 9.0).transform.forward(y), of_nine.forward(y))
    usual = fit.scale_of_new()
    np.testing.assert_allclose(fit.predictive(X[:2]).transform.forward(y), usual.forward(y))


def test_a_stored_fit_and_a_grid_s_planes_say_the_same(fit):
    X = tiles(50, seed=2)[0]
    tensors, facts = fit.state()
    again = GPRegressor.from_state(tensors, json.loads(json.dumps(facts)))
    for n in (1.0, 7.0):
        np.testing.assert_array_equal(
            again.predictive(X, n).quantile(0.8), fit.predictive(X, n).quantile(0.8)
        )
        m = fit.moments(X, n)
        kept = fit.distribution(Moments.unstack(m.stack()))
        np.testing.assert_allclose(
            kept.quantile(0.8), fit.distribution(m).quantile(0.8), rtol=1e-4, atol=1e-4
        )
    assert Moments.unstack(replace(fit.moments(X), bent=None).stack()).bent is None


@pytest.mark.parametrize("how", [{"options": {"warp": False}}, {"region_rows": 2000}])
def test_it_can_be_left_out_and_regions_have_none(how):
    X, y, tests = tiles(2001)
    options = QUICK["options"] | {"n_targets": 300} | how.get("options", {})
    asked = QUICK | {"epochs": 1} | how | {"options": options}
    model = GPRegressor(target_transform="identity", random_state=0, **asked)
    model.fit(X, y, tests)
    assert model.engine_.warp is None and model.moments(X[:2]).bent is None
    parts = getattr(model.engine_.field, "fields", ())
    assert len(parts) == (2 if "region_rows" in how else 0) and all(part.warp is None for part in parts)
    assert isinstance(model.predictive(X[:2]).transform, Identity)
    assert isinstance(model.scale_of_new(1.0), Identity)


def two_kinds(n, seed):
    """Tiles of a smooth surface in whose east three in ten have another technology."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 60.0, (n, 2))
    other = (X[:, 0] > 30.0) & (rng.random(n) < 0.3)
    return X, np.sin(X[:, 1] / 9.0) + np.where(other, 3.0, 0.0) + 0.3 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def two():
    options = QUICK | {"epochs": 20, "options": QUICK["options"] | {"warp": False, "n_targets": 4000}}
    return GPRegressor(target_transform="identity", random_state=0, **options).fit(*two_kinds(4000, 0))


def test_a_fit_finds_a_second_peak_where_there_is_one(two):
    X, y = two_kinds(3000, 9)
    p = two.predictive(X)
    far = X[:, 0] > 35.0
    assert abs(p.peak.share[far].mean() - 0.3) < 0.06 and p.peak.share[X[:, 0] < 25.0].mean() < 0.05
    assert abs((p.peak.location - p.location)[far].mean() - 3.0) < 0.3
    one = replace(p, peak=None)
    assert p.log_density(y).mean() > one.log_density(y).mean() + 0.1 and p.crps(y).mean() < one.crps(y).mean()
    for level in (0.5, 0.8, 0.95):
        lower, upper = two.interval(X, level)
        assert abs(((y >= lower) & (y <= upper)).mean() - level) < 0.04
    # Mean and sd are the mixture's, whoever is asked; the surface stands at the mean and has one peak.
    mean, sd = two.predict(X[:50], return_std=True)
    np.testing.assert_allclose(mean, p.mean()[:50], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(sd, p.sd()[:50], rtol=1e-5)
    new = two.moments(X).new_variance().double().sqrt()
    np.testing.assert_allclose(two.target_sd_ * new, p.sd(), rtol=1e-5)
    surface = two.predictive(X[:50], latent=True)
    assert surface.peak is None
    np.testing.assert_allclose(surface.location, mean, rtol=1e-6)


def test_a_stored_second_peak_says_the_same(two):
    X = two_kinds(60, 2)[0]
    tensors, facts = two.state()
    again = GPRegressor.from_state(tensors, json.loads(json.dumps(facts)))
    np.testing.assert_array_equal(again.predictive(X).quantile(0.8), two.predictive(X).quantile(0.8))
    m = two.moments(X)
    kept = two.distribution(Moments.unstack(m.stack()))
    np.testing.assert_allclose(kept.quantile(0.8), two.distribution(m).quantile(0.8), rtol=1e-4, atol=1e-4)
    assert Moments.unstack(replace(m, peak=None).stack()).peak is None
    np.testing.assert_array_equal(Moments.joined([m, m]).peak, np.tile(m.peak, 2))

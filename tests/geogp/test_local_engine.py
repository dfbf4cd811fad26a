"""The local field as a residual of any basis, and the default method's fall-back."""

import warnings

import numpy as np
import pytest
import torch
from scipy import stats

import geogp
from geogp.data import Moments
from geogp.engines import asked
from geogp.errors import NotDistanceAware
from geogp.methods import METHODS

#: Of a local field: enough for what is asked here.
QUICK = {"steps": 40, "n_targets": 600, "epochs": 6, "metric": False}
#: Of one whose noise has a shape to learn.
SHAPED = {**QUICK, "n_targets": 1000, "epochs": 20, "members": 3}
SMALL = {
    "rank": 16,
    "hidden": 16,
    "epochs": 10,
    "fourier_scales": (1.0,),
    "residual": "local",
    "options": QUICK,
}
#: Where nothing is asked of how well it learned.
FEW = {**SMALL, "options": {**QUICK, "steps": 6, "n_targets": 150, "epochs": 2}}


def field(n=500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10_000, (n, 2))
    y = np.sin(X[:, 0] / 3000) + 0.3 * np.sin(X[:, 1] / 200) + 0.05 * rng.standard_normal(n)
    return X, y, rng.integers(1, 20, n).astype(float)


@pytest.mark.parametrize("method", ["dbk-silu", "dbk-rbf-exact"])
def test_a_basis_takes_the_local_residual_and_comes_back_from_its_state(method):
    X, y, counts = field(400)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotDistanceAware)
        model = geogp.GPRegressor(method, target_transform="identity", **FEW).fit(X, y, counts)
    mean, sd = model.predict(X[:30], return_std=True)
    again = geogp.GPRegressor.from_state(*model.state())
    np.testing.assert_array_equal(again.predict(X[:30]), mean)
    _, near = model.predict(X[:30], return_std=True, latent=True)
    _, far = model.predict(X[:1] + 1e7, return_std=True, latent=True)
    assert (far >= near - 1e-6).all() and (sd >= near).all()
    moments = model.moments(X[:30])
    assert (moments.latent_variance <= moments.prior_variance).all()
    slice_ = model.kernel_slice(X[:30], X[0])
    assert np.isfinite(slice_).all() and slice_[0] == slice_.max()


def test_a_field_is_solved_on_the_device_of_the_fit(monkeypatch):
    """This one is nowhere: what would go to it is written down and stays."""
    honest, gone = torch.Tensor.to, []

    def to(self, where, *rest, **kinds):
        if where != "elsewhere":
            return honest(self, where, *rest, **kinds)
        gone.append(tuple(self.shape))
        return self

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(asked, "device_named", lambda name: name)
    X, y, counts = field(400)
    here, there = (
        geogp.GPRegressor("local-gp", device=device, options=FEW["options"])
        for device in ("cpu", "elsewhere")
    )
    places = X[:30] + 5.0
    said = here.fit(X, y, counts).predict(places)
    assert not gone
    there.fit(X, y, counts)
    assert (400, 2) in gone  # the rows, among which the kernel is fitted
    gone.clear()
    np.testing.assert_array_equal(there.predict(places), said)
    assert (400, 2) in gone  # the rows again, which answers rest on: places follow them


def test_the_local_residual_sees_what_the_basis_cannot(kernels_in_parts):
    X, y, _ = field(1100)
    train, test = slice(0, 900), slice(900, None)
    settings = {**SMALL, "residual": "none", "options": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotDistanceAware)
        alone = geogp.GPRegressor("dbk-silu", target_transform="identity", **settings).fit(X[train], y[train])
    both = geogp.GPRegressor("dbk-silu", target_transform="identity", **SMALL).fit(X[train], y[train])

    def rmse(model):
        return float(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2)))

    # The fast wave (sd 0.21) has a wavelength of about five spacings: too short for ten epochs of the basis.
    assert rmse(both) < 0.85 * rmse(alone)


def test_many_rows_of_generic_features_fall_back_to_a_deep_basis():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((METHODS["gp-averaged"].most_rows + 1, 3))
    with pytest.warns(
        NotDistanceAware, match=r"'geogp' \(here 'dbk-rbf': no two columns are named as a position"
    ):
        model = geogp.GPRegressor(epochs=1, target_transform="identity").fit(X, X[:, 0])
    assert model.row_.engine == "lowrank" and model.row_.name == "geogp"
    assert model.choice.startswith("method 'dbk-rbf' in place of 'geogp', which needs a position")
    again = geogp.GPRegressor.from_state(*model.state())
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_local_needs_a_basis_or_nothing_to_stand_on():
    X, y, _ = field(50)
    with pytest.raises(geogp.ImpossibleCombination, match=r"residual 'local' cannot go with method 'dnn'"):
        geogp.GPRegressor("dnn", residual="local").fit(X, y)


def test_heavy_tails_reach_the_interval_and_the_map(kernels_in_parts):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10_000, (600, 2))
    y = np.sin(X[:, 0] / 3000) + 0.2 * rng.standard_t(3, 600)
    model = geogp.GPRegressor("local-gp", target_transform="identity", options=QUICK).fit(X, y)
    moments = model.moments(X[:50])
    predictive = model.predictive(X[:50])
    nu = predictive.degrees_of_freedom
    assert nu is not None and (nu < 12).all()
    lower, upper = model.interval(X[:50])
    scale = model.target_sd_ * np.sqrt((moments.latent_variance + moments.noise_variance).double().numpy())
    np.testing.assert_allclose(upper - lower, 2 * scale * stats.t.ppf(0.975, nu), rtol=1e-6)
    assert model.predictive(X[:50], latent=True).degrees_of_freedom is None
    # A pixel keeps it too: what a grid stores of the moments gives the same distribution.
    kept = model.distribution(Moments.unstack(moments.stack()))
    np.testing.assert_allclose(kept.degrees_of_freedom, nu, rtol=1e-6)


def lopsided(n=1000):
    """A surface whose noise leans to the left: log gamma about -0.4."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 10_000, (n, 2))
    return X, np.sin(X[:, 0] / 3000) + 0.4 * stats.gumbel_l.rvs(size=n, random_state=rng)


def test_lopsided_noise_reaches_the_interval_and_the_map(kernels_in_parts):
    X, y = lopsided()
    model = geogp.GPRegressor("geogp", target_transform="identity", random_state=0, options=SHAPED).fit(X, y)
    moments, predictive = model.moments(X[:200]), model.predictive(X[:200])
    assert predictive.log_skewness is not None
    assert predictive.log_skewness.mean() < -0.15
    lower, upper = predictive.interval(0.95)
    middle = predictive.median()
    assert ((middle - lower) > 1.2 * (upper - middle)).mean() > 0.9
    # The moments' mean is the mean of that distribution, not its mode.
    mean = model.target_mean_ + model.target_sd_ * moments.mean.numpy()
    np.testing.assert_allclose(predictive.mean(), mean, rtol=1e-6, atol=1e-6)
    assert (predictive.location > mean).mean() > 0.9
    assert model.predictive(X[:50], latent=True).log_skewness is None
    kept = model.distribution(Moments.unstack(moments.stack()))
    np.testing.assert_allclose(kept.log_skewness, predictive.log_skewness, rtol=1e-6)
    np.testing.assert_allclose(kept.interval(0.95)[0], lower, rtol=1e-4, atol=1e-5)


def test_a_slice_of_the_prior_is_covariance_over_both_scales():
    X, y, _ = field(300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotDistanceAware)
        model = geogp.GPRegressor("dbk-rbf", target_transform="identity", rank=8, hidden=8, epochs=3).fit(
            X, 7.0 * y
        )
    engine, at = model.engine_, torch.as_tensor(X[:40])
    covariance, correlation = engine.prior_slice(at, at[:1])
    K = engine.prior_covariance(at, at).double()
    sd = K.diagonal().sqrt()
    torch.testing.assert_close(covariance, K[:, 0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(correlation, K[:, 0] / (sd * sd[0]), rtol=1e-4, atol=1e-5)
    assert correlation[0].item() == pytest.approx(1.0, abs=1e-5)
    assert sd[0].item() != pytest.approx(1.0, abs=1e-3)  # else a forgotten scale would not show


def test_a_field_of_blurred_places_is_learned():
    """Each of 300 places measured twice, the second time a ten-millionth of the extent away: predictions were the mean."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(0, 10, (300, 2)), 2, axis=0)
    X[::2] += 1e-6 * rng.standard_normal((300, 2))
    new = rng.uniform(0, 10, (1000, 2))

    def surface(P):
        return np.sin(P[:, 0]) + np.cos(P[:, 1] / 2)

    model = geogp.GPRegressor("geogp").fit(X, surface(X) + 0.3 * rng.standard_normal(600))
    mean, sd = model.predict(new, return_std=True, latent=True)
    assert np.sqrt(np.mean((mean - surface(new)) ** 2)) < 0.12
    assert np.mean(np.abs(mean - surface(new)) < 1.96 * sd) > 0.9

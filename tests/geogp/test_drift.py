"""The drift and the field known jointly: universal kriging, against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.estimator import GPRegressor
from geogp.field import FieldOptions, LocalField, LocalKernel
from geogp.field.conditioned import Conditioned
from geogp.field.local_gp import LocalGP
from geogp.field.mean.drift import PRIOR_SD, Drift, Whitened
from geogp.field.observations import Observations
from geogp.field.solve import conditional_moments

#: Of fits whose metric is not asked about.
QUICK = FieldOptions(steps=20, neighbours=24, n_targets=300, metric=False)
KERNEL = LocalKernel(
    torch.tensor([[1.0, 0.7], [3.0, 4.0]]).double().log(),
    torch.tensor([0.3, 0.8]).double().log(),
    ("matern12", "matern32"),
)
GP = LocalGP(KERNEL, 0.1, 0.0, None, torch.zeros(0).double(), ())


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    C = torch.from_numpy(rng.uniform(-4, 4, (n, 2)))
    noise = torch.from_numpy(rng.uniform(0.05, 0.3, n))
    K = KERNEL(C, C) + torch.diag(noise)
    y = torch.linalg.cholesky(K) @ torch.from_numpy(rng.standard_normal(n))
    return C, y + 1.0 + 0.5 * C[:, 0], noise


def dense(C, y, noise, Phi):
    """w's posterior by plain algebra."""
    K = KERNEL(C, C) + torch.diag(noise)
    A = Phi.T @ torch.linalg.solve(K, Phi) + torch.eye(Phi.shape[1]).double() / PRIOR_SD**2
    covariance = torch.linalg.inv(A)
    return K, covariance @ (Phi.T @ torch.linalg.solve(K, y)), covariance


def test_with_all_earlier_rows_the_weights_are_those_of_generalised_least_squares(monkeypatch):
    monkeypatch.setattr("geogp.field.mean.drift.ANCESTORS", 60)
    C, y, noise = rows()
    start = Drift.over(C, None)
    found = Whitened.of(C).drift(start, GP, Observations(C, y, torch.ones(60).double(), noise))
    _, w, covariance = dense(C, y, noise, start.columns(C))
    torch.testing.assert_close(found.weights, w, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found.covariance, covariance, rtol=1e-8, atol=1e-12)


def test_rows_left_out_tell_the_drift_nothing(monkeypatch):
    monkeypatch.setattr("geogp.field.mean.drift.ANCESTORS", 60)
    C, y, noise = rows()
    start, kept = Drift.over(C, None), torch.arange(0, 60, 2)
    seen = Observations(C, y, torch.ones(60).double(), noise)
    some = Whitened.of(C).among(60, kept).drift(start, GP, seen)
    _, w, covariance = dense(C[kept], y[kept], noise[kept], start.columns(C[kept]))
    torch.testing.assert_close(some.weights, w, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(some.covariance, covariance, rtol=1e-8, atol=1e-12)


def test_predictions_are_those_of_universal_kriging():
    C, y, noise = rows()
    new = torch.from_numpy(np.random.default_rng(1).uniform(-9, 9, (20, 2)))
    drift = Drift.over(C, None)
    Phi, phi = drift.columns(C), drift.columns(new)
    K, w, covariance = dense(C, y, noise, Phi)
    drift = replace(drift, weights=w, covariance=covariance)
    every = torch.arange(60).expand(20, 60)
    c = conditional_moments(KERNEL, new, C, y - drift(C), noise, every)
    leaning = c.weights @ Phi
    _, extra = drift.extra(new, leaning)
    # One Gaussian process whose prior covariance holds the drift's weights, too.
    whole = K + PRIOR_SD**2 * Phi @ Phi.T
    across = KERNEL(new, C) + PRIOR_SD**2 * phi @ Phi.T
    prior = KERNEL(new, new) + PRIOR_SD**2 * phi @ phi.T
    mean = across @ torch.linalg.solve(whole, y)
    variance = (prior - across @ torch.linalg.solve(whole, across.T)).diagonal()
    torch.testing.assert_close(drift(new) + c.mean, mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(c.variance + extra, variance, rtol=1e-6, atol=1e-9)


def plane(n=700, slope=2.0, seed=0):
    """A rough field and a plane; the eastern quarter is not measured."""
    rng = np.random.default_rng(seed)
    P = rng.uniform(0, 40.0, (n, 2))
    distance = np.linalg.norm(P[:, None] - P[None], axis=-1)
    field = np.linalg.cholesky(np.exp(-distance / 3.0) + 1e-8 * np.eye(n)) @ rng.standard_normal(n)
    y = 0.7 * field + slope * P[:, 0] / 10.0 + 0.1 * rng.standard_normal(n)
    return P, y, P[:, 0] > 30.0


def test_a_trend_goes_on_where_nobody_measured_and_doubt_grows_there():
    P, y, held = plane()
    field = LocalField.fit(
        torch.from_numpy(P[~held]), torch.from_numpy(y[~held]), None, options=replace(QUICK, steps=60)
    )
    m = field.moments(torch.from_numpy(P[held]))
    miss = y[held] - m.location.numpy()
    assert abs(miss.mean()) < 0.5 and np.sqrt((miss**2).mean()) < 1.2  # the mean of all rows would miss by 4
    sd = (m.latent_variance + m.noise_variance).sqrt().numpy()
    assert (np.abs(miss) < 1.96 * sd).mean() > 0.85
    far = torch.tensor([[25.0, 20.0], [45.0, 20.0], [90.0, 20.0], [400.0, 20.0]]).double()
    doubt = field.moments(far).latent_variance
    assert (doubt.diff() > 0).all()
    assert (doubt <= field.moments(far).prior_variance + 1e-12).all()


def test_told_other_observations_the_drift_forgets_the_old_ones(kernels_in_parts):
    P, y, _ = plane(n=500)
    X = torch.from_numpy(P)
    options = QUICK
    field = LocalField.fit(X, torch.from_numpy(y), None, options=options)
    west = torch.from_numpy(np.flatnonzero(P[:, 0] < 15.0))
    told = field.conditioned_on(field.observations(X[west], torch.from_numpy(y)[west], None))
    again = told.conditioned_on(told.observations(X, torch.from_numpy(y), None))
    of_west, of_all = (f.known.drift.covariance.diagonal()[:3].sum() for f in (told, field))  # the plane's
    assert of_west > 1.5 * of_all
    assert torch.equal(again.known.drift.weights, field.known.drift.weights)
    assert torch.equal(again.moments(X[:40]).mean, field.moments(X[:40]).mean)


def test_far_from_the_data_the_plane_levels_off():
    P, y, _ = plane(n=300)
    field = LocalField.fit(torch.from_numpy(P), torch.from_numpy(y), None, options=replace(QUICK, steps=5))
    away = torch.tensor([[40.0, 20.0], [60.0, 20.0], [1e4, 20.0], [1e6, 20.0]]).double()
    near, next_, far, farther = field.moments(away).location.tolist()
    assert near < next_ < far and far == pytest.approx(farther, abs=1e-6)
    assert far - near < 2.2 * (near - float(y.mean()))


def test_further_columns_carry_what_they_explain():
    rng = np.random.default_rng(0)
    P, z = rng.uniform(0, 40.0, (400, 2)), rng.uniform(-1, 1, 400)
    y = np.sin(P[:, 0] / 4) + np.sin(3 * z) + 0.1 * rng.standard_normal(400)
    X = np.column_stack([P, z])
    options = {"steps": 30, "neighbours": 16, "n_targets": 200, "metric": False}
    with_z, without = (
        GPRegressor("local-gp", spatial=(0, 1), options=options).fit(Q[:320], y[:320]) for Q in (X, P)
    )
    errors = [np.abs(m.predict(Q[320:]) - y[320:]).mean() for m, Q in ((with_z, X), (without, P))]
    assert errors[0] < 0.5 * errors[1]
    moved = X[320:].copy()
    moved[:, 2] += 0.5
    assert np.abs(with_z.predict(moved) - with_z.predict(X[320:])).mean() > 0.2


def test_a_run_from_before_the_drift_has_none():
    P, y, _ = plane(n=300)
    field = LocalField.fit(torch.from_numpy(P), torch.from_numpy(y), None, options=replace(QUICK, steps=5))
    tensors, facts = field.state()
    old = {k: v for k, v in tensors.items() if not k.startswith("drift.")}
    for name in ("metric", "other_units"):
        del facts["frame"][name]
    del facts["options"]["metric"], facts["trend"]["newest"], facts["trend"]["span"]
    known: Conditioned = LocalField.from_state(old, facts).known
    C = known.seen.X[:5]
    assert known.drift(C).abs().max() == 0
    assert known.drift.extra(C, torch.zeros(5, 1).double())[1].abs().max() == 0

"""Few rows: predictions averaged over the kernels and noises that they bear out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import geogp
from geogp.field import FieldOptions, LocalField, LocalKernel
from geogp.field.likelihood.averaged import (
    BELOW,
    PLACES_BELOW,
    ROWS_BELOW,
    SPEAK,
    _evidence,
    _of_few_places,
    _points,
    _with_mean_square,
    averaged,
)
from geogp.field.local_gp import LocalGP
from geogp.field.mean.drift import PRIOR_SD, Drift
from geogp.field.observations import Observations

OPTIONS = FieldOptions(steps=30, metric=False)


def rows(n=40, seed=0, noise=0.3, reach=20.0, more=0):
    """Places, a Matérn field, and readings of it."""
    rng = np.random.default_rng(seed)
    P = rng.uniform(0, 100.0, (n + more, 2))
    d = np.sqrt(3) * np.linalg.norm(P[:, None] - P[None], axis=-1) / reach
    f = np.linalg.cholesky((1 + d) * np.exp(-d) + 1e-8 * np.eye(len(P))) @ rng.standard_normal(len(P))
    return P, f, f + noise * rng.standard_normal(len(P))


def fitted(P, y, **options):
    return LocalField.fit(torch.from_numpy(P), torch.from_numpy(y), None, options=replace(OPTIONS, **options))


def test_evidence_is_the_density_of_the_rows():
    rng = np.random.default_rng(0)
    A, phi, y = rng.normal(size=(12, 12)), rng.normal(size=(12, 3)), rng.normal(size=12)
    K, surface, noise = A @ A.T, np.array([0.3, 1.2]), np.array([0.1, 0.5, 0.9])
    found = _evidence(K, y, phi, surface, noise, 3.0)
    dense = [
        [
            stats.multivariate_normal.logpdf(y, cov=s**2 * K + t**2 * np.eye(12) + 9.0 * phi @ phi.T)
            for t in noise
        ]
        for s in surface
    ]
    np.testing.assert_allclose(found - found[0, 0], np.array(dense) - dense[0][0], rtol=1e-8, atol=1e-8)


def test_points_have_the_mean_and_the_covariance_of_the_grid():
    mass = np.random.default_rng(0).random((5, 6, 7)) ** 4
    grid = [np.geomspace(0.1, 3.0, n) for n in mass.shape]
    points = _points(grid, mass)
    logs = np.stack(np.meshgrid(*map(np.log, grid), indexing="ij"), axis=-1).reshape(-1, 3)
    share = mass.ravel() / mass.sum()
    np.testing.assert_allclose(points.mean(0), share @ logs, atol=1e-12)
    np.testing.assert_allclose(np.cov(points.T, ddof=0), np.cov(logs.T, aweights=share, ddof=0), atol=1e-12)


def test_points_moved_together_have_the_mean_square():
    logs, values, mass = np.log([0.1, 0.5, 2.0]), np.array([0.2, 0.4, 3.0]), np.array([1.0, 5.0, 2.0])
    moved = _with_mean_square(logs, values, mass)
    assert np.exp(2 * moved).mean() == pytest.approx(mass @ values**2 / 8.0)
    np.testing.assert_allclose(np.diff(moved), np.diff(logs))


def test_values_without_noise_are_met():
    P = rows(100)[0]
    ridge = np.exp(-(((P[:, 0] - 50.0) / 12.0) ** 2))
    model = geogp.GPRegressor(random_state=0).fit(P[:90], ridge[:90])
    assert np.sqrt(np.square(model.predict(P[90:]) - ridge[90:]).mean()) < 0.01 * ridge.std()


def test_weights_of_the_drift_given_all_rows_are_those_of_generalised_least_squares():
    P, _, y = rows(30)
    C = torch.from_numpy(P) / 20.0
    kernel = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double(), ("matern32",))
    gp = LocalGP(kernel, 0.1, 0.0, None, torch.zeros(0).double(), ())
    noise = torch.linspace(0.05, 0.4, 30).double()
    drift = Drift.over(C, None)
    found = drift.given_all(gp, Observations(C, torch.from_numpy(y), torch.ones(30).double(), noise))
    K, phi = kernel(C, C) + torch.diag(noise), drift.columns(C)
    A = phi.T @ torch.linalg.solve(K, phi) + torch.eye(3).double() / PRIOR_SD**2
    torch.testing.assert_close(found.covariance, torch.linalg.inv(A), rtol=1e-8, atol=1e-10)
    wanted = torch.linalg.solve(A, phi.T @ torch.linalg.solve(K, torch.from_numpy(y)))
    torch.testing.assert_close(found.weights, wanted, rtol=1e-8, atol=1e-10)


def test_predictions_are_those_of_exact_processes_averaged():
    P, _, y = rows(40)
    field = fitted(P, y)
    known, new = field.known, torch.from_numpy(np.random.default_rng(1).uniform(-20, 120, (50, 2)))
    gp = replace(known.gp, weighted=False, degrees_of_freedom=None)
    field = replace(field, known=replace(known, gp=gp).told(known.seen))
    known = field.known
    C = known.frame.coordinates(new)
    means, variances, weights = [], [], []
    for w, member in known.members:
        seen, phi, at = member.seen, member.drift.columns(member.seen.X), member.drift.columns(C)
        k, wide = member.gp.kernel, member.drift.prior_variance
        K = k(seen.X, seen.X) + torch.diag(seen.noise_variance) + wide * phi @ phi.T
        across = k(C, seen.X) + wide * at @ phi.T
        own = (k(C, C) + wide * at @ at.T).diagonal()
        means.append(across @ torch.linalg.solve(K, seen.value))
        variances.append(own - (across * torch.linalg.solve(K, across.T).T).sum(1))
        weights.append(w)
    w, m, v = torch.tensor(weights).double()[:, None], torch.stack(means), torch.stack(variances)
    mean = (w * m).sum(0)
    found = field.moments(new)
    level = known.level(C, torch.ones(50).double())
    torch.testing.assert_close(found.mean, level + mean, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(
        found.latent_variance, (w * (v + (m - mean) ** 2)).sum(0), rtol=1e-5, atol=1e-8
    )
    assert (found.prior_variance >= found.latent_variance).all()


@pytest.mark.parametrize("n", [15, 40])
def test_intervals_of_few_rows_hold_the_surface(n):
    held, alone, errors = [], [], []
    for seed in range(8):
        P, f, y = rows(n, seed, noise=0.5, more=300)
        field = fitted(P[:n], y[:n])
        new, truth = torch.from_numpy(P[n:]), f[n:]
        best = replace(field, known=replace(field.known, averaged=None))
        for one, hits in ((field, held), (best, alone)):
            m = one.moments(new)
            hits.append((np.abs(truth - m.mean.numpy()) < 1.96 * m.latent_variance.sqrt().numpy()).mean())
        errors.append(np.square(truth - field.moments(new).mean.numpy()).mean())
    assert np.mean(held) > 0.86 and np.mean(held) > np.mean(alone) + 0.01
    assert np.mean(errors) < 0.8  # 1 knows nothing


def test_what_rows_bear_out_is_kept_with_a_run_and_goes_on_when_told_of_others():
    P, _, y = rows(60)
    field = fitted(P[:40], y[:40])
    tensors, facts = field.state()
    new = torch.from_numpy(P[:5] + 1.0)
    again = LocalField.from_state(tensors, facts)
    assert torch.equal(again.moments(new).latent_variance, field.moments(new).latent_variance)
    old = {name: v for name, v in tensors.items() if not name.startswith("averaged")}
    assert LocalField.from_state(old, facts).known.members == []
    X, z = torch.from_numpy(P), torch.from_numpy(y)
    told = field.conditioned_on(field.observations(X, z, None))
    turned = field.conditioned_on(field.observations(X.flip(0), z.flip(0), None))
    assert torch.equal(told.moments(new).mean, turned.moments(new).mean)
    assert (
        told.moments(torch.from_numpy(P[40:])).latent_variance.mean()
        < 0.9 * field.moments(torch.from_numpy(P[40:])).latent_variance.mean()
    )
    back = told.conditioned_on(told.observations(X[:40], z[:40], None))
    assert torch.equal(back.moments(new).mean, field.moments(new).mean)


def test_told_of_many_rows_members_rest_on_the_nearest_as_ever():
    P, _, y = rows(400)
    field = fitted(P[:40], y[:40])
    told = field.conditioned_on(field.observations(torch.from_numpy(P), torch.from_numpy(y), None))
    new = torch.from_numpy(P[:30] + 0.5)
    known = told.known
    assert known.rows_a_cell < len(known.seen)
    each = [(w, replace(told, known=member).moments(new)) for w, member in known.members]
    wanted = sum(w * m.mean for w, m in each)
    torch.testing.assert_close(told.moments(new).mean, wanted, rtol=1e-9, atol=1e-9)


def test_the_prior_is_that_of_the_members():
    P, _, y = rows(40)
    field = fitted(P, y)
    A, B = torch.from_numpy(P[:6]), torch.from_numpy(P[3:9])
    torch.testing.assert_close(field.prior_covariance(A, A).diagonal(), field.prior_variance(A))
    kernels = [(w, member.gp.kernel) for w, member in field.known.members]
    C, D = (field.frame.coordinates(X) for X in (A, B))
    own = sum(w * k(C, D) for w, k in kernels)
    torch.testing.assert_close(field.prior_covariance(A, B), own + field.known.drift.covariance_of(C, D))


def test_many_rows_and_equal_values_have_one_kernel():
    P, _, y = rows(BELOW)
    assert fitted(P, y).known.averaged is None
    assert fitted(P[:40], np.ones(40)).known.averaged is None
    assert len(fitted(P[:-1], y[:-1]).known.members) > 1


def panel(n_places, times, seed=0, noise=0.3):
    """Few places that are measured at many times, of a surface that stays: X (n, 3), y, and 200 others with the truth there."""
    P, f, _ = rows(n_places, seed, more=200)
    at, when = np.repeat(np.arange(n_places), times), np.tile(np.arange(times) / 4.0, n_places)
    y = f[at] + noise * np.random.default_rng(seed + 99).standard_normal(len(at))
    new = np.column_stack([P[n_places:], np.full(200, when[-1])])
    return np.column_stack([P[at], when]), y, torch.from_numpy(new), f[n_places:]


def test_of_few_places_lengths_are_as_open_however_often_they_are_measured():
    """Their noise is not; and intervals between them hold more of the surface than those of the likeliest kernel."""
    held, alone = [], []
    for seed in range(6):
        X, y, new, truth = panel(16, 10, seed)
        field = LocalField.fit(torch.from_numpy(X), torch.from_numpy(y), None, time=2, options=OPTIONS)
        known = field.known
        assert known.averaged.times.shape == (4, 3) and not known.rests_on_all
        assert not known.averaged.times[:, 2].any() and (known.averaged.times[:, 0].std() > 0.2)
        best = replace(field, known=replace(known, averaged=None))
        for one, hits in ((field, held), (best, alone)):
            m = one.moments(new)
            hits.append((np.abs(truth - m.mean.numpy()) < 1.96 * m.latent_variance.sqrt().numpy()).mean())
    assert np.mean(held) > 0.86 and np.mean(held) > np.mean(alone) + 0.01


def test_some_rows_of_each_place_speak_for_all():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(
        np.column_stack([np.repeat(rng.uniform(size=(40, 2)), 22, axis=0), np.tile(np.arange(22.0), 40)])
    )
    X = torch.cat([X, torch.tensor([[5.0, 5.0, 0.0]]).double()])[torch.from_numpy(rng.permutation(881))]
    some = _of_few_places(X, 2)
    told = X[some]
    assert len(told) <= SPEAK + 40 and (some.diff() > 0).all()
    assert len(torch.unique(told[:, :2], dim=0)) == 41  # that of one row, too
    first = told[(told[:, :2] == told[0, :2]).all(1), 2].sort().values
    assert torch.unique(first.diff()).tolist() == [4.0]
    assert _of_few_places(X, None) is None and _of_few_places(X[:, [0, 2, 1]], 2) is None
    assert _of_few_places(X.repeat(2, 1)[:ROWS_BELOW], 2) is None
    assert len(np.unique(X[:, :2].numpy(), axis=0)) < PLACES_BELOW


def test_counts_keep_their_say():
    P, f, _ = rows(60, seed=3)
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 40, 60)
    y = f + rng.normal(0, np.sqrt(1.0 / counts))
    model = geogp.GPRegressor(random_state=0).fit(P, y, counts=counts)
    one, many = (model.predict(P, return_std=True, counts=n)[1] for n in (1, 40))
    assert (one > many).all()
    members = model.engine_.field.known.members
    assert len(members) > 1 and {m.has_counts for _, m in members} == {True}


def test_a_kernel_far_from_what_rows_say_is_left_behind():
    """The middle does not depend on where the search ended."""
    P, _, y = rows(50, seed=1)
    C = torch.from_numpy(P) / 15.0
    seen = {}
    for times in (1.0, 4.0):
        kernel = LocalKernel(
            torch.full((1, 2), np.log(1.3 * times)).double(),
            torch.tensor([np.log(0.8 * times)]),
            ("matern32",),
        )
        gp = LocalGP(kernel, 0.1 * times, 0.0, None, torch.zeros(0).double(), ())
        found = averaged(
            gp, gp.observed(C, torch.from_numpy(y), torch.ones(50).double()), torch.ones(50, 1).double(), 3.0
        )
        middle = found.centred(gp)[0]
        seen[times] = (
            float(middle.kernel.log_lengthscale[0, 0]),
            float(middle.kernel.log_variance[0]),
            np.log(middle.tau2),
        )
    np.testing.assert_allclose(seen[1.0], seen[4.0], atol=1e-6)


def test_what_kernels_differ_by_does_not_average_out_over_an_area():
    P, _, y = rows(25, noise=0.6)
    field = fitted(P, y)
    E, N = np.meshgrid(np.linspace(0, 100, 12), np.linspace(0, 100, 12))
    X = torch.from_numpy(np.column_stack([E.ravel(), N.ravel()]))
    m = field.moments(X)
    S = field.posterior_covariance(X)
    torch.testing.assert_close(S.diagonal(), m.latent_variance, rtol=1e-8, atol=1e-10)
    means = torch.stack([replace(field, known=member).moments(X).mean for _, member in field.known.members])
    weight = torch.tensor([w for w, _ in field.known.members]).double()
    together = means.mean(1)  # of the whole area
    spread = float(weight @ (together - weight @ together) ** 2)
    assert spread > 1e-4 and float(S.mean()) > spread
    draws = field.joint(X, m.latent_variance).draw(4000, torch.Generator().manual_seed(0))
    assert np.var(draws.mean(0)) == pytest.approx(float(S.mean()), rel=0.15)


def test_a_wild_value_pulls_less_on_a_plane_of_students_rows():
    P, _, y = rows(30, noise=0.1)
    C = torch.from_numpy(P) / 20.0
    kernel = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double() - 1.0, ("matern32",))
    seen = Observations(C, torch.from_numpy(y), torch.ones(30).double(), 0.05 * torch.ones(30).double())
    odd = replace(seen, value=seen.value + 50.0 * torch.eye(30).double()[3])
    normal = LocalGP(kernel, 0.05, 0.0, None, torch.zeros(0).double(), ())
    start = Drift.over(C, None)
    clean, wild = (start.given_all(normal, rows).weights for rows in (seen, odd))
    tame = start.given_all(replace(normal, degrees_of_freedom=4.0), odd).weights
    assert (tame - clean).norm() < 0.3 * (wild - clean).norm()

"""Areas: a dense Gaussian process, other routes to the same numbers, additivity, and coverage of known truths."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

import geogp
from geogp.areas import area_moments, averages, batches_of, surface
from geogp.errors import FarAhead, ImpossibleCombination, InvalidInput
from geogp.field import LocalKernel
from geogp.field.joint import prior_draws
from geogp.field.joint.kernel_sums import kernel_quadratic
from geogp.field.joint.prior_draws import PriorSampler
from geogp.methods import METHODS
from geogp.scores import binomial_band
from tests.others import Others

KERNEL = LocalKernel(
    torch.tensor([[0.3, 0.5, 2.0], [4.0, 3.0, 9.0]]).double().log(),
    torch.tensor([0.4, 0.8]).double().log(),
    ("matern12", "matern32"),
    2,
)
FLAT = LocalKernel(KERNEL.log_lengthscale[:, :2], KERNEL.log_variance, KERNEL.smoothness)


def plain(model):
    """The model with a Gaussian local field of constant noise: what a dense GP can check."""
    known = model.engine_.field.known
    return knowing(model, gp=replace(known.gp, weighted=False, degrees_of_freedom=None), averaged=None)


def knowing(model, **changes):
    """The model, its field told other things."""
    field = model.engine_.field
    model.engine_.field = replace(field, known=replace(field.known, **changes))
    return model


@pytest.fixture(scope="module")
def exact():
    """A local field all of whose observations are everyone's neighbours."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 9000, (70, 2)), 2020 + rng.integers(0, 4, 70) / 4])
    counts = rng.integers(1, 9, 70).astype(float)
    y = np.sin(X[:, 0] / 3000) + rng.standard_normal(70) * np.sqrt(0.05 + 0.2 / counts)
    options = {"neighbours": 70, "steps": 8, "metric": False}
    model = geogp.GPRegressor(
        "local-gp", target_transform="identity", spatial=(0, 1), time=2, options=options
    ).fit(X, y, counts)
    P = np.column_stack([rng.uniform(-1000, 10_000, (60, 2)), np.full(60, 2020.75)])
    return plain(model), P


@pytest.fixture(scope="module")
def near():
    """A local field of 24 neighbours on 700 rows, the usual case."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 20_000, (700, 2))
    y = np.sin(X[:, 0] / 4000) + 0.4 * np.cos(X[:, 1] / 900) + 0.3 * rng.standard_normal(700)
    options = {"neighbours": 24, "steps": 6, "n_targets": 150}
    return plain(
        geogp.GPRegressor("local-gp", target_transform="identity", options=options).fit(X, y)
    ), rng.uniform(0, 20_000, (300, 2))


def weights(n, areas=5, seed=0):
    """Rows that sum to one, each over a third of the places."""
    rng = np.random.default_rng(seed)
    W = rng.uniform(size=(areas, n)) * (rng.uniform(size=(areas, n)) < 0.35)
    return W / W.sum(axis=1, keepdims=True)


def dense_gp(field, P):
    """Mean and covariance at P of the exact GP on all observations, standardised, without the field's own code: the
    drift's weights as they are known, and what is uncertain of them."""
    C, seen, drift = field.frame.coordinates(torch.as_tensor(P)), field.seen, field.known.drift
    k = field.gp.kernel
    K = (k(seen.X, seen.X) + torch.diag(seen.noise_variance)).numpy()
    cross = k(C, seen.X).numpy()
    solved = np.linalg.solve(K, cross.T)
    open_ = drift.columns(C).numpy() - solved.T @ drift.columns(seen.X).numpy()
    covariance = k(C, C).numpy() - cross @ solved + open_ @ drift.covariance.numpy() @ open_.T
    return solved.T @ field.known.left.value.numpy() + drift(C).numpy(), covariance


def test_with_all_neighbours_it_is_the_dense_gp(exact):
    model, P = exact
    field = model.engine_.field
    mean, S = dense_gp(field, P)
    W = weights(len(P))
    base = field.moments(torch.as_tensor(P), torch.full((60,), model.typical_count_)).mean.numpy() - mean
    assert np.ptp(base) < 1e-8  # trend and count shift alone are left
    found = area_moments(model, P, W)
    expected = model.target_mean_ + model.target_sd_ * (W @ (mean + base))
    np.testing.assert_allclose(found.mean, expected, atol=1e-6)
    np.testing.assert_allclose(found.covariance, model.target_sd_**2 * W @ S @ W.T, atol=1e-6)
    np.testing.assert_allclose(found.sd, np.sqrt(found.covariance.diagonal()))
    # Draws come by another way, through the prior.
    s = surface(model, P)
    s.joint._prior = PriorSampler(s.joint.kernel, s.joint.points, ancestors=130)
    draws = s.draws(W, n_samples=4000)[0]
    np.testing.assert_allclose(draws.mean(axis=1), found.mean, atol=4 * found.sd.max() / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(draws), found.covariance, atol=0.08 * found.covariance.max())


def test_joint_samples_agree(exact):
    """`sample_y` factorises the places' covariance; the areas' covariance is that of the means of its draws."""
    model, P = exact
    W = weights(len(P))
    draws = W @ model.sample_y(P, n_samples=6000, random_state=3)
    found = area_moments(model, P, W)
    np.testing.assert_allclose(np.cov(draws), found.covariance, atol=0.06 * found.covariance.max())
    _, S = model.predict(P, return_cov=True, latent=True)
    np.testing.assert_allclose(found.covariance, W @ S @ W.T, rtol=1e-7, atol=1e-12)


def test_an_area_in_two_parts_is_the_whole(near):
    model, P = near
    west = P[:, 0] < 9000
    parts = np.stack([west / west.sum(), ~west / (~west).sum()])
    whole = np.full((1, len(P)), 1 / len(P))
    found = area_moments(model, P, np.concatenate([parts, whole]))
    share = np.array([west.mean(), 1 - west.mean()])
    assert found.mean[2] == pytest.approx(share @ found.mean[:2], rel=1e-9)
    assert found.covariance[2, 2] == pytest.approx(share @ found.covariance[:2, :2] @ share, rel=1e-9)
    np.testing.assert_allclose(found.covariance[2, :2], share @ found.covariance[:2, :2], rtol=1e-9)
    draws = surface(model, P).draws(
        sparse.csr_array(np.concatenate([parts, whole])), (lambda y: y, np.exp), n_samples=20
    )
    assert draws.shape == (2, 3, 20)
    np.testing.assert_allclose(draws[:, 2], np.einsum("p,fpk->fk", share, draws[:, :2]), rtol=1e-9)


def test_the_covariance_is_one_and_its_places_have_the_maps_own_variance(near):
    model, P = near
    found = area_moments(model, P, np.eye(len(P)))
    assert np.linalg.eigvalsh(found.covariance).min() > -1e-10
    np.testing.assert_allclose(found.sd, model.predict(P, return_std=True, latent=True)[1], rtol=1e-9)
    np.testing.assert_allclose(found.mean, model.predict(P, latent=True), rtol=1e-9)
    # Neighbours go together: the average is far less sure than of independent pixels.
    mean = np.full(len(P), 1 / len(P))
    assert mean @ found.covariance @ mean > 2 * np.square(found.sd / len(P)).sum()


def test_draws_have_that_covariance(near):
    model, P = near
    W = weights(len(P), areas=6)
    s = surface(model, P)
    found = s.moments(W)
    draws = s.draws(W, n_samples=3000, random_state=1)[0]
    ratio = draws.std(axis=1) / found.sd
    assert np.abs(ratio - 1).max() < 0.06  # 1.3% by chance, the rest the prior's approximation
    np.testing.assert_array_equal(draws, surface(model, P).draws(W, n_samples=3000, random_state=1)[0])


def test_a_batch_of_draws_is_the_same_whatever_else_is_drawn(near):
    model, P = near
    s = surface(model, P[:30])
    many = list(s.batches(150, 7))
    assert [part.shape for part in many] == [(30, 64), (30, 64), (30, 22)]
    np.testing.assert_array_equal(s.batch(1, 64, 7), many[1])
    np.testing.assert_array_equal(next(s.batches(64, 7)), many[0])
    others = s.batch(0, 64, 7), s.batch(1, 64, 7), s.batch(0, 64, 8)
    together = np.corrcoef(np.stack([(part - s.location[:, None]).ravel() for part in others]))
    assert np.abs(together - np.eye(3)).max() < 0.2  # 30 places that go together, 64 draws: an sd of .05


@pytest.mark.parametrize("method", ["local-gp", "dbk-silu", "gp-rbf"])
def test_others_draw_the_same_to_the_last_bit(near, monkeypatch, method):
    monkeypatch.setattr(averages, "PLACES", 16)
    monkeypatch.setattr(prior_draws, "POINTS_AT_ONCE", 32)
    model, P = near
    if method != "local-gp":
        rng, quick = np.random.default_rng(2), {"epochs": 2} if method == "dbk-silu" else {}
        X = rng.uniform(0, 9, (60, 2))
        model, P = geogp.GPRegressor(method, **quick).fit(X, np.sin(X[:, 0])), X
    others = Others()
    here, there = (surface(model, P[:40], workers=workers) for workers in (None, others))
    assert others.done.count("moments") == 3 and ("_given" in others.done) == (method == "local-gp")
    np.testing.assert_array_equal(there.location, here.location)
    np.testing.assert_array_equal(there.scale, here.scale)
    for number, m in batches_of(70):
        np.testing.assert_array_equal(there.batch(number, m), here.batch(number, m))


@pytest.mark.parametrize("smooth", [False, True])
def test_ahead_of_the_data_a_drifting_level_does_not_average_out(smooth, kernels_in_parts):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 9000, (1000, 2)), 2020 + rng.integers(0, 6, 1000) / 4])
    y = np.sin(X[:, 0] / 3000) + 0.5 * (X[:, 2] - 2020) + 0.3 * rng.standard_normal(1000)
    options = {
        "neighbours": 24,
        "steps": 6,
        "n_targets": 150,
        "epochs": 2,
        "smooth": smooth,
        "metric": False,
    }
    model = geogp.GPRegressor(
        "geogp", target_transform="identity", spatial=(0, 1), time=2, options=options
    ).fit(X, y)
    P = rng.uniform(0, 9000, (400, 2))
    mean = np.full((1, 400), 1 / 400)
    with pytest.warns(FarAhead, match=r"3\.8 years after the last measurement"):
        now, late = (
            area_moments(model, np.column_stack([P, np.full(400, t)]), mean).sd[0] for t in (2021.25, 2025)
        )
    field = model.engine_.field
    gap = (2025 - 2021.25) / field.frame.time_unit - field.known.horizon
    drift = model.target_sd_ * float(field.known.trend.extra_variance(torch.tensor([gap]))[0]) ** 0.5
    assert late >= drift > 2 * now


def test_long_before_the_first_quarter_is_as_unsure_as_long_after_the_last(kernels_in_parts):
    """A sure trend is no knowledge of what was before it: it levels off, and its doubt grows."""
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(0, 9000, (800, 2)), 2020 + rng.integers(0, 8, 800) / 4])
    y = 2.0 * (X[:, 2] - 2020) + 0.3 * rng.standard_normal(800)
    options = {"steps": 40, "n_targets": 300, "metric": False}
    model = geogp.GPRegressor(
        "local-gp", target_transform="identity", spatial=(0, 1), time=2, options=options
    ).fit(X, y)
    place = np.full((3, 2), 4500.0)
    with pytest.warns(FarAhead, match=r"8\.0 years before the first measurement.*take a later time"):
        mean, sd = model.predict(np.column_stack([place, [2012.0, 2020.0, 2021.75]]), return_std=True)
    assert mean[0] > 2.0 * -8.0 / 2 and sd[0] > 1.3 * max(sd[1:])


def test_one_time_alone_says_nothing_of_another():
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(0, 9000, (60, 2)), np.full(60, 2020.5)])
    model = geogp.GPRegressor("local-gp", spatial=(0, 1), time=2).fit(X, np.sin(X[:, 0] / 900))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X[:2])
    with pytest.warns(
        FarAhead, match=r"reach 2020\.75, 0\.2 years after .* are of 2020\.50 alone: .*take an earlier"
    ):
        model.predict(X[:2] + [0.0, 0.0, 0.25])


def test_coverage_of_area_means_of_known_surfaces():
    """Surfaces drawn from a kernel, measured with noise, areas predicted with 20 neighbours: 80% intervals hold."""
    rng = np.random.default_rng(0)
    n, m, areas = 250, 300, 12
    inside, done = 0, 0
    P = rng.uniform(0, 10, (m, 2))
    west = np.argsort(P[:, 0]).reshape(areas, -1)
    W = np.zeros((areas, m))
    for a, rows in enumerate(west):
        W[a, rows] = 1 / len(rows)
    X = rng.uniform(0, 7, (n, 2))  # the east has no data
    y = rng.standard_normal(n)
    options = {"neighbours": 20, "steps": 3, "metric": False}
    model = plain(geogp.GPRegressor("local-gp", target_transform="identity", options=options).fit(X, y))
    field = model.engine_.field
    scale = field.frame.space_unit
    kernel = replace(FLAT, log_lengthscale=FLAT.log_lengthscale - float(np.log(scale)))
    gp = replace(field.gp, kernel=kernel, tau2=0.1, s2=0.0)
    none = replace(
        field.known.drift,
        weights=torch.zeros_like(field.known.drift.weights),
        covariance=torch.zeros_like(field.known.drift.covariance),
    )
    knowing(model, gp=gp, drift=none, trend=replace(field.known.trend, intercept=0.0, slope=0.0))
    model.target_mean_, model.target_sd_ = 0.0, 1.0
    both = field.frame.coordinates(torch.as_tensor(np.concatenate([field_rows(field), P])))
    L = np.linalg.cholesky(kernel(both, both).numpy() + 1e-9 * np.eye(n + m))
    for _ in range(40):
        f = L @ rng.standard_normal(n + m)
        value = torch.as_tensor(f[:n] + np.sqrt(0.1) * rng.standard_normal(n))
        knowing(model, seen=replace(field.seen, value=value, noise_variance=torch.full((n,), 0.1).double()))
        found = area_moments(model, P + 1e-12 * done, W)  # never the cached prediction of other values
        inside += int((np.abs(W @ f[n:] - found.mean) < 1.2816 * found.sd).sum())
        done += areas
    low, high = binomial_band(done // 3, 0.8)  # neighbouring areas share their luck
    assert low < inside / done < high


def field_rows(field):
    """Raw coordinates of a field's observations."""
    origin = np.array(field.frame.origin)
    return field.seen.X.numpy() * field.frame.space_unit + origin


def test_kernel_sums_leave_out_nothing_that_counts():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(np.column_stack([rng.uniform(0, 60, (1500, 2)), rng.integers(0, 4, 1500)]))
    W = sparse.csr_array(weights(1500, areas=7))
    expected = W @ (W @ KERNEL(X, X).numpy()).T
    np.testing.assert_allclose(kernel_quadratic(KERNEL, X, W), expected, atol=1e-10)
    loose = kernel_quadratic(KERNEL, X, W, negligible=1e-3)
    assert 0 < np.abs(loose - expected).max() < 1e-3 * 1.2


@pytest.mark.parametrize("kernel", [KERNEL, FLAT], ids=["space-time", "space"])
def test_prior_draws_have_the_kernels_covariance(kernel):
    rng = np.random.default_rng(0)
    D = kernel.log_lengthscale.shape[1]
    X = np.column_stack([rng.uniform(0, 8, (600, 2)), rng.integers(0, 4, 600)])[:, :D]
    X = torch.from_numpy(np.concatenate([X, X[:50]]))  # some places twice
    f = PriorSampler(kernel, X).draw(3000, torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(f[600:], f[:50])
    K, found = kernel(X, X).numpy(), np.cov(f)
    assert np.abs(found - K).max() < 0.15 * K[0, 0]  # five Monte Carlo errors
    W = weights(len(X), areas=6)
    exact = np.sqrt((W @ K @ W.T).diagonal())
    np.testing.assert_allclose((W @ f).std(axis=1), exact, rtol=0.08)


def rows(method):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (90, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(90)
    return X, np.log10(1 + rng.poisson(np.exp(1 + y))) if method == "cox" else y


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_has_area_moments(method):
    """Its variances at places are those it predicts, its areas those of its own joint samples."""
    X, y = rows(method)
    settings = {"rank": 36, "hidden": 8, "epochs": 2}
    if METHODS[method].engine == "local":
        settings["options"] = {"steps": 8, "metric": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = geogp.GPRegressor(method, target_transform="identity", **settings).fit(X, y)
    P = np.random.default_rng(1).uniform(0, 10, (30, 2))
    found = area_moments(model, P, np.eye(30))
    sd = model.predict(P, return_std=True, latent=True)[1]
    np.testing.assert_allclose(found.sd, sd, rtol=1e-4, atol=1e-6)
    assert np.linalg.eigvalsh(found.covariance).min() > -1e-8 * max(1.0, found.covariance.max())
    if method == "cox":
        return  # its target is a curved function of the surface: to first order only
    _, S = model.predict(P, return_cov=True, latent=True)
    np.testing.assert_allclose(found.covariance, S, rtol=1e-3, atol=1e-5 * max(S.max(), 1e-9))
    W = weights(30, areas=3)
    draws = surface(model, P).draws(W, n_samples=2000)[0]
    wanted = W @ found.covariance @ W.T
    np.testing.assert_allclose(np.cov(draws), wanted, atol=0.15 * wanted.max() + 1e-12)


def test_a_basis_with_a_local_residual_has_the_fields_covariance():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10_000, (200, 2))
    y = np.sin(X[:, 0] / 3000) + 0.3 * np.sin(X[:, 1] / 200) + 0.05 * rng.standard_normal(200)
    small = {"rank": 16, "hidden": 16, "epochs": 3, "fourier_scales": (1.0,), "residual": "local"}
    model = geogp.GPRegressor(
        "dbk-silu", target_transform="identity", options={"steps": 4, "metric": False}, **small
    ).fit(X, y)
    P = rng.uniform(0, 10_000, (80, 2))
    assert model.most_places is None
    found = area_moments(model, P, np.eye(80))
    np.testing.assert_allclose(found.mean, model.predict(P, latent=True), rtol=1e-6)
    np.testing.assert_allclose(found.sd, model.predict(P, return_std=True, latent=True)[1], rtol=1e-6)
    assert np.abs(found.covariance - np.diag(found.covariance.diagonal())).max() > 0


def test_a_curved_target_has_draws_only():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (60, 2))
    y = np.exp(np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60))
    model = geogp.GPRegressor("gp-rbf", target_transform="log10", epochs=2).fit(X, y)
    W = np.full((1, 20), 1 / 20)
    with pytest.raises(ImpossibleCombination, match="draws"):
        area_moments(model, X[:20], W)
    draws = surface(model, X[:20]).draws(W, n_samples=200)
    assert (draws > 0).all() and abs(draws.mean() - y[:20].mean()) < 0.5


def test_what_is_refused(exact, monkeypatch):
    model, P = exact
    with pytest.raises(InvalidInput, match="one column for each of the 60"):
        area_moments(model, P, np.ones((1, 7)))
    with pytest.raises(InvalidInput, match="NaN"):
        area_moments(model, P, np.full((1, 60), np.nan))
    X, y = rows("gp-rbf")
    dense = geogp.GPRegressor("gp-rbf", target_transform="identity", epochs=1).fit(X, y)
    assert dense.most_places == 3000
    monkeypatch.setattr("geogp.engines.base.MOST_DENSE", 10)
    with pytest.raises(InvalidInput, match="at most 10 places"):
        area_moments(dense, P[:20, :2], np.full((1, 20), 0.05))


def test_neighbours_that_are_missing_do_not_count():
    """One observation, 48 neighbours wanted."""
    model = geogp.GPRegressor("local-gp", target_transform="identity").fit(
        np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0.0, 1.0])
    )
    plain(model)
    P = np.random.default_rng(0).uniform(0, 2, (9, 2))
    _, S = dense_gp(model.engine_.field, P)
    found = area_moments(model, P, np.eye(9))
    np.testing.assert_allclose(found.covariance, model.target_sd_**2 * S, atol=1e-8)

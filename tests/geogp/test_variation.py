"""A local kernel whose lengthscale and variance vary over space: valid, exact, learned, and dropped where idle."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

import geogp
from geogp.densities import log_density
from geogp.field import FieldOptions, LocalField, LocalKernel, choose
from geogp.field.candidate import Candidate
from geogp.field.joint.kernel_sums import kernel_quadratic
from geogp.field.noise.rows import ToldNoise
from geogp.field.solve import conditional_moments
from geogp.field.variation import Variation
from geogp.field.variation.told import Told

QUICK = FieldOptions(smooth=False, varying=9, steps=40, n_targets=600, neighbours=24, metric=False)


def bent(seed=0, in_time=False):
    rng = np.random.default_rng(seed)
    variation = Variation(
        torch.from_numpy(rng.uniform(0, 10, (6, 2))), torch.full((6,), 2.0).double(), torch.from_numpy(rng.normal(size=6)),
        torch.from_numpy(rng.normal(size=6)),
    )  # fmt: skip
    lengths = torch.from_numpy(rng.normal(size=(2, 3 if in_time else 2)))
    kinds = ("matern12", "matern32")
    return LocalKernel(lengths, torch.zeros(2).double(), kinds, 2 if in_time else None, variation)


@pytest.mark.parametrize("in_time", [False, True])
def test_it_is_a_covariance_whose_diagonal_is_the_prior(in_time):
    kernel = bent(in_time=in_time)
    X = torch.from_numpy(np.random.default_rng(1).uniform(-3, 13, (150, 3 if in_time else 2)))
    K = kernel(X, X)
    torch.testing.assert_close(K, K.T)
    torch.testing.assert_close(K.diagonal(), kernel.prior_at(X))
    assert torch.linalg.eigvalsh(K)[0] > -1e-10 * len(X)
    assert kernel.prior_at(X).max() > 2 * kernel.prior_at(X).min()
    far = X + 1e4
    torch.testing.assert_close(kernel.prior_at(far), kernel.prior_variance.expand(len(X)))


def test_it_is_a_covariance_with_covariates_too():
    # Lengths of 1 and 4 at two sites near each other: a factor for two axes alone makes one correlated with too many.
    sites, none = torch.tensor([[0.0, 0.0], [0.5, 0.0]]).double(), torch.zeros(2).double()
    bumps = Variation(sites, torch.full((2,), 0.1).double(), torch.tensor([0.0, 3.0]).double().log1p(), none)
    kernel = LocalKernel(torch.zeros(1, 8).double(), torch.zeros(1).double(), ("matern12",), None, bumps)
    rng = np.random.default_rng(3)
    X = torch.from_numpy(
        np.column_stack([sites.numpy()[rng.integers(0, 2, 200)], 1.5 * rng.normal(size=(200, 6))])
    )
    K = kernel(X, X)
    torch.testing.assert_close(K.diagonal(), kernel.prior_at(X))
    assert torch.linalg.eigvalsh(K)[0] > -1e-10 * len(X)


def test_blended_bumps_hold_beyond_the_data():
    rng = np.random.default_rng(0)
    centres, values = torch.from_numpy(rng.uniform(0, 10, (6, 2))), torch.from_numpy(rng.normal(size=6))
    bumps = Variation(centres, torch.full((6,), 2.0).double(), values, -values, blended=True)
    P = torch.from_numpy(rng.uniform(-3, 13, (200, 2)))
    h, s = bumps(P)
    assert (h >= values.min() - 1e-12).all() and (h <= values.max() + 1e-12).all()
    torch.testing.assert_close(s, -h)
    nearest = torch.cdist(1e4 * P, centres).argmin(1)
    torch.testing.assert_close(bumps(1e4 * P)[0], values[nearest])


def test_by_hand():
    # One bump at the first point: h = 2, s² = 9 there, h = s = 1 far away at distance d.
    two, nine = (torch.tensor([v], dtype=torch.float64).log() for v in (2.0, 9.0))
    bump = Variation(torch.zeros(1, 2).double(), torch.tensor([0.1]).double(), two, nine)
    kernel = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double(), ("matern12",), None, bump)
    A, B = torch.zeros(1, 2).double(), torch.tensor([[3.0, 4.0]]).double()
    mean = (4.0 + 1.0) / 2
    expected = 3.0 * (2.0 / mean) * np.exp(-5.0 / np.sqrt(mean))
    assert float(kernel(A, B)) == pytest.approx(expected, rel=1e-12)


def test_all_neighbours_give_the_dense_gaussian_process():
    kernel, rng = bent(), np.random.default_rng(2)
    X, new = torch.from_numpy(rng.uniform(0, 10, (40, 2))), torch.from_numpy(rng.uniform(0, 10, (7, 2)))
    y, noise = torch.from_numpy(rng.normal(size=40)), torch.from_numpy(rng.uniform(0.1, 1, 40))
    c = conditional_moments(kernel, new, X, y, noise, torch.arange(40).expand(7, 40))
    S = torch.linalg.inv(kernel(X, X) + torch.diag(noise))
    k = kernel(new, X)
    torch.testing.assert_close(c.mean, k @ S @ y, rtol=1e-8, atol=1e-8)
    variance = kernel.prior_at(new) - (k @ S * k).sum(1)
    torch.testing.assert_close(c.variance, variance, rtol=1e-8, atol=1e-8)


def world(rough, n=1200, seed=0):
    """A surface that is `rough` times shorter in the west than in the east."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 20_000, (n, 2))
    west = X[:, 0] < 10_000
    short = np.where(west, rough, 1.0)
    y = np.sin(X[:, 1] / 2500 * short) * np.cos(X[:, 0] / 2500 * short) + 0.1 * rng.normal(size=n)
    return torch.from_numpy(X), torch.from_numpy((y - y.mean()) / y.std()), west


@pytest.fixture(scope="module")
def rough_west():
    X, y, west = world(6.0)
    return LocalField.fit(X, y, None, options=QUICK), X, y, west


def test_short_lengths_are_found_where_the_surface_is_rough(rough_west, monkeypatch):
    monkeypatch.setattr(choose, "TOGETHER_BELOW", 0)  # of which kernels that vary know nothing
    field, X, y, west = rough_west
    variation = field.gp.kernel.variation
    assert variation is not None
    h, _ = variation(field.frame.coordinates(X)[:, :2])
    assert h[torch.from_numpy(west)].mean() < h[torch.from_numpy(~west)].mean() - 0.15
    plain = LocalField.fit(X, y, None, options=replace(QUICK, varying=None))
    fresh, value, _ = world(6.0, seed=1)
    density = {}
    for name, f in (("varying", field), ("plain", plain)):
        m = f.moments(fresh)
        total = m.latent_variance + m.noise_variance
        density[name] = float(log_density(value, m.location, total, None).mean())
    assert density["varying"] > density["plain"]


def test_state_and_prior_survive(rough_west):
    field, X, *_ = rough_west
    again = LocalField.from_state(*field.state())
    one, other = field.moments(X[:50]), again.moments(X[:50])
    for name in ("location", "latent_variance", "prior_variance"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    assert (one.latent_variance <= one.prior_variance + 1e-12).all()
    torch.testing.assert_close(one.prior_variance, field.prior_variance(X[:50]))
    K = field.posterior_covariance(X[:30])
    torch.testing.assert_close(K.diagonal(), one.latent_variance[:30], rtol=1e-6, atol=1e-9)


def test_a_surface_that_varies_is_drawn_as_its_covariance_says(rough_west):
    field, X, *_ = rough_west
    P = X[:40]
    joint = field.joint(P, field.moments(P).latent_variance)
    S = field.posterior_covariance(P).numpy()
    draws = joint.draw(20_000, torch.Generator().manual_seed(0))
    # The sd of a sample covariance of m draws is at most sqrt(2 / m) times the largest variance.
    assert np.abs(np.cov(draws) - S).max() < 5 * np.sqrt(2 / 20_000) * S.max()


def test_sums_over_a_kernel_that_varies_leave_out_only_what_is_negligible(rough_west):
    field, X, *_ = rough_west
    C = field.frame.coordinates(X[:1000])
    W = sparse.random_array((3, len(C)), density=0.3, rng=np.random.default_rng(0), format="csr")
    with torch.no_grad():
        K = field.gp.kernel(C, C).numpy()
    found = kernel_quadratic(field.gp.kernel, C, W)
    np.testing.assert_allclose(found, W @ K @ W.T, rtol=1e-6)


def test_areas_take_the_kernel_that_varies(kernels_in_parts):
    X, y, _ = world(6.0, n=700)
    model = geogp.GPRegressor(
        "local-gp",
        target_transform="identity",
        options={"varying": 4, "steps": 20, "n_targets": 300, "metric": False},
    ).fit(X.numpy(), y.numpy())
    assert model.engine_.field.gp.kernel.variation is not None
    found = geogp.area_moments(model, X.numpy()[:20], np.full((1, 20), 1 / 20))
    S = model.engine_.posterior_covariance(torch.as_tensor(X[:20])).double().numpy()
    assert float(np.asarray(found.covariance).squeeze()) == pytest.approx(
        model.target_sd_**2 * S.mean(), rel=1e-7
    )


def test_a_variation_that_predicts_no_better_is_left_out(monkeypatch, kernels_in_parts):
    X, y, _ = world(1.0, n=600)
    honest = choose.fit_local_gp

    def fit(*arguments, **named):
        found = honest(*arguments, **{**named, "steps": 20})
        if (bumps := found.kernel.variation) is None:
            return found
        # Far too rough everywhere.
        wrong = Variation(bumps.centres, bumps.width, bumps.lengthscale - 4.0, bumps.variance)
        kernel = LocalKernel(
            found.kernel.log_lengthscale, found.kernel.log_variance, found.kernel.smoothness, None, wrong
        )
        return type(found)(**{**vars(found), "kernel": kernel})

    monkeypatch.setattr(choose, "fit_local_gp", fit)
    options = replace(QUICK, n_targets=300)
    assert LocalField.fit(X, y, None, options=options).gp.kernel.variation is None


def crowded(n=1600, seed=0, in_time=False):
    """Half of the places crowd in the west, where the surface is five times as rough."""
    rng = np.random.default_rng(seed)
    west = np.arange(n) < n // 2
    X = np.column_stack([np.where(west, rng.uniform(0, 6_000, n), rng.uniform(6_000, 40_000, n)),
                         rng.uniform(0, 20_000, n)])  # fmt: skip
    waves = rng.normal(size=(2, 60)) * np.array([[1 / 6000], [1 / 6000]])
    phase = rng.uniform(0, 2 * np.pi, 60)
    surface = np.cos(X @ waves * np.where(west, 5.0, 1.0)[:, None] + phase).sum(1) / np.sqrt(30)
    y = torch.from_numpy(surface + 0.3 * rng.normal(size=n))
    X = torch.from_numpy(X)
    return (torch.cat([X, torch.from_numpy(rng.integers(0, 8, n) / 4.0)[:, None]], 1) if in_time else X), y


def test_what_is_left_out_tells_nothing():
    X, y = crowded()
    counts = torch.ones(len(X)).double()
    inside = (X[:, 0] < 4_000) & (X[:, 1] < 10_000)
    rows = torch.arange(len(X))[~inside]
    told = Told.over(X, y, counts, ToldNoise.over(X, y, counts).noise)
    other = replace(told, value=torch.where(inside, y + 9.0, y))
    assert torch.equal(told.says(rows), other.says(rows))
    assert not torch.equal(told.says(torch.arange(len(X))), other.says(torch.arange(len(X))))
    # A centre in the gap hears places at its edge, which crowd as those of the gap do.
    dense = told.says(rows)[:, 2]
    gap = told.start.bumps.centres
    gap = (gap[:, 0] < 4_000) & (gap[:, 1] < 10_000)
    assert bool(gap.any()) and float(dense[gap].min()) > float(dense.mean())


@pytest.fixture(scope="module")
def crowded_west():
    X, y = crowded(1200, in_time=True)
    options = FieldOptions(following=True, steps=40, n_targets=1000, neighbours=24, metric=False, epochs=2)
    return LocalField.fit(X, y, None, time=2, options=options), X


def test_lengthscales_follow_what_places_say_in_time_too(crowded_west):
    field, X = crowded_west
    variation = field.gp.kernel.variation
    assert variation is not None and variation.blended
    h, _ = variation(field.frame.coordinates(X)[:, :2])
    half = len(X) // 2
    assert h[:half].mean() < h[half:].mean() - 0.2


def test_a_field_that_follows_survives(crowded_west):
    field, X = crowded_west
    again = LocalField.from_state(*field.state())
    for name in ("location", "latent_variance", "prior_variance"):
        assert torch.equal(getattr(field.moments(X[:50]), name), getattr(again.moments(X[:50]), name))


def test_no_kind_of_missing_data_may_speak_against_it():
    gp = LocalField.fit(*world(1.0, n=50)[:2], None, options=replace(QUICK, steps=2)).gp

    def candidate(rows, blocks):
        return Candidate(gp, {"rows": torch.full((2,), rows), "blocks": torch.full((3,), blocks)})

    plain, better, mixed = candidate(-1.0, -2.0), candidate(-0.9, -2.0), candidate(-0.1, -2.1)
    assert better.never_loses_to(plain) and not mixed.never_loses_to(plain)


@pytest.mark.parametrize(("rows", "in_time", "tried"), [(599, False, 0), (600, False, 1), (600, True, 0)])
def test_many_rows_over_space_alone_try_it_unasked(monkeypatch, kernels_in_parts, rows, in_time, tried):
    X, y, _ = world(1.0, n=rows)
    if in_time:
        X = torch.cat([X, torch.arange(rows).double()[:, None] % 7], dim=1)
    honest, seen = choose.fit_local_gp, []

    def fit(*arguments, **named):
        seen.append(arguments[4].variation is not None)
        return honest(*arguments, **{**named, "steps": 20})

    monkeypatch.setattr(choose, "fit_local_gp", fit)
    monkeypatch.setattr("geogp.field.choose.VARY_FROM", 600)
    options = FieldOptions(smooth=False, n_targets=300, neighbours=16, metric=False)
    LocalField.fit(X, y, None, time=2 if in_time else None, options=options)
    assert sum(seen) == tried

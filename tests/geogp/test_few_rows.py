"""Few rows, few places: what they cannot tell is not claimed."""

import geogp  # noqa: F401  first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.densities import log_density
from geogp.estimator import GPRegressor
from geogp.field.kernel import LocalKernel
from geogp.field.left_out import nearest_others
from geogp.field.likelihood.conditional import conditional_log_density
from geogp.field.likelihood.together import penalty
from geogp.field.local_gp import LocalGP
from geogp.field.mean.drift import Drift
from geogp.field.observations import canonical, canonical_order
from geogp.field.solve import conditional_moments
from geogp.field.student import left_open

FAR_M = 1e6


def drawn(X, length, noise, seed, smoothness="matern32"):
    """Values of a Matérn process of sd 1 at X (n, 2), with noise of that sd."""
    kernel = LocalKernel(torch.full((1, 2), length).double().log(), torch.zeros(1).double(), (smoothness,))
    K = kernel(torch.from_numpy(X), torch.from_numpy(X)).numpy()
    L = np.linalg.cholesky(K + noise**2 * np.eye(len(X)))
    return L @ np.random.default_rng(seed).standard_normal(len(X))


def fitted(X, y, **options):
    return GPRegressor(target_transform="identity", random_state=0, options=options or None).fit(X, y)


@pytest.mark.parametrize(("n", "widest"), [(3, 140.0), (6, 75.0)])
def test_new_values_lie_in_their_intervals_as_often_as_promised(n, widest):
    """Of noise about a constant, of sd 10: three rows would lie on a plane exactly. So wide as Student's t says, or twice."""
    inside, width = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.uniform(0, 1e5, (n + 40, 2))
        y = 30 + 10 * rng.standard_normal(n + 40)
        low, high = fitted(X[:n], y[:n], steps=40).predictive(X[n:]).interval(0.95)
        inside.append(((low <= y[n:]) & (y[n:] <= high)).mean())
        width.append((high - low).mean())
    assert np.mean(inside) > 0.9
    assert np.mean(width) < widest


def test_a_plane_takes_nine_places():
    C = torch.rand(9, 2, generator=torch.Generator().manual_seed(0)).double()
    assert Drift.over(C, None).axes == (0, 1)
    few = C[1:].repeat(400, 1)
    assert Drift.over(few, None).axes == ()
    assert Drift.over(few, None).columns(C).tolist() == [[1.0]] * 9
    assert Drift.over(C.repeat(3_000, 1), None).axes == (0, 1)  # of which some are looked at


def test_covariates_are_linear_at_however_few_places():
    """Two stations and a dummy: what rows tell is not the places' to withhold; three rows to a weight are asked for."""
    rng = np.random.default_rng(0)
    C = torch.from_numpy(
        np.column_stack([np.repeat([[0.0, 0.0], [1.0, 5.0]], 60, axis=0), np.arange(120) / 120])
    )
    dummy = torch.from_numpy((rng.random((120, 1)) < 0.5).astype(float))
    assert Drift.over(torch.cat([C, dummy], dim=1), 2).axes == (3,)
    many = torch.from_numpy(rng.normal(size=(120, 45)))
    assert Drift.over(torch.cat([C, many[:, :39]], dim=1), 2).n_weights == 40
    assert Drift.over(torch.cat([C, many], dim=1), 2).axes == ()


def test_at_few_stations_a_covariate_is_followed_beyond_what_was_seen():
    rng = np.random.default_rng(0)
    stations, at, z = rng.uniform(0, 1e5, (8, 2)), rng.integers(0, 8, 500), rng.normal(size=500)
    y = rng.normal(size=8)[at] + 2 * z + 0.2 * rng.normal(size=500)
    z[350:] *= 2
    y[350:] += z[350:]  # twice as far out
    X = np.column_stack([stations[at], z])
    model = GPRegressor("local-gp", spatial=(0, 1), target_transform="identity", random_state=0)
    found = model.fit(X[:350], y[:350]).predictive(X[350:])
    low, high = found.interval(0.95)
    assert np.sqrt(np.mean((found.mean() - y[350:]) ** 2)) < 0.3
    assert ((low <= y[350:]) & (y[350:] <= high)).mean() > 0.9


def test_a_drift_of_some_columns_comes_back():
    """Two covariates at four stations: as many columns as a plane has."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.repeat(rng.uniform(0, 1e5, (4, 2)), 15, axis=0), rng.normal(size=(60, 2))])
    model = GPRegressor("local-gp", spatial=(0, 1), target_transform="identity", random_state=0)
    model.fit(X, X[:, 2] - X[:, 3] + 0.1 * rng.normal(size=60))
    tensors, facts = model.state()
    assert model.engine_.field.known.drift.axes == (2, 3)
    again = GPRegressor.from_state(tensors, facts)
    np.testing.assert_array_equal(again.predict(X[:9] + 0.1), model.predict(X[:9] + 0.1))


def test_one_row_more_makes_no_interval_many_times_wider():
    """Ten covariates of a dozen rows and of some more: none fitted exactly, none with a degree of freedom left."""
    widths = []
    for n in (12, 13, 14, 15, 38, 39, 40):
        rng = np.random.default_rng(1)
        X = np.column_stack([rng.uniform(0, 1e5, (60, 2)), rng.normal(size=(60, 10))])
        y = rng.normal(size=60)
        model = GPRegressor("local-gp", spatial=(0, 1), target_transform="identity", random_state=0)
        low, high = model.fit(X[:n], y[:n]).predictive(X[50:]).interval(0.95)
        widths.append(np.median(high - low))
    assert max(b / a for a, b in itertools.pairwise(widths)) < 2.0
    assert min(widths) > 2.5
    assert left_open(40, 13) < 2.0


@pytest.mark.parametrize("method", ["local-gp", "geogp"])
def test_neither_order_nor_unit_decides_who_is_heard_of_many_at_a_place(method):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(0, 1e4, (4, 2)), 55, axis=0)
    y, new = rng.normal(size=220) + X[:, 0] / 4e3, rng.uniform(0, 1e4, (40, 2))

    def told(X, y):
        model = GPRegressor(method, target_transform="identity", random_state=0, options={"steps": 20})
        return model.fit(X, y).predict(new)

    one, order = told(X, y), rng.permutation(220)
    np.testing.assert_allclose(told(X[order], y[order]), one, atol=1e-7)
    np.testing.assert_allclose(told(X, 1000 * y) / 1000, one, atol=1e-7)
    np.testing.assert_allclose((told(X, 1.8 * y + 32) - 32) / 1.8, one, atol=1e-7)


def test_columns_may_stand_anywhere():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 1e5, (380, 2)), rng.integers(0, 6, 380) / 4 + 2020])
    y = np.sin(X[:, 0] / 2e4) + 0.3 * rng.normal(size=380)
    settings = {"target_transform": "identity", "random_state": 0, "options": {"steps": 20}}
    one = GPRegressor("local-gp", spatial=(0, 1), time=2, **settings).fit(X, y).predict(X[:40] + [9, 9, 0])
    turned = GPRegressor("local-gp", spatial=(2, 1), time=0, **settings).fit(X[:, ::-1], y)
    np.testing.assert_allclose(turned.predict((X[:40] + [9, 9, 0])[:, ::-1]), one, atol=1e-7)


def test_across_a_line_the_unit_is_that_along_it():
    C = torch.stack([torch.linspace(0, 8, 12), torch.full((12,), 5.0)], dim=1).double()
    assert Drift.over(C, None).scale.tolist() == [4.0, 4.0]


def test_many_rows_at_one_place_are_all_heard():
    """Its neighbours are 48 of 300, and not the smallest."""
    rng = np.random.default_rng(0)
    y = rng.normal(20.0, 5.0, 300)
    model = fitted(np.full((300, 2), 5e3), y)
    at, away = model.predictive(np.array([[5e3, 5e3], [FAR_M, 0.0]]), latent=True).interval(0.95)
    assert abs((at[0] + away[0]) / 2 - y.mean()) < 1.5
    assert at[0] < y.mean() < away[0]
    assert y.min() - 20 < at[1] and away[1] < y.max() + 20


def test_equal_places_stand_in_no_order_of_their_values():
    rng = np.random.default_rng(0)
    X, y, n = torch.zeros(500, 2), torch.from_numpy(rng.normal(size=500)), torch.arange(500) % 3 + 1
    order = canonical_order(X, y, n)
    assert abs(np.corrcoef(np.arange(500), y[order])[0, 1]) < 0.15
    assert abs(float(y[order][:48].mean())) < 0.5
    shuffled = torch.from_numpy(rng.permutation(500))
    _, again, counts = canonical(X, y[shuffled], n[shuffled])
    assert torch.equal(again, y[order])
    assert torch.equal(counts, n[order].double())
    # Rows of one place first, whatever their values.
    both = torch.cat([X + 1.0, X])
    assert (canonical_order(both, y.repeat(2), n.repeat(2))[:500] >= 500).all()


def test_one_row_is_known_as_well_as_its_size_says():
    low, high = fitted(np.zeros((1, 2)), np.array([36.0])).predictive(np.array([[FAR_M, 0.0]])).interval(0.95)
    assert low[0] < 0.0 and 72.0 < high[0] < 360.0


def test_equal_targets_in_other_units_are_as_sure():
    X = np.random.default_rng(0).uniform(0, 1e5, (12, 2))
    width = []
    for value in (5.0, 5e6):
        low, high = fitted(X, np.full(12, value)).predictive(X[:1]).interval(0.95)
        width.append((high - low)[0] / value)
    assert width[0] == pytest.approx(width[1], rel=1e-6)
    assert 0.0 < width[0] < 1.0


def test_few_rows_of_noise_alone_are_not_a_surface_and_not_heavy_tailed():
    """Judged by weights that knew each row, it left a surface of .25 (of the noise) and tails of 3 degrees of freedom."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 5e4, (300, 2)), rng.standard_normal(300)
    model = fitted(X, y)
    at = rng.uniform(0, 5e4, (200, 2))
    assert np.sqrt(np.mean(model.predict(at, latent=True) ** 2)) < 0.15
    gp = model.engine_.field.gp
    assert not gp.weighted or gp.degrees_of_freedom > 10
    moments = model.moments(at)
    factor = torch.as_tensor(moments.standard_moments()[1])
    sd = model.target_sd_ * float((moments.noise_variance * factor).mean().sqrt())
    assert sd == pytest.approx(1.0, abs=3 / np.sqrt(2 * 300))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_noise_of_a_lattice_is_told_from_its_surface(seed):
    """Places with no others close by: what tells the two apart is the likelihood of all rows together."""
    X = np.stack(np.meshgrid(*2 * [np.linspace(0, 5e4, 16)]), -1).reshape(-1, 2)
    model = fitted(X, drawn(X, 9e3, 0.4, seed))
    found = model.target_sd_ * float(model.moments(X).noise_variance.mean().sqrt())
    assert 0.75 * 0.4 < found < 1.3 * 0.4


def test_a_noise_of_next_to_nothing_is_found():
    X = np.random.default_rng(0).uniform(0, 5e4, (250, 2))
    y = np.sin(X[:, 0] / 1e4) * np.cos(X[:, 1] / 1.4e4)
    new = np.random.default_rng(1).uniform(5e3, 4.5e4, (100, 2))
    model = fitted(X, y + 1e-4 * np.random.default_rng(2).standard_normal(250))
    assert model.target_sd_ * float(model.moments(new).noise_variance.mean().sqrt()) < 1e-3
    surface = np.sin(new[:, 0] / 1e4) * np.cos(new[:, 1] / 1.4e4)
    assert np.sqrt(np.mean((model.predict(new, latent=True) - surface) ** 2)) < 0.01


@pytest.mark.parametrize("smoothness", ["matern12", "matern32"])
def test_few_rows_are_as_rough_as_they_were_drawn(smoothness):
    X = np.random.default_rng(2).uniform(0, 5e4, (300, 2))
    y = drawn(X, 1e4, 0.1, 2, smoothness)
    assert set(fitted(X, y).engine_.field.gp.kernel.smoothness) == {smoothness}


def test_the_nearest_others_are_others_even_where_many_lie_at_one_place():
    P = torch.tensor([[0.0, 0.0]] * 5 + [[3.0, 4.0]]).double()
    found = nearest_others(P, 2)
    assert all(i not in row for i, row in enumerate(found.tolist()))
    assert set(found[5].tolist()) <= set(range(5))
    assert nearest_others(P[:1], 3).tolist() == [[-1, -1, -1]]
    assert sorted(nearest_others(P, 9)[5].tolist()) == [-1, -1, -1, -1, 0, 1, 2, 3, 4]


def test_places_with_a_level_of_their_own_are_known_as_well_as_their_rows_tell():
    """150 places, three or four rows each: with squared scales for variances intervals held 85%."""
    rng = np.random.default_rng(0)
    P, level = rng.uniform(0, 5e4, (150, 2)), rng.standard_normal(150)
    at = rng.integers(0, 150, 500)
    model = fitted(P[at], level[at] + 0.5 * rng.standard_normal(500))
    low, high = model.predictive(P, latent=True).interval(0.95)
    assert 0.9 < ((low <= level) & (level <= high)).mean() < 0.99


@pytest.mark.parametrize("n", [11, 12, 60])
def test_equal_values_are_not_known_to_be_equal_everywhere(n):
    X = np.random.default_rng(0).uniform(0, 5e4, (n, 2))
    low, high = fitted(X, np.full(n, 5.0)).predictive(X + 4e3).interval(0.95)
    assert (high - low).min() > 0.1


@pytest.mark.parametrize("copies", [2, 60])
def test_copies_of_rows_say_nothing_of_the_noise(copies):
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 5e4, (60, 2))
    y = np.sin(X[:, 0] / 1e4) + 0.5 * rng.standard_normal(60)
    X, y = np.concatenate([X, X[:copies]]), np.concatenate([y, y[:copies]])
    assert fitted(X, y).engine_.field.gp.tau2 > 0.05


@pytest.mark.parametrize(
    ("weighted", "nu", "factor"), [(False, 4.0, 2.0), (True, 4.0, 1.0), (False, None, 1.0)]
)
def test_what_is_not_weighed_counts_with_its_variance(weighted, nu, factor):
    kernel = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double(), ("matern32",))
    gp = LocalGP(kernel, 0.3, 0.0, nu, torch.zeros(0), (), weighted=weighted)
    X, y, one = torch.rand(30, 2).double(), torch.zeros(30).double(), torch.ones(30).double()
    assert gp.observed(X, y, one).noise_variance.unique().tolist() == pytest.approx([0.3 * factor])
    assert gp.noise_variance(one, X).unique().tolist() == pytest.approx(
        [0.3]
    )  # of a new value a squared scale
    before = replace(gp, variances=False).observed(X, y, one)
    assert before.noise_variance.unique().tolist() == pytest.approx([0.3])
    index = torch.roll(torch.arange(30), 1)[:, None]
    df = None if nu is None else torch.tensor(nu)
    given = conditional_log_density(
        kernel, X, y + 1.0, 0.3 * one, torch.arange(30), index, df, weighted=weighted
    )
    if not weighted:
        c = conditional_moments(kernel, X, X, y + 1.0, factor * 0.3 * one, index)
        expected = log_density(y + 1.0, c.mean, c.variance + 0.3, df)
        torch.testing.assert_close(given, expected)


def test_a_run_that_does_not_say_so_took_squared_scales_for_variances():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 5e4, (120, 2)), rng.standard_t(4.0, 120)
    tensors, facts = fitted(X, y).state()
    assert facts["engine"]["variances"] is True
    facts["engine"] |= {"weighted": False, "degrees_of_freedom": 4.0}
    new = GPRegressor.from_state(tensors, facts).engine_.field.known.seen.noise_variance
    del facts["engine"]["variances"]
    old = GPRegressor.from_state(tensors, facts).engine_.field.known.seen.noise_variance
    torch.testing.assert_close(new, 2.0 * old)


def test_a_prior_leans_towards_long_lengths_small_variances_and_one_length_for_both_axes():
    def of(lengths, variance):
        log = torch.tensor([lengths]).double().log()
        return float(penalty(LocalKernel(log, torch.tensor([variance]).double().log(), ("matern32",), 2)))

    one = of([1.0, 1.0, 5.0, 4.0], 1.0)  # metres east and north in spacings, years, a covariate
    assert of([0.5, 0.5, 5.0, 4.0], 1.0) > one > of([9.0, 9.0, 5.0, 4.0], 1.0)
    assert of([1.0, 1.0, 5.0, 1.0], 1.0) > one > of([1.0, 1.0, 5.0, 40.0], 1.0)
    assert of([1.0, 1.0, 5.0, 4.0], 9.0) > one > of([1.0, 1.0, 5.0, 4.0], 0.1)
    assert of([3.0, 1 / 3.0, 5.0, 4.0], 1.0) > one + 5.0
    assert of([1.0, 1.0, 0.1, 4.0], 1.0) == one

"""The plane of a field and its weights, by hand: columns, what is uncertain, what whitened rows tell of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import geogp
from geogp import run as runs
from geogp.field import LocalField, LocalKernel
from geogp.field.local_gp import LocalGP
from geogp.field.mean import drift
from geogp.field.mean.drift import Drift, Whitened
from geogp.field.observations import Observations
from geogp.field.solve import conditional_moments
from geogp.field.student import left_open
from geogp.update import recondition


def coordinates(n=40, seed=0):
    """Places, years, and two covariates."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(n, 5)) * [4.0, 2.0, 1.0, 0.3, 5.0] + [7.0, -1.0, 0.0, 2.0, 0.0])


@pytest.fixture
def plane():
    rng = np.random.default_rng(1)
    root = torch.from_numpy(0.3 * rng.normal(size=(5, 5)))
    return replace(
        Drift.over(coordinates(), 2), weights=torch.from_numpy(rng.normal(size=5)), covariance=root @ root.T
    )


@pytest.mark.parametrize("unit", [1.0, 0.01])
def test_columns_but_time_run_from_minus_one_to_one(unit):
    C = unit * coordinates()
    d = Drift.over(C, 2)
    assert d.axes == (0, 1, 3, 4) and d.n_weights == 5
    low, high = C[:, d.axes].amin(0), C[:, d.axes].amax(0)
    torch.testing.assert_close(d.center, (low + high) / 2)
    torch.testing.assert_close(d.scale, (high - low) / 2)
    columns = d.columns(C)
    torch.testing.assert_close(columns[:, 1:], (C[:, d.axes] - d.center) / d.scale)
    assert (columns[:, 0] == 1).all()
    assert (d.weights == 0).all() and torch.equal(d.covariance, 9.0 * torch.eye(5).double())
    assert Drift.over(C, None).axes == (0, 1, 2, 3, 4)
    assert Drift.over(C[:, :3], 2, n_space=1).axes == (0,) and Drift.over(C[:, :1], None).axes == (0,)


def test_beyond_the_data_the_plane_levels_off_after_two_half_extents_and_covariates_after_two_more(plane):
    d = plane.doubting_beyond()
    torch.testing.assert_close(d.slopes, plane.weights[1:])
    for beyond in (0.3, 2.0, 3.0, 50.0):
        for side in (-1.0, 1.0):
            C = torch.zeros(1, 5).double()
            C[:, d.axes] = d.center + side * (1.0 + beyond) * d.scale
            level = 2.0 * (1.0 - np.exp(-beyond / 2.0))
            on = min(beyond, 2.0) + 2.0 * (1.0 - np.exp(-max(beyond - 2.0, 0.0) / 2.0))
            wanted = side * (1.0 + torch.tensor([level, level, on, on])).double()
            torch.testing.assert_close(d.columns(C)[0, 1:5], wanted)
            # A covariate as far from going on as from standing still, space so that going on is well within two sd.
            share = side * torch.tensor([0.8 * (beyond - level)] * 2 + [0.5 * on] * 2).double()
            north_east, *others = torch.split(share * plane.weights[1:], [2, 1, 1])
            torch.testing.assert_close(
                d.columns(C)[0, 5:], torch.stack([north_east.sum(), *map(sum, others)])
            )
    assert (d.columns(coordinates())[:, 5:] == 0.0).all() and d.columns(coordinates()).shape == (40, 8)
    assert (d.weights[5:] == 0.0).all() and torch.equal(d.covariance[5:, 5:], torch.eye(3).double())
    assert d.n_weights == 8 and (d.covariance[5:, :5] == 0.0).all()


def test_what_is_otherwise_beyond_the_data_is_learned_from_there(plane):
    """By its own prior, of sd 1; the data themselves say nothing of it."""
    d, C = plane.doubting_beyond(), coordinates(60, 5)
    inside = d.least_squares(coordinates(), torch.ones(40).double(), torch.ones(40).double())
    assert (inside.weights[5:] == 0.0).all()
    torch.testing.assert_close(inside.covariance[5:, 5:], torch.eye(3).double())
    C[:, :2] *= 4.0
    phi, y = d.columns(C), torch.from_numpy(np.random.default_rng(6).normal(size=60))
    prior = torch.diag(torch.tensor([1 / 9.0] * 5 + [1.0] * 3).double())
    found = d.least_squares(C, y, 2.0 * torch.ones(60).double())
    torch.testing.assert_close(found.covariance, torch.linalg.inv(2.0 * phi.T @ phi + prior))
    torch.testing.assert_close(found.weights, found.covariance @ (2.0 * phi.T @ y))


def test_the_outermost_row_is_not_beyond_the_data(monkeypatch):
    """Which rounding makes it: told of its own rows a drift is what it was, to the last bit."""
    C = coordinates(200)
    gp = LocalGP(
        LocalKernel(torch.zeros(1, 5), torch.zeros(1), ("matern32",)), 0.1, 0.0, None, torch.zeros(0), ()
    )
    seen, near = gp.observed(C, C[:, 0].sin(), torch.ones(200).double()), C[:, :2]
    first = drift.learned(Drift.over(C, 2), gp, seen, near, 0).doubting_beyond()
    by_rounding = replace(first, scale=first.scale * (1.0 - 1e-15))
    assert (by_rounding.columns(C)[:, 5:] != 0.0).any()
    again = drift.learned(by_rounding, gp, seen, near, 0)
    assert torch.equal(again.covariance[5:, 5:], torch.eye(3).double()) and (again.weights[5:] == 0.0).all()
    torch.testing.assert_close(again.weights, first.weights)


def test_axes_that_lie_close_together_doubt_what_the_plane_is_and_not_what_each_of_them_is():
    """Their slopes are large and nearly cancel; so does what may go on."""
    d = Drift.over(coordinates()[:, :2], None)
    steep = replace(d, weights=torch.tensor([0.0, 50.0, -49.0]).double()).doubting_beyond()
    C = (d.center + 4.0 * d.scale)[None]
    flat = replace(d, weights=torch.tensor([0.0, 1.0, 0.0]).double()).doubting_beyond()
    torch.testing.assert_close(steep.columns(C)[:, 3:], flat.columns(C)[:, 3:])


def sloping(seed, n=150):
    """A slope of 20 across a square under a noise of 5, and the square east of it."""
    rng = np.random.default_rng(seed)
    X, beyond = rng.uniform(0, 100_000, (2, n, 2))
    beyond[:, 0] += 100_000
    return X, 20.0 * X[:, 0] / 100_000 + 5.0 * rng.normal(size=n), beyond, 20.0 * beyond[:, 0] / 100_000


def test_a_plane_that_goes_on_beyond_the_data_is_in_the_surfaces_interval():
    """A slope across a square, asked in the next one: the mean levels off, and says so."""
    held, width = [], []
    for seed in range(4):
        X, y, beyond, surface = sloping(seed)
        model = geogp.GPRegressor(random_state=0).fit(X, y)
        low, high = model.interval(beyond, 0.95, latent=True)
        held.append(((low <= surface) & (surface <= high)).mean())
        width.append((high - low).mean())
    assert np.mean(held) > 0.85 and np.mean(width) < 16.0


def test_measurements_from_beyond_the_data_take_away_the_doubt_that_was_there(tmp_path):
    """A run told of them knows whether the plane goes on, also where it has been written and read between."""
    X, y, beyond, surface = sloping(1)
    model = geogp.GPRegressor(random_state=0).fit(X, y)
    run = runs.save(tmp_path / "run", model)
    told, asked = beyond[:75], beyond[75:]
    values = surface[:75] + 5.0 * np.random.default_rng(9).normal(size=75)
    before = model.interval(asked, 0.95, latent=True)
    wide, error = before[1] - before[0], np.abs(model.predict(asked) - surface[75:])
    for m in (recondition(model, told, values), recondition(run.model, told, values)):
        low, high = m.interval(asked, 0.95, latent=True)
        assert ((low <= surface[75:]) & (surface[75:] <= high)).mean() > 0.9
        assert (high - low).mean() < 0.6 * wide.mean()
        assert np.abs(m.predict(asked) - surface[75:]).mean() < 0.5 * error.mean()


@pytest.mark.parametrize(("n", "n_space", "axes"), [(9, 2, (0, 1)), (8, 2, ()), (6, 1, (0,)), (5, 1, ())])
def test_a_plane_takes_three_places_to_a_weight(n, n_space, axes):
    C = coordinates(n)[:, :2]
    assert Drift.over(C.repeat(5, 1), None, n_space=n_space).axes == axes


@pytest.mark.parametrize(("n", "axes"), [(15, (0, 1, 3, 4)), (14, (0, 1))])
def test_covariates_take_three_rows_to_a_weight(n, axes):
    assert Drift.over(coordinates(n), 2).axes == axes


@pytest.mark.parametrize(("kinds", "axes"), [(3, (0, 1, 3, 4)), (2, (0, 1))])
def test_covariates_take_as_many_different_rows_as_weights(kinds, axes):
    C = coordinates(30)
    C[:, 3:] = C[torch.arange(30) % kinds, 3:]
    assert Drift.over(C, 2).axes == axes


def test_across_a_line_of_places_the_unit_is_that_along_it():
    C = coordinates()
    C[:, 1] = 3.0
    d = Drift.over(C[:, :2], None)
    assert d.scale[0] == d.scale[1] == 0.5 * (C[:, 0].max() - C[:, 0].min()) and d.center[1] == 3.0
    C[:, 1], C[:, 0] = C[:, 0].clone(), 3.0
    turned = Drift.over(C[:, :2], None)
    assert torch.equal(turned.scale, d.scale)
    # A covariate that stands still has its own unit; it stays a column of zeros.
    C = coordinates()
    C[:, 3] = 1.0
    assert Drift.over(C, 2).scale[2] == 1.0


def test_only_some_of_many_rows_are_counted(monkeypatch):
    monkeypatch.setattr(drift, "SOME", 10)
    C = coordinates(40)[:, :2]
    C[torch.arange(40) % 4 != 0] = 0.0  # every fourth row differs, and these are looked at
    assert Drift.over(C, None).axes == (0, 1)
    assert Drift.over(C.roll(1, 0), None).axes == ()


def test_what_it_says_and_how_it_errs_are_products_of_its_columns(plane):
    plane = plane.doubting_beyond()
    A, B = coordinates(6, 2), coordinates(4, 3)
    A[0, 3:], B[1, 3:] = torch.tensor([4.0, -20.0]), torch.tensor([-1.0, -30.0])
    A[0, :2], B[1, :2] = torch.tensor([30.0, 9.0]), torch.tensor([-40.0, -20.0])
    phi, psi = plane.columns(A), plane.columns(B)
    assert (phi[0, 5:].abs() > 0.01).all() and (psi[1, 5:].abs() > 0.01).all()
    torch.testing.assert_close(plane(A), phi @ plane.weights)
    torch.testing.assert_close(plane.covariance_of(A, B), phi @ plane.covariance @ psi.T)
    own = plane.covariance_of(A, A, diagonal=True)
    torch.testing.assert_close(own, (phi @ plane.covariance @ phi.T).diagonal())
    leaning = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).double()
    open_ = phi - leaning
    change, variance = plane.extra(A, leaning)
    assert (change == 0).all()
    torch.testing.assert_close(variance, (open_ @ plane.covariance @ open_.T).diagonal())
    other = replace(plane, weights=plane.weights + 1.0, covariance=4.0 * plane.covariance)
    change, wider = plane.extra(A, leaning, other)
    torch.testing.assert_close(change, open_.sum(1))
    torch.testing.assert_close(wider, 4.0 * variance)


def test_a_temperature_goes_on_falling_above_the_highest_station():
    """Known up to 1,500 m, asked at 2,500: the mean is that of the line, the interval holds it and that it stands still."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 100_000, (150, 2)), rng.uniform(0, 1500, 150)])
    y = 15.0 - 0.0065 * X[:, 2] + 0.3 * rng.normal(size=150)
    model = geogp.GPRegressor(spatial=(0, 1), random_state=0).fit(X, y)
    at = X[:8].copy()
    at[:, 2] = 2500.0
    mean = model.predict(at)
    np.testing.assert_allclose(mean, 15.0 - 0.0065 * 2500, atol=0.4)
    lower, upper = model.interval(at)
    stands = 15.0 - 0.0065 * 1500
    assert (upper > stands - 1.0).all() and (upper < stands + 2.0).all() and (lower < mean - 4.0).all()
    # All summits err together, and draws of them do.
    draws = model.sample_y(at, n_samples=400, random_state=1)
    assert np.corrcoef(draws)[0, 1:].min() > 0.9


def test_a_run_from_before_doubts_what_it_did():
    """Covariates beyond where they were measured, by its own slopes, and not the plane over space."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 100_000, (150, 2)), rng.uniform(0, 1500, 150)])
    y = 15.0 - 0.0065 * X[:, 2] + X[:, 0] / 50_000 + 0.3 * rng.normal(size=150)
    field = geogp.GPRegressor(spatial=(0, 1), random_state=0).fit(X, y).engine_.field
    tensors, facts = field.state()
    del tensors["drift.slopes"]
    q = field.known.drift.n_weights - field.known.drift.n_beyond
    tensors["drift.weights"] = tensors["drift.weights"][:q]
    tensors["drift.covariance"] = tensors["drift.covariance"][:q, :q]
    old, new = LocalField.from_state(tensors, facts).known.drift, field.known.drift
    assert old.slopes.tolist() == [0.0, 0.0, float(new.slopes[2])] != [0.0] * 3
    at = field.known.seen.X[:2].clone()
    at[0, 2], at[1, 0] = 9.0, 90.0
    told, now = (d.covariance_of(at, at, diagonal=True) for d in (old, new))
    torch.testing.assert_close(told[0], now[0])
    assert told[1] < 0.5 * now[1]


def test_a_variance_is_never_negative(plane):
    odd = replace(plane, covariance=-plane.covariance)
    assert (odd.extra(coordinates(6), torch.zeros(6, 5).double())[1] == 0).all()


def test_alone_the_values_give_a_ridge_regression(plane):
    C = coordinates()
    rng = np.random.default_rng(4)
    y, w = torch.from_numpy(rng.normal(size=40)), torch.from_numpy(rng.uniform(0.5, 2.0, 40))
    phi = plane.columns(C)
    precision = phi.T @ torch.diag(w) @ phi + torch.eye(5).double() / 9.0
    found = plane.least_squares(C, y, w)
    torch.testing.assert_close(found.covariance, torch.linalg.inv(precision))
    torch.testing.assert_close(found.weights, torch.linalg.solve(precision, phi.T @ (w * y)))
    assert found.axes == plane.axes and torch.equal(found.scale, plane.scale)


@pytest.mark.parametrize(("n", "q"), [(2, 1), (9, 3), (40, 4), (4, 4), (3, 5), (5, 4)])
def test_fitted_weights_leave_open_what_students_t_says(n, q):
    free = n - q
    wanted = n / free * (stats.t.ppf(0.975, free) / stats.norm.ppf(0.975)) ** 2 if free >= 1 else 1.0
    assert left_open(n, q) == pytest.approx(wanted, rel=1e-9)


# -- whitened rows --------------------------------------------------------------------------------------


def test_rows_come_in_a_random_order_each_with_the_nearest_before_it():
    P = torch.from_numpy(np.random.default_rng(0).normal(size=(400, 2)))
    first, same, other = Whitened.of(P), Whitened.of(P, 0), Whitened.of(P, 1)
    assert torch.equal(first.rows, same.rows) and not torch.equal(first.rows, other.rows)
    assert first.rows.sort().values.tolist() == list(range(400)) and first.before.shape == (400, 24)
    for at in (1, 10, 24, 25, 200, 399):
        earlier = first.rows[:at]
        near = earlier[torch.cdist(P[first.rows[at]][None], P[earlier])[0].argsort()[:24]]
        found = first.before[at]
        assert set(found[found >= 0].tolist()) == set(near.tolist())
    assert (first.before[0] == -1).all()
    assert len(Whitened.of(P, most=70).rows) == 70
    assert (Whitened.of(P[:1]).before == -1).all()


def test_among_some_the_others_are_gone():
    P = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 2)))
    w = Whitened.of(P)
    reference = torch.tensor([0, 3, 4, 9, 29])
    some = w.among(30, reference)
    keep = [i for i, row in enumerate(w.rows.tolist()) if row in reference.tolist()]
    assert some.rows.tolist() == w.rows[keep].tolist()
    gone = torch.where(torch.isin(w.before[keep], reference), w.before[keep], -1)
    assert torch.equal(some.before, gone) and (some.before == 0).any()


def observed(n, nu, seed=0):
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(rng.uniform(0, 6, (n, 2)))
    kernel = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double(), ("matern32",))
    gp = LocalGP(kernel, 0.2, 0.3, nu, torch.zeros(0).double(), ())
    y = 2.0 + X[:, 0] + torch.from_numpy(rng.standard_t(3.0, n))
    return gp, Observations(X, y, torch.ones(n).double(), torch.from_numpy(rng.uniform(0.2, 0.9, n)))


@pytest.mark.parametrize("at_once", [7, 1024])
def test_with_all_earlier_rows_the_weights_are_those_of_generalised_least_squares(monkeypatch, at_once):
    monkeypatch.setattr(drift, "ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(drift, "ANCESTORS", 60)
    gp, seen = observed(60, None)
    like = Drift.over(seen.X, None)
    found = Whitened.of(seen.X).drift(like, gp, seen)
    phi = like.columns(seen.X)
    S = gp.kernel(seen.X, seen.X) + torch.diag(seen.noise_variance)
    precision = phi.T @ torch.linalg.solve(S, phi) + torch.eye(3).double() / 9.0
    torch.testing.assert_close(found.covariance, torch.linalg.inv(precision))
    wanted = torch.linalg.solve(precision, phi.T @ torch.linalg.solve(S, seen.value))
    torch.testing.assert_close(found.weights, wanted)


def test_students_rows_are_weighed_by_how_well_they_agree():
    """Three solves, each by weights from the one before: of one before another, written out row by row."""
    gp, seen = observed(50, 4.0)
    like = Drift.over(seen.X, None)
    w = Whitened.of(seen.X)
    start = like.least_squares(seen.X[w.rows], seen.value[w.rows], 1.0 / seen.noise_variance[w.rows])
    phi = like.columns(seen.X)
    left = seen.value - phi @ start.weights
    both = torch.cat([left[:, None], phi], 1)
    c = conditional_moments(gp.kernel, seen.X[w.rows], seen.X, both, seen.noise_variance, w.before, 4.0)
    away = both[w.rows] - c.mean
    Z, v, own = away[:, 1:], c.variance, seen.noise_variance[w.rows]
    u = away[:, 0] + Z @ start.weights
    weight = np.ones(50)
    for _ in range(3):
        P = torch.from_numpy(1.0 / (v.numpy() + own.numpy() / weight))
        found = like.given(Z.T @ torch.diag(P) @ Z, Z.T @ (P * u))
        for i in range(50):
            noise = float(own[i]) / weight[i]
            share = noise / (float(v[i]) + noise)
            miss = float(u[i] - Z[i] @ found.weights)
            expected = (share * miss) ** 2 + share * float(v[i])
            weight[i] = (4.0 + 1.0) / (4.0 + expected / float(own[i]))
    drifted = w.drift(like, gp, seen)
    torch.testing.assert_close(drifted.weights, found.weights)
    torch.testing.assert_close(drifted.covariance, found.covariance)

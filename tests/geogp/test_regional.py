"""The regional surface: exact where its rank suffices, deaf to exceptional places, blind to rows left out."""

import numpy as np
import pytest
import torch

from geogp.densities import matern
from geogp.field.regional import MOST_SITES, RANK, Region, fit_regional, thinned

SOME = {"place_variance": 0.3, "prior_variance": 0.7}


def data(places=60, quarters=5, seed=0):
    """Rows at places measured several times: P (n, 2), y (n,), noise variance (n,)."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(0, 100, (places, 2))
    P = np.repeat(sites, quarters, axis=0)
    y = np.sin(P[:, 0] / 30) + 0.3 * rng.normal(size=len(P))
    return torch.from_numpy(P), torch.from_numpy(y), torch.from_numpy(rng.uniform(0.1, 1.0, len(P)))


def test_it_is_the_gaussian_process_of_the_places_means():
    P, y, noise = data()
    surface = fit_regional(Region.of(P, 40.0), torch.arange(len(y)), y, noise, **SOME)
    sites = P[::5]
    weight = (1.0 / noise).reshape(-1, 5)
    mean = (weight * y.reshape(-1, 5)).sum(1) / weight.sum(1)
    K = 0.7 * matern(torch.cdist(sites / 40, sites / 40), "matern32")
    S = K + torch.diag(0.3 + 1.0 / weight.sum(1))
    new = torch.tensor([[10.0, 20.0], [50.0, 50.0], [130.0, 90.0]]).double()
    k = 0.7 * matern(torch.cdist(new / 40, sites / 40), "matern32")
    g, variance = surface(new)
    torch.testing.assert_close(g, k @ torch.linalg.solve(S, mean), rtol=1e-5, atol=1e-5)
    # The basis knows only its own span, which at the inducing points themselves is everything.
    at, spread = surface.at_observations(torch.arange(0, len(y), 5))
    torch.testing.assert_close(at, K @ torch.linalg.solve(S, mean), rtol=1e-5, atol=1e-5)
    exact = (K - K @ torch.linalg.solve(S, K)).diagonal()
    torch.testing.assert_close(spread, exact, rtol=1e-4, atol=1e-5)
    assert (variance > 0).all()


def test_a_place_that_is_odd_every_time_has_one_vote_and_loses_it():
    P, y, noise = data()
    odd = y.clone()
    odd[50:55] += 20.0
    region, every = Region.of(P, 40.0), torch.arange(len(y))
    at = P[50:51]

    def moved(nu):
        one = fit_regional(region, every, y, noise, degrees_of_freedom=nu, **SOME)(at)[0]
        other = fit_regional(region, every, odd, noise, degrees_of_freedom=nu, **SOME)(at)[0]
        return float(other - one)

    assert moved(None) > 0.5
    assert abs(moved(3.0)) < 0.1


def test_rows_left_out_do_not_count():
    P, y, noise = data()
    rows = torch.arange(0, 200)
    region = Region.of(P, 40.0)
    other = y.clone()
    other[200:] = 99.0
    one = fit_regional(region, rows, y, noise, degrees_of_freedom=4.0, **SOME)
    two = fit_regional(region, rows, other, noise, degrees_of_freedom=4.0, **SOME)
    assert torch.equal(one(P)[0], two(P)[0])


def test_far_from_every_place_it_knows_nothing():
    P, y, noise = data()
    g, variance = fit_regional(Region.of(P, 40.0), torch.arange(len(y)), y + 5.0, noise, **SOME)(
        torch.tensor([[1e5, 1e5]]).double()
    )
    assert abs(float(g)) < 1e-6
    assert float(variance) == pytest.approx(SOME["prior_variance"])


def test_thinning_keeps_the_rows_where_they_are_and_the_number_bounded():
    P = np.random.default_rng(0).uniform(0, 7, (5000, 2))
    sites, row = thinned(P, RANK)
    assert RANK / 2 < len(sites) <= RANK < MOST_SITES
    assert np.abs(sites[row] - P).max() < 7 / 8
    same, _ = thinned(1000.0 * P, RANK)
    assert same / 1000.0 == pytest.approx(sites)
    few, row = thinned(P[:3].repeat(2, axis=0), RANK)
    assert len(few) == 3 and (few[row] == P[:3].repeat(2, axis=0)).all()
    line, _ = thinned(np.stack([np.linspace(0, 1, 2000), np.zeros(2000)], axis=1), 100)
    assert 50 < len(line) <= 100


def by_hand(P, y, noise, quarters, solves, nu=None):
    """Mean (places,) at places that each have so many rows, by dense algebra."""
    K = 0.7 * matern(torch.cdist(P[::quarters] / 40, P[::quarters] / 40), "matern32")
    by_place, by_row = torch.ones(len(K)).double(), torch.ones_like(y)
    for _ in range(solves):
        weight = (by_row / noise).reshape(-1, quarters)
        mean = (weight * y.reshape(-1, quarters)).sum(1) / weight.sum(1)
        variance = 0.3 + 1.0 / weight.sum(1)
        g = K @ torch.linalg.solve(K + torch.diag(variance / by_place), mean)
        if nu is not None:
            by_place = (nu + 1) / (nu + (mean - g) ** 2 / variance)
            by_row = (nu + 1) / (nu + (y - mean.repeat_interleave(quarters)) ** 2 / noise)
    return g


@pytest.mark.parametrize("quarters", [1, 4])
@pytest.mark.parametrize("nu, solves", [(None, 1), (4.0, 4)])
def test_weights_of_places_and_rows_are_renewed_three_times(nu, solves, quarters):
    """Of averages whose noise is large and small, some rows and some places odd."""
    P, y, noise = data(places=80, quarters=quarters)
    n = torch.arange(len(y))
    y, noise = y + 3.0 * (n // quarters % 9 == 0) + 2.0 * (n % 7 == 0), 8.0 * noise.square()
    surface = fit_regional(Region.of(P, 40.0), n, y, noise, degrees_of_freedom=nu, **SOME)
    at, _ = surface.at_observations(n[::quarters])
    expected = by_hand(P, y, noise, quarters, solves, nu)
    torch.testing.assert_close(at, expected, rtol=1e-5, atol=1e-5)
    if nu is not None:
        assert (expected - by_hand(P, y, noise, quarters, solves - 1, nu)).abs().max() > 1e-4


@pytest.mark.parametrize("lengthscale", [4.0, 40.0])
def test_between_nodes_it_is_the_same_however_far_from_its_places(lengthscale):
    P, y, noise = data()
    surface = fit_regional(Region.of(P, lengthscale), torch.arange(len(y)), y, noise, **SOME)
    rng = np.random.default_rng(1)
    for reach in (1.0, 30.0, 200.0, 900.0):
        new = torch.from_numpy(50 + (50 + reach) * rng.uniform(-1, 1, (400, 2)))
        (g, variance), (near, spread) = surface(new), surface.between_nodes(new)
        torch.testing.assert_close(near, g, rtol=0, atol=1e-3)
        torch.testing.assert_close(spread, variance, rtol=0.05, atol=0)
    far = torch.tensor([[1e12, -1e12]]).double()
    near, spread = surface.between_nodes(far)
    assert float(near) == pytest.approx(0.0, abs=1e-9) and float(spread) == pytest.approx(0.7)


@pytest.mark.parametrize("most", [1, 2, 7, 30, 100])
def test_the_finest_grid_with_few_enough_cells_is_taken(most):
    P = np.random.default_rng(most).uniform(0, 1, (300, 2))
    low, span = P.min(0), np.ptp(P, axis=0).max()

    def cells(across):
        return {tuple(c) for c in np.minimum((P - low) / span * across, across - 1).astype(int).tolist()}

    few = [across for across in range(1, 40) if len(cells(across)) <= most]
    assert few == list(range(1, len(few) + 1))  # here more cells are always more
    assert len(thinned(P, most)[0]) == len(cells(few[-1]))
    assert len(thinned(P[:most], most)[0]) == most  # as many as may be stay as they are
    assert np.array_equal(np.sort(thinned(P[:most], most)[0], axis=0), np.sort(P[:most], axis=0))


def test_of_no_places_it_says_nothing():
    P, y, noise = data()
    surface = fit_regional(Region.of(P, 40.0), torch.arange(len(y)), y, noise, **SOME)
    for said in (surface(P[:0]), surface.at_observations(torch.arange(0)), surface.between_nodes(P[:0])):
        assert [tuple(part.shape) for part in said] == [(0,), (0,)]


def test_as_many_cells_as_may_be_are_not_too_many():
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    P = (corners[:, None] + 1e-9 * np.arange(3)[:, None]).reshape(-1, 2)
    sites, row = thinned(P, 4)
    assert len(sites) == 4 and np.abs(sites[row] - P).max() < 1e-8

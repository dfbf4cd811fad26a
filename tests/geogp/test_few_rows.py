"""Few rows, few places: what they cannot tell is not claimed."""

import geogp  # noqa: F401  first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import numpy as np
import pytest
import torch

from geogp.estimator import GPRegressor
from geogp.field.drift import PLANE_FROM, Drift
from geogp.field.observations import canonical, canonical_order

FAR_M = 1e6


def fitted(X, y):
    return GPRegressor(target_transform="identity", random_state=0).fit(X, y)


@pytest.mark.parametrize("n", [3, 6])
def test_new_values_lie_in_their_intervals_as_often_as_promised(n):
    """Of noise about a constant, and of a plane: where three rows would lie on a plane exactly."""
    inside = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.uniform(0, 1e5, (n + 40, 2))
        y = 30 + 10 * rng.standard_normal(n + 40)
        low, high = fitted(X[:n], y[:n]).predictive(X[n:]).interval(0.95)
        inside.append(((low <= y[n:]) & (y[n:] <= high)).mean())
    assert np.mean(inside) > 0.9


def test_a_plane_takes_ten_places():
    C = torch.rand(PLANE_FROM, 2, generator=torch.Generator().manual_seed(0)).double()
    assert Drift.over(C, None).n_weights == 3
    few = C[1:].repeat(400, 1)
    assert Drift.over(few, None).n_weights == 1
    assert Drift.over(few, None).columns(C).tolist() == [[1.0]] * PLANE_FROM


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

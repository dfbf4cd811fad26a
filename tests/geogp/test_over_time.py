"""How smooth a surface is over time is found in its rows, and what lies between two quarters is known accordingly."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import geogp

QUARTERS = np.arange(8) / 4.0
MISSING = QUARTERS == 1.0


def panel(smooth: bool, seed: int):
    """40 places in eight quarters: X (320, 3), the surface (320,), correlated over 20 km and a year and a half, noise of .2."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0.0, 1e5, (40, 2))
    X = np.column_stack([np.repeat(places, 8, axis=0), np.tile(QUARTERS, 40)])
    away = np.sqrt(3.0) * cdist(X[:, :2], X[:, :2]) / 2e4
    lag = cdist(X[:, 2:], X[:, 2:]) / 1.5
    over_time = (1 + np.sqrt(3.0) * lag) * np.exp(-np.sqrt(3.0) * lag) if smooth else np.exp(-lag)
    K = (1 + away) * np.exp(-away) * over_time
    return X, np.linalg.cholesky(K + 1e-9 * np.eye(320)) @ rng.standard_normal(320), rng


@pytest.mark.parametrize("smooth", [True, False])
def test_a_quarter_that_nobody_measured_is_as_sure_as_its_neighbours_make_it(smooth):
    X, surface, rng = panel(smooth, 5)
    y = surface + 0.2 * rng.standard_normal(320)
    asked = np.tile(MISSING, 40)
    model = geogp.GPRegressor(time=2, target_transform="identity").fit(X[~asked], y[~asked])
    assert model.engine_.field.gp.kernel.over_time == ("matern32" if smooth else "matern12")
    found = model.predictive(X[asked], latent=True)
    low, high = found.interval(0.95)
    assert 0.85 <= ((low < surface[asked]) & (surface[asked] < high)).mean() <= 1.0
    error = np.sqrt(np.mean((found.mean() - surface[asked]) ** 2))
    # One who knows all errs by .16 where it is smooth, by .36 where it is not, and is as sure.
    assert error < (0.19 if smooth else 0.42)
    assert (high - low).mean() / (2 * 1.96) == pytest.approx(error, rel=0.35)

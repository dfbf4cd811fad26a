"""How fast a field changes is learned where times are many, and decides who is near."""

import numpy as np
import pytest
import torch

from geogp.estimator import GPRegressor
from geogp.field.likelihood.pace import learned_pace
from geogp.holdout import PERIODS


def stations(n=40, days=90, length=2.0, pace=0.1, noise=0.2, seed=0):
    """Coordinates of n stations on as many days, and a draw of a field exponential in space and in time with noise."""
    rng = np.random.default_rng(seed)
    places, times = rng.uniform(0, 6, (n, 2)), np.linspace(0.0, 2.5, days)
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    over = np.abs(times[:, None] - times[None])
    L, T = (
        np.linalg.cholesky(np.exp(-d / s) + 1e-9 * np.eye(len(d)))
        for d, s in ((apart, length), (over, pace * length))
    )
    field = L @ rng.normal(size=(n, days)) @ T.T
    C = np.column_stack([np.repeat(places, days, axis=0), np.tile(times, n)])
    return C, (field + noise * rng.normal(size=field.shape)).ravel()


def found(C, y, seed=0):
    return learned_pace(torch.from_numpy(C), torch.from_numpy(y), seed)


@pytest.mark.parametrize("pace", [0.02, 0.1])
def test_a_pace_is_found(pace):
    for seed in (0, 1):
        C, y = stations(pace=pace, seed=seed)
        assert pace / 2.5 < found(C, y) < 2.5 * pace


def test_it_does_not_depend_on_the_unit_of_the_values():
    C, y = stations()
    assert found(C, 1e-6 * y + 5.0) == pytest.approx(found(C, y), rel=1e-6)


def test_a_field_that_stays_few_times_and_few_rows_leave_it_as_it_was():
    C, y = stations(pace=3.0)
    assert found(C, y) == 1.0
    C, y = stations(days=2 * PERIODS, pace=0.02)
    assert len(np.unique(C[:, 2])) == 2 * PERIODS and found(C, y) == 1.0
    C, y = stations(days=2 * PERIODS + 1, pace=0.02)
    assert found(C, y) < 0.5
    assert found(C[:499], y[:499]) == 1.0


def test_a_field_that_is_another_each_day_is_as_uncertain_at_new_stations_as_it_is(kernels_in_parts):
    C, y = stations(n=30, days=60, length=6.0, pace=0.003, noise=0.2)
    new = np.isin(np.arange(30), np.arange(0, 30, 6)).repeat(60)
    density, held = {}, {}
    for metric in (True, False):
        options = {"metric": metric, "steps": 60, "n_targets": 600}
        model = GPRegressor("local-gp", spatial=(0, 1), time=2, random_state=0, options=options)
        model.fit(C[~new], y[~new])
        lower, upper = model.interval(C[new])
        held[metric] = ((lower < y[new]) & (y[new] < upper)).mean()
        density[metric] = model.predictive(C[new]).log_density(y[new]).mean()
    assert 0.92 < held[True] < 0.98 and held[False] > 0.99  # the days around say nothing of today
    assert density[True] > density[False] + 0.05

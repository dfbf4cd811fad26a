"""A shift with the count, told from a surface that counts follow."""

import numpy as np
import pytest
import torch

from geogp import GPRegressor
from geogp.densities import matern
from geogp.field.likelihood.apart import apart_from_places


def waves(P):
    return np.sin(P[:, 0] / 12_000) + np.cos(P[:, 1] / 15_000 + P[:, 0] / 30_000)


def test_what_places_say_is_taken_and_what_is_by_itself_stays():
    rng = np.random.default_rng(0)
    P = rng.uniform(0, 100_000, (300, 2))
    smooth, alone = waves(P), rng.normal(size=300)
    columns = torch.from_numpy(np.column_stack([smooth, alone, smooth + 0.5 * alone]))
    left = apart_from_places(torch.from_numpy(P), columns).numpy().T
    assert left[0].std() < 0.1 * smooth.std()
    assert np.corrcoef(left[1], alone)[0, 1] > 0.95
    assert np.corrcoef(left[2], alone)[0, 1] > 0.9 and abs(np.corrcoef(left[2], smooth)[0, 1]) < 0.2


def test_of_places_seen_again_and_again_what_their_rows_differ_by_stays():
    rng = np.random.default_rng(1)
    at = np.repeat(np.arange(30), 20)
    P, own = rng.uniform(0, 1, (30, 2)), rng.normal(size=30)
    alone = rng.normal(size=600)
    left = apart_from_places(torch.from_numpy(P[at]), torch.from_numpy(3.0 * own[at] + alone)[:, None])[:, 0]
    assert np.corrcoef(left, alone)[0, 1] > 0.97 and abs(np.corrcoef(left, own[at])[0, 1]) < 1e-6
    one = apart_from_places(torch.zeros(4, 2).double(), torch.tensor([[1.0], [2.0], [3.0], [6.0]]).double())
    assert one[:, 0].tolist() == [-2.0, -1.0, 0.0, 3.0]


def test_counts_that_follow_the_surface_shift_nothing():
    """Of this draw rows left out, and a shift learned from the counts as they are, both ask for one."""
    rng = np.random.default_rng(5)
    P = rng.uniform(0, 100_000, (200, 2))
    K = matern(torch.cdist(*[torch.from_numpy(P)] * 2) / 20_000, "matern32").numpy()
    g = np.linalg.cholesky(K + 1e-8 * np.eye(200)) @ rng.normal(size=200)
    n = np.ceil(np.exp(2.0 + 1.5 * g + 0.7 * rng.normal(size=200)))
    surface = 50.0 + 10.0 * g
    y = surface + np.sqrt(1.0 + 400.0 / n) * rng.normal(size=200)
    model = GPRegressor(random_state=0, target_transform="identity").fit(P, y, counts=n)
    assert not model.engine_.field.known.gp.count_shift.any()
    low, high = model.interval(P, 0.95, latent=True)
    assert ((low <= surface) & (surface <= high)).mean() > 0.9


@pytest.mark.parametrize("follow", [0.0, 0.8])
def test_a_shift_is_found_where_counts_follow_the_surface_and_where_they_do_not(follow):
    rng = np.random.default_rng(2)
    P = rng.uniform(0, 100_000, (250, 2))
    g = waves(P)
    n = np.ceil(np.exp(2.0 + follow * g + 0.7 * rng.normal(size=250)))
    y = 50.0 + 10.0 * g - 40.0 / n + np.sqrt(1.0 + 300.0 / n) * rng.normal(size=250)
    model = GPRegressor(random_state=0, target_transform="identity").fit(P, y, counts=n)
    one, many = model.engine_.field.known.gp.b(torch.tensor([1.0, 1000.0]).double()) * model.target_sd_
    assert -45.0 < float(one - many) < -20.0  # shrunk, as ten sd of the noise are not expected

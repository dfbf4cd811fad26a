"""A shift with the count, told from a surface that counts follow."""

import numpy as np
import pytest
import torch

from geogp import GPRegressor
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


@pytest.fixture(scope="module")
def model():
    """Most is measured where values are high; a single measurement is 15 too low, or it is not."""

    def of(*, shift: float, follow: float):
        rng = np.random.default_rng(2)
        P = rng.uniform(0, 100_000, (250, 2))
        g = waves(P)
        n = np.ceil(np.exp(2.0 + follow * g + 0.7 * rng.normal(size=250)))
        y = 50.0 + 10.0 * g + shift / n + np.sqrt(1.0 + 300.0 / n) * rng.normal(size=250)
        return GPRegressor(random_state=0, target_transform="identity").fit(P, y, counts=n), P, g

    return of


def test_counts_that_follow_the_surface_shift_nothing(model):
    fitted, P, g = model(shift=0.0, follow=1.2)
    assert not fitted.engine_.field.known.gp.count_shift.any()
    low, high = fitted.interval(P, 0.95, latent=True)
    surface = 50.0 + 10.0 * g
    assert ((low <= surface) & (surface <= high)).mean() > 0.9


def test_a_shift_is_found_where_counts_follow_the_surface_and_where_they_do_not(model):
    for follow in (0.0, 0.8):
        fitted, *_ = model(shift=-40.0, follow=follow)
        one, many = fitted.engine_.field.known.gp.b(torch.tensor([1.0, 1000.0]).double()) * fitted.target_sd_
        assert -45.0 < float(one - many) < -20.0  # shrunk, as ten sd of the noise are not expected

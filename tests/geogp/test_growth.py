"""The trial that tells how a residual grows with distance: what it trains on, what it reads from the rest, when there is none."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from geogp.basis.build import Shape
from geogp.basis.encoders import Encoder
from geogp.basis.schedule import Schedule
from geogp.data import Data, Moments
from geogp.engines import growth
from geogp.engines.growth import Missed, growth_of, likeliest
from geogp.engines.plan import Hooks, Plan
from geogp.holdout import side_and_blocks
from geogp.methods import METHODS

PLAN = Plan(METHODS["dbk-silu"], Shape(2, (0, 1), None, False), schedule=Schedule(epochs=12), seed=4)


class Trial:
    """An engine that says 0.2 everywhere, of a variance of its own at each place, and remembers what it was asked."""

    asked: tuple

    @classmethod
    def fit(cls, plan, data, validation, hooks):
        cls.asked = plan, data, validation, hooks
        return cls()

    @staticmethod
    def variances(X):
        return 0.05 + 0.01 * X[:, 0], 0.02 + 0.01 * X[:, 1]

    def moments(self, X, counts):
        latent, noise = self.variances(X)
        return Moments(torch.full_like(latent, 0.2), latent, noise, latent + 1.0)


def world(n, seed=0):
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(rng.uniform(0, 10, (n, 2)))
    data = Data(X, torch.from_numpy(0.2 + 0.9 * rng.standard_normal(n)), torch.arange(1.0, n + 1).double())
    encoder = Encoder(2, spatial=(0, 1))
    encoder.fit_scaling(X)
    return data, encoder


def parted(places, seed=4):
    """Rows fitted and left out: a side, some blocks, then an eighth of the places that are left."""
    fitted, out = side_and_blocks(places, seed=seed)
    where, place = np.unique(places[fitted], axis=0, return_inverse=True)
    gone = np.random.default_rng([seed, 1]).uniform(size=len(where)) < 0.125
    return fitted[~gone[place.ravel()]], np.concatenate([out, fitted[gone[place.ravel()]]])


def test_a_trial_trains_half_as_long_on_rows_without_a_side_some_blocks_and_single_places():
    data, encoder = world(400)
    said = []
    found = growth_of(Trial, PLAN, encoder, data, Hooks(on_part=said.append))
    plan, rest, watched, hooks = Trial.asked
    assert plan == replace(
        PLAN, row=replace(PLAN.row, residual="none"), schedule=replace(PLAN.schedule, epochs=6)
    )
    places = encoder.standardise(data.X).double().numpy()
    fitted, out = parted(places)
    both = torch.cat([rest.counts, watched.counts]).sort().values - 1  # counts say which rows they are
    assert both.tolist() == fitted.tolist()
    assert len(watched) == round(len(fitted) / 8)
    rows = rest.counts.numpy().astype(int) - 1
    away = np.linalg.norm(places[out][:, None] - places[rows], axis=2).min(axis=1)
    variance = sum(Trial.variances(data.X[out])).numpy()
    expected = likeliest(Missed(away, data.y[out].numpy() - 0.2, variance))
    assert (found["sill"], found["range"], found["power"]) == pytest.approx(expected, rel=1e-9)
    hooks.on_epoch(1, 6, None)
    assert said == ["how its doubt grows with distance", ""]


def test_of_many_rows_a_sample_is_tried(monkeypatch):
    monkeypatch.setattr(growth, "MOST", 350)
    data, encoder = world(500)
    assert growth_of(Trial, PLAN, encoder, data)
    _, rest, watched, _ = Trial.asked
    assert 175 < len(rest) + len(watched) < 350
    numbers = torch.cat([rest.counts, watched.counts])
    assert len(numbers.unique()) == len(numbers) and numbers.max() > 400  # from all of them


@pytest.mark.parametrize("epochs, tried", [(1, 1), (2, 1), (3, 2), (40, 20)])
def test_a_trial_has_an_epoch_at_least(epochs, tried):
    data, encoder = world(300)
    growth_of(Trial, replace(PLAN, schedule=Schedule(epochs=epochs)), encoder, data)
    assert Trial.asked[0].schedule.epochs == tried


def test_few_rows_and_rows_without_a_position_have_no_trial(monkeypatch):
    monkeypatch.setattr(Trial, "fit", None)
    data, encoder = world(300)
    nowhere = replace(PLAN, shape=Shape(2, None, None, False))
    assert growth_of(Trial, nowhere, encoder, data) == {}
    assert growth_of(Trial, PLAN, encoder, data.rows(torch.arange(299))) == {}
    for fitted, out in ((149, 151), (300, 0)):
        parts = np.arange(fitted), np.arange(300 - out, 300)
        monkeypatch.setattr(growth, "_left_out", lambda places, seed, parts=parts: parts)
        assert growth_of(Trial, PLAN, encoder, data) == {}


@pytest.mark.parametrize("fitted", [150, 250])
def test_so_few_rows_are_enough(monkeypatch, fitted):
    parts = np.arange(fitted), np.arange(fitted, 300)
    monkeypatch.setattr(growth, "_left_out", lambda places, seed: parts)
    data, encoder = world(300)
    assert growth_of(Trial, PLAN, encoder, data)["sill"] > 0


def best(d, miss, own):
    """Sill, range and power by looking at each."""
    scores = {}
    for p, r in product((1.0, 1.5), np.geomspace(0.1, 30, 14) * np.median(d)):
        for a in np.geomspace(0.01, 4, 16):
            v = own + a * (1 - np.exp(-((d / r) ** p)))
            prior = np.log(a) ** 2 / 4 + np.log(r / np.median(d)) ** 2 / 2.25
            scores[a, r, p] = (np.minimum(miss**2 / v, 16) + np.log(v)).sum() + prior
    return min(scores, key=scores.__getitem__)


@pytest.mark.parametrize("sill", [0.05, 0.6, 2.0])
@pytest.mark.parametrize("reach", [0.1, 0.7, 5.0])
@pytest.mark.parametrize("power", [1.0, 1.5])
def test_the_likeliest_growth_is_that_of_the_rows(sill, reach, power):
    """A row's share is bounded, so that a few that miss by far decide nothing."""
    rng = np.random.default_rng(int(100 * sill + 10 * reach))
    d = rng.uniform(0, 3, 1500)
    own = rng.uniform(0.05, 0.2, 1500)
    miss = np.sqrt(own + sill * (1 - np.exp(-((d / reach) ** power)))) * rng.standard_normal(1500)
    found = likeliest(Missed(d, miss, own))
    assert found == pytest.approx(best(d, miss, own))
    # What the rows can tell is how much it has grown where they lie.
    grown, true = (a * (1 - np.exp(-((1.5 / r) ** p))) for a, r, p in (found, (sill, reach, power)))
    assert grown == pytest.approx(true, rel=0.35, abs=0.01)
    # In other units of length the range is in these.
    assert likeliest(Missed(1e-6 * d, miss, own)) == pytest.approx((found[0], 1e-6 * found[1], found[2]))
    miss[:3] = 1e6
    assert likeliest(Missed(d, miss, own)) == pytest.approx(found, rel=1.0)


@pytest.mark.parametrize("seed", range(40))
def test_a_row_that_misses_by_far_counts_as_sixteen_variances(seed):
    rng = np.random.default_rng(seed)
    d, own = rng.uniform(0.5, 2.0, 6), np.full(6, 0.01)
    miss = rng.standard_t(1, 6)
    assert likeliest(Missed(d, miss, own)) == pytest.approx(best(d, miss, own))


def test_a_smoother_growth_is_told_from_a_rough_one():
    d = np.linspace(0.01, 2.0, 6000)
    for power in (1.0, 1.5):
        miss = np.sqrt(0.02 + 1.5 * (1 - np.exp(-((d / 0.8) ** power)))) * np.random.default_rng(
            8
        ).standard_normal(6000)
        assert likeliest(Missed(d, miss, np.full(6000, 0.02)))[2] == power


def test_rows_where_the_trial_had_rows_say_nothing_of_distance():
    sill, reach, _ = likeliest(Missed(np.zeros(50), np.ones(50), np.ones(50)))
    assert np.isfinite(sill) and 0.0 < reach < 1e-10

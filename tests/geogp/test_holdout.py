"""Rows left out: parts and folds are disjoint and whole, and depend on the seed alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geogp import GPRegressor
from geogp.data import Data
from geogp.holdout import gaps, left_out_kinds, random_fifth, random_folds, random_part, settled, spacing


@given(st.integers(1, 60), st.integers(0, 3))
def test_a_part_and_the_rest_are_all_rows(n, seed):
    rest, part = random_part(n, n // 3, seed)
    assert len(part) == n // 3
    assert sorted([*rest.tolist(), *part.tolist()]) == list(range(n))
    assert torch.equal(part, random_part(n, n // 3, seed)[1])


def test_another_seed_draws_another_part():
    assert not torch.equal(random_part(50, 10, 0)[1], random_part(50, 10, 1)[1])


@given(st.integers(1, 60), st.integers(2, 4))
def test_every_row_is_inside_one_fold_or_the_only_fold_is_skipped(n, k):
    folds = list(random_folds(n, k, 0))
    inside = [i for _, rows in folds for i in rows.tolist()]
    assert sorted(inside) == (list(range(n)) if folds else [])
    for outside, rows in folds:
        assert sorted([*outside.tolist(), *rows.tolist()]) == list(range(n))


@pytest.mark.parametrize(("n", "held"), [(2, 1), (4, 1), (50, 10)])
def test_a_fifth_of_the_data_keeps_each_row_with_its_target(n, held):
    y = torch.arange(float(n))
    rest, part = random_fifth(Data(y[:, None].double(), y), seed=0)
    assert (len(rest), len(part)) == (n - held, held)
    for rows in (rest, part):
        assert torch.equal(rows.X[:, 0].float(), rows.y)


@pytest.mark.parametrize("time", [None, np.arange(400) % 6 / 4.0])
def test_the_future_is_left_out_only_of_eight_times_or_more(time):
    space = np.random.default_rng(0).uniform(0, 100, (400, 2))
    assert {h.kind for h in left_out_kinds(space, time, n_targets=60)} == {"rows", "blocks"}


def test_a_sample_of_many_places_tells_their_spacing(monkeypatch):
    """Each of the sample asks all places: what is twice as dense does not pass for half as dense."""
    from geogp import holdout

    P = np.random.default_rng(0).normal(size=(20_000, 2))
    whole = holdout.spacing(P)
    monkeypatch.setattr(holdout, "ASKED", 2000)
    assert holdout.spacing(P) == pytest.approx(whole, rel=0.05)
    assert len(holdout.sampled(P)) == 2000 and np.isin(holdout.sampled(P), P).all()


@pytest.mark.parametrize("times", [2, 10])
@pytest.mark.parametrize("angle", [0.0, 0.3, 1.1])
@pytest.mark.parametrize("blur", [1e-10, 1e-8, 1e-7])
def test_places_that_almost_coincide_are_one_place(blur, angle, times):
    """However often and in whatever direction they were blurred, by a share of the extent."""
    rng = np.random.default_rng(0)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    homes = 5e4 + 1e5 * rng.uniform(0, 1, (300, 2)) @ turn
    blurred = np.repeat(homes, times, axis=0) + 1e5 * blur * rng.standard_normal((300 * times, 2))
    assert len(settled(blurred)) == 300
    nearest = np.sort(np.linalg.norm(homes[:, None] - homes, axis=2), axis=1)[:, 1]
    assert spacing(blurred) == pytest.approx(np.median(nearest), rel=0.01)
    np.testing.assert_allclose(np.sort(gaps(blurred)), np.sort(nearest), atol=1e6 * blur)


def around(centres, n, metres, rng):
    return np.repeat(centres, n, axis=0) + rng.uniform(-metres, metres, (n * len(centres), 2))


@pytest.mark.parametrize(
    "kind",
    ["lattice", "scattered", "line", "towns", "campuses", "nested", "villages", "atolls", "crowd", "few"],
)
def test_places_that_differ_are_places(kind):
    """Sensors of a campus, points metres apart at each site of a survey, tiles of villages: each with a surface of its own."""
    rng = np.random.default_rng(1)
    far = rng.uniform(0, 1, (60, 2))
    tiles = np.array([[0, 0], [600, 0], [0, 600], [600, 600], [1200, 0]])
    made = {
        "lattice": np.stack(np.meshgrid(np.arange(40.0), np.arange(30.0)), -1).reshape(-1, 2),
        "scattered": rng.uniform(0, 1, (2000, 2)),
        "line": np.column_stack([np.sort(rng.uniform(0, 1, 500)), np.zeros(500)]),
        "towns": np.repeat(500 * far, 40, axis=0) + 3.0 * rng.standard_normal((2400, 2)),
        "campuses": around(5e5 * far, 100, 150, rng),
        "nested": around(1e5 * far, 4, 10, rng),
        "villages": (2e6 * far[:, None] + tiles[None, :2]).reshape(-1, 2),
        "atolls": (3e6 * far[:48, None] + tiles[None]).reshape(-1, 2),
        "crowd": np.concatenate([5e5 * far, around(far[:1], 500, 150, rng)]),
        "few": around(far[:5], 4, 1e-9, rng),
    }[kind]
    assert len(settled(made)) == len(np.unique(made, axis=0))


def test_a_field_of_blurred_places_is_learned():
    """Each of 300 places measured twice, the second time a ten-millionth of the extent away: predictions were the mean."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(0, 10, (300, 2)), 2, axis=0)
    X[::2] += 1e-6 * rng.standard_normal((300, 2))
    new = rng.uniform(0, 10, (1000, 2))

    def surface(P):
        return np.sin(P[:, 0]) + np.cos(P[:, 1] / 2)

    model = GPRegressor("geogp").fit(X, surface(X) + 0.3 * rng.standard_normal(600))
    mean, sd = model.predict(new, return_std=True, latent=True)
    assert np.sqrt(np.mean((mean - surface(new)) ** 2)) < 0.12
    assert np.mean(np.abs(mean - surface(new)) < 1.96 * sd) > 0.9

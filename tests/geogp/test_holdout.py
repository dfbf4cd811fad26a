"""Rows left out: parts and folds are disjoint and whole, and depend on the seed alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geogp.data import Data
from geogp.holdout import left_out_kinds, random_fifth, random_folds, random_part


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

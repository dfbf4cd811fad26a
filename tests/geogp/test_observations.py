"""What a field is conditioned on: weights before a fit, and an order that is none of the values'."""

import numpy as np
import pytest
import torch

from geogp.field import observations
from geogp.field.observations import Observations, canonical, canonical_order, counted, typical_precision


def test_what_nobody_counts_is_one_measurement() -> None:
    assert counted(None, 3).tolist() == [1.0, 1.0, 1.0] and counted(None, 3).dtype == torch.float64
    found = counted(torch.tensor([0, 1, 7]), 3)
    assert found.tolist() == [1.0, 1.0, 7.0] and found.dtype == torch.float64


def test_a_typical_noise_falls_with_the_count_to_a_ninth_of_the_first() -> None:
    """1/w = 0.15 + 1.2/n: of one measurement 1.35, of two 0.75, of any number no less than 0.15."""
    counts = torch.tensor([1.0, 2.0, 8.0, 1e15]).double()
    assert (1.0 / typical_precision(counts)).tolist() == pytest.approx([1.35, 0.75, 0.3, 0.15], rel=1e-12)


def test_numbers_are_mixed_as_published() -> None:
    """SplitMix64 from seed 0 adds 0x9E3779B97F4A7C15 before each number; its first four are known."""
    seed = np.arange(4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert observations._mixed(seed).tolist() == known


def test_rows_are_in_order_of_place_then_time() -> None:
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.permutation(60).reshape(20, 3).astype(float))
    X[:10, 0] = 3.0
    X[:5, 1] = 8.0
    order = canonical_order(X, torch.zeros(20).double(), torch.ones(20).double())
    assert order.tolist() == sorted(range(20), key=lambda row: X[row].tolist())


def test_rows_of_one_place_are_shuffled_in_a_way_of_its_own() -> None:
    """By their ranks of value and then count among those of the place, whatever the order that they came in."""
    rng = np.random.default_rng(1)
    sizes = [1, 4, 1, 3, 5]
    P = np.repeat(rng.permutation(5), sizes).astype(float)
    X = torch.from_numpy(np.column_stack([P, 2 * P]))
    y, n = torch.from_numpy(np.round(rng.normal(size=14))), torch.from_numpy(rng.permutation(14) + 1.0)
    order = canonical_order(X, y, n)
    expected, places = [], sorted(set(P.tolist()))
    for k, place in enumerate(places):
        rows = sorted(np.flatnonzero(place == P), key=lambda row: (y[row].item(), n[row].item()))
        keys = observations._mixed(np.array([k << 32 | rank for rank in range(len(rows))], np.uint64))
        expected += [rows[rank] for rank in np.argsort(keys)]
    assert order.tolist() == expected
    shuffled = rng.permutation(14)
    again = canonical_order(X[shuffled], y[shuffled], n[shuffled])
    assert shuffled[again].tolist() == expected


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows_have_an_order(rows) -> None:
    X, one = torch.tensor([[1.0, 5.0], [0.0, 7.0]])[:rows], torch.ones(rows).double()
    assert canonical_order(X, one, one).tolist() == [[], [0], [1, 0]][rows]
    assert sorted(canonical_order(0 * X, one, one).tolist()) == list(range(rows))


def test_place_comes_first_wherever_it_stands() -> None:
    """Columns keep their places; rows follow easting, northing, time, then the rest, and counts are 1 where there are none."""
    rng = np.random.default_rng(2)
    X = torch.from_numpy(rng.integers(0, 3, (40, 4)).astype(np.float32))
    X = torch.unique(X, dim=0)[torch.from_numpy(rng.permutation(len(torch.unique(X, dim=0))))]
    value = torch.arange(len(X)).float()
    for space, time, first in (
        ((3, 1), 0, [3, 1, 0, 2]),
        ((2, 0), None, [2, 0, 1, 3]),
        ((0, 1), None, [0, 1, 2, 3]),
    ):
        found, y, n = canonical(X, value, None, space, time)
        order = sorted(range(len(X)), key=lambda row: [X[row, d].item() for d in first])
        assert y.tolist() == order and torch.equal(found, X[order].double()) and (n == 1).all()
        assert found.dtype == y.dtype == n.dtype == torch.float64
    assert torch.equal(canonical(X, value, None)[1], canonical(X, value, None, (0, 1), None)[1])
    assert canonical(X, value, value + 5)[2].tolist() == (canonical(X, value, None)[1] + 5).tolist()


def test_tables_are_joined_and_changed_by_rows():
    rng = np.random.default_rng(0)
    X, v = torch.from_numpy(rng.normal(size=(5, 3))), torch.from_numpy(rng.normal(size=5))
    table = Observations(X, v, v + 1, v + 2)
    assert len(table) == 5 and len(table.at(slice(0, 0))) == 0
    alone = Observations.together([table])
    both = Observations.together([table, table.at(torch.tensor([4, 0]))])
    assert torch.equal(alone.X, X) and torch.equal(both.X, X[[0, 1, 2, 3, 4, 4, 0]])
    assert torch.equal(both.noise_variance, (v + 2)[[0, 1, 2, 3, 4, 4, 0]])
    changed = table.with_rows(torch.tensor([3, 1]), Observations(X[:2] * 9, v[:2], v[:2], v[:2]))
    assert torch.equal(changed.X[[3, 1]], X[:2] * 9) and torch.equal(changed.counts[[3, 1]], v[:2])
    assert torch.equal(changed.X[[0, 2, 4]], X[[0, 2, 4]])
    assert table.to("meta").X.device.type == "meta"

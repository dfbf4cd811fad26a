"""A query of neighbours written out place by place: candidates, their rows, and how they are dealt."""

import math
from itertools import pairwise

import numpy as np
import pytest

from geogp.field import neighbours
from geogp.field.neighbours import MISSING


def octant(offset):
    """Of an offset on a plane, or which side on a line; 8 for none."""
    if not np.any(offset):
        return 8
    if len(offset) == 1:
        return int(offset[0] > 0)
    return min(int((math.atan2(offset[1], offset[0]) / (2 * math.pi) + 0.5) * 8), 7)


def by_hand(search, x, k, share=0.5, latest=None):
    """Rows that a query finds for one place."""
    t = search.time_axis
    axes = [d for d in range(search.X.shape[1]) if d != t]
    at, long = x[axes] / search.scale[axes], search.history
    rows_a_place = search.n_rows / len(search.first)
    places = set()
    for depth, tier in enumerate(search.tiers):
        m = math.ceil(1.5 * k / rows_a_place) + 16 if depth == 0 else (24 if rows_a_place < 2 else 12)
        away = np.linalg.norm(search.place_space[tier.place] - at, axis=1)
        places |= set(tier.place[np.argsort(away, kind="stable")[:m]].tolist())
    candidates = []
    for place in sorted(places):
        offset = search.place_space[place] - at
        rows = search.row[search.first[place] :][: search.count[place]]
        if t is None:
            rows = rows[:long]
        else:
            times = search.X[rows, t]
            assert (np.diff(times) >= 0).all()
            begin = (times <= x[t]).sum() - long // 2
            if latest is not None:
                begin = min(begin, (times <= latest).sum() - long)
            rows = rows[min(max(begin, 0), max(len(rows) - long, 0)) :][:long]
        for row in rows:
            d2 = float((offset**2).sum())
            if t is not None:
                d2 += ((search.X[row, t] - x[t]) / search.scale[t]) ** 2
                if latest is not None and search.X[row, t] > latest + 1e-9:
                    continue
            candidates.append((np.float32(d2), len(candidates), octant(offset), row))
    candidates = sorted(candidates, key=lambda c: c[:2])[: 12 * k + 8 * 24]
    near = round(share * k)
    found, turns, rest = candidates[:near], {}, []
    for rank, c in enumerate(candidates[near:]):
        rest.append((turns.get(c[2], 0), rank, c))
        turns[c[2]] = turns.get(c[2], 0) + 1
    dealt = sorted(sorted(rest, key=lambda r: r[:2])[: k - near], key=lambda r: r[1])
    out = [c[3] for c in found] + [c for _, _, (*_, c) in dealt]
    return out + [MISSING] * (k - len(out))


def lopsided(n, d, seed=0):
    """Crowded on one side, and a few far away."""
    return np.random.default_rng(seed).beta(0.6, 3.0, (n, d)) * [10.0, 4.0][:d]


@pytest.mark.parametrize(("n", "d"), [(700, 2), (700, 1), (60, 2)])
@pytest.mark.parametrize(("k", "share"), [(24, 0.5), (9, 0.5), (20, 0.2), (1, 0.5), (6, 1.0)])
def test_over_space(n, d, k, share):
    X = lopsided(n, d)
    search = neighbours.build(X)
    Q = np.concatenate([lopsided(20, d, 1), X[:5], [[30.0, -9.0][:d]]])
    found = neighbours.query(search, Q, k, nearest_share=share)
    assert found.tolist() == [by_hand(search, q, k, share) for q in Q]


@pytest.mark.parametrize("in_time", [False, True])
@pytest.mark.parametrize("visits", [1, 2, 7, 90])
def test_where_places_come_again(in_time, visits):
    rng = np.random.default_rng(visits)
    at = lopsided(max(400 // visits, 12), 2)
    X = np.concatenate(
        [np.repeat(at, visits, axis=0), rng.integers(0, 200, (len(at) * visits, 1)) / 40.0], axis=1
    )
    X = X[: -max(visits // 2, 1)]  # one place has fewer
    X = X if in_time else X[:, :2]
    search = neighbours.build(X, time_axis=2 if in_time else None)
    Q = np.concatenate([X[::37] + 0.01, X[:3], X[:2] + 50.0])
    for k in (8, 30):
        found = neighbours.query(search, Q, k)
        assert found.tolist() == [by_hand(search, q, k) for q in Q]


@pytest.mark.parametrize("visits", [1, 5, 90])
def test_of_the_rows_until_then(visits):
    rng = np.random.default_rng(visits)
    at = lopsided(max(400 // visits, 12), 2)
    X = np.concatenate(
        [np.repeat(at, visits, axis=0), rng.integers(0, 200, (len(at) * visits, 1)) / 40.0], axis=1
    )
    search = neighbours.build(X, time_axis=2)
    Q = X[::29] + 0.02
    latest = rng.uniform(-0.5, 5.0, len(Q))
    latest[:3] = X[:3, 2]  # a row of that very time is one of them
    found = neighbours.query(search, Q, 12, latest=latest)
    assert found.tolist() == [by_hand(search, q, 12, latest=t) for q, t in zip(Q, latest)]


def test_a_row_of_the_time_that_is_asked_for_stands_in_the_middle_of_a_long_history():
    times = np.arange(200.0)
    X = np.concatenate([np.zeros((200, 2)), times[:, None]], axis=1)
    X = np.concatenate([X, X + [5.0, 0.0, 0.0]])
    search = neighbours.build(X, time_axis=2, scale=np.array([1.0, 1.0, 1.0]))
    for t in (0.0, 40.0, 99.5, 100.0, 199.0):
        q = np.array([0.1, 0.0, t])
        for k in (80, 120):
            assert neighbours.query(search, q[None], k)[0].tolist() == by_hand(search, q, k)


@pytest.mark.parametrize("last", [150, 50, 3])
@pytest.mark.parametrize("latest", [None, 20.0, 47.5, 148.5])
def test_histories_of_different_length_are_each_taken_about_the_time(last, latest):
    """The last place in order has as many rows as the first, fewer than a window holds, or next to none."""
    X = np.array([(x, 0.0, t) for x, visits in ((0.0, 150), (5.0, last)) for t in range(visits)])
    search = neighbours.build(X, time_axis=2, scale=np.ones(3))
    for t in (0.0, 33.5, 49.0, 120.0, 148.9):
        q = np.array([4.9, 0.1, t])
        for k in (120, 140):  # some of what both windows hold, and all of it
            found = neighbours.query(
                search, q[None], k, latest=None if latest is None else np.array([latest])
            )
            assert found[0].tolist() == by_hand(search, q, k, latest=latest)


def test_due_west_is_the_last_of_eight_directions():
    offset = np.array([[[-1.0, 0.0], [-1.0, -1e-9], [0.0, 0.0], [1.0, 0.0]]])
    groups = neighbours._direction(offset, (offset**2).sum(-1))
    assert groups.tolist() == [[octant(o) for o in offset[0]]] == [[7, 0, 8, 4]]


def dealt_by_hand(d2, group, k, share):
    order = sorted((c for c in range(len(d2)) if np.isfinite(d2[c])), key=lambda c: (np.float32(d2[c]), c))
    near, rest = order[: round(share * k)], order[round(share * k) :]
    turn = [sum(group[c] == group[other] for other in rest[:i]) for i, c in enumerate(rest)]
    best = sorted(range(len(rest)), key=lambda i: (turn[i], i))[: k - len(near)]
    found = near + [rest[i] for i in sorted(best)]
    return found + [MISSING] * (k - len(found))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_columns_are_dealt_however_many_there_are_and_are_asked_for(share):
    rng = np.random.default_rng(0)
    for M in (1, 2, 3, 5, 9, 40):
        for k in (1, 2, 3, 4, 5, 8, 9, 12, 41):
            d2, group = (
                rng.permuted(rng.integers(0, 3 * M, (30, M)) / 2.0, axis=1),
                rng.integers(0, 9, (30, M)),
            )
            d2[::7, ::3] = np.inf
            found = neighbours._deal(d2, group.astype(np.int8), k, share)
            assert found.tolist() == [dealt_by_hand(*row, k, share) for row in zip(d2, group)]


@pytest.mark.parametrize("more", [1, 2, 40])
def test_of_more_columns_than_can_be_dealt_the_nearest_are_kept(more):
    """The farthest column that is kept is the only one of its direction, so it is dealt."""
    k = 4
    keep = 12 * k + 8 * neighbours.PER_TIER
    rng = np.random.default_rng(more)
    d2 = np.array([rng.permutation(keep + more) for _ in range(60)]).astype(float)
    group = (d2 == keep - 1).astype(np.int8)
    found = neighbours._deal(d2, group, k, 0.5)
    assert np.take_along_axis(d2, found, axis=1).tolist() == [[0, 1, 2, keep - 1]] * 60
    assert found.tolist() == [dealt_by_hand(*row, k, 0.5) for row in zip(d2, group)]


@pytest.mark.parametrize("k", [4, 150])
def test_of_thousands_of_columns_none_is_taken_for_another(k):
    """They are parted, not sorted, on the way to those kept and to those dealt: in rows enough that where one part ends
    it may be a column too early. The farthest that is kept is the only one of its direction."""
    n, near, keep = 1500, k // 2, 12 * k + 8 * neighbours.PER_TIER
    rng = np.random.default_rng(5)
    d2 = rng.permuted(np.tile(np.arange(keep + 1000), (n, 1)), axis=1)
    direction = rng.integers(0, 8, (n, keep + 1000)).astype(np.int8)  # of the nearest, the next, ...
    direction[:, keep - 1] = 8
    found = neighbours._deal(d2.astype(float), np.take_along_axis(direction, d2, axis=1), k, 0.5)
    rest = direction[:, near:keep]
    turn = sum((rest == one) * ((rest == one).cumsum(axis=1) - 1) for one in range(9))
    dealt = np.sort(np.argsort(turn, axis=1, kind="stable")[:, : k - near], axis=1) + near
    assert (np.take_along_axis(d2, found, axis=1)[:, near:] == dealt).all()
    assert (np.take_along_axis(d2, found, axis=1)[:, :near] == np.arange(near)).all()


def test_a_row_of_values_is_ranked_as_a_table_is():
    values = np.array([3.0, 1.0, 2.0, 1.0])
    assert (np.sort(neighbours.ranked(values)) & neighbours.LOWER).tolist() == [1, 3, 2, 0]
    assert neighbours.ranked(np.stack([values, values]))[1].tolist() == neighbours.ranked(values).tolist()


def test_cells_two_a_side_and_beyond_any_whole_number_stay_apart():
    cell = np.array([[0.0, 0.0], [1.0, 2.0**63], [0.0, 2.0**63], [1.0, 0.0], [1.0, 0.0]])
    kept = neighbours._first_of_each(cell, np.array([1.0, 1.0, 1.0, 2.0, 1.0]))
    assert kept.tolist() == [0, 1, 2, 4]


@pytest.mark.parametrize("scale", [[1.0, 1.0], [3.0, 0.5]])
def test_when_all_are_asked_for_they_come_in_order(scale):
    X = lopsided(40, 2)
    search = neighbours.build(X, scale=np.array(scale))
    found = neighbours.query(search, X[:6] + 0.1, 44)
    away = np.linalg.norm((X[:6, None] + 0.1 - X[None]) / scale, axis=-1)
    assert found[:, :40].tolist() == np.argsort(away, axis=1).tolist() and (found[:, 40:] == MISSING).all()
    exactly = neighbours.query(search, X[:6] + 0.1, 40)
    assert (exactly == found[:, :40]).all()
    often = neighbours.query(search, np.tile(X[:6] + 0.1, (30, 1)), 44)
    assert (often == np.tile(found, (30, 1))).all()
    assert all(a <= b for row in np.sort(away, axis=1) for a, b in pairwise(row))

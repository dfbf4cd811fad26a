"""Neighbours on all sides: independent of order and units, balanced, complete when all are asked for."""

import numpy as np
import pytest

from geogp.field import neighbours
from geogp.field.earlier import earlier, nearest
from geogp.field.neighbours import DIRECTIONS, MISSING


def grid_with_a_gap(n=40):
    """A lattice whose middle third is empty."""
    a, b = np.meshgrid(np.arange(n, dtype=float), np.arange(n, dtype=float))
    X = np.column_stack([a.ravel(), b.ravel()])
    return X[(np.abs(X - (n - 1) / 2) > n / 6).any(axis=1)]


def octants(offset):
    return len(np.unique(np.floor((np.arctan2(offset[:, 1], offset[:, 0]) / (2 * np.pi) + 0.5) * 8) % 8))


def test_first_neighbours_are_the_nearest():
    X = np.random.default_rng(0).normal(size=(400, 2))
    Q = np.random.default_rng(1).normal(size=(30, 2))
    index = neighbours.query(neighbours.build(X), Q, 16)
    distance = np.linalg.norm(X[None] - Q[:, None], axis=-1)
    assert (index[:, :8] == np.argsort(distance, axis=1)[:, :8]).all()
    assert all(len(set(row)) == 16 for row in index)


def test_every_side_of_a_gap_is_represented():
    X = grid_with_a_gap()
    place = np.array([[15.0, 19.5]])  # near the left edge of the gap
    balanced = neighbours.query(neighbours.build(X), place, 48)[0]
    nearest = neighbours.query(neighbours.build(X), place, 48, nearest_share=1.0)[0]
    assert octants(X[balanced] - place) == DIRECTIONS
    assert octants(X[nearest] - place) < DIRECTIONS


@pytest.mark.parametrize("lattice", [False, True])
def test_row_order_does_not_matter(lattice):
    rng = np.random.default_rng(0)
    X = grid_with_a_gap() if lattice else rng.normal(size=(700, 2))
    Q = rng.uniform(X.min(), X.max(), size=(40, 2))
    p = rng.permutation(len(X))
    a = neighbours.query(neighbours.build(X), Q, 24)
    b = p[neighbours.query(neighbours.build(X[p]), Q, 24)]
    assert (np.sort(a, axis=1) == np.sort(b, axis=1)).all()


def test_units_and_chunks_do_not_matter():
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(700, 2)), rng.normal(size=(50, 2))
    a = neighbours.query(neighbours.build(X), Q, 24)
    # A power of two, so that scaling does not round.
    assert (a == neighbours.query(neighbours.build(1024 * X), 1024 * Q, 24)).all()
    assert (a == neighbours.query(neighbours.build(X), Q, 24, chunk=7)).all()


def space_time(places=60, visits=12, seed=0):
    rng = np.random.default_rng(seed)
    P = rng.uniform(0, 10, (places, 2))
    return np.column_stack([np.repeat(P, visits, axis=0), np.tile(np.arange(visits) / 4.0, places)])


def test_own_history_does_not_flood_the_set():
    X = space_time(visits=20)
    search = neighbours.build(X, scale=np.array([1.0, 1.0, 100.0]), time_axis=2)
    index = neighbours.query(search, X[:1], 32)[0]
    own = (X[index, :2] == X[0, :2]).all(axis=1).sum()
    assert 0 < own < 20


def test_the_future_can_be_left_out():
    X = space_time()
    search = neighbours.build(X, time_axis=2)
    Q = X[::7]
    index = neighbours.query(search, Q, 20, latest=Q[:, 2] - 0.25)
    there = index != MISSING
    assert (X[index, 2] <= Q[:, 2:] - 0.25 + 1e-6)[there].all()
    assert (~there[Q[:, 2] == 0]).all()


@pytest.mark.parametrize("visits", [1, 2, 3])
def test_every_row_of_a_place_is_a_candidate(visits):
    X = space_time(places=200, visits=visits)
    search = neighbours.build(X, scale=np.array([1.0, 1.0, 0.3]), time_axis=2)
    Q = X[::7] + [0.01, 0.0, 0.1]
    distance = np.linalg.norm((X[None] - Q[:, None]) / search.scale, axis=-1)
    index = neighbours.query(search, Q, 24)
    assert (index[:, :12] == np.argsort(distance, axis=1)[:, :12]).all()


@pytest.mark.parametrize("latest", [None, 40.0])
def test_of_a_long_history_the_rows_about_the_time_are_taken(latest):
    """Three places of 10, 64 and 500 visits: what is near in time is found at each, whenever it is asked for."""
    visits = [10, 64, 500]
    P = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], visits, axis=0)
    T = np.concatenate([np.linspace(0, 99, v) for v in visits])
    X = np.column_stack([P, T])[np.random.default_rng(0).permutation(574)]
    search = neighbours.build(X, scale=np.array([1.0, 1.0, 0.1]), time_axis=2)
    Q = np.column_stack([np.zeros((5, 1)), np.full((5, 1), 9.0), [-5.0, 1.0, 50.0, 98.0, 130.0]])
    index = neighbours.query(search, Q, 32, latest=None if latest is None else np.full(5, latest))
    for q, row in zip(Q, index):
        allowed = X[:, 2] <= (np.inf if latest is None else latest)
        same = np.flatnonzero((X[:, :2] == q[:2]).all(axis=1) & allowed)
        nearest = same[np.argsort(np.abs(X[same, 2] - q[2]))[:16]]
        assert set(nearest) <= set(row)


def test_all_rows_when_as_many_are_asked_for():
    X = np.random.default_rng(0).normal(size=(12, 2))
    index = neighbours.query(neighbours.build(X), X[:3], 15)
    for row in index:
        assert sorted(row[row != MISSING]) == list(range(12))


def test_earlier_rows_only():
    def on_all_sides(known, new, m):
        return neighbours.query(neighbours.build(known), new, m)

    X = np.random.default_rng(0).normal(size=(300, 2))
    place = np.arange(300)
    index = earlier(X, 12, on_all_sides)
    there = index != MISSING
    assert (index < place[:, None])[there].all()
    assert (there.sum(axis=1) == np.minimum(place, 12)).mean() > 0.9
    full = earlier(X[:40], 39, on_all_sides)
    assert ((full != MISSING).sum(axis=1) == np.arange(40)).all()


def test_the_nearest_rows_are_so_many_from_the_first_on():
    X, Q = (np.random.default_rng(seed).normal(size=(50, 2)) for seed in (0, 1))
    away = np.square(Q[:, None] - X[None]).sum(axis=-1)
    for m in (1, 5, 50):
        np.testing.assert_array_equal(nearest(X, Q, m), np.argsort(away, axis=1)[:, :m])


@pytest.mark.parametrize("k", [1, 2, 30])
def test_the_nearest_of_the_earlier_rows_are_found_without_asking_for_all(k):
    X, asked = np.random.default_rng(0).normal(size=(3000, 2)), 0

    def counted(known, new, m):
        nonlocal asked
        asked += m * len(new)
        return nearest(known, new, m)

    index = earlier(X, k, counted)
    assert index.shape == (3000, k) and asked <= (1.5 * k + 8) * 3000
    rows = np.arange(k, 3000)
    full = rows[(index[k:] != MISSING).all(axis=1)]
    assert len(full) > 0.999 * len(rows)
    for i in full[::50]:
        away = np.square(X[:i] - X[i]).sum(axis=1)
        np.testing.assert_array_equal(index[i], np.argsort(away)[:k])


def test_one_place_and_one_row():
    search = neighbours.build(np.zeros((1, 2)))
    assert neighbours.query(search, np.ones((2, 2)), 3)[:, 0].tolist() == [0, 0]
    same = np.column_stack([np.zeros((9, 2)), np.arange(9.0)])
    index = neighbours.query(neighbours.build(same, time_axis=2), same[:1], 4)
    assert set(index[0]) == {0, 1, 2, 3}


@pytest.mark.parametrize("X", [np.empty((0, 2)), np.array([[np.nan, 0.0]])])
def test_bad_coordinates_are_refused(X):
    with pytest.raises(ValueError, match="finite, non-empty"):
        neighbours.build(X)


@pytest.mark.slow
def test_many_places_each_find_as_many_neighbours():
    X = np.random.default_rng(0).normal(size=(20_000, 2))
    search = neighbours.build(X)
    index = neighbours.query(search, X, 64)
    assert index.shape == (20_000, 64) and (index >= 0).all()
    assert (index[:, 0] == np.arange(20_000)).all()  # itself first
    some = np.arange(0, 20_000, 997)
    np.testing.assert_array_equal(neighbours.query(search, X[some], 64), index[some])  # whatever the chunk


@pytest.mark.parametrize("wide", [1.0, 1e12])
def test_of_each_cell_the_place_nearest_to_its_centre_is_kept(wide):
    """The first of equally near ones; cells as far apart as whole numbers can and cannot count them all."""
    rng = np.random.default_rng(3)
    cell = np.floor(rng.integers(0, 7, (500, 2)) * [wide, wide])
    off = rng.integers(0, 4, 500).astype(float)
    kept = neighbours._first_of_each(cell, off)
    best: dict[tuple[float, float], int] = {}
    for i, where in enumerate(map(tuple, cell)):
        if where not in best or off[i] < off[best[where]]:
            best[where] = i
    assert kept.tolist() == sorted(best.values()) and len(kept) == 49


def dealt_by_hand(d2, group, k):
    """Columns beyond the nearer half of k that are taken in turns over the groups, each of them nearest first."""
    order = np.argsort(d2, kind="stable")
    order = order[np.isfinite(d2[order])]
    near = round(0.5 * k)
    turns, seen = [], {}
    for rank, column in enumerate(order[near:]):
        turns.append((seen.setdefault(group[column], 0), rank, column))
        seen[group[column]] += 1
    return {column for _, _, column in sorted(turns)[: max(k - near, 0)]}


@pytest.mark.parametrize("in_time", [False, True])
@pytest.mark.parametrize("k", [4, 12, 24])
def test_of_rows_that_were_found_those_are_dealt_that_fewer_would_have_dealt(in_time, k):
    X = space_time(seed=4) if in_time else np.random.default_rng(4).uniform(0, 10, (400, 2))
    scale = np.array([2.0, 2.0, 0.7])[: X.shape[1]]
    search = neighbours.build(X, scale=scale, time_axis=2 if in_time else None)
    Q = np.random.default_rng(5).uniform(0, 10, (25, X.shape[1]))
    Q[:5] = X[:5]
    index = neighbours.query(search, Q, 40)
    index[3, 30:] = MISSING
    found = neighbours.dealt(search, Q, index, k)
    assert found.shape == index.shape
    for q, rows, told in zip(Q, index, found):
        offset = ((X[rows] - q) / scale)[:, :2]
        turn = np.arctan2(offset[:, 1], offset[:, 0]) / (2 * np.pi) + 0.5
        group = np.where((offset == 0).all(axis=1), 8, np.minimum(np.floor(8 * turn), 7))
        d2 = np.where(rows == MISSING, np.inf, (((X[rows] - q) / scale) ** 2).sum(axis=1))
        assert set(np.flatnonzero(told)) == dealt_by_hand(d2, group, k)


def test_what_cannot_be_searched_is_refused():
    X = np.random.default_rng(0).normal(size=(50, 2))
    search = neighbours.build(X)
    with pytest.raises(ValueError, match="k must be at least 1; got 0"):
        neighbours.query(search, X, 0)
    for other in (X[:, :1], X[0]):
        with pytest.raises(ValueError, match=r"places have shape .* the reference has 2 columns"):
            neighbours.query(search, other, 3)
    for scale in (np.ones(3), np.array([1.0, 0.0]), np.array([1.0, -1.0]), np.array([1.0, np.nan])):
        with pytest.raises(ValueError, match="scale must hold 2 positive lengths"):
            neighbours.build(X, scale=scale)


def test_unsaid_scales_are_the_spread_of_space_and_that_of_time():
    X = np.random.default_rng(0).normal(size=(300, 3)) * [1.0, 7.0, 30.0]
    alike = np.sqrt(X[:, :2].var(axis=0).mean())
    np.testing.assert_allclose(neighbours.build(X, time_axis=2).scale, [alike, alike, X[:, 2].std()])
    np.testing.assert_allclose(neighbours.build(X[:, :2]).scale, [alike, alike])
    assert neighbours.build(np.ones((4, 3)), time_axis=2).scale.tolist() == [1.0, 1.0, 1.0]


def lattice(a, b, apart):
    return apart * np.stack(np.meshgrid(np.arange(a), np.arange(b)), -1).reshape(-1, 2).astype(float)


@pytest.mark.parametrize("places, sizes", [
    ((60, 60), [3600, 400, 100, 25]),  # cells of three places along a side, then of twice as many, down to 48
    ((24, 18), [432, 48]),
    ((12, 8), [96, 12]),
    ((19, 5), [95]),  # a few dozen are searched as they are
    ((7, 6), [42]),
])  # fmt: skip
@pytest.mark.parametrize("apart", [0.01, 5.0])
def test_tiers_are_thinned_to_cells_that_double(places, sizes, apart):
    tiers = neighbours._thin(lattice(*places, apart))
    assert [len(tier.place) for tier in tiers] == sizes


def test_one_neighbour_is_the_nearest_and_all_of_them_are_in_order():
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(60, 2)), rng.normal(size=(9, 2))
    search = neighbours.build(X, scale=np.ones(2))
    order = np.argsort(np.linalg.norm(X[None] - Q[:, None], axis=-1), axis=1)
    assert (neighbours.query(search, Q, 1)[:, 0] == order[:, 0]).all()
    assert (neighbours.query(search, Q, 60) == order).all()
    in_time = np.column_stack([X, np.arange(60.0) % 6])
    search = neighbours.build(in_time, time_axis=2)
    index = neighbours.query(search, np.column_stack([Q, np.full(9, 9.0)]), 60, latest=np.full(9, 2.0))
    for row in index:
        assert sorted(row[row != MISSING]) == np.flatnonzero(in_time[:, 2] <= 2.0).tolist()


def test_cells_that_no_whole_number_counts_stay_apart():
    """2^32 columns of 2^32 cells: the first of the last column would have the number of the very first."""
    cell = np.array([[0.0, 0.0], [2.0**32, 0.0], [0.0, 2.0**32 - 1.0]])
    assert neighbours._first_of_each(cell, np.zeros(3)).tolist() == [0, 1, 2]


def test_a_crowd_on_one_side_does_not_hide_what_lies_on_the_others():
    near, far = np.linspace(1.0, 2.0, 450), np.linspace(5.0, 6.0, 7)
    d2 = np.concatenate([near, far])[None]
    group = np.concatenate([np.zeros(450), np.arange(1, 8)]).astype(np.int8)[None]
    found = neighbours._deal(d2, group, 32, 0.5)[0]
    assert set(range(450, 457)) < set(found.tolist()) and found[:16].tolist() == list(range(16))


def test_a_tier_keeps_of_each_cell_the_place_nearest_to_its_centre():
    P = np.random.default_rng(0).uniform(3.0, 9.0, (500, 2))
    first, second, *_ = neighbours._thin(P)
    away = np.sort(np.linalg.norm(P[:, None] - P, axis=-1), axis=1)[:, 1]
    size, low = 3.0 * np.median(away), P.min(axis=0)
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for i, place in enumerate(P):
        cell = np.floor((place - low) / size)
        off = np.linalg.norm(place - (low + (cell + 0.5) * size))
        best[tuple(cell)] = min(best.get(tuple(cell), (np.inf, 0)), (off, i))
    assert first.place.tolist() == list(range(500))
    assert second.place.tolist() == sorted(i for _, i in best.values())

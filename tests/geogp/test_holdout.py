"""Rows left out: parts and folds are disjoint and whole, and depend on the seed alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from geogp import holdout
from geogp.data import Data
from geogp.holdout import (
    clusters,
    gaps,
    kinds_asked,
    left_out_again,
    left_out_kinds,
    one_of_each_kind,
    random_fifth,
    random_folds,
    random_part,
    rows_for_the_epoch,
    settled,
    side_and_blocks,
    spacing,
)


@given(st.integers(1, 60), st.integers(0, 3))
def test_a_part_and_the_rest_are_all_rows(n, seed):
    rest, part = random_part(n, n // 3, seed)
    assert len(part) == n // 3
    assert sorted([*rest.tolist(), *part.tolist()]) == list(range(n))
    assert torch.equal(part, random_part(n, n // 3, seed)[1])


def test_so_many_rows_choose_the_epoch():
    assert [rows_for_the_epoch(n, by_heart=True) for n in (39, 40, 999, 1000, 1019)] == [0, 8, 199, 100, 101]
    assert [rows_for_the_epoch(n, by_heart=False) for n in (40, 999, 1000)] == [0, 0, 100]


def test_folds_are_equal_but_for_chance_and_never_empty():
    sizes = [len(rows) for _, rows in random_folds(3000, 3, 0)]
    assert len(sizes) == 3 and max(abs(size - 1000) for size in sizes) < 5 * (3000 * 2 / 9) ** 0.5
    assert list(random_folds(1, 3, 0)) == []
    for seed in range(5):
        assert all(len(rows) and len(outside) for outside, rows in random_folds(2, 4, seed))


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
    P = np.random.default_rng(0).normal(size=(20_000, 2))
    whole = holdout.spacing(P)
    monkeypatch.setattr(holdout, "ASKED", 2000)
    assert holdout.spacing(P) == pytest.approx(whole, rel=0.05)
    some = holdout.sampled(P)
    assert len(some) == 2000 and np.isin(some, P).all() and np.array_equal(some[[0, -1]], P[[0, -1]])


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


def along(*, homes, apart, offsets):
    """Homes so far apart on a line, each with places at these offsets."""
    x = (apart * np.arange(homes)[:, None] + np.asarray(offsets)).ravel()
    return np.column_stack([x, np.full(len(x), 7e3)])


@pytest.mark.parametrize(("homes", "times", "left"), [(16, 2, 16), (15, 3, 45), (15, 2, 30)])
def test_fewer_than_sixteen_clusters_are_not_clusters(homes, times, left):
    rng = np.random.default_rng(0)
    P = np.repeat(rng.uniform(0, 1, (homes, 2)), times, axis=0) + 1e-9 * rng.standard_normal(
        (homes * times, 2)
    )
    assert len(settled(P)) == left
    # Nor is anything of fewer than 32 places.
    assert len(settled(np.concatenate([P[:30], [[0.5, 0.5]]]))) == 31


@pytest.mark.parametrize(
    ("homes", "offsets", "left"),
    [
        (2000, [0, 0.0077], 2000),  # pairs, 128 times as far apart as wide
        (2000, [0, 0.0079], 4000),
        (600, 0.0031 * np.arange(40), 600),  # chains, eight times as far apart as long
        (600, 0.0033 * np.arange(40), 24_000),
        (160, [0, 0.0157], 160),  # a ten-thousandth of the extent wide
        (160, [0, 0.0161], 320),
        (160, [0, 0.003, 0.006, 0.009], 160),  # few in a cluster, whose gaps are a third of its width
        (1300, [0, 0.0019, 0.114, 0.1159], 1300),  # two pairs each: in cells four times as wide as the first
    ],
)
def test_clusters_are_places_where_they_are_narrow_and_far_apart(homes, offsets, left):
    P = along(homes=homes, apart=1.0, offsets=offsets)
    found = settled(P)
    assert len(found) == left
    assert {tuple(p) for p in found} <= {tuple(p) for p in P}
    if left == homes:
        assert np.array_equal(np.sort(np.rint(found[:, 0])), np.arange(homes))


def test_rows_are_told_the_place_they_are_at():
    P = along(homes=200, apart=1.0, offsets=[0, 0.0005, 0.001])[::-1]
    places, at = clusters(P)
    assert len(places) == 200 and np.array_equal(np.rint(places[at][:, 0]), np.rint(P[:, 0]))
    apart = along(homes=20, apart=1.0, offsets=[0, 0.3])
    places, at = clusters(np.concatenate([apart, apart[:7]]))
    assert np.array_equal(places[at], np.concatenate([apart, apart[:7]]))


def test_clusters_that_touch_are_one_and_those_a_cell_apart_are_two():
    wide = 16 * 0.007  # a cell, in which the pairs lie
    P = along(homes=2000, apart=1.0, offsets=[0, 0.007])
    cell = np.floor(1000.007 / wide)
    for steps, left in ((1, 2000), (2, 2001)):
        own = [[(cell + steps + 0.5) * wide, 7e3]]
        assert len(settled(np.concatenate([P, own]))) == left


def test_one_place_has_no_gap():
    one = np.ones((3, 2))
    assert spacing(one) == 1.0 and gaps(one).shape == (0,)
    assert spacing(np.array([[0.0], [2.0]])) == 2.0 and gaps(np.array([[0.0], [2.0]])).tolist() == [2.0, 2.0]
    assert gaps(np.array([[0.0], [2.0], [5.0]])).tolist() == [2.0, 2.0, 3.0]


# -- as places lack data --------------------------------------------------------------------------------

LATTICE = np.stack(np.meshgrid(np.arange(100.0), np.arange(90.0), indexing="ij"), -1).reshape(-1, 2)


def of(kind, space=LATTICE, time=None, **options):
    """What is left out of this kind, and as sets of rows (n,) the rows that no reference has."""
    found = [h for h in left_out_kinds(space, time, **options) if h.kind == kind]
    left = [~np.isin(np.arange(len(space)), h.reference) for h in found]
    for h, out in zip(found, left):
        assert out[h.target].all() and (np.diff(h.target) > 0).all() and (np.diff(h.reference) > 0).all()
    return found, left


def test_two_tenths_of_single_rows_are_left_out():
    found, left = of("rows", n_targets=600)
    assert [len(h.target) for h in found] == [300, 300]
    assert not (left[0] & left[1]).any()
    _, many = of("rows", space=np.arange(90_000.0)[:, None])
    for out in many:
        assert abs(out.mean() - 0.1) < 5 * (0.09 / 90_000) ** 0.5
    found, left = of("rows")  # as many as there are
    assert all(np.array_equal(h.target, np.flatnonzero(out)) for h, out in zip(found, left))


@pytest.mark.parametrize(
    ("n", "tilings", "asked"),
    [
        (700, 5, 9000),
        (1500, 5, 9000),
        (2999, 3, 9000),
        (3000, 2, 9000),
        (8999, 1, 9000),
        (4000, 0, 4000),
        (4000, 0, 1334),
    ],
)
def test_few_rows_are_left_out_again_until_there_are_as_many_as_of_many(n, tilings, asked):
    """The other rows singly, so that each was left out once, and blocks at other edges where those are few, too."""
    space = LATTICE[np.random.default_rng(0).permutation(len(LATTICE))[:n]]
    how = {"n_targets": asked, "block_sizes": (5.0, 9.0), "seed": 4}
    again = list(left_out_again(space, **how))
    first = left_out_kinds(space, None, **{**how, "n_targets": 2 * n})
    singly = [h.target for h in (*first, *again) if h.kind == "rows"]
    assert len(singly) == 10 and np.array_equal(np.sort(np.concatenate(singly)), np.arange(n))
    blocks = [len(h.target) for h in again if h.kind == "blocks"]
    assert len(blocks) == 12 * tilings and max(blocks, default=n // 12) == n // 12
    left = [
        frozenset(np.setdiff1d(np.arange(n), h.reference)) for h in (*first, *again) if h.kind == "blocks"
    ]
    assert len(set(left)) == len(left)
    for h in again:
        assert not np.isin(h.target, h.reference).any() and (np.diff(h.reference) > 0).all()
    each = [h.target.tolist() for h in left_out_again(space, **how)]
    assert each == [h.target.tolist() for h in again]
    others = [h.target.tolist() for h in left_out_again(space, **{**how, "seed": 5})]
    # Rows, which come first, and blocks: both are drawn by the seed.
    assert each[:8] != others[:8] and (each[8:] != others[8:] or not tilings)
    assert not list(left_out_again(space, **{**how, "n_targets": n // 3}))


@pytest.mark.parametrize("axes", [1, 2])
def test_blocks_are_ten_and_thirty_spacings_wide_and_each_is_left_out_once(axes):
    space = 3.0 * LATTICE - 50.0 if axes == 2 else 3.0 * np.arange(9000.0)[:, None]
    found, left = of("blocks", space=space, n_targets=1200)
    assert len(found) == 12 and all(len(h.target) == 100 for h in found)
    offsets = []
    for width, some in ((10, left[:6]), (30, left[6:])):
        assert (np.sum(some, axis=0) == 1).all()
        shape = (100, 90) if axes == 2 else (9000,)
        for axis in range(axes):
            ends = {
                e % width
                for out in some
                for e in np.argwhere(np.diff(out.reshape(shape), axis=axis))[:, axis]
            }
            assert len(ends) == 1
            offsets.append(ends.pop())
    assert len(set(offsets)) > axes
    blocks = [int(np.ceil(out.sum() / (10**axes))) for out in left[:6]]
    assert max(blocks) - min(blocks) <= (5 if axes == 2 else 2)


def test_blocks_are_dealt_to_folds_evenly_and_where_there_are_few_to_as_many():
    two = np.concatenate([LATTICE[:50] * 1e-3, LATTICE[:50] * 1e-3 + 1e6])
    found, left = of("blocks", space=two, block_sizes=(1e3,), n_targets=60)
    assert [sorted(out.nonzero()[0]) for out in left] in (
        [[*range(50)], [*range(50, 100)]],
        [[*range(50, 100)], [*range(50)]],
    )
    assert [len(h.target) for h in found] == [10, 10]
    assert of("blocks", space=two[:50], block_sizes=(1e9,)) == ([], [])
    far = 1e6 * np.arange(15.0)[:, None] + np.array([0.0, 1.0])  # pairs, each a block
    pairs = np.column_stack([far.ravel(), np.zeros(30)])
    for n, dealt in ((14, [2] * 7), (15, [2] * 6 + [3])):
        for seed in range(4):
            _, left = of("blocks", space=pairs[: 2 * n], block_sizes=(1e3,), folds=7, seed=seed)
            assert sorted(out.sum() // 2 for out in left) == dealt


def test_sides_are_a_fifth_and_corners_two_fifths_each_way():
    rng = np.random.default_rng(0)
    space = rng.uniform(0, 1, (500, 2)) * [3.0, 1.0]
    found, left = of("sides", space=space, sides=True, n_targets=320)
    x, y = (np.argsort(np.argsort(v)) / 499 for v in space.T)
    expected = [x < 0.2, x > 0.8, y < 0.2, y > 0.8]
    expected += [a & b for a in (x < 0.4, x > 0.6) for b in (y < 0.4, y > 0.6)]
    assert np.array_equal(left, expected) and [len(h.target) for h in found] == [20] * 8
    _, left = of("sides", space=space[:, :1], sides=True)
    assert np.array_equal(left, expected[:2])
    # Rows at the edge are inside: of four columns and rows those at the corners.
    tied = LATTICE[:1800] % 4
    _, left = of("sides", space=tied, sides=True)
    assert np.array_equal(left, [(tied == corner).all(axis=1) for corner in ([0, 0], [0, 3], [3, 0], [3, 3])])
    assert of("sides", space=space)[0] == [] and of("sides", space=np.ones((9, 2)), sides=True)[0] == []


def test_the_future_is_four_periods_from_four_moments():
    times = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 13.0])
    time = np.tile(times, 750)
    found, left = of("future", time=time, n_targets=80)
    assert [len(h.target) for h in found] == [20] * 4
    moments = (10.0, 9.0, 7.0, 5.0)
    assert np.array_equal(left, [time >= now for now in moments])
    found, _ = of("future", time=time, n_targets=10**6)
    for h, now in zip(found, moments):
        assert np.array_equal(h.target, np.flatnonzero((time >= now) & (time < now + 3.5)))
    assert len(of("future", time=time % 8)[0]) == 4 and of("future", time=time % 7)[0] == []
    assert {len(h.target) for h in left_out_kinds(LATTICE, time, n_targets=0, sides=True)} == {1}


@pytest.mark.parametrize(("n", "periods"), [(40, 40), (41, 20)])
def test_many_times_are_cut_into_twenty_periods(n, periods):
    times = np.linspace(3.0, 7.0, n)
    time = np.resize(times, 9000)
    found, left = of("future", time=time, n_targets=10**6)
    assert len(found) == 4
    starts = times if periods == n else np.linspace(3.0, 7.0, 21)[:-1]
    for h, out, back in zip(found, left, (2, 3, 5, 7)):
        now = starts[-back]
        assert np.array_equal(out, time >= now)
        step = starts[1] - starts[0]
        assert np.array_equal(h.target, np.flatnonzero(out & (time < now + 3.5 * step)))


def test_whoever_is_left_out_is_left_out_of_something():
    late = np.append(np.linspace(0.0, 1.0, 59), 100.0)  # nothing in the periods between
    for n, seed in ((1, 0), (2, 1), (3, 2), (60, 3)):
        for h in left_out_kinds(LATTICE[:n], late[:n], sides=True, seed=seed):
            assert len(h.reference) and len(h.target)
    assert left_out_kinds(LATTICE[:1], None) == []
    assert [h.target.tolist() for h in of("future", space=LATTICE[:60], time=late)[0]] == [[59]] * 2


def test_another_seed_leaves_other_rows_out():
    some = [of("rows", seed=seed)[0][0].target for seed in (0, 0, 1)]
    assert np.array_equal(some[0], some[1]) and not np.array_equal(some[0], some[2])


@pytest.mark.parametrize(("most", "fewest"), [(101, 10), (10**6, 800)])
def test_one_training_serves_all_kinds(most, fewest):
    """Of each kind the first that is left out, less what another kind has taken."""
    time = np.random.default_rng(0).integers(0, 12, len(LATTICE)) / 4.0
    fitted, held = one_of_each_kind(LATTICE, time, most=most, fewest=fewest, seed=4)
    parts = {}
    for side in (10.0, 30.0):
        options = {"n_targets": len(LATTICE), "block_sizes": (side,), "folds": 10, "seed": 4}
        for kind in ("rows", "blocks", "future"):
            key = kind, side if kind == "blocks" else None
            parts.setdefault(key, of(kind, time=time, **options)[1][0])
    taken = np.sum(list(parts.values()), axis=0)
    assert np.array_equal(fitted, np.flatnonzero(taken == 0))
    for kind in ("rows", "blocks", "future"):
        own = [out & (taken == 1) for (name, _), out in parts.items() if name == kind]
        many = [min(out.sum(), most // len(own)) for out in own]
        if sum(many) < fewest:
            assert kind not in held
            continue
        assert len(held[kind]) == sum(many) and np.any(own, axis=0)[held[kind]].all()
        begin = 0
        for n, out in zip(many, own):
            rows = held[kind][begin : begin + n]
            assert out[rows].all() and (np.diff(rows) > 0).all()
            begin += n
    exactly = len(held["future"])
    assert "future" in one_of_each_kind(LATTICE, time, most=most, fewest=exactly, seed=4)[1]
    assert "future" not in one_of_each_kind(LATTICE, time, most=most, fewest=exactly + 1, seed=4)[1]


def test_what_is_asked_lies_farther_than_once_and_a_half_what_nine_of_ten_rows_do():
    x = np.concatenate([np.arange(80.0), 79.0 + 3.0 * np.arange(1, 21)])
    line = np.column_stack([x, np.zeros(100)])

    def asked(places, times=None, time=None):
        places = np.column_stack([places, np.full(len(places), 0.0)])
        return kinds_asked(line, time, places, times)

    assert asked([-4.4, -4.6, 5.2, 1e3]) == {"rows": 0.5, "blocks": 0.5, "future": 0.0}
    time = np.arange(100) / 4
    there = asked([3.0, 3.0, 3.0, 1e3, 1e3], np.array([30.0, time.max(), 0.0, 30.0, 0.0]), time)
    assert there == pytest.approx({"rows": 0.4, "blocks": 0.4, "future": 0.2})
    assert asked([3.0], np.array([30.0]), None)["future"] == asked([3.0], None, time)["future"] == 0.0
    # Rows that repeat are zero apart, and so are copies that differ by their last bits.
    line = line + [0.0, 1e4]
    twice = np.repeat(line, 2, axis=0)
    copies = line[:4] + np.array([[0.9, 0], [-0.9, 0], [1.1, 0], [2.0, 0]]) * 1e-9 * np.ptp(x)
    assert kinds_asked(twice, None, copies, None)["blocks"] == 0.5
    same = np.ones((5, 2))
    assert kinds_asked(same, None, same[:2], None) == {"rows": 1.0, "blocks": 0.0, "future": 0.0}


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_side_and_blocks_are_left_out_of_one_training(axes):
    """Each of the sides in turn, whole, and about a sixth of what lies elsewhere in square blocks."""
    space = np.random.default_rng(axes).uniform(size=(4000, axes))
    ends = {
        (d, high): space[:, d] > np.quantile(space[:, d], 0.8)
        if high
        else space[:, d] < np.quantile(space[:, d], 0.2)
        for d in range(axes)
        for high in (False, True)
    }
    seen, shares = set(), []
    for seed in range(40):
        fitted, left = side_and_blocks(space, seed=seed)
        assert sorted([*fitted.tolist(), *left.tolist()]) == list(range(4000))
        out = np.zeros(4000, dtype=bool)
        out[left] = True
        whole = [end for end, rows in ends.items() if out[rows].all()]
        assert len(whole) == 1
        seen.add(whole[0])
        rest = out[~ends[whole[0]]]
        shares.append(rest.mean())
        # In blocks: the nearest row of a row that is left out is mostly left out, too.
        here = space[~ends[whole[0]]]
        near = cKDTree(here).query(here, k=2)[1][:, 1]
        assert rest[near][rest].mean() > 0.6 > rest.mean()
    assert seen == set(ends)
    assert 0.1 < np.mean(shares) < 0.25


def test_places_that_have_neither_sides_nor_blocks_leave_nothing_out():
    fitted, left = side_and_blocks(np.ones((50, 2)), seed=0)
    assert len(fitted) == 50 and len(left) == 0

"""How regions overlap: balanced cuts, smooth weights that sum to one, and what is blended where several are asked."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.field.noise.smooth import SecondPeak
from geogp.field.predict import blend
from geogp.field.predict.moments import FieldMoments
from geogp.field.regions.cuts import LOPSIDED, WEIGHED, Cut, Cuts

NAMES = (
    "location",
    "latent_variance",
    "noise_variance",
    "prior_variance",
    "degrees_of_freedom",
    "log_skewness",
)


@pytest.fixture(scope="module")
def cuts():
    """Nine cells of places that crowd in the south-west."""
    P = np.random.default_rng(0).exponential(50.0, (9000, 2))
    return Cuts.over(P, (0, 1), 9), P


def weights(cuts, P):
    table = np.zeros((cuts.n, len(P)))
    for k, (rows, weight) in enumerate(cuts.shares(P)):
        assert (weight > 0).all()
        table[k, rows] = weight
    return table


def test_weights_sum_to_one_everywhere(cuts):
    rng = np.random.default_rng(1)
    far = rng.uniform(-100, 800, (1000, 2))  # beyond the places, too
    P = np.concatenate([far, rng.exponential(50.0, (9000, 2))])
    table = weights(cuts[0], P)
    np.testing.assert_allclose(table.sum(0), 1.0, rtol=1e-14)
    assert (table == 1.0).any(1).all() and ((table > 0).sum(0) > 2).any()


def test_a_places_weights_do_not_depend_on_what_else_is_asked(cuts):
    P = np.random.default_rng(2).exponential(50.0, (50, 2))
    together = weights(cuts[0], P)
    np.testing.assert_array_equal(together, np.hstack([weights(cuts[0], p[None]) for p in P]))


def test_weights_and_their_slopes_change_gradually():
    P = np.random.default_rng(0).uniform(0, 100, (4000, 2))
    cuts = Cuts.over(P, (0, 1), 2)
    wide = WEIGHED * (cuts.root.below + cuts.root.above)
    t = np.linspace(cuts.root.at - wide, cuts.root.at + wide, 20_001)
    table, h = weights(cuts, np.stack([t, t], axis=1)), t[1] - t[0]
    # Of 3u² − 2u³ the first derivative is at most 3/2, the second 6.
    assert np.abs(np.diff(table)).max() <= 1.5 * h / wide * 1.001
    assert np.abs(np.diff(table, 2)).max() <= 6.0 * (h / wide) ** 2 * 1.001
    assert table[0, 0] == 1.0 and table[1, -1] == 1.0


def test_cells_hold_alike_many_rows(cuts):
    cuts, P = cuts
    owner = weights(cuts, P).argmax(0)
    held = np.bincount(owner, minlength=9)
    assert held.min() > 900 and held.max() < 1100
    # A strip is an eighth of a cell for each cell along it, at most: on four sides about half as many rows again.
    assert 1000 < np.mean([len(rows) for rows in cuts.members(P, 1)]) < 1600


def test_a_region_is_told_more_than_where_it_is_asked(cuts):
    cuts, P = cuts
    for (asked, weight), told in zip(cuts.shares(P), cuts.members(P, 1)):
        assert set(asked) < set(told)
        # Of rows that weigh least hardly one has its neighbours beyond what the region knows.
        edge = P[asked[weight < 0.01]]
        near = np.sqrt(np.square(edge[:, None] - P[None]).sum(-1)).argsort(1)[:, 1:3]
        assert np.isin(near, told).mean() > 0.95 and not np.isin(near, asked).all()


def test_neither_order_nor_unit_of_the_rows_moves_a_cut(cuts):
    cuts, P = cuts
    order = np.random.default_rng(3).permutation(len(P))
    assert Cuts.over(P[order], (0, 1), 9) == cuts
    np.testing.assert_array_equal(weights(Cuts.over(8 * P, (0, 1), 9), 8 * P), weights(cuts, P))


def test_cuts_go_through_json_and_back(cuts):
    assert Cuts.from_facts(json.loads(json.dumps(cuts[0].facts()))) == cuts[0]


def test_rows_of_one_place_stay_together():
    P = np.repeat(np.random.default_rng(0).uniform(0, 9, (5, 2)), [400, 30, 300, 50, 220], axis=0)
    cuts = Cuts.over(P, (0, 1), 3)
    owner = weights(cuts, P).argmax(0)
    assert len(set(zip(map(tuple, P), owner))) == 5
    assert Cuts.over(P[:400], (0, 1), 4).n == 1  # one place
    lopsided = np.concatenate([np.zeros(900), np.arange(100)])[:, None]
    assert Cuts.over(lopsided, (0,), 2).n == 1 and LOPSIDED > 0.2


def test_along_a_line_cuts_are_points():
    x = np.random.default_rng(0).uniform(0, 100, (1000, 1))
    cuts = Cuts.over(np.hstack([x * 0, x]), (1,), 4)
    assert cuts.n == 4 and np.allclose(
        np.sort(cuts_at(cuts.root)), np.quantile(x, [0.25, 0.5, 0.75]), atol=0.3
    )


def cuts_at(node):
    return [] if isinstance(node, int) else [node.at, *cuts_at(node.left), *cuts_at(node.right)]


def test_a_region_with_few_rows_is_told_the_nearest(cuts):
    cuts, _ = cuts
    P = np.array([[500.0, 500.0], [1.0, 1.0], [2.0, 1.0], [1.0, 2.0]])
    told = cuts.members(P, 2)
    assert min(len(rows) for rows in told) == 2
    owner = weights(cuts, P[:1]).argmax()
    assert 0 in told[owner] and all(np.all(np.diff(rows) > 0) for rows in told)


def even(n):
    """Places a unit apart on a line."""
    return np.arange(float(n))[:, None]


@pytest.mark.parametrize(
    ("n", "cells", "at", "below", "above"),
    [
        (1_000, 2, 499.5, 40.0, 40.0),  # so many spacings
        (4_032, 2, 2015.5, 63.5, 63.5),  # no fewer than a 32nd of a cell's rows: 63 of them lie nearer
        (200, 2, 99.5, 12.5, 12.5),  # no more than an eighth
        (6_000, 3, 1999.5, 62.5, 88.5),  # two cells beyond it, each 1 / √2 of the whole wide: a 32nd of 2,828
        (8_000, 4, 3999.5, 88.5, 88.5),
    ],
)
def test_a_region_reaches_so_far_over_a_cut(n, cells, at, below, above):
    root = Cuts.over(even(n), (0,), cells).root
    assert (root.at, root.below, root.above) == (at, below, above)


def test_a_region_is_told_all_up_to_its_reach_and_that_row_too():
    left, right = Cuts.over(even(4_000), (0,), 2).members(even(4_000), 1)
    np.testing.assert_array_equal(left, np.arange(2_000 + 63))
    np.testing.assert_array_equal(right, np.arange(2_000 - 63, 4_000))


def test_a_weight_goes_from_nothing_to_all_over_half_the_reach():
    cut = Cut(0, 10.0, 4.0, 8.0, 0, 1)  # from 8 to 14
    share = cut.share(np.array([-90.0, 8.0, 9.5, 11.0, 12.5, 14.0, 90.0]))
    np.testing.assert_allclose(share, [0.0, 0.0, 0.15625, 0.5, 0.84375, 1.0, 1.0], atol=1e-15)


def test_cells_are_numbered_along_a_line():
    cuts = Cuts.over(even(4_000), (0,), 4)
    owner = weights(cuts, even(4_000)).argmax(0)
    np.testing.assert_array_equal(owner, np.repeat(np.arange(4), 1_000))


def test_cells_that_are_not_asked_have_no_rows_and_no_weights():
    cuts = Cuts.over(even(4_000), (0,), 4)
    found = cuts.shares(even(4_000)[:2])
    assert [(len(rows), len(weight)) for rows, weight in found] == [(2, 2), (0, 0), (0, 0), (0, 0)]


@pytest.mark.parametrize(
    ("rows", "cells", "n"),
    [
        ([25, 75], 2, 2), ([24, 76], 2, 1), ([75, 25], 2, 2), ([76, 24], 2, 1),
        ([15, 75], 3, 2), ([14, 76], 3, 1), ([60, 30], 3, 2), ([61, 29], 3, 1),
    ],
)  # fmt: skip
def test_a_cut_leaves_on_either_side_half_of_what_it_should(rows, cells, n):
    assert Cuts.over(np.repeat([0.0, 1.0], rows)[:, None], (0,), cells).n == n


def test_a_cut_goes_between_two_places_where_it_parts_best():
    P = np.repeat([0.0, 1.0, 5.0], [20, 50, 30])[:, None]
    assert Cuts.over(P, (0,), 2).root.at == 3.0


def test_the_longer_side_is_cut_or_else_the_other():
    rng = np.random.default_rng(0)
    P = rng.uniform(0, [10, 100], (400, 2))
    assert Cuts.over(P, (0, 1), 2).root.axis == 1
    P[:, 1] = np.where(np.arange(400) == 0, 900.0, 0.0)  # which parts one row only
    root = Cuts.over(P, (0, 1), 2).root
    assert root.axis == 0 and root.at == pytest.approx(np.median(P[:, 0]))


@pytest.mark.parametrize("low", [0.1, 0.3, 1.0, 5e5])
def test_coordinates_that_differ_in_the_last_bit_are_parted_and_weigh_all(low):
    """0.3 and 0.1 + 0.2: there is no number between them for a weight to change at."""
    high = np.nextafter(low, np.inf)
    P = np.repeat([low - 0.05, low, high, high + 0.05], [10, 200, 200, 10])[:, None]
    cuts = Cuts.over(P, (0,), 2)
    assert cuts.n == 2
    np.testing.assert_allclose(weights(cuts, P).sum(0), 1.0, rtol=1e-14)
    two = np.array([[low], [high]])
    assert weights(cuts, two).argmax(0).tolist() == [0, 1]
    assert all(len(rows) >= 210 for rows in cuts.members(P, 1))


def test_cells_beside_such_a_cut_are_parted_by_their_own_rows():
    after = np.nextafter(1.0, np.inf)
    assert Cuts.over(np.array([[0.5], [1.0], [after], [1.5]]), (0,), 2).root.at == after
    P = np.repeat([0.0, 1.0, after, 2.0], [60, 140, 100, 100])[:, None]
    assert cuts_at(Cuts.over(P, (0,), 4).root) == [after, 0.5, 1.5]


def test_the_nearest_to_a_cell_are_those_nearest_to_its_sides_and_corners():
    corner = Cut(1, 4.0, 0.1, 0.1, 0, 1), Cut(1, 6.0, 0.1, 0.1, 2, 3)
    cuts = Cuts((0, 1), Cut(0, 5.0, 0.1, 0.1, *corner), 4)
    P = np.random.default_rng(0).uniform(0, 10, (60, 2))
    end = np.inf
    boxes = [[(-end, 5), (-end, 4)], [(-end, 5), (4, end)], [(5, end), (-end, 6)], [(5, end), (6, end)]]
    told = cuts.members(P, 30)
    for box, rows in zip(boxes, told):
        away = np.hypot(
            *(np.where(x < low, low - x, np.where(x > high, x - high, 0)) for (low, high), x in zip(box, P.T))
        )
        np.testing.assert_array_equal(rows, np.sort(np.argsort(away)[:30]))


def test_as_many_rows_as_are_wanted_are_those_within_reach():
    cuts = Cuts((0,), Cut(0, 2.0, 1.0, 3.0, 0, Cut(0, 4.0, 1.0, 1.0, 1, 2)), 3)
    P = np.array([[0.5], [1.5], [2.1], [4.5], [5.0], [6.0]])
    assert [rows.tolist() for rows in cuts.members(P, 3)] == [[0, 1, 2, 3, 4], [1, 2, 3, 4], [3, 4, 5]]
    assert [rows.tolist() for rows in cuts.members(P, 4)] == [[0, 1, 2, 3, 4], [1, 2, 3, 4], [2, 3, 4, 5]]
    cuts = Cuts((0,), Cut(0, 2.0, 0.1, 0.1, 0, Cut(0, 4.0, 0.1, 2.0, 1, 2)), 3)
    P = np.array([[1.5], [3.0], [5.9]])
    assert cuts.members(P, 2)[1].tolist() == [1, 2]  # though the first is nearer


# -- what is blended --------------------------------------------------------------------------------------


def said(**changed):
    one = torch.ones(len(next(iter(changed.values())))).double()
    given = dict(zip(NAMES, (one * 0, one, one, 2 * one, 1e6 * one, one * 0))) | changed
    return FieldMoments(**{k: torch.as_tensor(v).double() for k, v in given.items()})


def test_a_blend_is_as_sure_as_a_mixture():
    """Of two normal distributions, whose moments are known; the third place is told of by one region."""
    place, weight = torch.tensor([0, 0, 1]), torch.tensor([0.25, 0.75, 1.0]).double()
    m = blend.blended(said(location=[0.0, 4.0, 7.0], latent_variance=[1.0, 2.0, 3.0]), place, weight, 2)
    assert m.mean[0] == pytest.approx(3.0) and m.latent_variance[0] == pytest.approx(1.75 + 3.0)
    assert m.prior_variance[0] == m.latent_variance[0]  # they contradict each other
    assert m.location[1] == 7.0 and m.latent_variance[1] == 3.0 and m.prior_variance[1] == 2.0


def test_a_blend_of_second_peaks_keeps_the_mean_and_where_they_lie():
    """The third place is told of by one region; of the first two, one region sees a second peak and the other none."""
    place, weight = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0.25, 0.75, 0.5, 0.5, 1.0]).double()
    share = torch.tensor([0.4, 0.2, 0.3, 0.0, 0.1]).double()
    offset = torch.tensor([3.0, -1.0, 2.0, 0.0, 5.0]).double()
    wide = torch.tensor([1.0, 2.0, 0.5, 9.0, 4.0]).double()
    parts = said(
        location=[0.0, 1.0, 2.0, 4.0, 7.0],
        log_skewness=[0.2, -0.1, 0.0, 0.3, 0.4],
        degrees_of_freedom=[5.0] * 5,
    )
    parts = replace(parts, peak=SecondPeak(share, offset, wide))
    m = blend.blended(parts, place, weight, 3)
    for k in range(2):
        here = place == k
        torch.testing.assert_close(m.mean[k], (weight * parts.mean)[here].sum())
        q = (weight * share)[here]
        torch.testing.assert_close(m.peak.share[k], q.sum())
        at = (q * (parts.location + offset)[here]).sum() / q.sum()
        torch.testing.assert_close((m.location + m.peak.offset)[k], at)
        torch.testing.assert_close(m.peak.noise_variance[k], (q * wide[here]).sum() / q.sum())
    for name in NAMES:
        assert torch.equal(getattr(m, name)[2:], getattr(parts, name)[4:])
    for name in ("share", "offset", "noise_variance"):
        assert torch.equal(getattr(m.peak, name)[2:], getattr(parts.peak, name)[4:])
    # Of no share: the distribution is what it is without.
    bare = replace(parts, peak=None)
    none, one = blend.blended(bare.with_peak(), place, weight, 3), blend.blended(bare, place, weight, 3)
    assert (
        one.peak is None and (none.peak.share == 0).all() and torch.isfinite(none.peak.noise_variance).all()
    )
    for name in NAMES:
        assert torch.equal(getattr(none, name), getattr(one, name))


def test_regions_that_agree_know_no_more_together():
    place, weight = torch.tensor([0, 0, 0]), torch.tensor([0.2, 0.3, 0.5]).double()
    skewed = said(degrees_of_freedom=[5.0] * 3, log_skewness=[0.3] * 3)
    m = blend.blended(skewed, place, weight, 1)
    for name in NAMES:
        torch.testing.assert_close(getattr(m, name), getattr(skewed, name)[:1])


def test_a_blend_has_the_means_and_noises_of_its_parts():
    place, weight = torch.tensor([0, 1, 0, 0]), torch.tensor([0.2, 1.0, 0.3, 0.5]).double()
    parts = said(
        location=[0.0, 5.0, 1.0, -2.0],
        latent_variance=[0.4, 1.0, 0.2, 0.1],
        noise_variance=[0.3, 2.0, 0.5, 0.9],
        prior_variance=[30.0, 4.0, 20.0, 10.0],
        degrees_of_freedom=[4.0, 7.0, 6.0, 12.0],
        log_skewness=[0.5, -0.3, 0.1, -0.2],
    )
    m = blend.blended(parts, place, weight, 2)
    w, own = weight[place == 0], parts.at(place == 0)
    mean = (w * own.mean).sum()
    torch.testing.assert_close(m.mean[0], mean)
    torch.testing.assert_close(
        m.latent_variance[0], (w * (own.latent_variance + (own.mean - mean) ** 2)).sum()
    )
    for name, value in {"noise_variance": 0.66, "prior_variance": 17.0, "log_skewness": 0.03}.items():
        assert float(getattr(m, name)[0]) == pytest.approx(value), name
    assert float(m.degrees_of_freedom[0]) == pytest.approx(1 / (0.2 / 4 + 0.3 / 6 + 0.5 / 12))
    for name in NAMES:
        assert torch.equal(getattr(m, name)[1], getattr(parts, name)[1])

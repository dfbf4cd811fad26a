"""A scale bent where values pile up: the curve itself, the distribution on it, and how it is learned."""

import geogp  # noqa: F401  first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate

from geogp.field.noise import judged, warped
from geogp.field.noise.smooth import Parts
from geogp.field.noise.warped import fitted, knots_of, learned_warp
from geogp.predictive import Predictive
from geogp.transforms import Identity, Log10, Warp, Warped

#: Two plans: values pile up at 0 and at 1.2.
TIERS = Warp(
    np.array([-3.0, -0.3, 0.0, 0.3, 0.9, 1.2, 1.5, 3.0]),
    np.array([1.0, 1.1, 1.2, 1.1, 0.9, 0.8, 0.9, 1.0]),
    np.array([1.0, 0.5, 6.0, 0.5, 0.4, 5.0, 0.6, 1.0]),
    (0.1, -0.4),
    blur=2.0,
)


def any_warp(seed):
    rng = np.random.default_rng(seed)
    many, single = np.exp(rng.normal(size=(2, 9)))
    many[[0, -1]] = single[[0, -1]] = 1.0
    return Warp(
        np.sort(rng.normal(size=9)), many, single, tuple(rng.normal(size=2)), float(rng.uniform(0.3, 9))
    )


# -- the curve -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_there_and_back_whatever_the_counts(seed):
    rng, warp = np.random.default_rng(seed), any_warp(seed)
    u = np.concatenate([rng.normal(0, 3, 60), warp.knots, [-1e6, 1e6]])
    for a in (0.0, 0.37, 1.0, rng.uniform(0, 1, len(u))):
        v = warp.forward(u, a)
        np.testing.assert_allclose(warp.inverse(v, a), u, rtol=1e-9, atol=1e-9)
    table, a = rng.normal(0, 3, (60, 7)), rng.uniform(0, 1, 60)
    v = warp.forward(table, a)
    np.testing.assert_allclose(warp.inverse(v, a), table, rtol=1e-9, atol=1e-9)
    for j in range(7):
        np.testing.assert_array_equal(v[:, j], warp.forward(table[:, j], a))
    np.testing.assert_allclose(
        warp.forward(table, np.full(60, 0.3)), warp.forward(table, 0.3), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_integral_of_its_slopes_and_a_shift_beyond_the_knots(seed):
    warp = any_warp(seed)
    for a in (0.0, 0.6, 1.0):
        slopes = warp.many + a * (warp.single - warp.many)
        shift = warp.shifts[0] + a * (warp.shifts[1] - warp.shifts[0])
        first = warp.knots[0]
        for u in (-0.7, 0.1, 0.9):
            at = [first, *(k for k in warp.knots if first < k < u), u] if u > first else [first, u]
            rise = sum(
                integrate.quad(np.interp, low, high, args=(warp.knots, slopes, 1.0, 1.0))[0]
                for low, high in pairwise(at)
            )
            assert float(warp.forward(np.array(u), a)) == pytest.approx(first + shift + rise, abs=1e-7)
            assert float(warp.slope(np.array(u), a)) == pytest.approx(
                np.interp(u, warp.knots, slopes, left=1.0, right=1.0)
            )
        far = np.array([warp.knots[0] - 5.0, warp.knots[-1] + 7.0])
        beyond = warp.forward(far, a) - warp.forward(warp.knots[[0, -1]], a)
        np.testing.assert_allclose(beyond, [-5.0, 7.0])
        assert warp.slope(far, a).tolist() == [1.0, 1.0]
    assert warp.forward(np.array([-np.inf, np.inf]), 0.5).tolist() == [-np.inf, np.inf]


def test_what_is_sharp_in_single_tests_blurs_with_their_number():
    assert TIERS.strength([1.0, 3.0, 5.0, np.inf]).tolist() == [1.0, 0.5, 1 / 3, 0.0]
    assert float(TIERS.strength(None)) == 1.0
    many, one = (TIERS.forward(np.array([0.05, 1.0]), a) for a in (0.0, 1.0))
    half = TIERS.forward(np.array([0.05, 1.0]), TIERS.strength([3.0, 3.0]))
    np.testing.assert_allclose(half, 0.5 * (many + one))


@pytest.mark.parametrize("part", [0.0, 0.3, 1.0])
def test_faded_it_adds_a_part_of_what_it_added(part):
    warp, u = any_warp(3), np.linspace(-4.0, 4.0, 50)
    for a in (0.0, 0.6, 1.0):
        v = u + part * (warp.forward(u, a) - u)
        np.testing.assert_allclose(warp.faded(part).forward(u, a), v, rtol=0, atol=1e-12)
    if part == 1.0:
        np.testing.assert_array_equal(warp.faded(part).forward(u, 0.6), warp.forward(u, 0.6))


def test_in_other_units_it_is_the_same():
    u, other = np.linspace(-4, 4, 50), TIERS.scaled(3.0, 0.25)
    np.testing.assert_allclose(other.forward(3.0 + 0.25 * u, 0.4), 3.0 + 0.25 * TIERS.forward(u, 0.4))
    np.testing.assert_allclose(other.slope(3.0 + 0.25 * u, 0.4), TIERS.slope(u, 0.4))
    assert other.blur == TIERS.blur


def test_it_goes_through_json_and_what_is_none_is_refused():
    told = json.loads(json.dumps(TIERS.to_dict()))
    again = Warp.from_dict(told)
    assert all(np.array_equal(getattr(again, name), getattr(TIERS, name)) for name in told)
    K = len(TIERS.knots)
    for wrong in (
        {"knots": told["knots"][::-1]}, {"knots": [0.0] * K}, {"knots": told["knots"][:-1]}, {"many": [1.0] * (K - 1)},
        {"single": [-1.0, *told["single"][1:]]}, {"many": [0.0, *told["many"][1:]]}, {"shifts": [0.0]}, {"blur": 0.0},
        {"blur": float("inf")}, {"shifts": [0.0, float("nan")]}, {"knots": [told["knots"]] * 2},
        {"knots": [*told["knots"][:-2], 3.0, 2.9]}, {"single": [0.0, *told["single"][1:]]},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="a warp's"):
            Warp.from_dict(told | wrong)
    two = {"knots": [0.0, 1.0], "many": [1.0, 1.0], "single": [1.0, 1.0], "blur": 0.5}
    assert Warp.from_dict(told | two).blur == 0.5
    one = {"knots": [0.0], "many": [1.0], "single": [1.0]}
    with pytest.raises(ValueError, match="increase"):
        Warp.from_dict(told | one)


# -- the distribution on it ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bent():
    """Of three places, averages of 1, 2 and 40 tests."""
    return Predictive(
        np.array([0.2, 1.0, -2.0]),
        np.array([0.7, 0.4, 1.5]),
        np.array([5.0, 9.0, 30.0]),
        Warped(Identity(), TIERS, TIERS.strength([1.0, 2.0, 40.0])),
        np.array([0.2, 0.0, -0.3]),
    )


def test_its_numbers_are_those_of_its_density(bent):
    """Against sums over a fine grid."""
    y = np.linspace(-400.0, 400.0, 2_000_001)
    width = y[1] - y[0]
    at = np.array([0.1, 1.3, -2.5])
    for i in range(3):
        one = bent.rows(np.array([i]))
        density = np.exp(one.log_density(y))
        assert density.sum() * width == pytest.approx(1.0, abs=1e-5)
        mean = (y * density).sum() * width
        assert float(bent.mean()[i]) == pytest.approx(mean, abs=3e-3)
        assert float(bent.sd()[i]) == pytest.approx(
            np.sqrt(((y - mean) ** 2 * density).sum() * width), rel=5e-3
        )
        below = (np.cumsum(density) - 0.5 * density) * width
        assert float(bent.cdf(at)[i]) == pytest.approx(float(np.interp(at[i], y, below)), abs=1e-4)
        crps = (np.square(below - (y >= at[i]))).sum() * width
        assert float(bent.crps(at)[i]) == pytest.approx(crps, abs=2e-3)
    for p in (0.025, 0.3, 0.5, 0.9):
        np.testing.assert_allclose(bent.cdf(bent.quantile(p)), p, atol=1e-9)
    assert bent.center == "mean"
    np.testing.assert_allclose(bent.mean_of(lambda v: v, (-300.0, 300.0)), bent.mean(), atol=5e-3)


def test_some_of_its_rows_are_these_rows(bent):
    part = bent.rows(np.array([2, 0]))
    np.testing.assert_array_equal(part.quantile(0.9), bent.quantile(0.9)[[2, 0]])
    alike = Predictive(np.zeros(2), np.ones(2), transform=Warped(Identity(), TIERS, TIERS.strength(4.0)))
    np.testing.assert_array_equal(alike.rows(np.array([1])).quantile(0.9), alike.quantile(0.9)[1:])


def test_on_a_logarithm_what_is_not_positive_lies_below_all():
    t = Warped(Log10(), TIERS, np.array([1.0, 0.3]))
    p = Predictive(np.zeros(2), np.ones(2), transform=t)
    assert p.cdf(np.array(0.0)).tolist() == [0.0, 0.0] and p.exceedance(0.0).tolist() == [1.0, 1.0]
    assert t.growth == Log10().growth and t.words("speed") == "log10 of speed, bent"
    y = np.array([0.5, 20.0])
    step = 1e-6 * y
    slope = (t.forward(y + step) - t.forward(y - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(t.log_derivative(y)), slope, rtol=1e-6)
    np.testing.assert_allclose(t.inverse(t.forward(y)), y)


# -- how it is learned -----------------------------------------------------------------------------------


def drawn(n, warp, seed=0, spread=0.5):
    """Values that pile up as a warp says, about locations that are known; and the squares they lie in."""
    rng = np.random.default_rng(seed)
    location, counts = rng.normal(0.3, 0.8, n), rng.choice([1.0, 2.0, 5.0, 30.0], n)
    v = location + spread * rng.standard_t(8.0, n)
    value = v if warp is None else warp.inverse(v, warp.strength(counts))
    one = np.ones(n)
    parts = Parts(
        *map(torch.from_numpy, (location, 0.1 * spread**2 * one, 0.9 * spread**2 * one, 8.0 * one, 0.0 * one))
    )
    return parts, torch.from_numpy(value), torch.from_numpy(counts), torch.ones(n).double(), torch.arange(n) // 20  # fmt: skip


def gain(parts, value, counts, warp):
    u, a = value.numpy(), warp.strength(counts.numpy())
    bent = parts.log_density(torch.from_numpy(warp.forward(u, a))) + torch.from_numpy(
        np.log(warp.slope(u, a))
    )
    return float((bent - parts.log_density(value)).mean())


@pytest.mark.parametrize("seed", [0, 1])
def test_new_rows_gain_nearly_what_the_truth_would_bring(seed):
    found = learned_warp(*drawn(8000, TIERS, seed))
    parts, value, counts, *_ = drawn(20_000, TIERS, seed + 50)
    most = gain(parts, value, counts, TIERS)
    assert most > 0.15 and gain(parts, value, counts, found) > 0.85 * most
    single = counts == 1.0
    some = parts.at(single)
    assert gain(some, value[single], counts[single], found) > 0.85 * gain(some, value[single], counts[single], TIERS)  # fmt: skip
    assert 0.5 < found.blur / TIERS.blur < 2.0
    peaks = found.knots[np.argsort(found.single)[-6:]]
    assert (np.minimum(np.abs(peaks), np.abs(peaks - 1.2)) < 0.25).all()


@pytest.mark.parametrize("seed", range(4))
def test_where_nothing_piles_up_nothing_is_bent(seed):
    assert learned_warp(*drawn(4000, None, seed)) is None


def test_too_few_rows_or_squares_tell_nothing(monkeypatch):
    assert learned_warp(*drawn(warped.LEAST_ROWS - 1, TIERS)) is None
    assert learned_warp(*drawn(warped.LEAST_ROWS, TIERS)) is not None
    *rest, square = drawn(2000, TIERS)
    assert learned_warp(*rest, 0 * square) is None
    # Gains in few squares may be luck.
    monkeypatch.setattr(judged, "WORTH", 9.0)
    assert learned_warp(*rest, square) is None


def test_a_half_that_tells_no_warp_is_judged_by_none(monkeypatch):
    asked, honest = [], warped.fitted
    monkeypatch.setattr(
        warped, "fitted", lambda rows: asked.append(1) or (None if len(asked) == 2 else honest(rows))
    )
    assert learned_warp(*drawn(3000, TIERS)) is None and len(asked) == 2


def test_what_gains_in_likelihood_and_surely_loses_in_crps_more_than_a_little_is_left_out(monkeypatch):
    told = drawn(3000, TIERS)
    assert learned_warp(*told) is not None
    noise = np.random.default_rng(0).normal(size=3000)
    for loss, spread, kept in ((-1e-9, 1, True), (-1.0, 1, False), (-0.0019, 0, True), (-0.0021, 0, False)):

        def lost(self, warp, by=loss, spread=spread):
            return by + spread * noise[: len(self.value)]

        monkeypatch.setattr(warped.Rows, "gain_in_crps", lost)
        assert (learned_warp(*told) is not None) == kept


def sharp(n, spread, seed=0):
    """Values all but known, and no part of a pile shows in them: at the places of `drawn`."""
    rng = np.random.default_rng(seed + 100)
    location = torch.from_numpy(np.quantile(drawn(4000, TIERS, seed)[1].numpy(), rng.uniform(size=n)))
    one, scale2 = torch.ones_like(location), spread**2
    parts = Parts(location, 0.1 * scale2 * one, 0.9 * scale2 * one, 8.0 * one, 0.0 * one)
    value = location + torch.from_numpy(spread * rng.standard_t(8.0, n))
    counts = torch.from_numpy(rng.choice([1.0, 2.0, 5.0, 30.0], n))
    return parts, value, counts, one, 10_000 + torch.arange(n) // 20


def held(parts, value, counts, warp, level=0.95):
    p = parts.predictive(Warped(Identity(), warp, warp.strength(counts.numpy())))
    low, high = p.interval(level)
    return float(((value.numpy() >= low) & (value.numpy() <= high)).mean())


@pytest.mark.parametrize("n, spread, part", [(1000, 0.15, 0.25), (500, 0.1, None)])
def test_what_vague_rows_ask_for_takes_no_share_from_the_intervals_of_sharp_ones(n, spread, part):
    vague, others = drawn(4000, TIERS), sharp(n, spread)
    parts = Parts.together([vague[0], others[0]])
    told = (parts, *(torch.cat([a, b]) for a, b in zip(vague[1:], others[1:])))
    kind = torch.repeat_interleave(torch.tensor([4000, n]))
    whole = learned_warp(*told)  # as if all rows were of one kind
    some = learned_warp(*told, kind=kind)
    fresh = sharp(2000, spread, seed=50)[:3]
    assert held(*fresh, whole) < 0.85
    if part is None:
        assert some is None
        return
    np.testing.assert_array_equal(some.single, whole.faded(part).single)
    assert held(*fresh, some) > 0.92
    parts, value, counts, *_ = drawn(4000, TIERS, 50)
    assert gain(parts, value, counts, some) > 0.05


def test_each_kind_must_hold_its_shares_and_no_other_makes_up_for_it():
    level = np.linspace(0.0, 1.0, 2000)
    kind, alone = np.arange(2000) % 2, np.arange(2000)
    worse = np.where(kind == 1, level**0.8, level)  # of its kind .42 within 50%
    assert not warped.hold_as_much(worse, level, kind, alone)
    assert warped.hold_as_much(worse, level, 0 * kind, alone)  # of all .46
    # What was wrong before may stay so, and come right.
    assert warped.hold_as_much(worse, worse, kind, alone) and warped.hold_as_much(level, worse, kind, alone)


def test_shares_that_a_few_squares_lose_may_be_their_luck():
    square = np.repeat(np.arange(10), 100)
    old = np.tile(np.repeat([0.3, 0.6, 0.9, 0.99], [50, 30, 15, 5]), 10)
    new = np.where((square < 2) & (old == 0.3), 0.6, np.where((square == 2) & (old == 0.6), 0.3, old))
    assert warped.hold_as_much(new, old, 0 * square, square)
    assert not warped.hold_as_much(new, old, 0 * square, np.arange(1000))


def test_of_a_second_peak_no_loss_is_tolerated():
    none, each = np.zeros(9), np.arange(9)
    assert not judged.surely_no_worse(none - 1e-9, each) and judged.surely_no_worse(none + 1e-9, each)


def test_gains_are_those_of_the_distributions_themselves():
    parts, value, counts, *_ = drawn(50, TIERS)
    scale = (parts.latent_variance + parts.noise_variance).sqrt().numpy()
    plain = Predictive(parts.location.numpy(), scale, parts.degrees_of_freedom.numpy())
    bent = Predictive(
        plain.location, scale, plain.degrees_of_freedom, Warped(Identity(), TIERS, TIERS.strength(counts))
    )
    rows, y = warped.Rows(parts, value, counts), value.numpy()
    np.testing.assert_allclose(rows.gain(TIERS), bent.log_density(y) - plain.log_density(y))
    np.testing.assert_allclose(rows.gain_in_crps(TIERS), plain.crps(y) - bent.crps(y), atol=1e-12)


def test_rows_are_drawn_by_their_weight(monkeypatch):
    """The rows that weigh nearly nothing are of another world."""
    monkeypatch.setattr(warped, "MOST_ROWS", 1500)
    one, other = drawn(1500, TIERS, 3), drawn(6000, None, 4)
    parts = Parts.together([one[0], other[0]])
    value, counts, weight = (torch.cat([a, b]) for a, b in zip(one[1:4], other[1:4]))
    square = torch.cat([one[4], 10_000 + other[4]])
    weight[1500:] = 1e-9
    found, alone = learned_warp(parts, value, counts, weight, square), learned_warp(*one)
    np.testing.assert_allclose(found.single, alone.single)
    np.testing.assert_array_equal(alone.knots, knots_of(one[1].numpy()))  # of all, each once


@pytest.mark.parametrize("ends", [warped.ENDS, (0.1, 0.9)])
def test_slopes_are_those_that_cost_least(monkeypatch, ends):
    """The search ends where no slope can be changed for the better, however many values lie beyond the last knots."""
    monkeypatch.setattr(warped, "ENDS", ends)
    parts, value, counts, *_ = drawn(3000, TIERS, 1)
    found = fitted(warped.Rows(parts, value, counts))

    def cost(warp):
        many, more = np.log(warp.many), np.log(warp.single / warp.many)
        rough = 300.0 * np.square(np.diff(many)).sum() + 5.0 * np.square(np.diff(more)).sum()
        prior = rough + np.square(many).sum() + np.square(more).sum() + np.log(warp.blur / 5.0) ** 2 / 8.0
        return prior - len(value) * gain(parts, value, counts, warp)

    K, inner = len(found.knots), slice(1, -1)

    def made(at):
        many, more = np.zeros((2, K))
        many[inner], more[inner] = at[: K - 2], at[K - 2 : 2 * K - 4]
        return Warp(
            found.knots,
            np.exp(many),
            np.exp(many + more),
            (at[-3], at[-2]),
            5.0 * np.exp(at[-1]),
        )

    def slope(at):
        step = 1e-5 * np.eye(len(at))
        return np.array([(cost(made(at + e)) - cost(made(at - e))) / 2e-5 for e in step])

    flat = np.zeros(2 * K - 1)
    best = np.concatenate(
        [
            np.log(found.many[inner]),
            np.log(found.single / found.many)[inner],
            found.shifts,
            [np.log(found.blur / 5.0)],
        ]
    )
    assert cost(made(best)) == pytest.approx(cost(found), abs=1e-9) and cost(found) < cost(made(flat)) - 100.0
    rng = np.random.default_rng(0)
    wide = np.repeat([0.05, 0.05, 0.01, 0.1], [K - 2, K - 2, 2, 1])
    for _ in range(20):
        assert cost(made(best + wide * rng.normal(size=len(best)))) > cost(found) - 0.5
    assert np.linalg.norm(slope(best)) < 0.003 * np.linalg.norm(slope(flat))  # after a hundred steps
    assert found.many[[0, -1]].tolist() == found.single[[0, -1]].tolist() == [1.0, 1.0]


def test_how_bends_blur_is_left_where_single_tests_alone_tell_of_them():
    parts, value, counts, *_ = drawn(1500, TIERS, 2)
    found = fitted(warped.Rows(parts, value, torch.ones_like(counts)))
    assert found.blur == pytest.approx(warped.BLUR, rel=1e-3)


def test_between_two_knots_lie_values_that_differ():
    """What is rounded would be likely at every whole number."""
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(0, 30, 5000))
    knots = knots_of(values)
    between = [len(np.unique(values[(values >= a) & (values < b)])) for a, b in pairwise(knots)]
    assert min(between) == warped.DISTINCT and len(knots) > 10
    noisy = knots_of(values + 1e-12 * rng.normal(size=5000))
    np.testing.assert_allclose(noisy, knots, atol=1e-9)
    assert len(knots_of(rng.normal(size=5000))) == warped.KNOTS
    assert len(knots_of(np.zeros(50))) == 1 and (np.diff(knots) > 0).all()
    flat = drawn(1200, None)
    assert learned_warp(flat[0], 0 * flat[1], *flat[2:]) is None


@pytest.mark.parametrize(("different", "knots"), [(10, None), (11, 3)])
def test_two_pieces_are_the_least_that_bend(different, knots):
    """Five values and five more between two knots, and one at the end."""
    parts, value, counts, *_ = drawn(1200, None)
    value = torch.arange(1200).double() % different / different
    found = fitted(warped.Rows(parts, value, counts))
    assert (None if found is None else len(found.knots)) == knots

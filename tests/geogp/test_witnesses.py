"""What the rows around a place tell the smooth noise, each number written out."""

import math

import numpy as np
import pytest
import torch

from geogp.field import LocalKernel, surroundings
from geogp.field.observations import Observations
from geogp.field.solve import conditional_moments
from geogp.field.surroundings import NAMES, Witnesses, busyness_of, count_features, nowhere, smallest, survey

#: What is told: means at these ranges and times, held to none by so much, and these quantiles of so many.
RANGES, TIMES, HOLD = (0.7, 3.0, 10.0), (0.26, 1.6), 0.1
SHARES, NEAREST = (0.1, 0.25, 0.5, 0.75, 0.9), 24
SAID = 3 * 6 + 6 + 5


def test_testimony_is_what_plain_sums_give():
    rng = np.random.default_rng(0)
    n, k = 30, 12
    value, counts = (
        torch.from_numpy(rng.normal(size=(1, n))),
        torch.from_numpy(rng.integers(1, 9, (1, n)) * 1.0),
    )
    distance = torch.from_numpy(rng.uniform(0, 9, (1, 1, n)))
    distance[..., :3] = 0.0
    age, one = torch.from_numpy(rng.uniform(0, 2, (1, n))), torch.ones(1, n).double()
    rows = Witnesses(torch.zeros(1, n, 3).double(), value, counts, one, one, age, one > 0)
    # Twelve of thirty rows are heard; the others count as far away.
    heard = torch.zeros(1, 1, n, dtype=torch.bool)
    index = torch.from_numpy(np.append([0, 1, 2], rng.permutation(np.arange(3, n))[: k - 3]))
    heard[..., index] = True
    far = torch.where(heard, distance, torch.full_like(distance, 1000.0))
    nearest = smallest(far + 1e-3 * age[:, None], k)
    mean, known = torch.full((1, 1), 0.4, dtype=torch.float64), torch.full((1, 1), 0.7, dtype=torch.float64)
    got = rows.testimony(mean, known, far, heard.double(), nearest)[0, 0].numpy()
    assert len(got) == SAID and k <= NEAREST

    v, n_, d, a = (
        (value[0, index] - 0.4).numpy(),
        counts[0, index].numpy(),
        distance[0, 0, index].numpy(),
        age[0, index].numpy(),
    )
    w = 1.0 / (0.15 + 1.2 / n_)

    def three(w):
        m = (w * v).sum() / (w.sum() + HOLD)
        return m, math.log(w.sum() + HOLD), math.log(((w * (v - m) ** 2).sum() + HOLD) / (w.sum() + HOLD))

    want = [
        x for reach in RANGES for span in TIMES for x in three(w * np.exp(-d / reach) * np.exp(-a / span))
    ]
    own, lately = w * (d == 0), w * (d == 0) * np.exp(-a / TIMES[0])
    m, total, spread = three(own)
    want += [m, total, math.log(3.5), *three(lately)[:2], spread]
    want += (0.7 * np.quantile(v, SHARES)).tolist()
    # In float32, as the network that hears it.
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=3e-6)


def rows(n=40, seed=0):
    """Observations of places and times, and a kernel."""
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(np.column_stack([rng.uniform(0, 6, (n, 2)), rng.integers(0, 5, n) / 4.0]))
    X[1, :2] = X[0, :2]
    counts = torch.from_numpy(rng.integers(1, 30, n) * 1.0)
    counts[0] = 1.0
    seen = Observations(
        X, torch.from_numpy(rng.normal(size=n)), counts, torch.from_numpy(rng.uniform(0.2, 0.9, n))
    )
    lengths = torch.tensor([[1.0, 1.5, 2.0], [3.0, 3.0, 4.0]]).double().log()
    kernel = LocalKernel(lengths, torch.tensor([0.4, 0.3]).double().log(), ("matern12", "matern32"), 2)
    return seen, kernel


def asked(seen, k=14, m=9):
    """Places, two of them after all rows and one where a row is, and some rows for each; the last has three alone."""
    rng = np.random.default_rng(7)
    C = torch.from_numpy(np.column_stack([rng.uniform(0, 6, (m, 2)), rng.uniform(0, 1, m)]))
    C[:2, 2] += 1.5
    C[3, :2] = seen.X[0, :2]
    C[4, :2] += 60.0  # far from all
    index = torch.from_numpy(np.stack([rng.permutation(len(seen))[:k] for _ in range(m)]))
    index[3, :2] = torch.tensor([0, 1])
    index[-1, 3:] = -1
    return C, index


@pytest.mark.parametrize("nu", [None, 4.0])
def test_features_are_what_plain_sums_give(nu):
    seen, kernel = rows()
    C, index = asked(seen)
    columns = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).double()
    latest, spacing = 1.0, 0.4
    found = survey(
        kernel,
        seen,
        C,
        index,
        spacing=spacing,
        latest=latest,
        columns=columns,
        degrees_of_freedom=nu,
        in_detail=True,
    )
    busy = seen.counts.log() - seen.counts.log().mean()
    torch.testing.assert_close(busyness_of(seen), busy)
    both = torch.stack([seen.value, busy], 1)
    moments = conditional_moments(kernel, C, seen.X, both, seen.noise_variance, index, nu)
    torch.testing.assert_close(found.mean, moments.mean[:, 0])
    torch.testing.assert_close(found.variance, moments.variance)
    prior = 0.7
    for at in range(len(C)):
        i = index[at][index[at] >= 0]
        torch.testing.assert_close(found.leaning[at], moments.weights[at][index[at] >= 0] @ columns[i])
        expected = seen.noise_variance[i] + 0.3
        c = kernel(C[at][None], seen.X[i])[0]
        w = c / (prior * expected)
        away = seen.value[i] - moments.mean[at, 0]
        spread = ((w * away.square() / expected).sum() + 0.05) / (w.sum() + 0.05)
        lean = (w * away / expected.sqrt()).sum() / (w.sum() + 0.05)
        apart = torch.linalg.norm(C[at, :2] - seen.X[i, :2], dim=1) / spacing
        age = (C[at, 2] - seen.X[i, 2]).abs()
        order = (apart + 1e-3 * age).argsort()
        close = torch.exp(-apart / 3.5)
        near_busyness = (close * busy[i]).sum() / (close.sum() + 0.1)
        ninth = apart[order[:9]].max() if len(i) >= 9 else torch.tensor(1000.0)
        wanted = {
            "mean": moments.mean[at, 0],
            "variance": moments.variance[at],
            "busyness": moments.mean[at, 1],
            # The spread is of squares in units of what is expected.
            "log_spread": spread.log(),
            "lean": lean,
            "log_weight": (w.sum() + 1e-3).log(),
            "near_busyness": near_busyness,
            "log_nearest": torch.log1p(apart.min()),
            "log_ninth": torch.log1p(ninth),
            "time_gap": (C[at, 2] - latest).clamp_min(0.0),
        }
        assert tuple(wanted) == NAMES
        np.testing.assert_allclose(
            found.features[at], [float(v) for v in wanted.values()], rtol=2e-5, atol=2e-5
        )


def test_what_is_asked_together_changes_nothing(monkeypatch):
    seen, kernel = rows()
    C, index = asked(seen)
    whole = survey(kernel, seen, C, index, spacing=0.4, latest=1.0, in_detail=True)
    assert whole.leaning.shape == (9, 0) and whole.testimony.shape == (9, SAID)
    monkeypatch.setattr(surroundings, "PLACES_AT_ONCE", 2)
    parts = survey(kernel, seen, C, index, spacing=0.4, latest=1.0, in_detail=True)
    for name in ("mean", "variance", "features", "testimony"):
        torch.testing.assert_close(getattr(whole, name), getattr(parts, name))
    brief = survey(kernel, seen, C, index, spacing=0.4, latest=1.0)
    assert brief.testimony.shape == (9, 0) and torch.equal(brief.features, parts.features)


def test_testimony_of_a_survey_is_in_the_share_that_rows_take_of_the_prior_variance():
    seen, kernel = rows()
    C, index = asked(seen)
    found = survey(kernel, seen, C, index, spacing=0.4, latest=1.0, in_detail=True)
    for at in (0, 3, 8):
        i = index[at][index[at] >= 0]
        v = (seen.value[i] - found.mean[at]).numpy()
        if len(i) < 14:
            v = np.append(v, np.zeros(14 - len(i)))  # rows that are not there count as the mean
        known = 1.0 - float(found.variance[at]) / 0.7
        wanted = known * np.quantile(v, SHARES)
        np.testing.assert_allclose(found.testimony[at, -len(SHARES) :], wanted, rtol=2e-5, atol=2e-5)
        w = (1.0 / (0.15 + 1.2 / seen.counts[i])).numpy()
        own = w * (torch.linalg.norm(C[at, :2] - seen.X[i, :2], dim=1) / 0.4 < 1e-6).numpy()
        assert (own.sum() > 0) == (at == 3)
        history = found.testimony[at, 3 * len(RANGES) * len(TIMES) :]
        assert float(history[1]) == pytest.approx(math.log(own.sum() + HOLD), abs=1e-5)
        age = (C[at, 2] - seen.X[i, 2]).abs().numpy()
        recent = (own * np.exp(-age / TIMES[0])).sum()
        assert float(history[4]) == pytest.approx(math.log(recent + HOLD), abs=1e-5)
        assert float(history[2]) == pytest.approx(math.log((own > 0).sum() + 0.5), abs=1e-5)


def test_quantiles_are_of_the_nearest_24_the_younger_first():
    seen, kernel = rows()
    there = Observations(seen.X.clone(), seen.value, seen.counts, seen.noise_variance)
    there.X[:30, :2] = 3.0  # all at one place, at other times
    there.X[:30, 2] = torch.linspace(0.0, 1.0, 30)
    C = torch.tensor([[3.0, 3.4, 1.2]]).double()
    found = survey(kernel, there, C, torch.arange(30)[None].flip(1), spacing=0.4, latest=1.0, in_detail=True)
    known = 1.0 - float(found.variance) / 0.7
    wanted = known * np.quantile((there.value[6:30] - found.mean).numpy(), SHARES)
    np.testing.assert_allclose(found.testimony[0, -5:], wanted, rtol=2e-5, atol=2e-5)


def test_without_time_nothing_is_old_and_no_gap():
    seen, _ = rows()
    kernel = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double(), ("matern32",))
    flat = Observations(seen.X[:, :2], seen.value, seen.counts, seen.noise_variance)
    C, index = asked(seen)
    found = survey(kernel, flat, C[:, :2], index, spacing=0.4, latest=0.0, in_detail=True)
    assert (found.features[:, NAMES.index("time_gap")] == 0).all()
    # Both spans of time weigh alike where nothing is old.
    means = found.testimony[:, : 3 * len(RANGES) * len(TIMES)].reshape(9, len(RANGES), len(TIMES), 3)
    torch.testing.assert_close(means[:, :, 0], means[:, :, 1])


def test_no_place_has_no_surroundings():
    seen, kernel = rows()
    columns = torch.zeros(40, 3).double()
    for in_detail, said in ((True, SAID), (False, 0)):
        for none in (
            nowhere(columns, in_detail),
            survey(
                kernel,
                seen,
                seen.X[:0],
                torch.zeros(0, 5).long(),
                spacing=1.0,
                latest=0.0,
                columns=columns,
                in_detail=in_detail,
            ),
        ):
            shapes = [tuple(v.shape) for v in vars(none).values()]
            assert shapes == [(0,), (0,), (0, len(NAMES)), (0, 3), (0, said)]


def test_a_mean_that_moves_stays_a_feature():
    seen, kernel = rows()
    C, index = asked(seen)
    found = survey(kernel, seen, C, index, spacing=0.4, latest=1.0)
    moved = found.moved(torch.arange(9.0).double())
    torch.testing.assert_close(moved.mean, found.mean + torch.arange(9.0).double())
    assert torch.equal(moved.features[:, 0], moved.mean)
    assert torch.equal(moved.features[:, 1:], found.features[:, 1:])


def test_far_rows_fade_to_next_to_nothing_and_never_to_less():
    faded = surroundings._fading(torch.tensor([0.0, 3.0, 240.0, 999.0, 1e6]), 3.0)
    np.testing.assert_allclose(faded[:2], [1.0, math.exp(-1.0)], rtol=1e-6)
    np.testing.assert_allclose(faded[2:], math.exp(-80.0), rtol=1e-5)


def test_the_smallest_come_first_and_equal_ones_in_their_order():
    key = torch.tensor([[3.0, 1.0, 2.0, 1.0, 0.5], [2.0, 2.0, 2.0, 1.0, 3.0]])
    assert smallest(key, 3).tolist() == [[4, 1, 3], [3, 0, 1]]
    assert smallest(key, 9).tolist() == key.sort(dim=-1, stable=True).indices.tolist()


@pytest.mark.parametrize("m", [1, 2, 7, 24])
def test_quantiles_lie_between_two_values_on_a_line(m):
    values = torch.randn(3, m, generator=torch.Generator().manual_seed(m))
    wanted = np.quantile(values.numpy(), SHARES, axis=-1).T
    np.testing.assert_allclose(surroundings._quantiles(values), wanted, rtol=1e-5, atol=1e-6)


def test_counts_tell_by_their_logarithm_and_by_their_root():
    n = torch.tensor([1.0, 4.0, 100.0]).double()
    np.testing.assert_allclose(count_features(n), np.stack([n.log(), n.rsqrt()], 1))

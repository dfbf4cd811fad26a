"""Noise of each observation by what the places around say: what it sees, what it learns, what it may not know."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.field import FieldOptions, LocalField
from geogp.field.noise.rows import AROUND, ToldNoise, noise_variance, what_places_say

QUICK = FieldOptions(neighbours=16, n_targets=800, steps=40, batch=64, epochs=3, hidden=16, metric=False)


def rows(n=200, seed=0, visits=2):
    """Places on a square, each measured several times."""
    rng = np.random.default_rng(seed)
    P = rng.uniform(0, 1, (n, 2))
    X = np.column_stack([np.tile(P, (visits, 1)), np.repeat(np.arange(visits), n) / 4])
    y, counts = rng.normal(size=n * visits), np.ceil(rng.pareto(1.0, n * visits)).clip(1, 50)
    return (torch.from_numpy(a) for a in (X, y, counts))


def test_a_place_has_no_say_in_its_own_noise():
    X, y, n = rows()
    before = what_places_say(X, y, n)
    own = (X[:, :2] == X[0, :2]).all(1)
    y[own] += 100.0
    after = what_places_say(X, y, n)
    assert torch.equal(after[own], before[own])
    assert not torch.equal(after[~own], before[~own])


def test_it_says_what_a_loop_over_places_says():
    X, y, n = rows(60)
    weight = 1.0 / (0.15 + 1.2 / n)
    said = what_places_say(X, y, n)
    for i in (0, 17, 91):
        P = torch.unique(X[:, :2], dim=0)
        away = (P - X[i, :2]).square().sum(1).sqrt()
        near = P[away.argsort()[1 : AROUND + 1]]
        among = (X[:, None, :2] == near).all(-1).any(1)
        share = weight[among] / weight[among].sum()
        level = (share * y[among]).sum()
        scatter = (share * (y[among] - level).square()).sum()
        assert said[i, 0] == pytest.approx(float(level))
        assert said[i, 3] == pytest.approx(float((scatter + 0.02).log()))
        assert said[i, 2] == pytest.approx(-float(away.sort().values[9].log()))


@pytest.mark.parametrize("n", [2, 5, 60])
def test_all_that_is_said_is_what_a_loop_over_places_says(n):
    """Of few places, too, where the farthest stands for the one of the rank."""
    X, y, counts = rows(n, visits=3)
    weight, P = 1.0 / (0.15 + 1.2 / counts), torch.unique(X[:, :2], dim=0)
    rows_of = (X[:, None, :2] == P).all(-1)
    said = what_places_say(X, y, counts)
    assert said.shape == (3 * n, 4)
    for i in range(0, 3 * n, 7):
        away = (P - X[i, :2]).square().sum(1).sqrt()
        near = away.argsort()[1 : AROUND + 1]
        share = torch.stack([weight[rows_of[:, p]].sum() for p in near])
        own = [weight[rows_of[:, p]] / weight[rows_of[:, p]].sum() for p in near]
        mean = torch.stack([(w * y[rows_of[:, p]]).sum() for w, p in zip(own, near)])
        square = torch.stack([(w * y[rows_of[:, p]].square()).sum() for w, p in zip(own, near)])
        share = share / share.sum()
        level = (share * mean).sum()
        scatter = (share * square).sum() - level**2
        busy = torch.stack([counts[rows_of[:, p]].log().mean() for p in near]).mean()
        expected = [level, busy, -away.sort().values[min(9, n - 1)].log(), (scatter + 0.02).log()]
        torch.testing.assert_close(said[i], torch.stack(expected), rtol=1e-9, atol=1e-9)


def test_what_is_said_is_standardised_over_the_rows_learned_from_and_clipped():
    X, y, counts = rows(50)
    told = ToldNoise.over(X, y, counts)
    said = what_places_say(X, y, counts)
    z = (said - said.mean(0)) / said.std(0, unbiased=False)
    torch.testing.assert_close(told.says, z.clamp(-3, 3))
    assert (told.noise.says(X, 1e6 * y, counts).abs() <= 3).all()
    assert float(told.noise.says(X, 1e6 * y, counts).abs().max()) == 3.0
    torch.testing.assert_close(told.noise.says(X, y, counts), told.says)
    alike = ToldNoise.over(
        X, y, torch.ones(100).double()
    )  # all counts 1: busyness says nothing, and no 0 / 0
    assert (alike.says[:, 1] == 0).all() and alike.noise.scale[1] == 1.0


def test_factors_variance_and_penalty_are_the_formulas():
    X, y, counts = rows(20)
    told = ToldNoise.over(X, y, counts)
    a = torch.linspace(-0.6, 0.8, 8, dtype=torch.float64).reshape(4, 2)
    told = replace(told, noise=replace(told.noise, coefficients=a))
    tau, s = (torch.exp(told.says @ a[:, k]) for k in (0, 1))
    torch.testing.assert_close(told.noise.factors(told.says), torch.stack([tau, s], 1))
    torch.testing.assert_close(noise_variance(0.3, 0.7, counts, told), 0.3 * tau + 0.7 * s / counts)
    torch.testing.assert_close(noise_variance(0.3, 0.7, counts, None), 0.3 + 0.7 / counts)
    prior = torch.distributions.Normal(0.0, 0.5)
    density = prior.log_prob(a).sum() - prior.log_prob(torch.zeros(8)).sum()
    assert float(told.noise.penalty()) == pytest.approx(-float(density))


def test_order_does_not_matter_and_one_place_alone_says_nothing():
    X, y, n = rows(80)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(what_places_say(X, y, n)[order], what_places_say(X[order], y[order], n[order]))
    assert (what_places_say(X[:1].repeat(5, 1), y[:5], n[:5]) == 0).all()


def half_noisy(n=1800, seed=0):
    """A smooth surface; noise of sd .1 in the west and .6 in the east."""
    rng = np.random.default_rng(seed)
    P = rng.uniform(0, 1, (n // 3, 2))[rng.integers(0, n // 3, n)]
    X = np.column_stack([P, 2020 + rng.integers(0, 6, n) / 4])
    sd = np.where(P[:, 0] < 0.5, 0.1, 0.6)
    y = np.sin(4 * P[:, 0]) + np.cos(5 * P[:, 1]) + sd * rng.normal(size=n)
    return torch.from_numpy(X), torch.from_numpy((y - y.mean()) / y.std()), P[:, 0] < 0.5


@pytest.fixture(scope="module")
def fitted():
    X, y, quiet = half_noisy()
    return LocalField.fit(X, y, None, time=2, options=QUICK), X, y, quiet


def test_noise_is_found_where_it_is(fitted):
    field, _, _, _ = fitted
    west = field.seen.X[:, 0] < field.seen.X[:, 0].median()
    noise = field.seen.noise_variance
    assert noise[~west].median() > 10 * noise[west].median()  # 36 in truth


def test_what_comes_and_goes_at_a_place_is_not_surface(fitted):
    field, _, _, _ = fitted
    # The surface's own scale is half of the square; the noise of the east would pass for one of a spacing.
    assert len(field.gp.kernel.smoothness) == 1 or float(field.gp.kernel.log_variance[0].exp()) < 0.05


def test_rows_left_out_have_no_say_in_how_noisy_others_are(fitted):
    field, _, y, _ = fitted
    known = field.known
    reference = torch.arange(0, len(y), 2)
    given = known.left_given(reference, reference).noise_variance
    wild = known.seen.value.clone()
    wild[1::2] += 50.0
    other = known.told(field.gp.observed(known.seen.X, wild, known.seen.counts))
    assert torch.equal(other.left_given(reference, reference).noise_variance[reference], given[reference])
    assert not torch.equal(field.seen.noise_variance[reference], given[reference])
    # Of some of them: the same, and the others as they were.
    some, rest = reference[3:40:5].contiguous(), torch.ones(len(y), dtype=torch.bool)
    rest[some] = False
    part = known.left_given(reference, some).noise_variance
    assert torch.equal(part[some], given[some]) and torch.equal(part[rest], known.left.noise_variance[rest])


def test_what_places_say_of_some_is_what_they_say_of_all():
    rng = np.random.default_rng(4)
    X = torch.from_numpy(rng.integers(0, 12, (200, 2)).astype(float))  # places come again
    y, n = torch.from_numpy(rng.normal(size=200)), torch.from_numpy(rng.integers(1, 9, 200).astype(float))
    every = what_places_say(X, y, n)
    for some in ([5], [199, 0, 7, 7], []):
        of = torch.tensor(some, dtype=torch.int64)
        assert torch.equal(what_places_say(X, y, n, of), every[of])
    one = torch.zeros(3, 2).double()
    assert what_places_say(one, y[:3], n[:3], torch.tensor([1])).tolist() == [[0.0] * 4]


def test_told_other_rows_it_listens_to_them(fitted):
    field, _, y, _ = fitted
    some = field.conditioned_on(field.seen.at(torch.arange(0, len(y), 2)))
    again = field.gp.observed(some.seen.X, some.seen.value, some.seen.counts)
    assert torch.equal(some.seen.noise_variance, again.noise_variance)


def test_it_goes_through_a_file_and_runs_of_before_have_none(fitted):
    field, X, _, _ = fitted
    tensors, facts = field.state()
    facts = json.loads(json.dumps(facts))
    again = LocalField.from_state(tensors, facts)
    assert torch.equal(again.seen.noise_variance, field.seen.noise_variance)
    assert torch.equal(again.moments(X[:20]).mean, field.moments(X[:20]).mean)
    # A noise that differs from place to place or from time to time came later, too.
    since = ("row_noise", "kernel.noisier", "times")
    older = {name: value for name, value in tensors.items() if not name.startswith(since)}
    facts["options"].pop("row_noise")
    before = LocalField.from_state(older, facts)
    assert before.gp.rows is None and len(before.seen.noise_variance.unique()) == 1


def test_the_coefficients_start_without_effect():
    X, y, n = rows()
    told = ToldNoise.over(X, y, n)
    noise = told.noise
    assert torch.equal(told.says, noise.says(X, y, n))
    assert (noise.factors(told.says) == 1).all() and float(noise.penalty()) == 0.0

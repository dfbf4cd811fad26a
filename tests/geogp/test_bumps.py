"""Bumps: their centres and widths, what they share, and the kernel's two factors, against numbers by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.field import LocalKernel
from geogp.field.noise.rows import ToldNoise, what_places_say
from geogp.field.variation import Variation, bumps
from geogp.field.variation.told import Told, following


def of(P, m, **changes):
    return replace(Variation.flat(torch.from_numpy(P), m), **changes)


@pytest.fixture
def some():
    rng = np.random.default_rng(0)
    numbers = (torch.from_numpy(rng.normal(size=5)) for _ in range(3))
    lengthscale, variance, noise = numbers
    P = rng.uniform(0, 10, (5, 2))
    return of(P, 9, lengthscale=lengthscale, variance=variance, noise=noise)


def test_few_places_are_centres_themselves_as_wide_as_the_nearest_are_apart():
    P = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0], [7.0, 0.0]])
    v = of(P, 4)
    wanted = np.unique(P, axis=0)
    assert v.centres.tolist() == wanted.tolist() and not v.blended and v.noise is None
    away = np.sort(np.linalg.norm(wanted[:, None] - wanted[None], axis=-1), axis=1)[:, 1:4].mean(1)
    np.testing.assert_allclose(v.width, 1.2 * away)
    assert v.lengthscale.tolist() == v.variance.tolist() == [0.0] * 4
    v.lengthscale[0] = 1.0
    assert v.variance[0] == 0.0
    more = np.random.default_rng(0).normal(size=(8, 2))
    away = np.sort(np.linalg.norm(more[:, None] - more[None], axis=-1), axis=1)[:, 1:4].mean(1)
    np.testing.assert_allclose(np.sort(of(more, 8).width), np.sort(1.2 * away))
    assert of(P[:1], 4).width.tolist() == [1.0]
    assert of(P[:2], 4).width.tolist() == [1.2, 1.2]


def test_of_many_places_a_sample_is_clustered_and_the_seed_is_said():
    P = np.random.default_rng(0).normal(size=(400, 2))
    first, same, other = (Variation.flat(torch.from_numpy(P), 7, *seed) for seed in ((), (0,), (1,)))
    assert first.centres.shape == (7, 2) and torch.equal(first.centres, same.centres)
    assert not torch.equal(first.centres, other.centres)


def test_no_more_places_than_a_sample_are_looked_at(monkeypatch):
    P = np.random.default_rng(0).normal(size=(60, 2))
    monkeypatch.setattr(bumps, "MOST_PLACES", 25)
    centres = of(P, 30).centres.numpy()
    assert len(centres) == 25 and {tuple(c) for c in centres} <= {tuple(p) for p in P}
    assert centres.tolist() == sorted(centres.tolist())


@pytest.mark.parametrize(("n", "most", "centres"), [(60, 50, 30), (61, 20, 20), (3, 50, 2), (9, 50, 4)])
def test_blended_ones_have_a_centre_for_two_places(n, most, centres):
    X = np.random.default_rng(0).normal(size=(n, 3))
    v = Variation.blending(torch.from_numpy(np.concatenate([X, X])), most)
    assert v.blended and v.centres.shape == (centres, 2)


def test_centres_hear_the_eight_nearest_places(some):
    places = np.random.default_rng(1).uniform(0, 10, (40, 2))
    said = torch.from_numpy(np.random.default_rng(2).normal(size=(40, 3)))
    for n in (40, 5):
        away = np.linalg.norm(some.centres.numpy()[:, None] - places[None, :n], axis=-1)
        near = np.argsort(away, axis=1)[:, :8]
        torch.testing.assert_close(some.heard(places[:n], said), said[torch.from_numpy(near)].mean(1))


def test_shares_are_gaussian_bumps_or_their_parts_of_one(some):
    P = torch.from_numpy(np.random.default_rng(3).uniform(-2, 12, (4, 3, 2)))
    away = torch.linalg.norm(P[..., None, :] - some.centres, dim=-1)
    each = torch.exp(-0.5 * (away / some.width) ** 2)
    torch.testing.assert_close(some.shares(P), each)
    blended = replace(some, blended=True)
    torch.testing.assert_close(blended.shares(P), each / each.sum(-1, keepdim=True))
    h, s = some(P)
    torch.testing.assert_close(h, each @ some.lengthscale)
    torch.testing.assert_close(s, each @ some.variance)
    torch.testing.assert_close(some.noise_factor(P), torch.exp(each @ some.noise))
    assert replace(some, noise=None).noise_factor(P) == 1.0


@pytest.mark.parametrize("axes", [1, 2, 5])
def test_between_two_places_lengths_meet_and_variances_multiply(some, axes):
    P, Q = (torch.from_numpy(np.random.default_rng(k).uniform(0, 10, (m, 2))) for k, m in ((4, 6), (5, 3)))
    (h, s), (g, r) = some(P), some(Q)
    square = 0.5 * (torch.exp(h)[:, None] ** 2 + torch.exp(g)[None] ** 2)
    both = torch.exp(h)[:, None] * torch.exp(g)[None]
    factor = torch.exp(0.5 * (s[:, None] + r[None])) * (both / square) ** (axes / 2)
    found = some.between(P, Q, axes=axes)
    torch.testing.assert_close(found[0], square)
    torch.testing.assert_close(found[1], factor)
    if axes == 2:
        torch.testing.assert_close(some.between(P, Q)[1], factor)


def test_coefficients_are_believed_to_be_small(some):
    prior = torch.distributions.Normal(0.0, 0.5)
    both = torch.cat([some.lengthscale, some.variance])
    wanted = (prior.log_prob(torch.zeros(10).double()) - prior.log_prob(both)).sum()
    torch.testing.assert_close(some.penalty(), wanted)


def test_on_a_device_it_is_the_same(some):
    there = some.to("meta")
    for name in ("centres", "width", "lengthscale", "variance", "noise"):
        assert getattr(there, name).device.type == "meta"
    assert replace(some, noise=None).to("cpu").noise is None


# -- what follows what places say -----------------------------------------------------------------------


@pytest.fixture
def rows():
    rng = np.random.default_rng(4)
    X = torch.from_numpy(rng.uniform(0, 10, (70, 3)))
    X[60:, :2] = X[:10, :2]
    return X, torch.from_numpy(rng.normal(size=70)), torch.from_numpy(rng.integers(1, 9, 70) * 1.0)


def test_lengths_and_variances_are_sums_of_what_is_said(rows):
    told = Told.over(*rows, ToldNoise.over(*rows).noise)
    assert told.start.bumps.blended and len(told.start.bumps.centres) == 30
    assert (told.start.coefficients == 0).all() and told.start.coefficients.shape[1] == 2
    says = told.says(torch.arange(70))
    follows = replace(told.start, coefficients=torch.randn(says.shape[1], 2, dtype=torch.float64))
    v = follows.variation(says)
    torch.testing.assert_close(v.lengthscale, says @ follows.coefficients[:, 0])
    torch.testing.assert_close(v.variance, says @ follows.coefficients[:, 1])
    prior = torch.distributions.Normal(0.0, 0.5)
    wanted = (prior.log_prob(torch.zeros(1).double()) - prior.log_prob(follows.coefficients)).sum()
    torch.testing.assert_close(follows.penalty(), wanted)
    kernel = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double(), ("matern32",))
    assert following(kernel, None, says) is kernel and following(kernel, follows, None) is kernel
    assert torch.equal(following(kernel, follows, says).variation.variance, v.variance)


def test_centres_hear_the_places_of_some_rows_alone(rows):
    X, value, counts = rows
    told = Told.over(*rows, ToldNoise.over(*rows).noise)
    for some in (torch.arange(70), torch.arange(0, 70, 2)):
        said = told.noise.standardised(what_places_say(X[some], value[some], counts[some]))
        first = {tuple(p): k for k, p in reversed(list(enumerate(X[some, :2].tolist())))}
        places, numbers = np.array(list(first)), list(first.values())
        torch.testing.assert_close(told.says(some), told.start.bumps.heard(places, said[numbers]))


def test_centres_are_at_most_two_hundred():
    X = torch.rand(900, 2, generator=torch.Generator().manual_seed(0)).double()
    told = Told.over(
        X, X[:, 0], torch.ones(900).double(), ToldNoise.over(X, X[:, 0], torch.ones(900).double()).noise
    )
    assert len(told.start.bumps.centres) == 200

"""A noise that differs from place to place, told by the likelihood of few rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import geogp
from geogp.field.choose import Trials
from geogp.field.kernel import LocalKernel
from geogp.field.local_gp import LocalGP
from geogp.field.predict.outlook import outlook
from geogp.field.variation import noisiness
from geogp.field.variation.noisiness import FEWEST, PLACES_A_CENTRE, PRIOR_SD, SHARPER_SD, Noisiness

N, M = 300, 900
SIDE = 10.0


def world(seed, quiet, loud, n=N + M):
    """A surface, and noise that is quiet in the west and loud in the east: places, surface, noise sd, values."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, SIDE, (n, 2))
    f = np.sin(X[:, 0] / 1.5) + np.cos(X[:, 1] / 1.2)
    noise = np.where(X[:, 0] < SIDE / 2, quiet, loud)
    return X, f, noise, f + noise * rng.normal(size=n)


def fitted(X, y, options=(), **how):
    options = {"steps": 30, **dict(options)}  # from there on all rows are taken together
    return geogp.GPRegressor(random_state=0, target_transform="identity", options=options, **how).fit(X, y)


def variation(model):
    return model.engine_.field.gp.kernel.variation


@pytest.fixture(scope="module")
def apart():
    X, f, noise, y = world(2, 0.1, 0.8)
    return (X[N:], f[N:], noise[N:], y[N:]), fitted(X[:N], y[:N])


def test_it_is_learned_and_tells_where_new_values_scatter(apart, monkeypatch):
    (X, f, noise, y), model = apart
    assert variation(model) is not None and not variation(model).lengthscale.any()
    scale = np.sqrt(model.moments(X).noise_variance.double().numpy())
    west = X[:, 0] < SIDE / 2 - 1
    east = X[:, 0] > SIDE / 2 + 1
    assert 2.0 * scale[west].mean() < scale[east].mean() and np.corrcoef(scale, noise)[0, 1] > 0.8
    monkeypatch.setattr(Trials, "noisier", lambda trials, plain: plain)
    X0, _, _, y0 = world(2, 0.1, 0.8)
    alike = fitted(X0[:N], y0[:N])
    assert variation(alike) is None
    assert -model.predictive(X).log_density(y).mean() < -alike.predictive(X).log_density(y).mean() - 0.2
    # Where it is loud intervals are no longer too narrow.
    inside = [(np.abs(m.predictive(X[east]).cdf(y[east]) - 0.5) < 0.475).mean() for m in (model, alike)]
    assert inside[0] > max(0.86, inside[1] + 0.03)
    error = [np.square(m.predict(X, latent=True) - f).mean() for m in (model, alike)]
    assert error[0] < 0.9 * error[1]


def test_an_edge_is_learned_as_one(apart, monkeypatch):
    (X, _, noise, _), model = apart

    def off(model):
        return float(np.abs(np.log(model.moments(X).noise_variance.numpy()) / 2 - np.log(noise)).mean())

    monkeypatch.setattr(noisiness, "SHARPER_SD", 1e-4)
    X0, _, _, y0 = world(2, 0.1, 0.8)
    assert off(model) < 0.85 * off(fitted(X0[:N], y0[:N]))


def many_sizes(n, m, typical, seed=4):
    """A surface under a noise of very different sizes: places, values, noise sd."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, SIDE, (n + m, 2))
    f = np.sin(X[:, 0] / 1.5) + np.cos(X[:, 1] / 1.2)
    noise = typical * np.exp(1.5 * np.sin(X[:, 0] / 2.0))
    return X, f + noise * rng.normal(size=n + m), noise


@pytest.mark.parametrize("weighted", [True, False])
def test_a_noise_of_many_sizes_is_none_with_tails(weighted, monkeypatch):
    """Learned while it is one everywhere it passes for one, and those who are weighed so are trusted too much where it is loud."""
    n = 500
    X, y, noise = many_sizes(n, 1000, 0.4)
    if not weighted:
        read = Trials._read_simply
        monkeypatch.setattr(Trials, "_read_simply", lambda t, gp: replace(read(t, gp), weighted=False))
    model = fitted(X[:n], y[:n], {"steps": 120})
    monkeypatch.setattr(LocalGP, "without_tails", lambda gp: gp)
    tailed = fitted(X[:n], y[:n], {"steps": 120})
    assert model.engine_.field.gp.degrees_of_freedom is None
    assert tailed.engine_.field.gp.degrees_of_freedom < 10 and tailed.engine_.field.gp.weighted == weighted
    X, y, loud = X[n:], y[n:], noise[n:] > 1.2
    nll = [-m.predictive(X).log_density(y).mean() for m in (model, tailed)]
    assert nll[0] < nll[1] - 0.03
    inside = [(np.abs(m.predictive(X[loud]).cdf(y[loud]) - 0.5) < 0.475).mean() for m in (model, tailed)]
    # Of observations that are not weighed the other holds nearly as much, and is told apart by its densities.
    assert inside[0] > inside[1] + (0.02 if weighted else 0.0)
    missed = [-m.predictive(X[loud]).log_density(y[loud]).mean() for m in (model, tailed)]
    assert missed[0] < missed[1] - 0.03


def test_networks_hear_of_it(monkeypatch):
    """Of rows enough for them it is their input: they alone see a place's noise in a few neighbours' deviations."""
    n, few = 1000, {"n_targets": 1000, "members": 3, "epochs": 6, "metric": False}
    X, y, noise = many_sizes(n, 1000, 0.1)
    model = fitted(X[:n], y[:n], options=few)
    monkeypatch.setattr(Trials, "noisier", lambda trials, plain: plain)
    alone = fitted(X[:n], y[:n], options=few)
    known = model.engine_.field.known
    assert known.gp.kernel.variation.noise is not None and alone.engine_.field.gp.kernel.variation is None
    heard = outlook(known, torch.from_numpy(X[n:]), None).inputs[:, -1]
    assert np.corrcoef(heard.numpy(), np.log(noise[n:]))[0, 1] > 0.9
    X, y = X[n:], y[n:]
    nll = [-m.predictive(X).log_density(y).mean() for m in (model, alone)]
    assert nll[0] < nll[1] - 0.05
    again = geogp.GPRegressor.from_state(*model.state())
    np.testing.assert_allclose(
        again.predictive(X).log_density(y), model.predictive(X).log_density(y), rtol=1e-6
    )


def test_it_survives_storage_and_what_is_observed_is_as_noisy_as_what_is_to_come(apart):
    (X, *_), model = apart
    again = geogp.GPRegressor.from_state(*model.state())
    for a, b in zip(model.predict(X, return_std=True), again.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    known = model.engine_.field.known
    own = known.gp.noise_variance(known.seen.counts, known.seen.X)
    torch.testing.assert_close(known.seen.noise_variance, known.gp.variance_factor * own)
    assert float(own.max() / own.min()) > 10.0


@pytest.mark.parametrize("seed", range(3))
def test_where_noise_is_alike_it_stays_so(seed):
    X, _, _, y = world(seed, 0.4, 0.4, N)
    assert variation(fitted(X, y)) is None


def test_what_speaks_to_all_rows_but_not_to_those_left_out_is_left_out(monkeypatch):
    X, _, _, y = world(1, 0.1, 0.8, N)
    judged = Trials.judged

    def worse(trials, gp):
        found = judged(trials, gp)
        if gp.kernel.variation is not None:
            found.each["rows"].sub_(5.0)
        return found

    monkeypatch.setattr(Trials, "judged", worse)
    assert variation(fitted(X, y)) is None


def test_the_same_field_with_one_noise_everywhere_has_one():
    X, _, _, y = world(1, 0.1, 0.8, N)
    assert variation(fitted(X, y, method="local-gp")) is None


def test_copies_of_a_row_do_not_tell_that_it_is_quiet_there():
    """A table that is joined from two may hold the rows of one twice."""
    X, _, _, y = world(0, 0.4, 0.4, 200)
    east = X[:, 0] > SIDE / 2
    assert variation(fitted(np.vstack([X, X[east]]), np.r_[y, y[east]])) is None


def test_too_few_places_tell_nothing():
    X = torch.from_numpy(world(0, 1.0, 1.0, FEWEST * PLACES_A_CENTRE)[0])
    assert Noisiness.over(X).n_coefficients == FEWEST + 1
    assert Noisiness.over(X[1:]) is None and Noisiness.over(X[1:].repeat(9, 1)) is None


def test_rows_and_map_are_told_the_same():
    X = torch.from_numpy(world(0, 1.0, 1.0, 200)[0])
    among = Noisiness.over(X)
    c = torch.linspace(-1.0, 2.0, among.n_coefficients).double()
    bumps = among.variation(c)
    torch.testing.assert_close(bumps.noise_factor(X), among.noise_factor(c))
    h, s = bumps(X)
    assert not h.any() and not s.any()
    assert among.noise_factor(0 * c).tolist() == [1.0] * 200
    # Beyond the places, too, nothing is quieter or louder than any of them.
    far = bumps.noise_factor(torch.tensor([[-1e3, 0.0], [1e3, 1e3]]).double())
    assert bool((far >= c.min().exp()).all() and (far <= c.max().exp()).all())
    sd = torch.full_like(c, PRIOR_SD)
    sd[-1] = SHARPER_SD
    prior = torch.distributions.Normal(0.0, sd)
    torch.testing.assert_close(Noisiness.penalty(c), (prior.log_prob(0 * c) - prior.log_prob(c)).sum())


def test_a_noise_that_differs_bends_no_kernel_and_what_is_yet_to_be_learned_does():
    X = torch.rand(60, 2, generator=torch.Generator().manual_seed(1)).double()
    among = Noisiness.over(X.repeat(9, 1) + 0.01 * torch.arange(9).repeat_interleave(60)[:, None])
    loud = among.variation(torch.linspace(-1, 1, among.n_coefficients).double())
    plain = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double(), ("matern32",))
    assert not loud.bends
    assert torch.equal(replace(plain, variation=loud)(X, X), plain(X, X))
    assert float(replace(plain, variation=loud).prior_at(X)) == 1.0
    for name in ("lengthscale", "variance"):
        zero = torch.zeros(len(loud.noise), dtype=torch.float64, requires_grad=True)
        learns = replace(loud, **{name: zero})
        assert learns.bends
        replace(plain, variation=learns)(X, X).sum().backward()
        assert zero.grad.abs().max() > 0
        bent = replace(loud, **{name: torch.full_like(zero, 0.3).detach()})
        assert bent.bends and not torch.allclose(replace(plain, variation=bent)(X, X), plain(X, X))

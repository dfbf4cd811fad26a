"""Lengthscale, variance and noise that follow how near each other places are, told by the likelihood of few rows."""

import numpy as np
import pytest
import torch

import geogp
from geogp.field.choose import Trials
from geogp.field.kernel import LocalKernel
from geogp.field.likelihood.restricted import Rows, restricted
from geogp.field.likelihood.together import fit_all_together
from geogp.field.likelihood.trained import Trained
from geogp.field.local_gp import LocalGP
from geogp.field.noise.rows import CLIP, PRIOR_SD, RANK
from geogp.field.variation.crowding import EVEN, UNIT, Crowding

N, M = 420, 900


def places(rng, n):
    """Half of them in a town of a tenth of the ground's width, half anywhere."""
    return np.where(rng.random((n, 1)) < 0.5, 5 + rng.normal(0, 0.5, (n, 2)), rng.uniform(0, 10, (n, 2)))


@pytest.fixture(scope="module")
def town():
    """A surface that is rough within the town alone, and noise that is three times as large without: rows, places asked
    for, their surface and noise sd."""
    rng = np.random.default_rng(6)
    X = places(rng, N + M)
    within = np.exp(-0.5 * ((X - 5) ** 2).sum(1))
    f = np.sin(X[:, 0] / 3) + within * np.sin(9 * X[:, 0]) * np.cos(8 * X[:, 1])
    noise = 0.45 - 0.3 * within
    y = f + noise * rng.normal(size=len(X))
    return X[:N], y[:N], X[N:], y[N:], f[N:], noise[N:], within[N:]


@pytest.fixture(scope="module")
def models(town):
    X, y, *_ = town
    return {
        name: geogp.GPRegressor("local-gp", random_state=0, target_transform="identity", options=o).fit(X, y)
        for name, o in (("alike", {"varying": 0}), ("crowded", {}))
    }


def test_it_is_learned_and_predicts_better(town, models):
    _, _, X, y, f, noise, within = town
    bumps = models["crowded"].engine_.field.gp.kernel.variation
    assert bumps is not None and models["alike"].engine_.field.gp.kernel.variation is None
    nll = {name: -m.predictive(X).log_density(y).mean() for name, m in models.items()}
    error = {name: np.square(m.predict(X, latent=True) - f).mean() for name, m in models.items()}
    assert nll["crowded"] < nll["alike"] - 0.03 and error["crowded"] < 0.9 * error["alike"]
    # ... and says where the noise is large
    m = models["crowded"].moments(X)
    sd = models["crowded"].target_sd_ * m.noise_variance.double().sqrt().numpy()
    assert sd[within > 0.8].mean() < 0.7 * sd[within < 0.1].mean()
    assert np.corrcoef(sd, noise)[0, 1] > 0.8


def test_it_survives_storage_and_conditioning(town, models):
    _, _, Q, *_ = town
    model = models["crowded"]
    again = geogp.GPRegressor.from_state(*model.state())
    for a, b in zip(model.predict(Q, return_std=True), again.predict(Q, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    np.testing.assert_allclose(model.moments(Q).noise_variance, again.moments(Q).noise_variance, rtol=1e-9)


def test_what_is_observed_is_as_noisy_as_what_is_to_come(models):
    """Rows are conditioned on with the noise that new measurements at their places would have."""
    known = models["crowded"].engine_.field.known
    own = known.gp.noise_variance(known.seen.counts, known.seen.X)
    torch.testing.assert_close(known.seen.noise_variance, known.gp.variance_factor * own)
    assert float(own.max() / own.min()) > 2.0


def test_where_all_is_alike_it_is_left_out():
    rng = np.random.default_rng(0)
    X = places(rng, 300)
    y = np.sin(X[:, 0]) + np.cos(X[:, 1]) + 0.3 * rng.normal(size=300)
    model = geogp.GPRegressor("local-gp", random_state=0, target_transform="identity").fit(X, y)
    assert model.engine_.field.gp.kernel.variation is None


@pytest.mark.parametrize(("kind", "kept"), [("blocks", False), ("sides", False), ("rows", True)])
def test_what_loses_in_gaps_is_left_out(town, monkeypatch, kind, kept):
    """All rows speak for it, and for single rows; of blocks and sides that are left out they know nothing."""
    judged = Trials.judged

    def worse(trials, gp):
        found = judged(trials, gp)
        if gp.kernel.variation is not None:
            found.each[kind].sub_(5.0)
        return found

    monkeypatch.setattr(Trials, "judged", worse)
    X, y, *_ = town
    model = geogp.GPRegressor("local-gp", random_state=0, target_transform="identity").fit(X, y)
    assert (model.engine_.field.gp.kernel.variation is not None) == kept


def test_few_rows_follow_nothing(town):
    """Of fewer than 400 no gap is left out to tell whether it would be too sure there."""
    X, y, *_ = town
    model = geogp.GPRegressor("local-gp", random_state=0, target_transform="identity").fit(X[:390], y[:390])
    assert model.engine_.field.gp.kernel.variation is None


def test_without_crowds_there_is_nothing_to_follow():
    assert Crowding.over(torch.rand(9, 2).double()) is None  # too few to say how near they are
    angle = torch.linspace(0.0, 2.0 * torch.pi, 41)[:40].double()
    ring = torch.stack([angle.cos(), angle.sin()], 1)
    assert Crowding.over(ring) is None


def log_density(P):
    """By all distances."""
    return -np.log(np.sort(np.linalg.norm(P[:, None] - P[None], axis=-1), axis=1)[:, RANK])


@pytest.mark.parametrize("power", [1.3, 1.5, 3.0])
def test_crowding_is_log_density_in_units_of_its_sd_or_of_a_half(power):
    P = np.random.default_rng(1).random((300, 2)) ** power
    times = np.random.default_rng(2).random((300, 1))
    crowding = Crowding.over(torch.from_numpy(np.hstack([P, times])))
    said = crowding.bumps.heard(P, torch.from_numpy(log_density(P)))
    at_rows = crowding.bumps.shares(torch.from_numpy(P)) @ said
    spread = float(at_rows.std(unbiased=False))
    assert (spread < UNIT) == (power < 2) and spread > EVEN
    z = ((v - at_rows.mean()) / max(spread, UNIT) for v in (said, at_rows))
    for found, wanted in zip((crowding.at_centres, crowding.at_rows), z):
        torch.testing.assert_close(found, wanted.clamp(-CLIP, CLIP))
    assert np.corrcoef(crowding.at_rows, log_density(P))[0, 1] > 0.6


def test_coefficients_have_the_prior_of_those_of_the_noise():
    c = torch.tensor([0.3, -1.2, 2.0]).double()
    prior = torch.distributions.Normal(0.0, PRIOR_SD)
    constant = -prior.log_prob(torch.zeros(3).double()).sum()
    torch.testing.assert_close(Crowding.penalty(c), -prior.log_prob(c).sum() - constant)


def test_the_likelihood_is_that_of_a_dense_covariance():
    """Kernel and noise with their factors, the restricted likelihood written out."""
    rng = np.random.default_rng(5)
    X = torch.from_numpy(places(rng, 80))
    y, one = torch.from_numpy(rng.normal(size=80)), torch.ones(80).double()
    crowding = Crowding.over(X)
    kernel = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double(), ("matern32",))
    model = Trained(kernel, 0, None, None, student=False, per_count=False, crowding=crowding)
    coefficients = torch.tensor([0.4, -0.7, 0.3]).double()
    with torch.no_grad():
        model.crowding_coefficients.copy_(coefficients)
        model.tau2.fill_(np.log(0.2))
    rows = Rows(X, y, one, torch.zeros(80, 0).double(), one)
    loss = restricted(X, kernel, dense_below=100, seed=0).backward(model, rows)
    h, s = (torch.exp(v * crowding.at_rows) for v in coefficients[:2])
    square = 0.5 * (h[:, None] ** 2 + h[None] ** 2)
    d = torch.cdist(X, X) / square.sqrt() * np.sqrt(3.0)
    K = (s[:, None] * s[None]).sqrt() * h[:, None] * h[None] / square * (1 + d) * torch.exp(-d)
    S = K + torch.diag(0.2 * torch.exp(0.3 * crowding.at_rows))
    F = torch.linalg.qr(torch.cat([torch.ones(80, 1).double(), X], 1))[0]
    A = F.T @ torch.linalg.solve(S, F)
    P = torch.linalg.inv(S) - torch.linalg.solve(S, F) @ torch.linalg.solve(A, torch.linalg.solve(S, F).T)
    assert loss == pytest.approx(float(0.5 * (y @ P @ y + torch.logdet(S) + torch.logdet(A))), rel=1e-6)


def test_the_search_starts_where_nothing_is_followed():
    rng = np.random.default_rng(2)
    X = torch.from_numpy(places(rng, 120))
    y, one = torch.sin(X[:, 0]) + 0.1 * torch.from_numpy(rng.normal(size=120)), torch.ones(120).double()
    kernel = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double(), ("matern32",))
    gp = LocalGP(kernel, 0.1, 0.0, None, torch.zeros(0).double(), ())
    _, plain = fit_all_together(gp, X, y, one, per_count=False)
    _, gain = fit_all_together(gp, X, y, one, per_count=False, crowding=Crowding.over(X))
    assert gain > plain - 0.5  # it has all that the plain one has

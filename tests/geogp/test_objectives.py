"""Objectives against formulas written out in another way."""

from dataclasses import replace

import numpy as np
import pytest
import scoringrules
import torch
from scipy import stats

from geogp.basis.objectives import OBJECTIVES, Terms, Weights
from geogp.basis.objectives.objective import COUNTS, GIVEN_MEAN, LEARNS, POINT
from geogp.densities import gaussian_crps, gaussian_nll


def terms(seed: int = 0, n: int = 12) -> Terms:
    g = torch.Generator().manual_seed(seed)

    def positive() -> torch.Tensor:
        return torch.rand(n, generator=g, dtype=torch.float64) + 0.1

    return Terms(
        y=torch.randn(n, generator=g, dtype=torch.float64),
        mean=torch.randn(n, generator=g, dtype=torch.float64),
        weight_variance=positive(),
        residual_variance=positive(),
        basis_variance=positive(),
        noise_variance=positive(),
        kl=torch.tensor(3.0, dtype=torch.float64),
        n_total=100,
    )


def test_pointwise_scores_match_independent_libraries():
    t = terms()
    sd = t.noise_variance.sqrt()
    nll = gaussian_nll(t.y, t.mean, t.noise_variance).numpy()
    np.testing.assert_allclose(nll, -stats.norm.logpdf(t.y, t.mean, sd), rtol=1e-12)
    crps = gaussian_crps(t.y, t.mean, t.noise_variance).numpy()
    np.testing.assert_allclose(
        crps, scoringrules.crps_normal(t.y.numpy(), t.mean.numpy(), sd.numpy()), rtol=1e-10
    )


def test_elbo_is_the_expected_log_likelihood_minus_kl():
    t = terms()
    # E_q log N(y; f, s2) by Gauss-Hermite, which is exact for a quadratic.
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    f = t.mean.numpy()[:, None] + np.sqrt(t.latent_variance.numpy())[:, None] * nodes
    log_density = stats.norm.logpdf(t.y.numpy()[:, None], f, np.sqrt(t.noise_variance.numpy())[:, None])
    expected = log_density @ (weights / weights.sum())
    loss = OBJECTIVES["elbo"](t, Weights())
    np.testing.assert_allclose(float(loss), -expected.mean() + 3.0 / 100, rtol=1e-12)


def test_dppgp_is_ppgp_plus_the_trace_term_and_the_log_of_the_crps():
    t = terms()
    gap = (t.basis_variance.max() - t.basis_variance) / (2 * t.noise_variance)
    w = Weights(trace=0.3, kl=0.7, crps=0.0)
    difference = OBJECTIVES["dppgp"](t, w) - OBJECTIVES["ppgp"](t, w)
    torch.testing.assert_close(difference, 0.3 * gap.mean())
    crps = gaussian_crps(t.y, t.mean, t.latent_variance + t.noise_variance).mean()
    with_crps = OBJECTIVES["dppgp"](t, replace(w, crps=0.2)) - OBJECTIVES["ppgp"](t, w)
    torch.testing.assert_close(with_crps, 0.3 * gap.mean() + 0.2 * crps.log())


def test_the_trace_term_cannot_be_shrunk_by_growing_the_noise():
    t = terms()
    noise = t.noise_variance.clone().requires_grad_()
    grown = Terms(**{**t.__dict__, "noise_variance": noise})
    (a,) = torch.autograd.grad(OBJECTIVES["dppgp"](grown, Weights(trace=5.0, crps=0.0)), noise)
    (b,) = torch.autograd.grad(OBJECTIVES["ppgp"](grown, Weights(trace=5.0, crps=0.0)), noise)
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "name", [n for n, o in OBJECTIVES.items() if o.does in (LEARNS, POINT, GIVEN_MEAN, COUNTS)]
)
def test_gradients_of_every_minibatch_objective(name):
    t = terms(n=6)

    def loss(mean, weight_variance, noise_variance):
        changed = {"mean": mean, "weight_variance": weight_variance, "noise_variance": noise_variance}
        # The trace term detaches the noise on purpose; without it the gradient is the whole truth.
        return OBJECTIVES[name](Terms(**{**t.__dict__, **changed}), Weights(trace=0.0, kl=0.5, crps=0.3))

    inputs = [v.clone().requires_grad_() for v in (t.mean, t.weight_variance, t.noise_variance)]
    assert torch.autograd.gradcheck(loss, inputs)

"""Counts with a log-normal rate: the evidence lower bound of a Cox process, binned or point by point, with bursts."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from geogp.basis.objectives.objective import COUNTS, objective
from geogp.basis.objectives.terms import Terms, Weights


@objective(COUNTS, "mean of -E_q log NegBin(N; exp f, c), + KL/n; c = 0 is Poisson: exp(μ + σ_f²/2) - N μ")
def poisson(terms: Terms, weights: Weights = Weights(), exposure: Tensor | None = None) -> Tensor:
    """-ELBO / n of counts y with rate exp(f): E_q[exp f] - y E_q[f] averaged, plus KL / n.

    E_q[exp f] = exp(mean + variance / 2) in closed form; log y! is left out, as it does not change the fit.
    A binned point process is this with one row a bin. Without bins, events are rows with exposure 0 and the
    integral is a sum over Monte Carlo points y = 0 whose exposure is the volume each stands for. Unbiased in the
    batch. Cost O(B).

    Source: low-rank-deep-kernel-decomposition, appendix A.5.

    Parameters
    ----------
    exposure : (B,) factor of each row's rate; default 1
    """
    rate = bounded_exp(terms.mean + 0.5 * terms.latent_variance)
    if exposure is not None:
        rate = exposure * rate
    return (rate - terms.y * terms.mean).mean() + terms.kl / terms.n_total


def bounded_exp(x: Tensor) -> Tensor:
    """exp(x), going on along its tangent beyond x = 30: (N,).

    A rate beyond e^30 is no count. A wild step stays finite, and the slope still points back: a constant there would
    leave -y x alone, which falls for ever.

    Examples
    --------
    >>> bounded_exp(torch.tensor([0.0, 200.0])).isfinite().all().item()
    True
    """
    top = x.clamp_max(30.0).exp()
    return top * (1.0 + (x - 30.0).clamp_min(0.0))


#: Least variance of the gamma factor; below it the counts are Poisson.
LEAST = 1e-6


def bursts(terms: Terms, weights: Weights = Weights(), exposure: Tensor | None = None) -> Tensor:
    """-ELBO / n of counts y with rate G exp(f), G a gamma factor of each row with mean 1 and variance c.

    Given f the counts are negative binomial of size 1/c: log p = lnG(y + 1/c) - lnG(1/c) + y (f + ln c)
    - (y + 1/c) ln(1 + c exp f), whose last term is averaged over q by Gauss-Hermite with 12 nodes. c is the terms'
    noise variance; c -> 0 is `poisson` (log y! left out there, too). Without it a busy place counts as so much
    evidence that the intensity follows every burst. Cost O(12 B).
    """
    y, c = terms.y.double(), terms.noise_variance.double().clamp_min(LEAST)
    mean, sd = terms.mean.double(), terms.latent_variance.double().clamp_min(0.0).sqrt()
    if exposure is not None:
        mean = mean + exposure.double().log()
    nodes, share = hermite_nodes(12)
    f = mean[:, None] + sd[:, None] * nodes.to(mean)
    tail = softplus(f + c.log()[:, None]) @ share.to(mean)
    size = 1.0 / c
    log_p = torch.lgamma(y + size) - torch.lgamma(size) + y * (mean + c.log()) - (y + size) * tail
    return (terms.kl.double() / terms.n_total - log_p.mean()).to(terms.mean.dtype)


def hermite_nodes(n: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of a standard normal."""
    x, w = np.polynomial.hermite_e.hermegauss(n)
    return torch.as_tensor(x), torch.as_tensor(w / w.sum())

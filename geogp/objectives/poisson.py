"""Counts with a log-normal rate: the evidence lower bound of a Cox process, binned or point by point."""

from torch import Tensor

from geogp.objectives.terms import Terms, Weights


def poisson(terms: Terms, weights: Weights = Weights(), exposure: Tensor | None = None) -> Tensor:
    """-ELBO / n of counts y with rate exp(f): E_q[exp f] - y E_q[f] averaged, plus KL / n.

    E_q[exp f] = exp(mean + variance / 2) in closed form; log y! is left out, as it does not change the fit.
    A binned point process is this with one row a bin. Without bins, events are rows with exposure 0 and the
    integral is a sum over Monte Carlo points y = 0 whose exposure is the volume each stands for. Unbiased in the
    batch. Cost O(B).

    Parameters
    ----------
    exposure : (B,) factor of each row's rate; default 1

    Source: low-rank-deep-kernel-decomposition, appendix A.5.
    """
    # A rate beyond e^30 is no count: the bound keeps a wild first step finite.
    rate = (terms.mean + 0.5 * terms.latent_variance).clamp_max(30.0).exp()
    if exposure is not None:
        rate = exposure * rate
    return (rate - terms.y * terms.mean).mean() + terms.kl / terms.n_total

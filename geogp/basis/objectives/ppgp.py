"""Parametric predictive likelihood: train what will be used to predict."""

from torch import Tensor

from geogp.basis.objectives.objective import LEARNS, objective
from geogp.basis.objectives.terms import Terms, Weights
from geogp.densities import gaussian_nll


@objective(LEARNS, "mean -log N(y; μ, σ_f² + σ²) + β KL/n", predictive=True, exact_variance=True)
def ppgp(terms: Terms, weights: Weights) -> Tensor:
    """-log N(y; mean, latent variance + sigma^2) averaged, plus beta KL / n.

    Unbiased in the batch. Cost O(B). Source: deep-basis-kernel-gp, eq. 6.
    """
    variance = terms.latent_variance + terms.noise_variance
    return gaussian_nll(terms.y, terms.mean, variance).mean() + weights.kl * terms.kl / terms.n_total

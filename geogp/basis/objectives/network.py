"""Losses of plain networks, whose weights are points."""

from torch import Tensor

from geogp.basis.objectives.objective import POINT, objective
from geogp.basis.objectives.terms import Terms, Weights
from geogp.densities import gaussian_nll


@objective(POINT, "mean ½ (y - μ)²")
def mse(terms: Terms, weights: Weights) -> Tensor:
    """Half the mean squared error; the noise is fitted afterwards. Unbiased in the batch. Cost O(B).

    Source: deep-basis-kernel-gp, appendix B (DNN).
    """
    return 0.5 * (terms.y - terms.mean).square().mean()


@objective(POINT, "mean -log N(y; μ, σ²) + ‖w‖²/(2n)")
def map_loss(terms: Terms, weights: Weights) -> Tensor:
    """-log N(y; mean, sigma^2) averaged, plus ||w||^2 / (2 n): the maximum a posteriori with its noise.

    Unbiased in the batch. Cost O(B). Source: fixed-mean-gp, section V (MAP with optimised Gaussian noise).
    """
    return gaussian_nll(terms.y, terms.mean, terms.noise_variance).mean() + terms.kl / terms.n_total

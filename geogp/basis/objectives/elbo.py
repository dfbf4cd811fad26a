"""The evidence lower bound of a sparse or last-layer Gaussian process."""

from torch import Tensor

from geogp.basis.objectives.objective import LEARNS, objective
from geogp.basis.objectives.terms import Terms, Weights
from geogp.densities import gaussian_nll


@objective(LEARNS, "mean -log N(y; μ, σ²) + σ_f²/(2σ²) + KL/n")
def elbo(terms: Terms, weights: Weights) -> Tensor:
    """-ELBO / n: -log N(y; mean, sigma^2) + latent variance / (2 sigma^2), plus KL / n.

    With residual 'nystrom' this is SVGP; with 'none' and the SiLU expansion it is VBLL.
    `weights` are not used: the bound has none. Unbiased in the batch. Cost O(B).

    Source: deep-basis-kernel-gp, eq. 5 and appendix B (VBLL).
    """
    fit = gaussian_nll(terms.y, terms.mean, terms.noise_variance)
    spread = 0.5 * terms.latent_variance / terms.noise_variance
    return (fit + spread).mean() + terms.kl / terms.n_total

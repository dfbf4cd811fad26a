"""The alpha = 1 objective of one Gaussian measure of a fixed-mean GP."""

from dataclasses import replace

from torch import Tensor

from geogp.basis.objectives.objective import GIVEN_MEAN, objective
from geogp.basis.objectives.ppgp import ppgp
from geogp.basis.objectives.terms import Terms, Weights


@objective(GIVEN_MEAN, "the α = 1 bound of q (mean given) and of the auxiliary q*")
def fixed_mean(terms: Terms, weights: Weights) -> Tensor:
    """-(log E_q[p(y | f)] averaged) + KL(q || p) / n for one measure q.

    With Gaussian noise log E_q[p(y | f)] = log N(y; mean, latent variance + sigma^2). The loss of the method is
    the sum over two measures that share kernel, inducing points, covariance and noise: q, whose mean is the
    frozen predictor (the mean of its weights is 0, so its KL has no mean part, eq. 27), and the auxiliary q*,
    whose mean is its own: without it the kernel would shrink to nothing. Unbiased in the batch. Cost O(B).

    Source: fixed-mean-gp, eq. 27, 29 and 30.
    """
    return ppgp(terms, replace(weights, kl=1.0))

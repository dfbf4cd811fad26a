"""PPGP for any basis: the missing variance correction becomes a regulariser of the prior variance."""

from torch import Tensor

from geogp.objectives.ppgp import ppgp
from geogp.objectives.terms import Terms, Weights


def dppgp(terms: Terms, weights: Weights) -> Tensor:
    """PPGP + alpha * mean((max ||phi||^2 - ||phi||^2) / (2 sigma^2)), the maximum over the batch.

    The trace term pulls the prior variance of the basis towards the same value everywhere. sigma^2 is
    detached there: otherwise the noise could grow just to make the term small. Biased in the batch through
    the maximum. Cost O(B).

    Source: deep-basis-kernel-gp, eq. 15 and algorithm 3.
    """
    gap = terms.basis_variance.max() - terms.basis_variance
    trace = (gap / (2.0 * terms.noise_variance.detach())).mean()
    return ppgp(terms, weights) + weights.trace * trace

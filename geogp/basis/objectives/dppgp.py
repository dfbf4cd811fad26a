"""PPGP for any basis: the missing variance correction becomes a regulariser of the prior variance."""

from torch import Tensor

from geogp.basis.objectives.objective import LEARNS, objective
from geogp.basis.objectives.ppgp import ppgp
from geogp.basis.objectives.terms import Terms, Weights
from geogp.densities import gaussian_crps


@objective(
    LEARNS,
    "mean -log N(y; μ, σ_f² + σ²) + α mean (max ‖φ‖² - ‖φ‖²)/(2σ²) + β KL/n + c log CRPS",
    predictive=True,
    traced=True,
)
def dppgp(terms: Terms, weights: Weights) -> Tensor:
    """PPGP + alpha * mean((max ||phi||^2 - ||phi||^2) / (2 sigma^2)) + c * log(mean CRPS), the maximum over the batch.

    The trace term pulls the prior variance of the basis towards the same value everywhere. sigma^2 is
    detached there: otherwise the noise could grow just to make the term small. Biased in the batch through
    the maximum. Cost O(B).

    NLL divides a miss by its own variance, so a fit follows what it finds easy and gives up the rest; the CRPS term
    (c = 1, not in the paper) holds on to all of it. The logarithm makes it a relative gain, as a difference of NLL
    is, whatever the scale of the noise.

    Source: deep-basis-kernel-gp, eq. 15 and algorithm 3.
    """
    gap = terms.basis_variance.max() - terms.basis_variance
    trace = (gap / (2.0 * terms.noise_variance.detach())).mean()
    loss = ppgp(terms, weights) + weights.trace * trace
    if weights.crps:
        variance = terms.latent_variance + terms.noise_variance
        loss = loss + weights.crps * gaussian_crps(terms.y, terms.mean, variance).mean().log()
    return loss

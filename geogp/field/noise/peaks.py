"""Where a noise with two peaks begins to learn: where rows that were left out have theirs, all taken together."""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from geogp.densities import log_density

Array = NDArray[np.float64]

#: Share of the second peak at most, and what its outputs are where the networks say nothing: logit of its share of that, how far it
#: lies from the location in working units, log scale; how far they leave it at most.
LARGEST_SHARE, PEAK_START, PEAK_REACH = 0.5, (-3.3, 0.0, 0.0), (6.0, 6.0, 4.0)
#: A noise with an excess kurtosis below minus this is two hills side by side, or one without tails: from where one hill is learning
#: finds no second one beside it, for what draws it one way draws it the other way, too. The logit of its share then.
FLAT, EVEN = 0.8, 2.0
#: Share of the noise that is left to either peak at least.
LEAST_LEFT = 0.02
#: Sds of the rows below and above them where a second peak is sought, its sd and the logit of its share there; their least sd, and
#: rows that say at most.
SOUGHT, SOUGHT_SD, SOUGHT_SHARE, LEAST_SD, ROWS = (-1.5, 1.5), 0.6, -2.0, 1e-3, 12_000
#: What is sought stays within these: logarithm of the first peak's noise, its location, and the second one's outputs.
WITHIN = ((-3.0, 3.0), (-3.0, 3.0), (-5.0, 3.0), (-4.0, 4.0), (-2.0, 1.5))


class Even(NamedTuple):
    """Half the distance of two peaks of one height, the noise variance of either, and of both as if they were one."""

    apart: float
    left: float
    noise: float


def even_peaks(away: Tensor, known: Tensor, weight: Tensor) -> Even | None:
    """Two peaks, as the better half of rows say by their moments, where these are flat; None else.

    Of ±d beside a normal variance w: m₂ = d² + w, m₄ − 3 m₂² = −2 d⁴.

    away, known, weight : (N,) how far values lie from the mean, the variance of that, and what each row weighs

    References
    ----------
    Pearson 1894, Contributions to the mathematical theory of evolution
    """
    best = known <= known.median()
    share = weight[best] / weight[best].sum()
    away = away[best] - (share * away[best]).sum()
    second, fourth = (float((share * away**power).sum()) for power in (2, 4))
    noise = second - float((share * known[best]).sum())
    less = 3.0 * second**2 - fourth
    if noise <= 0.0 or less <= FLAT * noise**2:
        return None
    apart = min((0.5 * less) ** 0.25, math.sqrt((1.0 - LEAST_LEFT) * noise))
    return Even(apart, noise - apart**2, noise)


def beside(away: Tensor, known: Tensor, noise: Tensor, nu: float, weight: Tensor) -> Tensor:
    """Outputs (3,) of a second peak beside a Student-t of this noise and ν, as likely as can be for all rows together.

    noise : (N,) squared scales of the first peak's noise, up to a factor; the others as in `even_peaks`

    Notes
    -----
    O(1) passes over `ROWS` rows at most, from below and from above.

    References
    ----------
    McLachlan and Peel 2000, Finite Mixture Models, section 2.12 (several starts)
    """
    some = slice(None, None, -(-len(away) // ROWS))
    away, known, noise, weight = (v[some] for v in (away, known, noise, weight))
    share = weight / weight.sum()
    sd = max(float((share * away.square()).sum().sqrt()), LEAST_SD)

    def loss(at: Array) -> tuple[float, Array]:
        with torch.enable_grad():
            p = torch.from_numpy(at).clone().requires_grad_()
            large, place, logit, offset, log_sd = p.unbind()
            second = LARGEST_SHARE * torch.sigmoid(logit)
            one = log_density(
                away, place.expand_as(away), known + noise * large.exp(), torch.tensor(nu).to(away)
            )
            wide = known + torch.exp(2.0 * log_sd)
            other = log_density(away, (place + offset).expand_as(away), wide, None)
            total = -(share * torch.logaddexp(torch.log1p(-second) + one, second.log() + other)).sum()
            total.backward()
        assert p.grad is not None
        return total.item(), p.grad.numpy()

    starts = [np.array([0.0, 0.0, SOUGHT_SHARE, side * sd, math.log(SOUGHT_SD * sd)]) for side in SOUGHT]
    starts = [np.clip(start, *np.transpose(WITHIN)) for start in starts]
    found = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=WITHIN) for start in starts]
    best = min(found, key=lambda one: float(one.fun))
    return torch.from_numpy(best.x[2:])

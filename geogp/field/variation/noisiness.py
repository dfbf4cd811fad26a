"""A noise that differs from place to place where rows are few: the logarithm of a factor on its variance, blended from centres.

    log of the noise's factor = Σ_m c_m w_m(x),   Σ_m w_m(x) = 1,   c_m ~ N(0, σ²)

How sharply one centre's share ends where the next one's begins is learned with it, for a noise may have an edge.

Many rows teach networks how noisy each place is; of few the likelihood of all rows tells it in a handful of places.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from geogp.field.variation.bumps import Variation
from geogp.linalg.distinct import distinct

#: Places to a centre, centres at most, and the least that tell anything.
PLACES_A_CENTRE, CENTRES, FEWEST = 25, 20, 3
#: σ: of two places one is easily three times as noisy as the other, by sd; and of the logarithm of what widths are divided by.
PRIOR_SD, SHARPER_SD = 1.7, 0.5


@dataclass(frozen=True, eq=False)
class Noisiness:
    """Centres, and how far each row is from them: (N, m), minus half the square in units of the bumps.

    The last of the coefficients is minus the logarithm of what the bumps' width is multiplied by.

    Examples
    --------
    >>> X = torch.rand(200, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> noisiness = Noisiness.over(X)
    >>> noisiness.n_coefficients, round(noisiness.noise_factor(torch.full((9,), 0.5).double())[0].item(), 6)
    (9, 1.648721)
    """

    bumps: Variation
    exponents: Float[Tensor, "N m"]

    @classmethod
    def over(cls, X: Float[Tensor, "N D"]) -> "Noisiness | None":
        """Of observations, their first two columns places in one unit; None where too few places tell.

        Notes
        -----
        O(N m).
        """
        m = min(CENTRES, len(distinct(X[:, :2].cpu().numpy())[0]) // PLACES_A_CENTRE)
        if m < FEWEST:
            return None
        bumps = Variation.blending(X, m)
        return cls(bumps, bumps.exponents(X[:, :2].cpu().double()).to(X.device))

    @property
    def n_centres(self) -> int:
        return self.exponents.shape[1]

    @property
    def n_coefficients(self) -> int:
        return self.n_centres + 1

    def variation(self, coefficients: Float[Tensor, " p"]) -> Variation:
        """Of the noise alone."""
        bumps, sharper = self.bumps.to(coefficients.device), coefficients[-1]
        return replace(bumps, width=bumps.width * torch.exp(-sharper), noise=coefficients[:-1])

    def noise_factor(self, coefficients: Float[Tensor, " p"]) -> Float[Tensor, " N"]:
        """On the noise variances of the rows."""
        shares = torch.softmax(self.exponents * torch.exp(2.0 * coefficients[-1]), dim=-1)
        return torch.exp(shares @ coefficients[:-1])

    @staticmethod
    def penalty(coefficients: Float[Tensor, " p"]) -> Float[Tensor, ""]:
        """Minus the log prior density of the coefficients, less its constant."""
        factors, sharper = coefficients[:-1] / PRIOR_SD, coefficients[-1] / SHARPER_SD
        return 0.5 * (factors.square().sum() + sharper.square())

"""A noise that differs from place to place where rows are few: the logarithm of a factor on its variance, blended from centres.

    log of the noise's factor = Σ_m c_m w_m(x),   Σ_m w_m(x) = 1,   c_m ~ N(0, σ²)

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
#: σ: of two places one is easily twice as noisy as the other, by sd.
PRIOR_SD = 1.0


@dataclass(frozen=True, eq=False)
class Noisiness:
    """Centres, and their shares of each row (N, m).

    Examples
    --------
    >>> X = torch.rand(200, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> noisiness = Noisiness.over(X)
    >>> noisiness.n_coefficients, noisiness.noise_factor(torch.full((8,), 0.5).double())[0].item()
    (8, 1.6487212707001282)
    """

    bumps: Variation
    shares: Float[Tensor, "N m"]

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
        return cls(bumps, bumps.shares(X[:, :2].cpu().double()).to(X.device))

    @property
    def n_coefficients(self) -> int:
        return self.shares.shape[1]

    def variation(self, coefficients: Float[Tensor, " m"]) -> Variation:
        """Of the noise alone."""
        return replace(self.bumps.to(coefficients.device), noise=coefficients)

    def noise_factor(self, coefficients: Float[Tensor, " m"]) -> Float[Tensor, " N"]:
        """On the noise variances of the rows."""
        return torch.exp(self.shares @ coefficients)

    @staticmethod
    def penalty(coefficients: Float[Tensor, " m"]) -> Float[Tensor, ""]:
        """Minus the log prior density of the coefficients, less its constant."""
        return 0.5 * coefficients.square().sum() / PRIOR_SD**2

"""Lengthscale, variance and noise that follow how near each other places are: three coefficients for a whole map.

    log h = a z(x),   log s² = b z(x),   log of the noise's factor = c z(x),   z(x) the log density of places, blended from centres

People measure where people are, and where they are the surface is another: rougher in a town than between towns. What is
measured says nothing of z, so that the likelihood of all rows may tell a, b and c.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial import cKDTree
from torch import Tensor

from geogp.field.noise.rows import CLIP, PRIOR_SD, RANK
from geogp.field.variation.bumps import Variation
from geogp.linalg.distinct import distinct

#: Centres at most: a town is narrow.
CENTRES = 400
#: Of log density: places are as near as others where its sd is less than the first, as on a lattice, and z is its
#: difference in units of its sd, which is at least the second.
EVEN, UNIT = 0.1, 0.5


@dataclass(frozen=True, eq=False)
class Crowding:
    """Log density of places, in units of about its sd, at the centres of bumps (m,), and at rows (N,).

    Examples
    --------
    >>> X = torch.rand(90, 2, generator=torch.Generator().manual_seed(0)).double() ** 3  # ever denser towards the origin
    >>> crowding = Crowding.over(X)
    >>> bool(crowding.at_rows[X.sum(1).argmin()] > crowding.at_rows[X.sum(1).argmax()])
    True
    """

    bumps: Variation
    at_centres: Float[Tensor, " m"]
    at_rows: Float[Tensor, " N"]

    @classmethod
    def over(cls, X: Float[Tensor, "N D"]) -> "Crowding | None":
        """Of observations, their first two columns places in one unit; None where all places are as near as others.

        Notes
        -----
        O(N log N + m N).
        """
        places = distinct(X[:, :2].cpu().numpy())[0]
        if len(places) <= RANK:
            return None
        density = -np.log(cKDTree(places).query(places, k=[RANK + 1])[0][:, 0])
        bumps = Variation.blending(X, CENTRES)
        said = bumps.heard(places, torch.from_numpy(density))
        at_rows = bumps.shares(X[:, :2].cpu().double()) @ said
        spread = float(at_rows.std(unbiased=False))
        if spread < EVEN:
            return None
        z = ((v - at_rows.mean()) / max(spread, UNIT) for v in (said, at_rows))
        return cls(bumps, *(v.clamp(-CLIP, CLIP).to(X.device) for v in z))

    @property
    def n_coefficients(self) -> int:
        return 3

    def variation(self, coefficients: Float[Tensor, " 3"]) -> Variation:
        """Of lengthscale, variance and noise, by a, b and c."""
        a, b, c = coefficients
        return replace(
            self.bumps.to(coefficients.device),
            lengthscale=a * self.at_centres,
            variance=b * self.at_centres,
            noise=c * self.at_centres,
        )

    def noise_factor(self, coefficients: Float[Tensor, " 3"]) -> Float[Tensor, " N"]:
        """On the noise variances of the rows."""
        return torch.exp(coefficients[2] * self.at_rows)

    @staticmethod
    def penalty(coefficients: Float[Tensor, " 3"]) -> Float[Tensor, ""]:
        """Minus the log prior density of the coefficients, less its constant."""
        return 0.5 * coefficients.square().sum() / PRIOR_SD**2

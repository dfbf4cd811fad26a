"""What is left of the prior variance beyond the basis: r(x) in f = m + phi'w + r. One file each.

`local` (a Gaussian process conditioned on the nearest observations) is fitted after the basis and lives in
`geogp.residuals.local`; the entries here only add a variance.
"""

from geogp.residuals.base import Residual
from geogp.residuals.distance import Distance
from geogp.residuals.unit import Unit
from geogp.residuals.variance import NoResidual, Nystrom

RESIDUALS: dict[str, type[Residual]] = {
    "none": NoResidual,
    "nystrom": Nystrom,
    "unit": Unit,
    "distance": Distance,
}

__all__ = ["RESIDUALS", "Residual"]

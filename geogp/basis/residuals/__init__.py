"""What is left of the prior variance beyond the basis: r(x) in f = m + phi'w + r. One file each.

`local` (a Gaussian process conditioned on the nearest observations) is fitted after the basis and lives in
`geogp.field.kernel`; the entries here only add a variance.
"""

from geogp.basis.residuals.base import Residual
from geogp.basis.residuals.distance import Distance
from geogp.basis.residuals.unit import Unit
from geogp.basis.residuals.variance import NoResidual, Nystrom

RESIDUALS: dict[str, type[Residual]] = {
    "none": NoResidual,
    "nystrom": Nystrom,
    "unit": Unit,
    "distance": Distance,
}

__all__ = ["RESIDUALS", "Residual"]

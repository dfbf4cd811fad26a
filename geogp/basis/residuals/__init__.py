"""What is left of the prior variance beyond the basis: r(x) in f = m + phi'w + r. One file each."""

from geogp.basis.residuals.base import Residual
from geogp.registry import registry

RESIDUALS: dict[str, type[Residual]] = registry(
    __name__,
    {
        "none": "variance.NoResidual",
        "nystrom": "variance.Nystrom",
        "unit": "unit.Unit",
        "distance": "distance.Distance",
        "local": "local.Local",
    },
)

__all__ = ["RESIDUALS", "Residual"]

"""What is left of the prior variance beyond the basis: r(x) in f = m + phi'w + r. One file each.

`local` (a Gaussian process conditioned on the nearest observations) is fitted after the basis and lives in
`geogp.residuals.local`; the entries here only add a variance.
"""

from geogp.residuals.variance import RESIDUALS, Residual

__all__ = ["RESIDUALS", "Residual"]

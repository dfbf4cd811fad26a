"""The residual that is a process of its own."""

from geogp.basis.residuals.base import Residual


class Local(Residual):
    """A Gaussian process conditioned on the nearest observations on all sides.

    Fitted to what the rest of a row leaves over, by the engine that carries it: `geogp.field`.
    """

    formula = "r a Gaussian process conditioned on the nearest observations"
    carried_by = "local"
    reverts_to_prior = True

"""What methods without a basis name in its place."""

from geogp.basis.expansions.base import Expansion


class NoBasis(Expansion):
    """No basis: the field is all residual."""

    formula = "no φ"
    is_basis = False


class ExactKernel(Expansion):
    """The kernel itself, no basis."""

    formula = "k(x, x'), as it is"
    is_basis = False

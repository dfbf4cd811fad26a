"""What every objective promises, and the mark that makes one of a function."""

import functools
from collections.abc import Callable

from torch import Tensor

#: What an objective does with the weights, and so what it is a function of.
LEARNS = "learns the weights"  # (Terms, Weights) of a minibatch
SOLVES = "solves for the weights"  # Sums over all rows
SOLVES_BATCHES = "solves for the weights of a batch"  # (Design, seed) of a batch
POINT = "leaves the weights a point"  # (Terms, Weights) of a minibatch
COUNTS = "models counts"  # (Terms, exposure) of a minibatch
GIVEN_MEAN = "leaves the mean as it is given"  # (Terms, Weights) of a minibatch, twice
NEIGHBOURS = "conditions on neighbours"  # the local field's own


class Objective:
    """A loss to minimise, lower is better; call it as its function.

    does : one of the constants of this file
    formula : for the methods' pages
    predictive : it trains what is predicted, so that the learned scale of the weights is part of the predictive
        variance: an update keeps that scale and renews the mean
    exact_variance : it needs the variance of a base kernel, not of a basis alone
    traced : it has the trace term, whose weight validation rows may choose
    """

    def __init__(
        self,
        loss: Callable[..., Tensor],
        does: str,
        formula: str,
        *,
        predictive: bool = False,
        exact_variance: bool = False,
        traced: bool = False,
    ):
        self.loss, self.does, self.formula = loss, does, formula
        self.predictive, self.exact_variance, self.traced = predictive, exact_variance, traced
        functools.update_wrapper(self, loss)

    def __call__(self, *args: object, **options: object) -> Tensor:
        return self.loss(*args, **options)


def objective(does: str, formula: str, **options: bool) -> Callable[[Callable[..., Tensor]], Objective]:
    """Make an objective of a function; see `Objective` for the options."""
    return lambda loss: Objective(loss, does, formula, **options)

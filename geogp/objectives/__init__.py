"""Training objectives: losses to minimise, one formula a file. Scores for people live in `geogp.scores`."""

from collections.abc import Callable

from torch import Tensor

from geogp.objectives.dppgp import dppgp
from geogp.objectives.elbo import elbo
from geogp.objectives.ppgp import ppgp
from geogp.objectives.terms import Terms, Weights

#: Minibatch objectives of the variational route: (Terms, Weights) -> scalar loss.
OBJECTIVES: dict[str, Callable[[Terms, Weights], Tensor]] = {
    "dppgp": dppgp,
    "ppgp": ppgp,
    "elbo": elbo,
}

__all__ = ["OBJECTIVES", "Terms", "Weights"]

"""Training objectives: losses to minimise, one formula a file. Scores for people live in `geogp.scores`."""

from collections.abc import Callable

from torch import Tensor

from geogp.basis.objectives.collapsed_elbo import collapsed_elbo
from geogp.basis.objectives.dppgp import dppgp
from geogp.basis.objectives.elbo import elbo
from geogp.basis.objectives.fixed_mean import fixed_mean
from geogp.basis.objectives.mll import mll
from geogp.basis.objectives.network import map_loss, mse
from geogp.basis.objectives.poisson import poisson
from geogp.basis.objectives.ppgp import ppgp
from geogp.basis.objectives.softki import softki
from geogp.basis.objectives.sums import Design, Sums
from geogp.basis.objectives.terms import Terms, Weights

#: Minibatch objectives of the variational route: (Terms, Weights) -> scalar loss.
OBJECTIVES: dict[str, Callable[[Terms, Weights], Tensor]] = {
    "dppgp": dppgp,
    "ppgp": ppgp,
    "elbo": elbo,
    "fixed_mean": fixed_mean,
    "poisson": poisson,
    "mse": mse,
    "map": map_loss,
}

#: Objectives of the closed-form route over all rows: Sums -> scalar loss.
EVIDENCES: dict[str, Callable[[Sums], Tensor]] = {
    "mll": mll,
    "collapsed_elbo": collapsed_elbo,
}

#: Objectives of the closed-form route over one batch at a time: (Design, seed) -> scalar loss.
BATCH_EVIDENCES: dict[str, Callable[[Design, int], Tensor]] = {
    "softki": softki,
}

__all__ = ["BATCH_EVIDENCES", "EVIDENCES", "OBJECTIVES", "Design", "Sums", "Terms", "Weights"]

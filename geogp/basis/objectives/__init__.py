"""Training objectives: losses to minimise, one formula a file. Scores for people live in `geogp.scores`."""

from geogp.basis.objectives.objective import Objective
from geogp.basis.objectives.sums import Design, Sums
from geogp.basis.objectives.terms import Terms, Weights
from geogp.registry import registry

#: What each is a function of: see `Objective.does`.
OBJECTIVES: dict[str, Objective] = registry(
    __name__,
    {
        "dppgp": "dppgp.dppgp",
        "ppgp": "ppgp.ppgp",
        "elbo": "elbo.elbo",
        "mll": "mll.mll",
        "collapsed_elbo": "collapsed_elbo.collapsed_elbo",
        "softki": "softki.softki",
        "fixed_mean": "fixed_mean.fixed_mean",
        "poisson": "poisson.poisson",
        "mse": "network.mse",
        "map": "network.map_loss",
        "vecchia": "vecchia.vecchia",
    },
)

__all__ = ["OBJECTIVES", "Design", "Objective", "Sums", "Terms", "Weights"]

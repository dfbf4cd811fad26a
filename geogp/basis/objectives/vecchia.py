"""The local field's own objective."""

from torch import Tensor

from geogp.basis.objectives.objective import NEIGHBOURS, objective


@objective(
    NEIGHBOURS,
    "product over held-out rows of p(y | its neighbours), then of whole blocks and quarters left out",
)
def vecchia() -> Tensor:
    """Conditional (Vecchia) likelihood, then the likelihood of held-out rows.

    Computed by `geogp.field`, which holds its neighbours. Source: Vecchia 1988; Katzfuss and Guinness 2021.
    """
    raise NotImplementedError("the local field computes it among its neighbours")

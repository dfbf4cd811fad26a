"""The exact log marginal likelihood of a low-rank Gaussian process."""

from torch import Tensor

from geogp.basis.objectives.objective import SOLVES, objective
from geogp.basis.objectives.sums import Sums, negative_log_evidence


@objective(SOLVES, "-log N(y; m, Φ Φ' + σ² I)")
def mll(sums: Sums) -> Tensor:
    """-log N(y; m, Phi Phi' + Lambda) / n, with a noise variance per observation.

    Exact over the rows summed: unbiased only over all of them. Cost O(r^3) beside the sums' O(n r^2).

    Source: deep-basis-kernel-gp, eq. 11 and algorithm 1; how-good-are-low-rank-approximations, eq. 3.
    """
    return negative_log_evidence(sums) / sums.n_rows

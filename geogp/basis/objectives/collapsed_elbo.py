"""The evidence lower bound of a sparse Gaussian process with its optimal weights put in."""

from torch import Tensor

from geogp.basis.objectives.objective import SOLVES, objective
from geogp.basis.objectives.sums import Sums, negative_log_evidence


@objective(SOLVES, "-log N(y; m, Φ Φ' + σ² I) + tr(C)/(2σ²), C the residual variances")
def collapsed_elbo(sums: Sums) -> Tensor:
    """-[log N(y; m, Phi Phi' + Lambda) - 1/2 sum_i (k~(x_i, x_i) - ||phi_i||^2) / lambda_i] / n.

    With residual 'nystrom' this is SGPR (Titsias 2009), here with a noise variance per observation. Exact
    over the rows summed. Cost O(r^3) beside the sums' O(n r^2).

    Source: soft-kernel-interpolation, eq. 6, whose printed trace lacks the division by the noise variance.
    """
    return (negative_log_evidence(sums) + 0.5 * sums.gap) / sums.n_rows

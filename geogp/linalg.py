"""Every factorisation, and the jitter policy.

Small (r x r) matrices are factorised in float64 whatever the model's dtype: at rank 1,024 that costs a few
milliseconds, and it removes the failures that float32 shows on kernel matrices of close inducing points.
"""

import logging
import math

import torch
from torch import Tensor

from geogp.errors import NumericalFailure

log = logging.getLogger(__name__)

#: Relative jitter added to the diagonal of kernel matrices: part of the model, not a remedy.
JITTER = 1e-6
#: The largest relative jitter tried before giving up.
MAX_JITTER = 1e-3


def cholesky(K: Tensor, *, jitter: float = JITTER, what: str = "matrix") -> Tensor:
    """Lower Cholesky factor of ``K + jitter * mean(diag K) * I``, in float64.

    When that fails the jitter grows tenfold up to `MAX_JITTER`, each step logged as a warning.

    Parameters
    ----------
    K : (..., r, r) symmetric positive semi-definite matrix, any floating dtype
    jitter : relative to the mean of the diagonal
    what : named in the log and in the error

    Raises
    ------
    NumericalFailure
        if K has non-finite entries, or is not positive definite at the largest jitter.

    Notes
    -----
    Cost O(r^3 / 3) a matrix.

    Examples
    --------
    >>> cholesky(torch.eye(2), jitter=0.0)
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    K = K.double()
    if not bool(torch.isfinite(K).all()):
        raise NumericalFailure(
            f"{what} has non-finite entries; an input or a lengthscale has run to infinity: "
            "check the inputs for extreme values or lower the learning rate."
        )
    scale = K.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    eye = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    amount = jitter
    while True:
        L, info = torch.linalg.cholesky_ex(K + amount * scale * eye)
        if not bool(info.any()):
            return L
        amount = max(10 * amount, 1e-9)
        if amount > MAX_JITTER * 1.01:
            raise NumericalFailure(
                f"{what} ({K.shape[-1]} x {K.shape[-1]}) is not positive definite even with relative jitter "
                f"{MAX_JITTER:g}; rows are duplicated or a lengthscale is far too long."
            )
        log.warning("Cholesky of %s failed; relative jitter raised to %.0e", what, amount)


def inverse_factor(L: Tensor) -> Tensor:
    """L^-1 of a lower-triangular factor: (r, r). Applying it is a matrix product, which beats a
    triangular solve on wide batches."""
    eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    return torch.linalg.solve_triangular(L, eye, upper=False)


def squared_distances(A: Tensor, B: Tensor) -> Tensor:
    """||a_i - b_j||^2 as (N, M), by one matrix product, centred first so that float32 does not cancel."""
    centre = B.mean(0, keepdim=True)
    A, B = A - centre, B - centre
    a2, b2 = A.square().sum(-1, keepdim=True), B.square().sum(-1)
    return torch.addmm(b2, A, B.T, alpha=-2.0).add_(a2).clamp_min(0.0)


def log_det_from_cholesky(L: Tensor) -> Tensor:
    """log |L L'|."""
    return 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)


HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)

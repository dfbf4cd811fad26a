"""Every factorisation, and the jitter policy.

Small (r x r) matrices are factorised in float64 whatever the model's dtype: at rank 1,024 that costs a few
milliseconds, and it removes the failures that float32 shows on kernel matrices of close inducing points.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor

from geogp.errors import NumericalFailure

log = logging.getLogger(__name__)

#: Relative jitter added to the diagonal of kernel matrices: part of the model, not a remedy.
JITTER = 1e-6
#: The largest relative jitter tried before giving up.
MAX_JITTER = 1e-3
#: Columns that are factorised at once in batches of matrices.
BLOCK = 16
#: Columns of a triangular factor from which its inverse goes by halves.
SMALL = 128
#: Where warnings go instead of the log.
_HELD: ContextVar[list[str] | None] = ContextVar("held", default=None)


@contextmanager
def held_back() -> Iterator[list[str]]:
    """The warnings of what is computed meanwhile, instead of the log: for a search, which throws most of its points away.

    Examples
    --------
    >>> with held_back() as said:
    ...     L = cholesky(torch.ones(2, 2), jitter=0.0, what="a matrix of ones")
    >>> said
    ['Cholesky of a matrix of ones failed; relative jitter raised to 1e-09']
    """
    said: list[str] = []
    before = _HELD.set(said)
    try:
        yield said
    finally:
        _HELD.reset(before)


def warn(words: str) -> None:
    """A line of the log, unless `held_back`."""
    held = _HELD.get()
    log.warning(words) if held is None else held.append(words)


def cholesky(
    K: Float[Tensor, "*batch r r"],
    *,
    jitter: float = JITTER,
    max_jitter: float = MAX_JITTER,
    what: str = "matrix",
) -> Float[Tensor, "*batch r r"]:
    """Lower Cholesky factor of ``K + jitter * mean(diag K) * I``, in float64.

    When that fails the jitter grows tenfold up to `max_jitter`, each step logged as a warning.

    Parameters
    ----------
    K : (..., r, r) symmetric positive semi-definite matrix, any floating dtype
    jitter : relative to the mean of the diagonal; max_jitter : the largest tried
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
    # A sum of finite numbers is finite but where they are huge, and asks for no second matrix.
    if not bool(torch.isfinite(K.detach().sum())) and not bool(torch.isfinite(K).all()):
        raise NumericalFailure(
            f"{what} has non-finite entries; an input or a lengthscale has run to infinity: "
            "check the inputs for extreme values or lower the learning rate."
        )
    scale = K.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None]
    amount = jitter
    while True:
        L, info = torch.linalg.cholesky_ex(with_diagonal(K, (amount * scale).expand(K.shape[:-1])))
        if not bool(info.any()):
            return L
        amount = max(10 * amount, 1e-9)
        if amount > max_jitter * 1.01:
            raise NumericalFailure(
                f"{what} ({K.shape[-1]} x {K.shape[-1]}) is not positive definite even with relative jitter "
                f"{max_jitter:g}; rows are duplicated or a lengthscale is far too long."
            )
        warn(f"Cholesky of {what} failed; relative jitter raised to {amount:.0e}")


def with_diagonal(
    K: Float[Tensor, "*batch r r"], added: Float[Tensor, "*batch r"]
) -> Float[Tensor, "*batch r r"]:
    """K + diag(added): (..., r, r)."""
    out = K.clone()
    out.diagonal(dim1=-2, dim2=-1).add_(added)
    return out


def inverse_factor(L: Float[Tensor, "*batch r r"]) -> Float[Tensor, "*batch r r"]:
    """L^-1 of a lower-triangular factor: (r, r). Applying it is a matrix product, which beats a
    triangular solve on wide batches."""
    r = L.shape[-1]
    if L.dim() == 2 and r > SMALL and L.device.type == "cpu" and not L.requires_grad:
        # [A 0; B D]^-1 = [A^-1 0; -D^-1 B A^-1 D^-1], which leaves out the zeros above that a solve for the identity carries along.
        k = r // 2
        out = torch.zeros_like(L)
        out[:k, :k], out[k:, k:] = inverse_factor(L[:k, :k]), inverse_factor(L[k:, k:])
        out[k:, :k] = out[k:, k:] @ (L[k:, :k] @ out[:k, :k]).neg_()
        return out
    eye = torch.eye(r, dtype=L.dtype, device=L.device)
    return torch.linalg.solve_triangular(L, eye, upper=False)


def inverse_factors(K: Float[Tensor, "B r r"]) -> Float[Tensor, "B r r"]:
    """L^-1 of each matrix K = L L' of a batch, in K's own dtype and without jitter.

    Raises
    ------
    torch.linalg.LinAlgError
        where one is not positive definite

    Notes
    -----
    By blocks of `BLOCK` columns, all but the blocks on the diagonal as batched products: for r about 100 in float32 two to
    three times as fast as LAPACK's factor and solve, matrix after matrix, which is kept for small and for large r.

    Examples
    --------
    >>> inverse_factors(4.0 * torch.eye(2)[None])[0]
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])
    """
    r, least = K.shape[-1], BLOCK if K.dtype == torch.float32 else 2 * BLOCK
    if K.device.type != "cpu" or not least < r <= 16 * BLOCK:
        return inverse_factor(torch.linalg.cholesky(K))
    L, out = torch.zeros_like(K), torch.zeros_like(K)
    for start in range(0, r, BLOCK):
        end = min(start + BLOCK, r)
        left = K[:, start:, start:end]
        if start:
            left = torch.baddbmm(left, L[:, start:, :start], L[:, start:end, :start].mT, alpha=-1.0)
        own = inverse_factor(torch.linalg.cholesky(left[:, : end - start]))
        out[:, start:end, start:end] = own
        if start:
            before = torch.bmm(L[:, start:end, :start], out[:, :start, :start])
            out[:, start:end, :start] = torch.bmm(own, before).neg_()
        if end < r:
            L[:, end:, start:end] = torch.bmm(left[:, end - start :], own.mT)
    return out


def squared_distances(A: Float[Tensor, "N D"], B: Float[Tensor, "M D"]) -> Float[Tensor, "N M"]:
    """||a_i - b_j||^2 as (N, M), by one matrix product, centred first so that float32 does not cancel."""
    centre = B.mean(0, keepdim=True)
    A, B = A - centre, B - centre
    a2, b2 = A.square().sum(-1, keepdim=True), B.square().sum(-1)
    return torch.addmm(b2, A, B.T, alpha=-2.0).add_(a2).clamp_min(0.0)


def distances(A: Float[Tensor, "*batch N D"], B: Float[Tensor, "*other M D"]) -> Float[Tensor, "... N M"]:
    """||a - b|| of (..., N, D) and (..., M, D) without the cancellation of the squared-norm trick; gradient 0 at 0."""
    return torch.cdist(A, B, compute_mode="donot_use_mm_for_euclid_dist")


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    B: Float[Tensor, "n k"],
    diagonal: Float[Tensor, " n"],
    *,
    tolerance: float = 1e-10,
    max_steps: int = 1000,
) -> Float[Tensor, "n k"]:
    """X with apply(X) = B for a symmetric positive definite map, each column (n, k) on its own.

    Jacobi-preconditioned by `diagonal` (n,). Stops at relative residual `tolerance`; what is left after
    `max_steps` is logged, since a stochastic gradient can live with it.

    Examples
    --------
    >>> A = torch.diag(torch.tensor([1.0, 4.0]))
    >>> conjugate_gradients(lambda V: A @ V, torch.ones(2, 1), torch.ones(2))[:, 0]
    tensor([1.0000, 0.2500])
    """
    X = torch.zeros_like(B)
    R = B.clone()
    size = B.square().sum(0).clamp_min(1e-300)
    S = R / diagonal[:, None]
    P, rs = S, (R * S).sum(0)
    for _ in range(max_steps):
        if bool((R.square().sum(0) <= tolerance**2 * size).all()):
            return X
        AP = apply(P)
        step = rs / (P * AP).sum(0).clamp_min(1e-300)
        X = X + step * P
        R = R - step * AP
        S = R / diagonal[:, None]
        following = (R * S).sum(0)
        P = S + (following / rs.clamp_min(1e-300)) * P
        rs = following
    left = float((R.square().sum(0) / size).max().sqrt())
    warn(f"conjugate gradients stopped after {max_steps} steps at relative residual {left:.1e}")
    return X


def log_det_from_cholesky(L: Float[Tensor, "*batch r r"]) -> Float[Tensor, " *batch"]:
    """log |L L'|."""
    return 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)

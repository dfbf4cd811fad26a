"""Formulas whose slopes are written out: automatic differentiation would take twice to four times the passes."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from geogp.linalg import JITTER, cholesky, inverse_factor

#: Columns from which a product that has only one triangle to fill is taken by blocks, and columns of a block.
WIDE, BLOCK = 512, 256


def gaussian(A: Float[Tensor, "N D"], B: Float[Tensor, "M D"]) -> Float[Tensor, "N M"]:
    """exp(-||a_i - b_j||² / 2): (N, M), by one matrix product of centred coordinates.

    Notes
    -----
    Five passes over N M numbers with its slope; 16 where each step is differentiated on its own.

    Examples
    --------
    >>> x = torch.tensor([[0.0], [2.0]])
    >>> gaussian(x, x)[0].tolist() == [1.0, torch.tensor(-2.0).exp().item()]
    True
    """
    return _Gaussian.apply(A, B)


class _Gaussian(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor) -> Tensor:
        centre = B.mean(0, keepdim=True)  # so that float32 does not cancel
        A, B = A - centre, B - centre
        below = A.square().sum(1, keepdim=True).mul_(-0.5)
        K = torch.addmm(B.square().sum(1).mul_(-0.5), A, B.T).add_(below).clamp_max_(0.0).exp_()
        ctx.save_for_backward(A, B, K)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None]:
        A, B, K = ctx.saved_tensors
        E = slope * K
        # d/da_i = sum_j E_ij (b_j - a_i), d/db_j = sum_i E_ij (a_i - b_j)
        dA = torch.addcmul(E @ B, E.sum(1, keepdim=True), A, value=-1.0) if ctx.needs_input_grad[0] else None
        dB = torch.addcmul(E.T @ A, E.sum(0)[:, None], B, value=-1.0) if ctx.needs_input_grad[1] else None
        return dA, dB


def waves(phase: Float[Tensor, "N k"]) -> Float[Tensor, "N two_k"]:
    """[cos, sin] of phases (N, k): (N, 2 k), whose slope needs no cosine more.

    Examples
    --------
    >>> waves(torch.zeros(1, 2)).tolist()
    [[1.0, 1.0, 0.0, 0.0]]
    """
    return _Waves.apply(phase)


class _Waves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, phase: Tensor) -> Tensor:
        k = phase.shape[1]
        out = phase.new_empty(len(phase), 2 * k)
        out[:, :k], out[:, k:] = phase.cos(), phase.sin()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        k = out.shape[1] // 2
        return torch.addcmul(slope[:, k:] * out[:, :k], slope[:, :k], out[:, k:], value=-1.0)


def products(table: Float[Tensor, "k d N"], chosen: Int[Tensor, "r d"]) -> Float[Tensor, "N r"]:
    """out[i, j] = prod_a table[chosen[j, a], a, i]: (N, r), of d rows of a table each.

    Examples
    --------
    >>> products(torch.tensor([[[2.0], [3.0]], [[5.0], [7.0]]]), torch.tensor([[0, 0], [1, 0], [1, 1]])).tolist()
    [[6.0, 15.0, 35.0]]
    """
    return _Products.apply(table, chosen)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, chosen: Tensor) -> Tensor:
        ctx.save_for_backward(table, chosen)
        out = table[:, 0].index_select(0, chosen[:, 0])
        for a in range(1, table.shape[1]):
            out.mul_(table[:, a].index_select(0, chosen[:, a]))
        return out.T.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        table, chosen = ctx.saved_tensors
        factors = [table[:, a].index_select(0, chosen[:, a]) for a in range(table.shape[1])]
        before = [torch.ones_like(factors[0])]
        for factor in factors[:-1]:
            before.append(before[-1] * factor)
        out, after = torch.empty_like(table), slope.T.contiguous()
        for a in reversed(range(len(factors))):
            told = torch.nn.functional.one_hot(chosen[:, a], len(table)).to(table.dtype)
            out[:, a] = told.T @ before[a].mul_(after)
            after.mul_(factors[a])
        return out, None


def inverse_cholesky(
    K: Float[Tensor, "r r"], *, jitter: float = JITTER, what: str = "matrix"
) -> Float[Tensor, "r r"]:
    """W = C^-1 with C C' = K + jitter * mean(diag K) * I, lower-triangular, in float64; as `cholesky` where that fails.

    Notes
    -----
    With P = W dW' the slope is dK = -W' (P_low + P_low') W / 2, P_low the lower triangle of dW W' with half its diagonal twice:
    three products instead of the five solves that lead back through the factor and its inverse.

    Examples
    --------
    >>> inverse_cholesky(4.0 * torch.eye(2), jitter=0.0)[1, 1].item()
    0.5
    """
    return _InverseCholesky.apply(K, jitter, what)


class _InverseCholesky(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, K: Tensor, jitter: float, what: str) -> Tensor:
        W = inverse_factor(cholesky(K, jitter=jitter, what=what))
        ctx.save_for_backward(W)
        ctx.jitter, ctx.dtype = jitter, K.dtype
        return W

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        (W,) = ctx.saved_tensors
        return matrix_slope(W, slope.tril() @ W.T, ctx.jitter).to(ctx.dtype), None, None


def matrix_slope(W: Float[Tensor, "r r"], inner: Float[Tensor, "r r"], jitter: float) -> Float[Tensor, "r r"]:
    """Slope by K of a function of W = chol(K + jitter mean(diag K) I)^-1 whose slope by W is dW; inner = dW W'."""
    low = inner.tril(-1)
    middle = (low + low.T).diagonal_scatter(inner.diagonal())
    out = (W.T @ (middle @ W)).mul_(-0.5)
    out.diagonal().add_(out.diagonal().sum() * (jitter / len(out)))
    return out


def gram(A: Float[Tensor, "N r"]) -> Float[Tensor, "r r"]:
    """A'A, the triangle above as a copy of that below where it is wide. Without gradient."""
    r = A.shape[1]
    if r < WIDE or A.device.type != "cpu":
        return A.T @ A
    out = A.new_empty(r, r)
    for start in range(0, r, BLOCK):
        end = min(start + BLOCK, r)
        part = A[:, start:].T @ A[:, start:end]
        out[start:, start:end] = part
        out[start:end, end:] = part[end - start :].T
    return out

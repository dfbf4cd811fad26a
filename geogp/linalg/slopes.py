"""Formulas whose slopes are written out: automatic differentiation would take twice to four times the passes."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from geogp.linalg import JITTER, cholesky, inverse_factor
from geogp.linalg.precision import asked, rounded
from geogp.linalg.threads import one_thread_each

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
    The slope is dK = -W' (P + P' - diag P) W / 2 with P the lower triangle of dW W': three products instead of the five solves
    that lead back through the factor and its inverse.

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
        return matrix_slope(W, (slope.tril() @ W.T).tril_(), ctx.jitter).to(ctx.dtype), None, None


def whitened_gaussian(
    A: Float[Tensor, "N D"], Z: Float[Tensor, "r D"], *, what: str = "matrix"
) -> Float[Tensor, "N r"]:
    """k_Z(A) C^-T with C C' = k(Z, Z) + `JITTER` I and k the `gaussian`: (N, r) in A's dtype; C and C^-1 in float64.

    Notes
    -----
    As W = C^-1 is triangular, so are its products: N r² operations each way instead of 2 N r². In the slope by k(Z, Z) stands
    slope' out, a triangle of it, in place of slope' k_Z and a product with W more; it is as exact as what comes back to it, in
    A's dtype.

    Examples
    --------
    >>> z = torch.zeros(1, 1)
    >>> round(whitened_gaussian(z, z).item(), 6)
    1.0
    """
    return _Whitened.apply(gaussian(A, Z), Z, what)


class _Whitened(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, K: Tensor, Z: Tensor, what: str) -> Tensor:
        precise = Z.double()
        among = _Gaussian.forward(_Nothing(), precise, precise)
        W = inverse_factor(cholesky(among, what=what)).to(K.dtype)
        out = times_upper(K, W.T)
        ctx.save_for_backward(W, out, (precise - precise.mean(0)).to(K.dtype), among.to(K.dtype))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor | None, None]:
        W, out, Z, among = ctx.saved_tensors
        by_K = times_lower(slope, W)
        if not ctx.needs_input_grad[1]:
            return by_K, None, None
        # tril(dW) W' = tril(slope' K) W' has the lower triangle of slope' K W' = slope' out. Symmetric, so that both sides of
        # k(Z, Z) take the same slope; its diagonal is constant.
        E = matrix_slope(W, lower_of_product(slope, out), 0.0).mul_(among)
        return by_K, torch.addcmul(E @ Z, E.sum(1, keepdim=True), Z, value=-1.0).mul_(2.0), None


class _Nothing:
    """A context that keeps nothing."""

    def save_for_backward(self, *tensors: Tensor) -> None: ...


def quadratic(
    phi: Float[Tensor, "N r"], L: Float[Tensor, "r r"], m: Float[Tensor, " r"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Float[Tensor, " N"]]:
    """phi'm, ||L'phi||² and ||phi||² of a lower-triangular L, each (N,).

    Notes
    -----
    3 N r² operations with the slopes instead of 6 N r², but for what blocks of `BLOCK` columns waste on the diagonal, and one pass
    over phi for each number instead of three. Products with L in the precision of `products_in`.

    Examples
    --------
    >>> [v.item() for v in quadratic(torch.ones(1, 2), torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.ones(2))]
    [2.0, 10.0, 2.0]
    """
    return _Quadratic.apply(phi, L, m)


class _Quadratic(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, phi: Tensor, L: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.precision = asked()
        with rounded(ctx.precision):
            v = times_lower(phi, L)
        ctx.save_for_backward(phi, L, m, v)
        return phi @ m, torch.linalg.vecdot(v, v), torch.linalg.vecdot(phi, phi)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, along: Tensor, spread: Tensor, size: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        phi, L, m, v = ctx.saved_tensors
        dv = v * (2.0 * spread)[:, None]
        by_phi = (phi * (2.0 * size)[:, None]).addr_(along, m)
        with rounded(ctx.precision):
            times_upper(dv, L.T, onto=by_phi)
            by_L = lower_of_product(phi, dv) if ctx.needs_input_grad[1] else None
        return by_phi, by_L, phi.T @ along if ctx.needs_input_grad[2] else None


def blocks(r: int, device: torch.device) -> list[tuple[int, int]]:
    """Columns of a triangular matrix taken at once: all of a narrow one, whose halves are no faster."""
    if r < WIDE or device.type != "cpu":
        return [(0, r)]
    return [(start, min(start + BLOCK, r)) for start in range(0, r, BLOCK)]


def times_lower(A: Float[Tensor, "N r"], L: Float[Tensor, "r r"]) -> Float[Tensor, "N r"]:
    """A L of a lower-triangular L. Without gradient."""
    r = len(L)
    if r < WIDE or A.device.type != "cpu":
        return A @ L
    out = torch.empty_like(A)
    for start, end in blocks(r, A.device):
        torch.mm(A[:, start:], L[start:, start:end], out=out[:, start:end])
    return out


def times_upper(
    A: Float[Tensor, "N r"], U: Float[Tensor, "r r"], *, onto: Float[Tensor, "N r"] | None = None
) -> Float[Tensor, "N r"]:
    """A U of an upper-triangular U, added to `onto` where it is given. Without gradient."""
    out = torch.empty_like(A) if onto is None else onto
    for start, end in blocks(len(U), A.device):
        part = out[:, start:end]
        torch.addmm(part, A[:, :end], U[:end, start:end], beta=0.0 if onto is None else 1.0, out=part)
    return out


def lower_of_product(A: Float[Tensor, "N r"], B: Float[Tensor, "N r"]) -> Float[Tensor, "r r"]:
    """The lower triangle of A'B, zero above. Without gradient."""
    r = A.shape[1]
    if r < WIDE or A.device.type != "cpu":
        return (A.T @ B).tril_()
    out = A.new_zeros(r, r)
    for start, end in blocks(r, A.device):
        torch.mm(A[:, start:].T, B[:, start:end], out=out[start:, start:end])
        out[start:end, start:end].tril_()
    return out


def lower_triangle(below: Float[Tensor, "r r"], log_diagonal: Float[Tensor, " r"]) -> Float[Tensor, "r r"]:
    """The triangle below the diagonal of a matrix (r, r), and exp(log_diagonal) on it.

    Examples
    --------
    >>> lower_triangle(torch.full((2, 2), 3.0), torch.zeros(2)).tolist()
    [[1.0, 0.0], [3.0, 1.0]]
    """
    return _LowerTriangle.apply(below, log_diagonal)


class _LowerTriangle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, below: Tensor, log_diagonal: Tensor) -> Tensor:
        out, diagonal = below.tril(-1), log_diagonal.exp()
        out.diagonal().copy_(diagonal)
        ctx.save_for_backward(diagonal)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        (diagonal,) = ctx.saved_tensors
        return slope.tril(-1), slope.diagonal() * diagonal


def matrix_slope(W: Float[Tensor, "r r"], inner: Float[Tensor, "r r"], jitter: float) -> Float[Tensor, "r r"]:
    """Slope by K of a function of W = chol(K + jitter mean(diag K) I)^-1 whose slope by W is dW; inner the lower triangle of
    dW W', zero above."""
    middle = inner + inner.T
    middle.diagonal().mul_(0.5)
    half = times_lower(middle, W)
    out = torch.empty_like(half)
    for start, end in blocks(len(W), W.device):  # symmetric: only up to the diagonal
        part = W[start:, start:end].T @ half[start:, :end]
        out[start:end, :end] = part
        out[:start, start:end] = part[:, :start].T
    out.mul_(-0.5)
    out.diagonal().add_(out.diagonal().sum() * (jitter / len(out)))
    return out


def gram(A: Float[Tensor, "N r"]) -> Float[Tensor, "r r"]:
    """A'A; on a CPU half of the products that a general one takes, the other half being their mirror, unless several threads
    share a narrow one. Without gradient.

    Examples
    --------
    >>> gram(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[10., 14.],
            [14., 20.]])
    """
    if A.device.type == "cpu" and torch.get_num_threads() == 1:
        rows = A.detach().numpy()
        with one_thread_each():  # BLAS' own would wait actively, in the way of torch's
            product = rows.T @ rows  # numpy sees that it is one matrix, and asks for a triangle
        return torch.from_numpy(product)
    r = A.shape[1]
    if r < WIDE or A.device.type != "cpu":
        return A.T @ A
    out = A.new_empty(r, r)
    for start, end in blocks(r, A.device):
        part = A[:, start:].T @ A[:, start:end]
        out[start:, start:end] = part
        out[start:end, end:] = part[end - start :].T
    return out

"""Float32 products whose factors may be rounded to bfloat16, which some processors multiply several times as fast."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

#: What may be asked for, and torch's word for it, one setting of the whole process.
PRECISIONS: dict[str, str] = {"float32": "highest", "bfloat16": "medium"}
_ASKED: ContextVar[str] = ContextVar("precision", default="float32")


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """What `linear` and `geogp.linalg.slopes.quadratic` round the factors of their products to meanwhile.

    Nothing else is rounded: not phases, distances or what is solved with them, which bfloat16's eight bits would spoil.

    Examples
    --------
    >>> x = torch.full((1, 1), 1.0 + 2.0**-12)
    >>> with products_in("float32"):
    ...     (linear(x, x, torch.zeros(1)) == x * x).item()
    True
    """
    token = _ASKED.set(precision)
    try:
        yield
    finally:
        _ASKED.reset(token)


def asked() -> str:
    """The precision of `products_in`."""
    return _ASKED.get()


@contextmanager
def rounded(precision: str) -> Iterator[None]:
    """Products of float32 matrices with factors rounded to `precision`, their sums in float32.

    Where a processor has no units for matrices of bfloat16 (AMX, tensor cores) they stay as they are; AVX-512 BF16 alone is none.
    """
    if precision == "float32":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(PRECISIONS[precision])
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def linear(
    x: Float[Tensor, "N D"], weight: Float[Tensor, "H D"], bias: Float[Tensor, " H"]
) -> Float[Tensor, "N H"]:
    """x W' + b: (N, H), and its slopes, in the precision that is asked for.

    Examples
    --------
    >>> linear(torch.ones(1, 2), torch.ones(3, 2), torch.zeros(3)).tolist()
    [[2.0, 2.0, 2.0]]
    """
    if asked() == "float32":
        return torch.nn.functional.linear(x, weight, bias)
    return _Linear.apply(x, weight, bias, asked())


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, precision: str) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.precision = precision
        with rounded(precision):
            return torch.addmm(bias, x, weight.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        with rounded(ctx.precision):
            by_x = slope @ weight if ctx.needs_input_grad[0] else None
            return by_x, slope.T @ x, slope.sum(0), None

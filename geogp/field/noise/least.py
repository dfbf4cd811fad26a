"""The few numbers for which a smooth function of them is least."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor


def least(
    of: Callable[[Tensor], Tensor],
    n: int,
    bounds: list[tuple[float, float]] | None = None,
    *,
    steps: int = 30,
    enough: float = 1e7 * float(np.finfo(np.float64).eps),
) -> Float[Tensor, " n"]:
    """The n numbers, within bounds if there are any, for which a function is least, searched for from 0 on by
    so many steps of L-BFGS, or until one gains no more than this share of it.

    Examples
    --------
    >>> least(lambda at: (at - torch.tensor([1.0, -2.0])).square().sum(), 2, [(-3.0, 3.0), (-1.0, 3.0)])
    tensor([ 1., -1.], dtype=torch.float64)
    """

    def loss(raw: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        at = torch.as_tensor(raw).requires_grad_()
        total = of(at)
        (slope,) = torch.autograd.grad(total, at)
        return float(total.detach()), slope.numpy()

    # Not torch's own search: the first optimiser of a process costs it the import of its compiler, a second.
    found = minimize(
        loss,
        np.zeros(n),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": steps, "ftol": enough},
    )
    return torch.as_tensor(found.x)

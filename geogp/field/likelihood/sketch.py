"""Few numbers learned of some rows, each given some that come before it: what a frame is chosen by."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from geogp.field.steps import Group, Steps

#: Rows that a row is given, rows of a step, and its rate.
ANCESTORS, BATCH, RATE = 16, 128, 0.05
#: Of all rows at once: how far a number goes, and the share of the loss below which a pass gains nothing.
FARTHEST, NOTHING = 6.0, 1e-5


def descend(
    loss: Callable[[Tensor], Tensor],
    parameters: Sequence[Tensor],
    *,
    n: int,
    steps: int,
    generator: torch.Generator,
) -> None:
    """Steps down a loss of numbers of rows (BATCH,), drawn of n."""
    down = Steps([Group(list(parameters), RATE)], total=None)
    for _ in range(steps):
        down.down(loss(torch.randint(n, (BATCH,), generator=generator)))


def settle(loss: Callable[[], Tensor], parameters: Sequence[Tensor], passes: int) -> None:
    """Passes of a quasi-Newton search down a loss of all rows."""

    def asked(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        with torch.no_grad():
            vector_to_parameters(torch.from_numpy(at), parameters)
        with torch.enable_grad():
            value = loss()
            gradients = torch.autograd.grad(value, list(parameters))
        return value.item(), torch.cat([g.flatten() for g in gradients]).numpy()

    start = parameters_to_vector(parameters).detach().numpy().copy()
    found = minimize(
        asked,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(v - FARTHEST, v + FARTHEST) for v in start],
        options={"maxiter": passes, "ftol": NOTHING},
    )
    with torch.no_grad():
        vector_to_parameters(torch.from_numpy(found.x), parameters)


def total(density: Callable[[Tensor], Tensor], n: int) -> float:
    """The sum of a log density of numbers of rows (m,), (m,), over all n."""
    with torch.no_grad():
        return float(sum(density(rows).sum() for rows in torch.arange(n).split(BATCH)))

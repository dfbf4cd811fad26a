"""Few numbers learned of some rows, each given some that come before it: what a frame is chosen by."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from geogp.field.steps import Group, Steps

#: Rows that a row is given, rows of a step, and its rate.
ANCESTORS, BATCH, RATE = 16, 128, 0.05


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


def total(density: Callable[[Tensor], Tensor], n: int) -> float:
    """The sum of a log density of numbers of rows (m,), (m,), over all n."""
    with torch.no_grad():
        return float(sum(density(rows).sum() for rows in torch.arange(n).split(BATCH)))

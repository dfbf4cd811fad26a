"""Two or more expansions side by side: their kernels add."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geogp.basis.expansions.base import Expansion
from geogp.errors import ImpossibleCombination


class Concatenation(Expansion):
    """phi(h) = [phi_1(h), ..., phi_k(h)] / sqrt(k): the kernel is the mean of the parts' kernels.

    Written "rbf+fourier" where an expansion is named.

    Parameters
    ----------
    n_inputs : H
    rank : r, shared out equally; the first part takes what is left over
    parts : classes (or functions) called with (n_inputs, rank)

    Raises
    ------
    ImpossibleCombination
        for a rank below the number of parts.

    Notes
    -----
    Cost: the sum of the parts'.
    """

    def __init__(self, n_inputs: int, rank: int, parts: Sequence[Callable[[int, int], Expansion]]):
        super().__init__()
        each = rank // len(parts)
        if each < 1:
            raise ImpossibleCombination(
                f"rank {rank} cannot be shared among {len(parts)} expansions; raise it."
            )
        ranks = [rank - each * (len(parts) - 1), *([each] * (len(parts) - 1))]
        made = [part(n_inputs, r) for part, r in zip(parts, ranks)]
        self.parts = cast("Sequence[Expansion]", nn.ModuleList(made))
        self.rank = sum(part.rank for part in made)
        self.factorises = any(part.factorises for part in made)

    def forward(self, h: Float[Tensor, "N H"]) -> Float[Tensor, "N r"]:
        return torch.cat([part(h) for part in self.parts], 1) / len(self.parts) ** 0.5

    def initialise(self, h: Float[Tensor, "n H"]) -> None:
        for part in self.parts:
            part.initialise(h)

    def kernel_parameters(self) -> list[nn.Parameter]:
        return [p for part in self.parts for p in part.kernel_parameters()]

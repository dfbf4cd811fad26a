"""Networks side by side, each learned without a part of the rows: what they agree on, and how far to believe it.

One network of many weights learns from a few thousand rows what is not so. Members that each learned without a part of the
squares disagree about that, and each can be asked about rows that it has not seen.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

#: Squares are dealt into so many parts, again for every so many members; each member learns without one part.
PARTS = 3


class SideBySide(nn.Module):
    """A linear layer for each of E members: (N, n_in) or (E, N, n_in) to (E, N, n_out)."""

    def __init__(self, members: int, n_in: int, n_out: int):
        super().__init__()
        layers = [nn.Linear(n_in, n_out) for _ in range(members)]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach()[None] for layer in layers]))

    def forward(self, x: Tensor) -> Tensor:
        each = x if x.dim() == 3 else x.expand(len(self.weight), *x.shape)
        return torch.baddbmm(self.bias, each, self.weight)


@dataclass(frozen=True)
class Dealt:
    """Which members learn without which squares.

    square : (S,) sorted numbers of squares
    without : (E, S) whether a member learns without one

    Examples
    --------
    >>> dealt = Dealt.of(torch.tensor([4, 7, 7, 9]), members=3)
    >>> dealt.rows(torch.tensor([7, 4, 9, 7])).sum(0)
    tensor([1, 1, 1, 1])
    """

    square: Int[Tensor, " S"]
    without: Bool[Tensor, "E S"]

    @classmethod
    def of(cls, square: Int[Tensor, " n"], members: int, seed: int = 0) -> "Dealt":
        """Of the squares that rows lie in; a single member learns from all, and all do from fewer squares than parts."""
        numbers = square.unique()
        generator = torch.Generator().manual_seed(seed)
        without = torch.zeros(members, len(numbers), dtype=torch.bool)
        for member in range(members if members > 1 and len(numbers) >= PARTS else 0):
            if member % PARTS == 0:
                part = torch.randperm(len(numbers), generator=generator) % PARTS
            without[member] = part == member % PARTS
        return cls(numbers, without)

    def rows(self, square: Int[Tensor, " n"]) -> Bool[Tensor, "E n"]:
        """Whether each member learns without rows of these squares."""
        return self.without[:, torch.searchsorted(self.square, square)]


def mean_of_those(outputs: Float[Tensor, "E n m"], who: Bool[Tensor, "E n"]) -> Float[Tensor, "n m"]:
    """Mean over those members that `who` names for each row, over all where it names none."""
    share = torch.where(who.any(0), who, True).to(outputs.dtype)
    return (outputs * (share / share.sum(0))[..., None]).sum(0)

"""What every noise promises."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn


class Noise(nn.Module):
    """The variance that an average of n measurements adds to the surface: (Z (N, D), counts (N,) or None) -> (N,).

    Never below `floor` (standardised target units). Every parameter is the logarithm of a variance above it.
    """

    #: For the methods' pages.
    formula: ClassVar[str]
    #: False for a noise that an engine without a basis fits itself.
    of_basis: ClassVar[bool] = True

    def __init__(self, floor: float = 1e-5):
        super().__init__()
        self.floor = floor

    @classmethod
    def made(cls, has_counts: bool) -> "Noise":
        """The noise of a model whose rows come with counts, or without."""
        return cls()

    def initialise(self, variance: float, counts: Num[Tensor, " N"] | None) -> None:
        """Start from `variance`, e.g. that of a first fit's residuals, of rows with these counts."""
        raise NotImplementedError

    def forward(self, Z: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None) -> Float[Tensor, " N"]:
        """(N,) noise variance of averages of `counts` (N,) measurements at standardised inputs Z (N, D)."""
        raise NotImplementedError

    def multiply(self, factor: float) -> None:
        """Multiply the variance above the floor."""
        with torch.no_grad():
            for log_variance in self.parameters():
                log_variance.add_(math.log(factor))

"""What every noise promises."""

from typing import ClassVar

from torch import Tensor, nn


class Noise(nn.Module):
    """The variance that an average of n measurements adds to the surface: (Z (N, D), counts (N,) or None) -> (N,)."""

    #: For the methods' pages.
    formula: ClassVar[str]
    #: False for a noise that an engine without a basis fits itself.
    of_basis: ClassVar[bool] = True

    @classmethod
    def made(cls, has_counts: bool) -> "Noise":
        """The noise of a model whose rows come with counts, or without."""
        return cls()

    def initialise(self, variance: float, counts: Tensor | None) -> None:
        """Start from `variance`, e.g. that of a first fit's residuals."""
        raise NotImplementedError

    def forward(self, Z: Tensor, counts: Tensor | None) -> Tensor:
        """(N,) noise variance of averages of `counts` (N,) measurements at standardised inputs Z (N, D)."""
        raise NotImplementedError

"""What every noise promises."""

import math

import torch
from torch import Tensor, nn


class Noise(nn.Module):
    """forward(Z, counts) -> (N,): noise variance of averages of `counts` (N,) measurements at standardised Z (N, D).

    Never below `floor` (standardised target units). Every parameter is the logarithm of a variance above it.
    """

    def __init__(self, floor: float = 1e-5):
        super().__init__()
        self.floor = floor

    def initialise(self, variance: float, counts: Tensor | None) -> None:
        """Start from `variance`, e.g. that of a first fit's residuals, of rows with these counts."""
        raise NotImplementedError

    def multiply(self, factor: float) -> None:
        """Multiply the variance above the floor."""
        with torch.no_grad():
            for log_variance in self.parameters():
                log_variance.add_(math.log(factor))

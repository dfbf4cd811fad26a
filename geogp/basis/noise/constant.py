"""One noise variance for every observation."""

import torch
from torch import Tensor, nn

from geogp.basis.noise.base import Noise


class Constant(Noise):
    """One noise variance for every observation.

    sigma^2, learned on the log scale and never below `floor` (standardised target units).
    """

    formula = "ε ~ N(0, σ²)"

    def __init__(self, floor: float = 1e-5):
        super().__init__(floor)
        self.log_variance = nn.Parameter(torch.tensor(-2.0))

    def initialise(self, variance: float, counts: Tensor | None) -> None:
        with torch.no_grad():
            self.log_variance.fill_(torch.tensor(max(variance - self.floor, self.floor)).log().item())

    def forward(self, Z: Tensor, counts: Tensor | None) -> Tensor:
        return (self.floor + self.log_variance.exp()).expand(len(Z))

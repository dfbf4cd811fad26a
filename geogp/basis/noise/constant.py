"""One noise variance for every observation."""

import torch
from jaxtyping import Float, Num
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

    def initialise(self, variance: float, counts: Num[Tensor, " N"] | None) -> None:
        with torch.no_grad():
            self.log_variance.fill_(torch.tensor(max(variance - self.floor, self.floor)).log().item())

    def forward(self, Z: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None) -> Float[Tensor, " N"]:
        return (self.floor + self.log_variance.exp()).expand(len(Z))

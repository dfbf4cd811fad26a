"""Layers of the networks under a basis."""

from torch import Tensor, nn

from geogp.linalg.precision import linear


class Linear(nn.Linear):
    """x W' + b, in the precision that a training asks for (`Schedule.precision`)."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)

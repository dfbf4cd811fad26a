"""The backbone's own linear output as a basis."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geogp.basis.expansions.base import Expansion


class Linear(Expansion):
    """phi(h) = W h + b: the last layer's outputs are the basis functions.

    Its prior variance ||phi||^2 depends on h alone and does not return to anything far from data.

    Parameters
    ----------
    n_inputs : H
    rank : r

    Notes
    -----
    Cost O(N H r). Source: low-rank-deep-kernel-decomposition, eq. 8 (a linear output layer after tanh).

    Examples
    --------
    >>> Linear(3, 8)(torch.zeros(5, 3)).shape
    torch.Size([5, 8])
    """

    formula = "φ(h) = W h + b"

    def __init__(self, n_inputs: int, rank: int):
        super().__init__()
        self.rank = rank
        self.linear = nn.Linear(n_inputs, rank)

    def forward(self, h: Float[Tensor, "N H"]) -> Float[Tensor, "N r"]:
        return self.linear(h)

    def initialise(self, h: Float[Tensor, "n H"]) -> None:
        """Scale the output so that the mean prior variance over the sample is one."""
        with torch.no_grad():
            size = self.prior_sd(h)
            if size > 0:
                self.linear.weight.div_(size)
                self.linear.bias.div_(size)

"""Basis functions that are the activations of one more layer."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geogp.basis.expansions.base import Expansion
from geogp.basis.layers import Linear


class SiLU(Expansion):
    """phi(h) = a * silu(W h + b), with a learned scale a of random sign and size 1/sqrt(r).

    Its prior variance ||phi||^2 depends on h alone and does not return to anything far from data.

    Parameters
    ----------
    n_inputs : H
    rank : r

    Notes
    -----
    Cost O(N H r). Source: deep-basis-kernel-gp, eq. 13 and appendix B.

    Examples
    --------
    >>> SiLU(3, 8)(torch.zeros(5, 3)).shape
    torch.Size([5, 8])
    """

    formula = "φ(h) = a ∘ silu(W h + b)"

    def __init__(self, n_inputs: int, rank: int):
        super().__init__()
        self.rank = rank
        self.linear = Linear(n_inputs, rank)
        sign = torch.randint(0, 2, (rank,)) * 2.0 - 1.0
        self.scale = nn.Parameter(sign / rank**0.5)

    def forward(self, h: Float[Tensor, "N H"]) -> Float[Tensor, "N r"]:
        return self.scale * nn.functional.silu(self.linear(h))

    def initialise(self, h: Float[Tensor, "n H"]) -> None:
        """Scale the basis so that the mean prior variance over the sample is one."""
        with torch.no_grad():
            size = self.prior_sd(h)
            if size > 0:
                self.scale.div_(size)

    def kernel_parameters(self) -> list[nn.Parameter]:
        return [self.scale]

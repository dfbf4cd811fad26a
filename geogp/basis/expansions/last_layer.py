"""A network's own last layer as a basis."""

import torch
from torch import Tensor

from geogp.basis.expansions.base import Expansion


class LastLayer(Expansion):
    """phi(h) = scale * [h, 1]: the weights w of a linear output layer and its bias, with prior N(0, scale^2 I).

    With a point for q(w) the model is the plain network; with a Laplace covariance it is last-layer Laplace.

    Parameters
    ----------
    n_inputs : H; the rank is H + 1 whatever `rank` says

    Notes
    -----
    Cost O(N H). Source: fixed-mean-gp, section V (last-layer Laplace).

    Examples
    --------
    >>> LastLayer(3, 8)(torch.zeros(5, 3)).shape
    torch.Size([5, 4])
    """

    formula = "φ(h) = [h, 1]"

    scale: Tensor

    def __init__(self, n_inputs: int, rank: int):
        super().__init__()
        self.rank = n_inputs + 1
        self.register_buffer("scale", torch.ones(()))

    def forward(self, h: Tensor) -> Tensor:
        return self.scale * torch.cat([h, torch.ones_like(h[:, :1])], 1)

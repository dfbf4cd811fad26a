"""The diagonal correction: what the basis lacks of a prior variance that is the same everywhere."""

import torch
from torch import Tensor

from geogp.basis.expansions.base import Expansion
from geogp.basis.residuals.base import Representing, Residual
from geogp.data import Data


class Unit(Residual):
    """c(x) = level - ||phi(x)||^2, with level the largest ||phi||^2 of the training rows and of x itself.

    k^(x, x) = ||phi(x)||^2 + c(x) is then one constant: divided by it, the prior variance is 1 and the residual
    1 - ||phi||^2. While training the level is the batch's (with gradient), so that the ELBO with this residual
    is the ELBO of the basis less tr(C) / (2 sigma^2); afterwards `settle` takes all rows. In closed form it
    enters the rows' precision too: they weigh 1 / (sigma^2 + c(x)).

    Notes
    -----
    Cost O(N r). Source: low-rank-deep-kernel-decomposition, section 3.3, eq. 11 and 12.

    Examples
    --------
    >>> from geogp.basis.expansions.linear import Linear
    >>> unit = Unit(Linear(1, 2))
    >>> phi = torch.tensor([[1.0, 0.0], [0.6, 0.0]])
    >>> (phi.square().sum(1) + unit.variance(Linear(1, 2), phi, phi, phi)).tolist()
    [1.0, 1.0]
    """

    formula = "var r(x) = max ‖φ‖² - ‖φ(x)‖²"
    far_behind_network = (
        "between that at the data and the prior's, which is the same everywhere by construction"
    )

    in_precision = True
    level: Tensor

    def __init__(self, expansion: Expansion):
        super().__init__(expansion)
        self.register_buffer("level", torch.zeros(()))

    def variance(self, expansion: Expansion, Z: Tensor, h: Tensor, phi: Tensor) -> Tensor:
        size = phi.square().sum(1)
        if self.training:
            top = size.max()
            self.level.copy_(top.detach())
            return top - size
        return (self.level - size).clamp_min(0.0)

    def settle(self, model: Representing, data: Data, validation: Data | None = None) -> None:
        with torch.no_grad():
            tops = [model.features(part.X).square().sum(1).max() for part in data.chunks()]
            self.level.copy_(torch.stack(tops).max())

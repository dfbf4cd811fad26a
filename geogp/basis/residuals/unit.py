"""The diagonal correction: what the basis lacks of a prior variance that is the same everywhere."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from geogp.basis.expansions.base import Expansion
from geogp.basis.residuals.base import Representing, Residual
from geogp.data import Data


class Unit(Residual):
    """c(x) = level - ||phi(x)||^2, with level the largest ||phi||^2 of the training rows and of x itself.

    k^(x, x) = ||phi(x)||^2 + c(x) is then one constant: divided by it, the prior variance is 1 and the residual
    1 - ||phi||^2. While training the level is the batch's (with gradient), so that the ELBO with this residual
    is the ELBO of the basis less tr(C) / (2 sigma^2); afterwards `settle` takes all rows. In closed form it
    enters the rows' precision too: they weigh 1 / (sigma^2 + c(x)). Where all rows make one step but come in parts,
    `hold` finds the level of them all before and `release` hands its gradient to the row that set it.

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
        #: The row (1, D) whose ||phi||^2 is the level of all rows, and that level, a leaf; None while rows come at once.
        self.held: tuple[Tensor, Tensor] | None = None

    def variance(
        self,
        expansion: Expansion,
        Z: Float[Tensor, "N D"],
        h: Float[Tensor, "N H"],
        phi: Float[Tensor, "N r"],
    ) -> Float[Tensor, " N"]:
        size = phi.square().sum(1)
        if self.training:
            top = size.max() if self.held is None else self.held[1]
            self.level.copy_(top.detach())
            return top - size
        return (self.level - size).clamp_min(0.0)

    def settle(self, model: Representing, data: Data) -> None:
        with torch.no_grad():
            self.level.copy_(torch.stack([size.max() for _, size in sizes(model, data.chunks())]).max())

    def hold(self, model: Representing, parts: Iterable[Data]) -> None:
        with torch.no_grad():
            best = [(size.max(), part.X[size.argmax()][None]) for part, size in sizes(model, parts)]
            top, X = max(best, key=lambda found: float(found[0]))
        self.held = X, top.clone().requires_grad_()

    def release(self, model: Representing) -> None:
        if self.held is None:
            return
        (X, top), self.held = self.held, None
        if top.grad is not None:
            model.features(X).square().sum().backward(top.grad)


def sizes(model: Representing, parts: Iterable[Data]) -> Iterable[tuple[Data, Tensor]]:
    """Each part of the rows with its ||phi||^2, (n,)."""
    for part in parts:
        yield part, model.features(part.X).square().sum(1)

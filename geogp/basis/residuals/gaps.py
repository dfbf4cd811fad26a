"""A spatial field that is nothing at the training places and grows towards gaps and beyond the data."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from geogp.basis.expansions.base import Expansion
from geogp.basis.residuals.base import Representing
from geogp.basis.residuals.distance import Distance
from geogp.data import Data

#: Waves that the field is summed from, each a cosine and a sine.
WAVES = 64


class Gaps(Distance):
    """r(x) = sqrt(a (1 - exp(-d(x) / range))) u(x), d(x) the distance to the nearest training place.

    What a basis learned as a point estimate does not know of places that it has not seen. u is a stationary field of
    variance one with the exponential kernel of the same range, by random Fourier features: errors of neighbouring places go
    together, so that they do not average out over an area. It is a field of the position alone: without one it is
    nothing, and it cancels in a change from time to time. Methods that train by minibatches read a and the range
    from places left out, see `geogp.basis.growth`; others as `Distance` does.

    Notes
    -----
    An update of the weights moves neither: a place first measured since is as wide as it was until the next fit.
    Cost O(N A) with A <= 1,024 anchors, and O(N p) for the field of p coordinates. Rahimi and Recht 2007 on the features.

    Examples
    --------
    >>> from geogp.basis.expansions.linear import Linear
    >>> residual = Gaps(Linear(2, 2)).eval()
    >>> residual.columns = torch.tensor([0, 1])
    >>> residual.place(torch.zeros(1, 2))
    >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0]])
    >>> root = residual.root(x)
    >>> torch.allclose(root.square().sum(1), residual.variance(Linear(2, 2), x, x, x))
    True
    """

    formula = "r(x) = sqrt(a (1 - exp(-d(x) / ρ))) u(x), d the distance to the nearest training place"
    far_behind_network = (
        "on a map what places left out of the training ask for at that distance; without a position little more than at "
        "the data: the network's output is bounded, and so is what its basis leaves open"
    )

    reverts_to_prior = False
    moves_with_rows = False

    def __init__(self, expansion: Expansion):
        super().__init__(expansion)
        self._learned = False

    def variance(
        self,
        expansion: Expansion,
        Z: Float[Tensor, "N D"],
        h: Float[Tensor, "N H"],
        phi: Float[Tensor, "N r"],
    ) -> Float[Tensor, " N"]:
        if not len(self.columns):
            return torch.zeros_like(phi[:, 0])
        return super().variance(expansion, Z, h, phi)

    def root(self, Z: Float[Tensor, "N D"]) -> Float[Tensor, "N k"] | None:
        if self.training or not len(self.anchors) or not len(self.columns):
            return None
        P = Z[:, self.columns].double()
        # The exponential kernel's spectral density is a Student-t of one degree of freedom.
        g = torch.Generator().manual_seed(0)
        waves = torch.randn(P.shape[1], WAVES, generator=g, dtype=torch.float64)
        waves = waves / torch.randn(WAVES, generator=g, dtype=torch.float64).abs()
        phase = P @ (waves.to(P) / self.range.double())
        u = torch.cat([phase.cos(), phase.sin()], 1) / math.sqrt(WAVES)
        return (self.size(Z).double().sqrt()[:, None] * u).to(Z)

    def settle(self, model: Representing, data: Data, validation: Data | None = None) -> None:
        if not model.encoder.spatial:
            return
        if not self._learned:
            super().settle(model, data, validation)
            return
        with torch.no_grad():
            self.stand(model, data)

    def take(self, taught: dict[str, float]) -> None:
        super().take(taught)
        self._learned = self._learned or bool(taught)

    # A run of before this residual has none of its tensors, and statistics made with it know its basis by them.

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        if len(self.anchors):
            super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        if prefix + "anchors" in state_dict:
            super()._load_from_state_dict(state_dict, prefix, *args)

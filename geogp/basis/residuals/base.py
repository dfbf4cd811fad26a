"""What every residual that adds a variance promises."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from geogp.basis.expansions import Expansion

if TYPE_CHECKING:
    from geogp.basis.model import LowRankGP
    from geogp.data import Data


class Residual(nn.Module):
    """variance(Z, h, phi) -> (N,): Z standardised inputs, h backbone outputs, phi basis values."""

    needs_base_kernel = False
    #: closed-form weights see each row's residual variance as part of its noise
    in_precision = False
    #: latent variance far from data is at least that near data
    reverts_to_prior = False

    def __init__(self, expansion: Expansion):
        super().__init__()

    def variance(self, expansion: Expansion, Z: Tensor, h: Tensor, phi: Tensor) -> Tensor:
        raise NotImplementedError

    def condition(self, model: "LowRankGP", data: "Data", validation: "Data | None" = None) -> None:
        """Take from the rows, once training is over, what prediction needs. Default: nothing."""

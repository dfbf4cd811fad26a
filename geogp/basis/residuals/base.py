"""What every residual that adds a variance promises."""

from typing import Protocol

from torch import Tensor, nn

from geogp.basis.encoders import Encoder
from geogp.basis.expansions.base import Expansion
from geogp.data import Data, Moments


class Representing(Protocol):
    """What a residual may ask of the model that it belongs to."""

    encoder: Encoder

    def features(self, X: Tensor) -> Tensor:
        """phi(x): (N, r)."""

    def moments(self, X: Tensor, counts: Tensor | None = None) -> Moments:
        """Mean, latent, noise and prior variance at X."""


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

    def settle(self, model: Representing, data: Data, validation: Data | None = None) -> None:
        """Take from the rows, once training is over, what prediction needs. Default: nothing."""

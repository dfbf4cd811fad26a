"""What every residual that adds a variance promises."""

from collections.abc import Iterable
from typing import ClassVar, Protocol, Self

import numpy as np
from jaxtyping import Float
from scipy import sparse
from torch import Tensor, nn

from geogp.basis.encoders import Encoder
from geogp.basis.expansions.base import Expansion
from geogp.basis.residuals.places import Places
from geogp.data import Data, Moments


class Representing(Protocol):
    """What a residual may ask of the model that it belongs to."""

    encoder: Encoder

    def features(self, X: Tensor) -> Tensor:
        """phi(x): (N, r)."""

    def moments(self, X: Tensor, counts: Tensor | None = None) -> Moments:
        """Mean, latent, noise and prior variance at X."""


#: Of residuals that measure distance on a network's output.
FEATURE_DISTANCE = (
    "distance counts on the network's output, where a far place may lie next to data: somewhere between that at the data "
    "and the prior's"
)


class Residual(nn.Module):
    """variance(Z, h, phi) -> (N,): Z standardised inputs, h backbone outputs, phi basis values."""

    #: For the methods' pages.
    formula: ClassVar[str]
    #: What the latent sd comes to far from data where a network's output goes into the basis.
    far_behind_network: ClassVar[str] = (
        "little more than at the data: the network's output is bounded, and so is what its basis leaves open"
    )
    #: The engine that carries a residual which is a process of its own, beside the basis; "" for one that is a variance.
    carried_by: ClassVar[str] = ""
    needs_base_kernel = False
    #: what it says of a training row may follow from the row's phi
    takes_phi = True
    #: buffers that hold the training places it grows from, where it is nothing: an update moves them along
    moved_by_rows: ClassVar[tuple[str, ...]] = ()
    #: rows left out of a training of their own tell how large it is, and `take` puts that on
    learns_by_trial = False
    #: closed-form weights see each row's residual variance as part of its noise
    in_precision = False
    #: a factor on the variance of the basis is one on its own, too
    scales_with_basis = True
    #: latent variance far from data is at least that near data
    reverts_to_prior = False
    #: where it reverts, all of the prior's variance is left there
    explains_nothing_far = True

    def __init__(self, expansion: Expansion):
        super().__init__()

    def variance(
        self,
        expansion: Expansion,
        Z: Float[Tensor, "N D"],
        h: Float[Tensor, "N H"],
        phi: Float[Tensor, "N r"],
    ) -> Float[Tensor, " N"]:
        raise NotImplementedError

    def root(self, Z: Float[Tensor, "N D"]) -> sparse.csr_array | None:
        """R (N, K) with R R' its covariance at standardised inputs, the diagonal its `variance`; None where it is
        independent from place to place."""
        return None

    def settle(self, model: Representing, data: Data) -> None:
        """Take from the rows, once training is over, what prediction needs. Default: nothing."""

    def positions(self, Z: Float[Tensor, "n D"]) -> Float[np.ndarray, "n p"] | None:
        """Where standardised inputs lie for one that grows from them, float64 on the CPU. Default: nowhere."""
        return None

    def grown_from(self, places: Places) -> Self:
        """A copy that grows from other places, where `moved_by_rows`."""
        raise NotImplementedError

    def taught(self) -> dict[str, float]:
        """What rows left out taught it, for a fit that leaves none out. Default: nothing."""
        return {}

    def take(self, taught: dict[str, float]) -> None:
        """Put on what `taught` gave. Default: nothing."""

    def hold(self, model: Representing, parts: Iterable[Data]) -> None:
        """Take from all rows what the variance of each asks of them while training, before they come part by part.
        Default: nothing."""

    def release(self, model: Representing) -> None:
        """After the last part: hand on the gradient that came back to what `hold` took."""

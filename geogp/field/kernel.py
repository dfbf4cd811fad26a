"""The covariance of the residual r: additive, Matérn over space, exponential over time.

    k(x, x') = Σ_c v_c · M_c(‖(x − x') / ℓ_c‖ over space) · exp(−|t − t'| / ℓ_ct)

with Matérn correlations M_c (1/2, 3/2, 5/2) and a lengthscale per axis and component.
"""

import functools
import operator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from geogp.densities import matern
from geogp.field.variation import Variation
from geogp.linalg import distances


@dataclass(frozen=True)
class LocalKernel:
    """Additive Matérn kernel. Its numbers are tensors, so gradients and safetensors work alike.

    Attributes
    ----------
    log_lengthscale : (C, D), of the coordinates' own units
    log_variance : (C,)
    smoothness : C names of `densities.MATERN`, for space
    time_axis : the axis whose exponential correlation multiplies that of space, or None
    variation : lengthscale and variance that vary over space, or None for a stationary kernel

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> round(float(kernel(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))), 5)  # exp(-5)
    0.00674
    """

    log_lengthscale: Float[Tensor, "C D"]
    log_variance: Float[Tensor, " C"]
    smoothness: tuple[str, ...]
    time_axis: int | None = None
    variation: Variation | None = None

    @property
    def space_axes(self) -> list[int]:
        """All axes but time."""
        return [d for d in range(self.log_lengthscale.shape[1]) if d != self.time_axis]

    @property
    def prior_variance(self) -> Float[Tensor, ""]:
        """k(x, x), the same everywhere; with a variation that far from data."""
        return self.log_variance.exp().sum()

    def prior_at(self, X: Float[Tensor, "*batch D"]) -> Tensor:
        """k(x, x) at X (N, D): (N,), or a scalar that holds everywhere."""
        if self.variation is None:
            return self.prior_variance
        return self.prior_variance * self.variation(X[..., :2])[1].exp()

    def __call__(
        self, A: Float[Tensor, "*batch N D"], B: Float[Tensor, "*batch M D"]
    ) -> Float[Tensor, "*batch N M"]:
        """Covariance of (..., N, D) and (..., M, D): (..., N, M)."""
        components = range(len(self.smoothness))
        if self.variation is None:
            return functools.reduce(operator.add, (self._component(c, A, B, None) for c in components))
        stretch, factor = self.variation.between(A[..., :2], B[..., :2])
        return (
            functools.reduce(operator.add, (self._component(c, A, B, stretch) for c in components)) * factor
        )

    def _component(self, c: int, A: Tensor, B: Tensor, stretch: Tensor | None) -> Tensor:
        """v_c M_c(d / stretch) exp(-lag)."""
        axes, t, name = self.space_axes, self.time_axis, self.smoothness[c]
        inverse = torch.exp(-self.log_lengthscale[c]).to(A.dtype)
        distance = distances(A[..., axes] * inverse[axes], B[..., axes] * inverse[axes])
        if stretch is not None:
            distance = distance / stretch
        if t is None:
            return self.log_variance[c].exp() * matern(distance, name)
        lag = distances(A[..., t : t + 1] * inverse[t], B[..., t : t + 1] * inverse[t])
        if name == "matern12":  # one exponential for both
            return torch.exp(self.log_variance[c] - distance - lag)
        return matern(distance, name) * torch.exp(self.log_variance[c] - lag)

    def term(self, c: int) -> "LocalKernel":
        """Component c as a kernel of its own, in float64."""
        one = slice(c, c + 1)
        return LocalKernel(
            self.log_lengthscale[one].double(),
            self.log_variance[one].double(),
            self.smoothness[one],
            self.time_axis,
            self.variation,
        )

    def to(self, device: torch.device | str) -> "LocalKernel":
        """The same kernel on a device."""
        return replace(
            self,
            log_lengthscale=self.log_lengthscale.to(device),
            log_variance=self.log_variance.to(device),
            variation=None if self.variation is None else self.variation.to(device),
        )

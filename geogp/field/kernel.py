"""The covariance of the residual r: additive, Matérn over space and over time.

    k(x, x') = Σ_c v_c · M_c(‖(x − x') / ℓ_c‖ over space) · T(|t − t'| / ℓ_ct)

with Matérn correlations M_c (1/2, 3/2, 5/2) and T (1/2, an exponential, or 3/2) and a lengthscale per axis and component.
"""

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from geogp.densities import MATERN, MATERN_ORDER, matern
from geogp.field.gradients import Stationary
from geogp.field.variation import Variation

#: Lengthscales beyond which distances are not told apart: the correlation is below 1e-30, in float32 and float64.
FARTHEST = 80.0


@dataclass(frozen=True)
class LocalKernel:
    """Additive Matérn kernel. Its numbers are tensors, so gradients and safetensors work alike.

    Attributes
    ----------
    log_lengthscale : (C, D), of the coordinates' own units
    log_variance : (C,)
    smoothness : C names of `densities.MATERN`, for space
    time_axis : the axis whose correlation multiplies that of space, or None
    variation : lengthscale and variance that vary over space, or None for a stationary kernel
    over_time : that correlation, "matern12" or "matern32"

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
    over_time: str = "matern12"

    @property
    def space_axes(self) -> list[int]:
        """All axes but time."""
        return [d for d in range(self.log_lengthscale.shape[1]) if d != self.time_axis]

    @property
    def covariate_axes(self) -> list[int]:
        """All but the first two, which are places, and time."""
        return [d for d in self.space_axes if d >= 2]

    @property
    def prior_variance(self) -> Float[Tensor, ""]:
        """k(x, x), the same everywhere; with a variation that far from data."""
        return self.log_variance.exp().sum()

    def prior_at(self, X: Float[Tensor, "*batch D"]) -> Tensor:
        """k(x, x) at X (N, D): (N,), or a scalar that holds everywhere."""
        if self.variation is None or not self.variation.bends:
            return self.prior_variance
        return self.prior_variance * self.variation(X[..., :2])[1].exp()

    def __call__(
        self, A: Float[Tensor, "*batch N D"], B: Float[Tensor, "*batch M D"]
    ) -> Float[Tensor, "*batch N M"]:
        """Covariance of (..., N, D) and (..., M, D): (..., N, M)."""
        if not (A.requires_grad or B.requires_grad):
            return self._of_squares(self._squares(A, B), A, B)
        t = self.time_axis
        squared = [(A[..., :, None, d] - B[..., None, :, d]).square() for d in self.space_axes]
        lag = None if t is None else (A[..., :, None, t] - B[..., None, :, t]).abs()
        stretch, factor = self._varied(A, B)
        components = (self._component(c, squared, lag, stretch) for c in range(len(self.smoothness)))
        K = functools.reduce(operator.add, components)
        return K if factor is None else K * factor

    def at_one_time(
        self, A: Float[Tensor, "*batch N D"], B: Float[Tensor, "*batch M D"]
    ) -> tuple[Float[Tensor, "*batch N M"], Float[Tensor, "*batch N M"]]:
        """`self(A, B)` where the N places of A lie at one time, and the squared distances over the first two axes."""
        squares = self._squares(A, B)
        return self._of_squares(squares, A, B, one_time=True), squares[0] + squares[1]

    def _varied(self, A: Tensor, B: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """h̄² of each pair, by which squared distances are divided, and the factor on the covariance; None where nothing varies."""
        if self.variation is None or not self.variation.bends:
            return None, None
        return self.variation.between(A[..., :2], B[..., :2], axes=len(self.space_axes))

    def _squares(self, A: Tensor, B: Tensor) -> Tensor:
        """Squared differences (S, ..., N, M) along each axis of space."""
        # One axis beside another of B is read four numbers at a time; a place beside another one number.
        a, b = (X[..., self.space_axes].movedim(-1, 0).contiguous() for X in (A, B))
        return (a[..., :, None] - b[..., None, :]).square_()

    def _of_squares(self, squares: Tensor, A: Tensor, B: Tensor, *, one_time: bool = False) -> Tensor:
        """Of squared differences over space, of places without gradients, in fewer passes over the entries; those of A may
        lie at one time."""
        t, space = self.time_axis, self.space_axes
        when = A[..., :1, :] if one_time else A
        lag = None if t is None else (when[..., :, None, t] - B[..., t].contiguous()[..., None, :]).abs_()
        axes = space if t is None else [*space, t]
        lengthscale, variance = self.log_lengthscale[:, axes].to(A.dtype), self.log_variance.to(A.dtype)
        stretch, factor = self._varied(A, B)
        K: Tensor = Stationary.apply(
            lengthscale, variance, squares, lag, self.smoothness, FARTHEST, stretch, self.over_time
        )
        return K if factor is None else K * factor

    def _component(self, c: int, squared: list[Tensor], lag: Tensor | None, stretch: Tensor | None) -> Tensor:
        """v_c M_c(d / stretch) T(lag), of squared differences along each axis of space and of times apart."""
        like = squared[0]
        inverse, v = torch.exp(-self.log_lengthscale[c]).to(like.dtype), self.log_variance[c].to(like.dtype)
        squares = (square * inverse[d].square() for square, d in zip(squared, self.space_axes))
        # A root's slope at zero is infinite: the bound makes it none there, and moves no distance that is not zero.
        # Beyond the farthest a correlation is nothing, and its exponential a denormal number: a hundred times as slow.
        tiny = torch.finfo(like.dtype).tiny
        distance = functools.reduce(operator.add, squares).clamp(tiny, FARTHEST**2).sqrt()
        if stretch is not None:
            distance = distance / stretch.sqrt()
        if lag is None:
            return matern(distance, self.smoothness[c], v)
        b = math.sqrt(2.0 * MATERN_ORDER[self.over_time]) * lag * inverse[self.time_axis]
        return matern(distance, self.smoothness[c], v - b) * MATERN[self.over_time](b)

    def as_smooth_as(self, name: str) -> "LocalKernel":
        """The same with all terms of that smoothness over space."""
        return replace(self, smoothness=(name,) * len(self.smoothness))

    def along_covariates(self, factor: float) -> "LocalKernel":
        """The same with lengths along covariates so many times as long."""
        log_lengthscale = self.log_lengthscale.clone()
        log_lengthscale[:, self.covariate_axes] += math.log(factor)
        return replace(self, log_lengthscale=log_lengthscale)

    def over_space(self, c: int, length: float) -> "LocalKernel":
        """The same with component c so long over space."""
        log_lengthscale = self.log_lengthscale.clone()
        log_lengthscale[c, self.space_axes[:2]] = math.log(length)
        return replace(self, log_lengthscale=log_lengthscale)

    def term(self, c: int) -> "LocalKernel":
        """Component c as a kernel of its own, in float64."""
        one = slice(c, c + 1)
        return LocalKernel(
            self.log_lengthscale[one].double(),
            self.log_variance[one].double(),
            self.smoothness[one],
            self.time_axis,
            self.variation,
            self.over_time,
        )

    @property
    def numbers(self) -> list[Tensor]:
        """All that it is made of, and what its variation is."""
        bumps = self.variation
        own = [self.log_lengthscale, self.log_variance]
        return own if bumps is None else [*own, bumps.lengthscale, bumps.variance]

    def with_numbers(self, numbers: Sequence[Tensor]) -> "LocalKernel":
        """A kernel of this structure with other `numbers`."""
        lengthscale, variance, *of_bumps = numbers
        made = replace(self, log_lengthscale=lengthscale, log_variance=variance)
        if self.variation is None:
            return made
        stretch, amplitude = of_bumps
        return replace(made, variation=replace(self.variation, lengthscale=stretch, variance=amplitude))

    def to(self, device: torch.device | str) -> "LocalKernel":
        """The same kernel on a device."""
        return replace(
            self,
            log_lengthscale=self.log_lengthscale.to(device),
            log_variance=self.log_variance.to(device),
            variation=None if self.variation is None else self.variation.to(device),
        )

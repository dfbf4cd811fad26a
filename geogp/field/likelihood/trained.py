"""What a fit of a local GP trains."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn

from geogp.densities import MATERN_ORDER
from geogp.field.kernel import LocalKernel
from geogp.field.local_gp import LocalGP
from geogp.field.noise.rows import ToldNoise, noise_variance
from geogp.field.student import SMALLEST_DF
from geogp.field.variation.crowding import Crowding
from geogp.field.variation.noisiness import Noisiness
from geogp.field.variation.told import Following


class Trained(nn.Module):
    """What `fit_local_gp` trains, float64: the logarithms of all that is positive, and the shift."""

    def __init__(
        self,
        start: LocalKernel,
        n_columns: int,
        told: ToldNoise | None,
        follows: Following | None,
        *,
        student: bool,
        per_count: bool,
        crowding: Crowding | Noisiness | None = None,
        factor_of_times: Tensor | None = None,
    ):
        super().__init__()
        #: (N,) factors on the noise variances of the rows that it is fitted to, which are not learned.
        self.factor_of_times = factor_of_times
        self.crowding = crowding
        self.start, self.told, self.begun, self.student = start, told, follows, student
        self.lengthscale = nn.Parameter(start.log_lengthscale.double().clone())
        # Neighbours tell v / ℓ^2ν and little more (Zhang 2004): learned itself, it leaves ℓ free to follow what is far away.
        self.rate = nn.Parameter(start.log_variance.double() - self._ridge(self.lengthscale.detach()))
        self.shift = nn.Parameter(torch.zeros(n_columns, dtype=torch.float64))
        self.tau2 = nn.Parameter(torch.tensor(0.0, dtype=torch.float64))
        self.s2 = nn.Parameter(
            torch.tensor(0.0 if per_count else -math.inf, dtype=torch.float64), requires_grad=per_count
        )
        self.tails = nn.Parameter(torch.tensor(math.log(3.0), dtype=torch.float64))
        if told is not None:
            self.row_coefficients = nn.Parameter(told.noise.coefficients.clone())
        if follows is not None:
            self.following_coefficients = nn.Parameter(follows.coefficients.clone())
        if crowding is not None:
            self.crowding_coefficients = nn.Parameter(
                torch.zeros(crowding.n_coefficients, dtype=torch.float64)
            )
        if start.variation is not None and crowding is None:
            self.stretch = nn.Parameter(start.variation.lengthscale.double().clone())
            self.amplitude = nn.Parameter(start.variation.variance.double().clone())

    def begun_at(self, gp: LocalGP) -> Self:
        """With the numbers of a local GP of this structure."""
        with torch.no_grad():
            self.lengthscale.copy_(gp.kernel.log_lengthscale)
            self.rate.copy_(gp.kernel.log_variance - self._ridge(self.lengthscale))
            self.shift.copy_(gp.count_shift)
            self.tau2.fill_(math.log(gp.tau2))
            if self.s2.requires_grad:
                self.s2.fill_(math.log(gp.s2))
            if gp.degrees_of_freedom is not None:
                self.tails.fill_(math.log(gp.degrees_of_freedom - SMALLEST_DF))
            if gp.rows is not None:
                self.row_coefficients.copy_(gp.rows.coefficients)
        return self

    def kernel(self, of: Callable[[Tensor], Tensor] = lambda p: p) -> LocalKernel:
        """The kernel made of the parameters, or of what `of` makes of each."""
        bumps = self.start.variation
        if self.crowding is not None:
            bumps = self.crowding.variation(of(self.crowding_coefficients))
        elif bumps is not None:
            stretch, amplitude = of(self.stretch), of(self.amplitude)
            bumps = replace(bumps.to(stretch.device), lengthscale=stretch, variance=amplitude)
        lengthscale = of(self.lengthscale)
        variance = of(self.rate) + self._ridge(lengthscale)
        return replace(self.start, log_lengthscale=lengthscale, log_variance=variance, variation=bumps)

    def follows(self) -> Following | None:
        """How lengthscale and variance follow what is said, made of the parameters."""
        if self.begun is None:
            return None
        bumps = self.begun.bumps.to(self.following_coefficients.device)
        return Following(bumps, self.following_coefficients)

    def _ridge(self, log_lengthscale: Tensor) -> Tensor:
        """2ν log ℓ of each component, ℓ the mean over the axes of space."""
        power = [2.0 * MATERN_ORDER[name] for name in self.start.smoothness]
        mean = log_lengthscale[:, self.start.space_axes[:2]].mean(1)
        return torch.tensor(power, dtype=mean.dtype, device=mean.device) * mean

    def noise_of_rows(self, rows: Tensor | slice = slice(None)) -> ToldNoise | None:
        """What tells rows' noises apart, made of the parameters; of some of the rows that it is fitted to."""
        if self.told is None:
            return None
        noise = replace(self.told.noise, coefficients=self.row_coefficients)
        return replace(self.told, noise=noise, says=self.told.says[rows])

    def noise_variance(self, counts: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """Of some of the rows that it is fitted to, of counts (N,)."""
        alike = noise_variance(self.tau2.exp(), self.s2.exp(), counts[rows], self.noise_of_rows(rows))
        if self.factor_of_times is not None:
            alike = alike * self.factor_of_times[rows]
        if self.crowding is None:
            return alike
        return alike * self.crowding.noise_factor(self.crowding_coefficients)[rows]

    def degrees_of_freedom(self) -> Tensor | None:
        return self.tails.exp() + SMALLEST_DF if self.student else None

    def learned(self, history: list[float], weighted: bool) -> LocalGP:
        """The numbers, without gradients."""
        told, follows = self.noise_of_rows(), self.follows()
        return LocalGP(
            kernel=self.kernel(Tensor.detach),
            tau2=self.tau2.exp().item(),
            s2=self.s2.exp().item(),
            degrees_of_freedom=self.tails.exp().item() + SMALLEST_DF if self.student else None,
            count_shift=self.shift.detach(),
            loss=tuple(history),
            weighted=weighted,
            rows=None if told is None else replace(told.noise, coefficients=self.row_coefficients.detach()),
            follows=None if follows is None else replace(follows, coefficients=follows.coefficients.detach()),
        )

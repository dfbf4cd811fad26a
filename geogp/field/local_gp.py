"""The local Gaussian process as it is fitted: kernel, noise, tails and count shift."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from geogp.field.kernel import LocalKernel
from geogp.field.noise.rows import RowNoise, ToldNoise, noise_variance
from geogp.field.noise.times import NoiseOfTimes
from geogp.field.observations import Observations
from geogp.field.student import heavy_tailed, variance_over_scale2
from geogp.field.variation.told import Following, following


@dataclass(frozen=True)
class LocalGP:
    """y = r(x) + b(n) + ε,   r ~ GP(0, k),   b(n) = β₁/n + β₂/√n,   ε ~ Student-t(0, τ² + s²/n).

    kernel : of r
    tau2, s2 : noise variance τ² + s²/n of an average of n measurements
    degrees_of_freedom : of a new observation, None for Gaussian noise
    count_shift : (2,) coefficients β of b(n), or (0,) where there is none
    loss : minibatch losses of the fit, one a step
    weighted : whether observations are conditioned on as Student-t, else as Gaussian
    rows : how τ² and s² differ from observation to observation, None where they are the same
    follows : how lengthscale and variance follow what places say, as it was learned; None where they do not, or in a run
        that was opened: the kernel's variation is all that predictions need
    variances : observations that are not weighed are conditioned on with the variance of a Student-t; earlier runs took its
        squared scale for that
    of_times : how τ² and s² differ from time to time, None where they do not

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> gp = LocalGP(kernel, 0.1, 1.0, 4.0, torch.tensor([1.0, 0.0]), ())
    >>> gp.noise_variance(torch.tensor([1.0, 10.0]), torch.zeros(2, 2)), gp.b(torch.tensor([1.0, 10.0]))
    (tensor([1.1000, 0.2000]), tensor([1.0000, 0.1000]))
    """

    kernel: LocalKernel
    tau2: float
    s2: float
    degrees_of_freedom: float | None
    count_shift: Tensor
    loss: tuple[float, ...]
    weighted: bool = True
    rows: RowNoise | None = None
    follows: Following | None = None
    variances: bool = True
    of_times: NoiseOfTimes | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Its numbers; `from_tensors` makes it again, given the structure of its kernel."""
        out = {
            "log_lengthscale": self.kernel.log_lengthscale,
            "log_variance": self.kernel.log_variance,
            "count_shift": self.count_shift,
            "loss": torch.tensor(self.loss, dtype=torch.float64),
            "numbers": torch.tensor(
                [self.tau2, self.s2, self.degrees_of_freedom or math.nan, float(self.weighted)],
                dtype=torch.float64,
            ),
        }
        if (bumps := self.kernel.variation) is not None:
            out |= {"stretch": bumps.lengthscale, "amplitude": bumps.variance}
            out |= {} if bumps.noise is None else {"noisier": bumps.noise, "width": bumps.width}
        if self.rows is not None:
            out["row_noise"] = self.rows.coefficients
        if self.follows is not None:
            out["following"] = self.follows.coefficients
        if self.of_times is not None:
            out |= self.of_times.tensors()
        return out

    @classmethod
    def from_tensors(
        cls,
        tensors: dict[str, Tensor],
        start: LocalKernel,
        rows: RowNoise | None = None,
        follows: Following | None = None,
    ) -> "LocalGP":
        """From `tensors`, a kernel, a noise and a variation of the same structure."""
        tau2, s2, nu, weighted = tensors["numbers"].tolist()
        bumps = start.variation
        if bumps is not None:
            bumps = replace(
                bumps,
                lengthscale=tensors["stretch"],
                variance=tensors["amplitude"],
                noise=tensors.get("noisier"),
                width=tensors.get("width", bumps.width),
            )
        lengths, variances = tensors["log_lengthscale"], tensors["log_variance"]
        kernel = replace(start, log_lengthscale=lengths, log_variance=variances, variation=bumps)
        df = None if math.isnan(nu) else nu
        if rows is not None:
            rows = replace(rows, coefficients=tensors["row_noise"])
        if follows is not None:
            follows = replace(follows, coefficients=tensors["following"])
        shift, loss = tensors["count_shift"], tuple(tensors["loss"].tolist())
        of_times = NoiseOfTimes.of(tensors)
        return cls(kernel, tau2, s2, df, shift, loss, bool(weighted), rows, follows, of_times=of_times)

    @property
    def tails(self) -> float | None:
        """Degrees of freedom with which observations are conditioned on, None for Gaussian ones."""
        return self.degrees_of_freedom if self.weighted else None

    @property
    def variance_factor(self) -> float:
        """By what squared scales are multiplied where observations are conditioned on."""
        weighed = self.weighted and heavy_tailed(self.degrees_of_freedom)
        return 1.0 if weighed or not self.variances else variance_over_scale2(self.degrees_of_freedom)

    def times(self, length: float, surface: float, noise: float) -> "LocalGP":
        """With lengths, and variances of the surface and of the noise, so many times as large."""
        kernel = replace(
            self.kernel,
            log_lengthscale=self.kernel.log_lengthscale + math.log(length),
            log_variance=self.kernel.log_variance + math.log(surface),
        )
        return replace(self, kernel=kernel, tau2=noise * self.tau2, s2=noise * self.s2)

    def less_sure(self, factor: float) -> "LocalGP":
        """With all variances so many times as large."""
        return self.times(1.0, factor, factor)

    def without_tails(self) -> "LocalGP":
        """With Gaussian noise of the variance that a Student-t has."""
        factor = variance_over_scale2(self.degrees_of_freedom)
        tau2, s2 = factor * self.tau2, factor * self.s2
        return replace(self, tau2=tau2, s2=s2, degrees_of_freedom=None, weighted=False)

    def told(self, says: Tensor | None) -> "LocalGP":
        """With the lengthscale and variance that follow where this is said at the centres."""
        return replace(self, kernel=following(self.kernel, self.follows, says))

    def noise_variance(self, counts: Tensor, X: Tensor, says: Tensor | None = None) -> Tensor:
        """τ² + s²/n for counts (N,), with its factor at coordinates X (N, D) where it varies over space or from time to time; of
        observations of which the places around say (N, p), None where nobody does."""
        told = None if self.rows is None or says is None else ToldNoise(self.rows, says)
        alike = noise_variance(self.tau2, self.s2, counts, told)
        if (louder := self.factor_of_times(X)) is not None:
            alike = alike * louder
        bumps = self.kernel.variation
        return alike if bumps is None else alike * bumps.to(X.device).noise_factor(X[:, :2])

    def factor_of_times(self, X: Tensor) -> Tensor | None:
        """On noise variances at coordinates X (N, D): (N,); None where all times are alike."""
        if self.of_times is None or self.kernel.time_axis is None:
            return None
        return self.of_times.factor(X[:, self.kernel.time_axis])

    def observed(
        self, X: Tensor, value: Tensor, counts: Tensor, of: Tensor | slice = slice(None)
    ) -> Observations:
        """Values (N,) at coordinates X (N, D), less trend and count shift, with the noise variances they have here: of
        those that are weighed as Student-t their squared scales. All of them, or those of the numbers `of`.

        Notes
        -----
        O(N log N).
        """
        asked = of if isinstance(of, Tensor) else None
        says = None if self.rows is None else self.rows.says(X, value, counts, asked)
        X, value, counts = X[of], value[of], counts[of]
        return Observations(X, value, counts, self.variance_factor * self.noise_variance(counts, X, says))

    def b(self, counts: Tensor) -> Tensor:
        """The shift with the count, b(n), for counts (N,)."""
        if len(self.count_shift) == 0:
            return torch.zeros_like(counts)
        return count_columns(counts) @ self.count_shift.to(counts.device)


def count_columns(counts: Tensor) -> Tensor:
    """(N, 2): 1/n and 1/√n, what b(n) is made of."""
    return torch.stack([1.0 / counts, counts.rsqrt()], dim=-1)

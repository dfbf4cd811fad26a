"""The distribution of the weights, q(w) = N(m, S), and what it says of phi'w.

Both routes end here: variational training learns `VariationalPosterior`; `statistics.solve` computes a
`WeightPosterior`. Nothing downstream knows which one it holds.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geogp.linalg.slopes import lower_triangle, quadratic


@dataclass(frozen=True)
class WeightPosterior:
    """q(w) = N(mean, scale_tril scale_tril').

    mean : (r,); scale_tril : (r, r) lower-triangular, or any square root of the covariance (r, k)
    """

    mean: Float[Tensor, " r"]
    scale_tril: Float[Tensor, "r k"]

    def moments(self, phi: Float[Tensor, "N r"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """Mean phi'm and variance ||L'phi||^2, each (N,). Cost O(N r^2)."""
        return phi @ self.mean, (phi @ self.scale_tril).square().sum(1)

    def moments_and_prior(
        self, phi: Float[Tensor, "N r"]
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Float[Tensor, " N"]]:
        """`moments`, and the variance ||phi||^2 before data: each (N,)."""
        return *self.moments(phi), phi.square().sum(1)

    def covariance(self, phi: Float[Tensor, "N r"], phi_other: Float[Tensor, "M r"]) -> Float[Tensor, "N M"]:
        """phi S phi_other': (N, M)."""
        return (phi @ self.scale_tril) @ (phi_other @ self.scale_tril).T

    def sample(self, n_samples: int, generator: torch.Generator) -> Float[Tensor, "r n_samples"]:
        """Draws of w: (r, n_samples)."""
        noise = torch.randn(self.scale_tril.shape[1], n_samples, generator=generator)
        return self.mean[:, None] + self.scale_tril @ noise.to(self.scale_tril)

    def to(self, like: Tensor) -> "WeightPosterior":
        """The same in the dtype and on the device of a tensor."""
        return replace(self, mean=self.mean.to(like), scale_tril=self.scale_tril.to(like))

    def kl(self) -> Float[Tensor, ""]:
        """KL(q || N(0, I)) for a lower-triangular scale."""
        L = self.scale_tril
        log_det = 2.0 * L.diagonal().abs().log().sum()
        return 0.5 * (L.square().sum() + self.mean.square().sum() - len(self.mean) - log_det)


class TriangularWeights(WeightPosterior):
    """A `WeightPosterior` whose scale_tril (r, r) is known to be lower-triangular: half the operations."""

    def moments(self, phi: Float[Tensor, "N r"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        mean, variance, _ = quadratic(phi, self.scale_tril, self.mean)
        return mean, variance

    def moments_and_prior(
        self, phi: Float[Tensor, "N r"]
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Float[Tensor, " N"]]:
        return quadratic(phi, self.scale_tril, self.mean)


class Posterior(nn.Module):
    """What training may move of the weights' distribution. Made from the rank."""

    #: (r,)
    mean: Tensor
    #: True where a determinant is factorised at every step, as of `geogp.basis.expansions.Expansion`.
    factorises = False

    def current(self) -> "WeightPosterior | LowRankWeights":
        """The distribution as it is now."""
        raise NotImplementedError

    def initialise(self, mean: Float[Tensor, " r"], scale: float) -> None:
        """Start at N(mean, scale^2 I), or as near to it as can be."""
        raise NotImplementedError

    def multiply(self, factor: float) -> None:
        """Multiply the learned covariance."""
        raise NotImplementedError


class VariationalPosterior(Posterior):
    """N(m, L L') with m and the triangular L learned.

    The diagonal of L is stored as its logarithm.

    Source: deep-basis-kernel-gp, appendix B, "Variational distribution".
    """

    def __init__(self, rank: int):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(rank))
        self.log_diagonal = nn.Parameter(torch.full((rank,), -0.5 * float(torch.tensor(float(rank)).log())))
        self.off_diagonal = nn.Parameter(torch.randn(rank, rank) / rank**1.5 * 0.1)

    def current(self) -> WeightPosterior:
        return TriangularWeights(self.mean, lower_triangle(self.off_diagonal, self.log_diagonal))

    def initialise(self, mean: Float[Tensor, " r"], scale: float) -> None:
        with torch.no_grad():
            self.mean.copy_(mean)
            self.log_diagonal.fill_(float(torch.tensor(scale).log()))
            self.off_diagonal.mul_(scale)

    def multiply(self, factor: float) -> None:
        half = 0.5 * math.log(factor)
        with torch.no_grad():
            self.log_diagonal.add_(half)
            self.off_diagonal.mul_(math.exp(half))


class LowRankPosterior(Posterior):
    """S = V V' + diag(d)^2 with V (r, k): O(N r k) instead of O(N r^2) a step."""

    factorises = True

    def __init__(self, rank: int, n_factors: int = 16):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(rank))
        self.log_diagonal = nn.Parameter(torch.full((rank,), -0.5 * float(torch.tensor(float(rank)).log())))
        self.factor = nn.Parameter(torch.randn(rank, n_factors) / rank * 0.1)

    def initialise(self, mean: Float[Tensor, " r"], scale: float) -> None:
        with torch.no_grad():
            self.mean.copy_(mean)
            self.log_diagonal.fill_(float(torch.tensor(scale).log()))
            self.factor.mul_(scale)

    def multiply(self, factor: float) -> None:
        half = 0.5 * math.log(factor)
        with torch.no_grad():
            self.log_diagonal.add_(half)
            self.factor.mul_(math.exp(half))

    def current(self) -> "LowRankWeights":
        return LowRankWeights(self.mean, self.factor, self.log_diagonal.exp())


@dataclass(frozen=True)
class LowRankWeights:
    """q(w) = N(mean, factor factor' + diag(diagonal)^2)."""

    mean: Float[Tensor, " r"]
    factor: Float[Tensor, "r k"]
    diagonal: Float[Tensor, " r"]

    def moments(self, phi: Float[Tensor, "N r"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """As `WeightPosterior.moments`. Cost O(N r k)."""
        variance = (phi @ self.factor).square().sum(1) + phi.square() @ self.diagonal.square()
        return phi @ self.mean, variance

    def moments_and_prior(
        self, phi: Float[Tensor, "N r"]
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Float[Tensor, " N"]]:
        """As `WeightPosterior.moments_and_prior`."""
        return *self.moments(phi), phi.square().sum(1)

    def covariance(self, phi: Float[Tensor, "N r"], phi_other: Float[Tensor, "M r"]) -> Float[Tensor, "N M"]:
        """phi S phi_other': (N, M)."""
        low = (phi @ self.factor) @ (phi_other @ self.factor).T
        return low + (phi * self.diagonal.square()) @ phi_other.T

    def sample(self, n_samples: int, generator: torch.Generator) -> Float[Tensor, "r n_samples"]:
        """Draws of w: (r, n_samples)."""
        low = torch.randn(self.factor.shape[1], n_samples, generator=generator)
        own = torch.randn(len(self.mean), n_samples, generator=generator)
        return (
            self.mean[:, None]
            + self.factor @ low.to(self.factor)
            + self.diagonal[:, None] * own.to(self.diagonal)
        )

    def kl(self) -> Float[Tensor, ""]:
        """KL(q || N(0, I)), with the determinant by the matrix determinant lemma."""
        scaled = self.factor / self.diagonal[:, None]
        inner = torch.eye(scaled.shape[1], dtype=scaled.dtype, device=scaled.device) + scaled.T @ scaled
        log_det = torch.linalg.slogdet(inner)[1] + 2.0 * self.diagonal.log().sum()
        trace = self.factor.square().sum() + self.diagonal.square().sum()
        return 0.5 * (trace + self.mean.square().sum() - len(self.mean) - log_det)


class Prior(Posterior):
    """Computed from the data, not trained.

    N(0, I) until `geogp.basis.statistics.solve` has replaced it (`LowRankGP.solved`).
    """

    def __init__(self, rank: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(rank), persistent=False)

    def initialise(self, mean: Float[Tensor, " r"], scale: float) -> None:
        """Nothing to start from: the weights are solved for."""

    def current(self) -> WeightPosterior:
        return WeightPosterior(
            self.mean, torch.eye(len(self.mean), dtype=self.mean.dtype, device=self.mean.device)
        )


class PointWeights(WeightPosterior):
    """Weights without a distribution: the variance is 0, the "KL" that of a point's log prior."""

    def kl(self) -> Float[Tensor, ""]:
        """-log N(mean; 0, I) up to a constant."""
        return 0.5 * self.mean.square().sum()


class PointPosterior(Posterior):
    """One value of each weight, no distribution: the output layer of a plain network."""

    def __init__(self, rank: int):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(rank))

    def current(self) -> PointWeights:
        return PointWeights(self.mean, self.mean.new_zeros(len(self.mean), 1))

    def initialise(self, mean: Float[Tensor, " r"], scale: float) -> None:
        with torch.no_grad():
            self.mean.copy_(mean)


class LaplacePosterior(PointPosterior):
    """The network's weights, with the Laplace covariance of the last layer.

    The covariance comes after training: `geogp.engines.network.laplace`.
    """


POSTERIORS: dict[str, type[Posterior]] = {
    "dense": VariationalPosterior,
    "lowrank": LowRankPosterior,
    "solved": Prior,
    "point": PointPosterior,
    "laplace": LaplacePosterior,
}

"""y | f ~ noise(f(x), n), f(x) = m + phi(x)'w + r(x), w ~ N(m, L L'): the formula, nothing else."""

from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geogp.basis.backbones import Backbone
from geogp.basis.encoders import Encoder
from geogp.basis.expansions.base import Expansion
from geogp.basis.noise.base import Noise
from geogp.basis.posterior import LowRankWeights, Posterior, WeightPosterior
from geogp.basis.residuals.base import Residual
from geogp.basis.spread import Factors
from geogp.data import Moments

Array = NDArray[np.float64]


class Trainable(nn.Module):
    """What the training loop needs of a model."""

    noise: Noise

    def kernel_parameters(self) -> list[nn.Parameter]:
        """Parameters that learn at the kernel's rate: all but those of a network and of the noise."""
        raise NotImplementedError

    def moments(self, X: Tensor, counts: Tensor | None = None) -> Moments:
        """Mean, latent, noise and prior variance at X."""
        raise NotImplementedError


class LowRankGP(Trainable):
    """A Gaussian process whose kernel is phi(x)'phi(x') plus a residual variance.

    Inputs X (N, D) are raw (metres, years, features; float64); targets are standardised; counts (N,) or None.

    Parameters
    ----------
    encoder, backbone, expansion, residual, noise, posterior : the choices of a row of the method table

    Notes
    -----
    `moments` costs O(N (network + r^2)).
    """

    def __init__(
        self,
        *,
        encoder: Encoder,
        backbone: Backbone,
        expansion: Expansion,
        residual: Residual,
        noise: Noise,
        posterior: Posterior,
    ):
        super().__init__()
        self.encoder, self.backbone, self.expansion = encoder, backbone, expansion
        self.residual, self.noise, self.posterior = residual, noise, posterior
        self.constant_mean = nn.Parameter(torch.zeros(()))
        #: What its variances are multiplied by where it predicts, never while it trains or is solved.
        self.factors = Factors()
        #: A closed-form posterior that replaces the variational one (see `geogp.basis.statistics`).
        self.solved: WeightPosterior | None = None

    def weights(self) -> WeightPosterior | LowRankWeights:
        """The distribution of w now in force."""
        if self.solved is not None:
            return self.solved.to(self.constant_mean)
        return self.posterior.current()

    def kernel_parameters(self) -> list[nn.Parameter]:
        out = list(self.expansion.kernel_parameters()) + list(self.posterior.parameters())
        return out + list(self.residual.parameters()) + [self.constant_mean]

    def represent(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Standardised inputs Z (N, D), backbone output h (N, H) and basis phi (N, r)."""
        h = self.backbone(self.encoder(X))
        return self.encoder.standardise(X), h, self.expansion(h)

    def features(self, X: Tensor) -> Tensor:
        """phi(x): (N, r)."""
        return self.expansion(self.backbone(self.encoder(X)))

    def moments(self, X: Tensor, counts: Tensor | None = None) -> Moments:
        """Mean, latent variance and noise variance of averages of `counts` measurements at X."""
        Z, h, phi = self.represent(X)
        mean, variance, prior = self.weights().moments_and_prior(phi)
        residual = self.residual_variance(Z, h, phi)
        return Moments(
            mean=self.constant_mean + mean,
            latent_variance=self.factors.surface * variance + residual,
            noise_variance=self.noise_variance(Z, counts, variance),
            prior_variance=self.factors.surface * prior + residual,
        )

    def noise_variance(self, Z: Tensor, counts: Tensor | None, of_weights: Tensor) -> Tensor:
        """Of averages of `counts` measurements where the model predicts, (N,): `of_weights` is phi' Cov(w) phi there."""
        variance, floor, f = self.noise(Z, counts), self.noise.floor, self.factors
        variance = variance if f.noise == 1.0 else floor + f.noise * (variance - floor)
        return variance + f.noise_from_weights * of_weights if f.noise_from_weights else variance

    def residual_variance(self, Z: Tensor, h: Tensor, phi: Tensor) -> Tensor:
        """Of the residual where the model predicts, (N,), of what `represent` gave."""
        factor = self.factors.surface if self.residual.scales_with_basis else 1.0
        return factor * self.residual.variance(self.expansion, Z, h, phi)

    def prior_covariance(self, X: Tensor, X_ref: Tensor) -> Tensor:
        """k(x, x_ref): (N, M). Of the base kernel where the residual completes the basis to it."""
        if self.residual.needs_base_kernel:
            h, h_ref = self.backbone(self.encoder(X)), self.backbone(self.encoder(X_ref))
            return self.factors.surface * self.expansion.base_kernel(h, h_ref)
        return self.factors.surface * self.features(X) @ self.features(X_ref).T

    def posterior_covariance(self, X: Tensor) -> Tensor:
        """Covariance of the surface at X given the data: (N, N)."""
        Z, h, phi = self.represent(X)
        covariance = self.weights().covariance(phi, phi)
        if self.residual.needs_base_kernel:
            return self.factors.surface * (covariance + self.expansion.base_kernel(h, h) - phi @ phi.T)
        return self.factors.surface * covariance + torch.diag(self.residual_variance(Z, h, phi))


def in_double(model: LowRankGP) -> LowRankGP:
    """A float64 copy of a model; the model itself where it is in float64 already."""
    if model.constant_mean.dtype == torch.float64:
        return model
    copy = deepcopy(model).double()
    if copy.solved is not None:
        copy.solved = WeightPosterior(copy.solved.mean.double(), copy.solved.scale_tril.double())
    return copy

"""y | f ~ noise(f(x), n), f(x) = m + phi(x)'w + r(x), w ~ N(m, L L'): the formula, nothing else."""

from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
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

    def standardised(self, X: Tensor) -> Tensor:
        """Z (N, D), what the residual and the noise see of X."""
        return self.encoder.standardise(X)

    def represent(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Standardised inputs Z (N, D), backbone output h (N, H) and basis phi (N, r)."""
        h = self.backbone(self.encoder(X))
        return self.standardised(X), h, self.expansion(h)

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

    def residual_root(self, Z: Tensor) -> sparse.csr_array | None:
        """Of the residual where the model predicts, (N, K): its covariance between places is this times its transpose, or
        None where it is independent from place to place."""
        root = self.residual.root(Z)
        scaled = root is not None and self.residual.scales_with_basis
        return sparse.csr_array(root * self.factors.surface**0.5) if scaled else root

    def prior_covariance(self, X: Tensor, X_ref: Tensor) -> Tensor:
        """k(x, x_ref): (N, M). Of the base kernel where the residual completes the basis to it."""
        if self.residual.needs_base_kernel:
            h, h_ref = self.backbone(self.encoder(X)), self.backbone(self.encoder(X_ref))
            return self.factors.surface * self.expansion.base_kernel(h, h_ref)
        covariance = self.factors.surface * self.features(X) @ self.features(X_ref).T
        root = self.residual_root(self.standardised(torch.cat([X, X_ref])))
        if root is None:
            return covariance
        return covariance + torch.as_tensor((root[: len(X)] @ root[len(X) :].T).toarray()).to(covariance)

    def posterior_covariance(self, X: Tensor) -> Tensor:
        """Covariance of the surface at X given the data: (N, N)."""
        Z, h, phi = self.represent(X)
        covariance = self.weights().covariance(phi, phi)
        if self.residual.needs_base_kernel:
            return self.factors.surface * (covariance + self.expansion.base_kernel(h, h) - phi @ phi.T)
        root = self.residual_root(Z)
        if root is None:
            own = torch.diag(self.residual_variance(Z, h, phi))
        else:
            own = torch.as_tensor((root @ root.T).toarray()).to(covariance)
        return self.factors.surface * covariance + own


def in_double(model: LowRankGP) -> LowRankGP:
    """A float64 copy of a model; the model itself where it is in float64 already."""
    if model.constant_mean.dtype == torch.float64:
        return model
    copy = deepcopy(model).double()
    if copy.solved is not None:
        copy.solved = WeightPosterior(copy.solved.mean.double(), copy.solved.scale_tril.double())
    return copy

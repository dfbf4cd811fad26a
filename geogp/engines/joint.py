"""The joint posterior of the surface at many places: covariances of weighted sums, and draws.

An average over an area needs how the surface's errors go together, not only how large each is. Three routes, one
interface: methods with features are exact at any number of places; a local field goes through the errors of its own
predictions (`geogp.field.joint`); the rest factorise a dense matrix and are held to some thousand places.
"""

from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from geogp.basis.model import LowRankGP
from geogp.basis.posterior import LowRankWeights, WeightPosterior
from geogp.data import CHUNK
from geogp.linalg import cholesky
from geogp.linalg.workers import Workers

Array = NDArray[np.float64]

#: Most places of a dense posterior covariance: 72 MB, and a second to factorise.
MOST_DENSE = 3000


class Joint(Protocol):
    """The surface less its mean at N places, Gaussian, on the standardised scale; its variances are the latent
    variances of `moments`."""

    @property
    def pairs(self) -> float:
        """About how many numbers a covariance is summed from: what it costs."""

    def covariance(self, W: sparse.csr_array) -> Array:
        """Covariance of the sums W f for W (A, N): (A, A)."""

    def prepare(self, workers: Workers | None = None) -> None:
        """Work out what all draws share, by workers where that pays: it is not done again, nor by those it is sent to."""

    def draw(self, n_samples: int, generator: torch.Generator) -> Array:
        """Joint draws of f less its mean: (N, n_samples)."""


class FeatureJoint:
    """f = phi'w + r, exact through the weights; r = R v, v ~ N(0, I), with R sparse, or independent from place to place.

    An independent r has no length, so it averages out over the points of an area, as in `GPRegressor.sample_y`.

    Parameters
    ----------
    model : in float64; X (N, D) on its device
    latent_variance : (N,) that `moments` gives

    Notes
    -----
    O(N r) memory, O(A r²) a covariance.
    """

    weights: WeightPosterior | LowRankWeights

    def __init__(self, model: LowRankGP, X: Tensor, latent_variance: Tensor):
        self.weights = model.weights()
        phi, sd = [], []
        device = model.constant_mean.device
        root = model.residual_root(model.standardised(X.to(device)))
        with torch.no_grad():
            for part in X.split(CHUNK):
                Z, h, p = model.represent(part.to(device))
                phi.append(model.factors.surface**0.5 * p.cpu())
                if root is None:
                    sd.append(model.residual_variance(Z, h, p).sqrt().cpu())
            self.phi = torch.cat(phi)
            #: (N, K) square root of the residual's covariance.
            self.own = sparse.csr_array(sparse.diags_array(torch.cat(sd).numpy())) if root is None else root
            total = self.weights.moments(self.phi)[1].numpy() + self.own.power(2).sum(axis=1)
        # One for all methods but those whose target is a curved function of their surface (a Cox process).
        self.scale = np.sqrt(latent_variance.double().numpy() / np.maximum(total, 1e-300))

    @property
    def pairs(self) -> float:
        return float(self.phi.numel())

    def covariance(self, W: sparse.csr_array) -> Array:
        Ws = W @ sparse.diags_array(self.scale)
        sums = torch.as_tensor(Ws @ self.phi.numpy())
        with torch.no_grad():
            shared = self.weights.covariance(sums, sums).numpy()
        own = Ws @ self.own
        return shared + (own @ own.T).toarray()

    def prepare(self, workers: Workers | None = None) -> None:
        """Nothing."""

    def draw(self, n_samples: int, generator: torch.Generator) -> Array:
        with torch.no_grad():
            weights = self.weights.sample(n_samples, generator) - self.weights.mean[:, None]
            shared = (self.phi @ weights).numpy()
        own = torch.randn(self.own.shape[1], n_samples, generator=generator, dtype=torch.float64).numpy()
        return self.scale[:, None] * (shared + self.own @ own)


class DenseJoint:
    """The posterior covariance of all places, (N, N), scaled to known variances (N,)."""

    def __init__(self, covariance: Tensor, latent_variance: Tensor):
        S = covariance.double().numpy()
        scale = np.sqrt(latent_variance.double().numpy() / np.maximum(S.diagonal(), 1e-300))
        self.S = 0.5 * (S + S.T) * scale[:, None] * scale

    @property
    def pairs(self) -> float:
        return float(self.S.size)

    def covariance(self, W: sparse.csr_array) -> Array:
        return W @ (W @ self.S).T

    def prepare(self, workers: Workers | None = None) -> None:
        """Its factor, which takes a second at most."""
        _ = self._L

    @cached_property
    def _L(self) -> Tensor:
        return cholesky(torch.as_tensor(self.S), jitter=1e-9, what="the posterior covariance of the places")

    def draw(self, n_samples: int, generator: torch.Generator) -> Array:
        noise = torch.randn(len(self._L), n_samples, generator=generator, dtype=torch.float64)
        return (self._L @ noise).numpy()

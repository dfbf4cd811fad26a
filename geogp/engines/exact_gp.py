"""Exact Gaussian processes, plain or on a network's output, with GPyTorch's kernel."""

import math
import warnings

import torch
from torch import Tensor, nn

from geogp.basis.backbones import Backbone
from geogp.basis.encoders import Encoder
from geogp.basis.expansions.placing import median_lengthscale
from geogp.basis.model import Trainable
from geogp.basis.noise.base import Noise
from geogp.data import Data, Moments
from geogp.errors import NumericalFailure
from geogp.linalg import cholesky, log_det_from_cholesky, with_diagonal

with warnings.catch_warnings():
    # linear_operator 0.6 still compiles one loop with torch.jit.script, which torch 2.13 announces to be leaving.
    warnings.filterwarnings("ignore", message="`torch.jit.script", category=DeprecationWarning)
    import gpytorch


class ExactGP(Trainable):
    """f ~ GP(m, sigma_f^2 k(g(x), g(x'))), k squared exponential with a lengthscale per axis, y = f + noise.

    The noise variance may differ by observation (counts). Always float64.

    Parameters
    ----------
    encoder, backbone, noise : as in `LowRankGP`

    Notes
    -----
    `log_evidence` and `condition` cost O(n^3) and n^2 memory, `moments` O(N n^2). Source:
    deep-basis-kernel-gp, eq. 1 (exact GP) and 7 (deep kernel learning).
    """

    def __init__(self, *, encoder: Encoder, backbone: Backbone, noise: Noise):
        super().__init__()
        self.encoder, self.backbone, self.noise = encoder, backbone, noise
        self.kernel = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.RBFKernel(ard_num_dims=backbone.n_outputs)
        )
        self.constant_mean = nn.Parameter(torch.zeros(()))
        self.double()
        self.rows: Data | None = None
        self.factor: Tensor | None = None
        self.weights: Tensor | None = None

    def kernel_parameters(self) -> list[nn.Parameter]:
        return [*self.kernel.parameters(), self.constant_mean]

    def initialise(self, data: Data) -> None:
        """Lengthscales at the median distance, signal variance one, a quarter of the variance as noise."""
        with torch.no_grad():
            self.kernel.base_kernel.lengthscale = median_lengthscale(self.represent(data.X))
            self.kernel.outputscale = 1.0
            spread = float(data.y.var(unbiased=False)) if len(data) > 1 else 1.0
            self.noise.initialise(0.25 * max(spread, 1e-4), data.counts)

    def represent(self, X: Tensor) -> Tensor:
        """What the kernel sees: (N, H)."""
        return self.backbone(self.encoder(X))

    def covariance(self, X: Tensor, X_ref: Tensor) -> Tensor:
        """k(x, x_ref): (N, M)."""
        return self.kernel(self.represent(X), self.represent(X_ref)).to_dense()

    def log_evidence(self, data: Data) -> Tensor:
        """log N(y; m, K + noise)."""
        L, left = self._factor(data), (data.y - self.constant_mean)[:, None]
        whitened = torch.linalg.solve_triangular(L, left, upper=False)
        return -0.5 * (
            whitened.square().sum() + log_det_from_cholesky(L) + len(left) * math.log(2.0 * math.pi)
        )

    def _factor(self, data: Data) -> Tensor:
        """L with L L' = K + noise of the rows: (n, n)."""
        noise = self.noise(self.encoder.standardise(data.X), data.counts)
        K = with_diagonal(self.kernel(self.represent(data.X)).to_dense(), noise)
        return cholesky(K, jitter=0.0, what="the covariance of the observations")

    def condition(self, data: Data) -> None:
        """Factorise K + noise of the rows and solve for what predictions need."""
        with torch.no_grad():
            self.factor = self._factor(data)
            left = (data.y - self.constant_mean)[:, None]
            self.weights = torch.cholesky_solve(left, self.factor)[:, 0]
            self.rows = data

    def solve(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """What the rows add to the mean at X (N,), and L^-1 k(rows, X) (n, N)."""
        if self.rows is None or self.factor is None or self.weights is None:
            raise NumericalFailure("this exact GP has not been conditioned on any rows.")
        cross = self.covariance(X, self.rows.X)
        return cross @ self.weights, torch.linalg.solve_triangular(self.factor, cross.T, upper=False)

    def moments(self, X: Tensor, counts: Tensor | None = None) -> Moments:
        added, solved = self.solve(X)
        prior = self.kernel.outputscale.expand(len(X))
        return Moments(
            mean=self.constant_mean + added,
            # Non-negative in exact arithmetic; the clamp takes off rounding only.
            latent_variance=(prior - solved.square().sum(0)).clamp_min(0.0),
            noise_variance=self.noise(self.encoder.standardise(X), counts),
            prior_variance=prior,
        )

    def posterior_covariance(self, X: Tensor) -> Tensor:
        """Covariance of the surface at X given the rows: (N, N)."""
        solved = self.solve(X)[1]
        return self.covariance(X, X) - solved.T @ solved

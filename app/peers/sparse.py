"""GPyTorch's sparse Gaussian processes: SVGP (Hensman et al. 2013) and PPGP (Jankowiak et al. 2020)."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from app.peers.base import Array, Options, Sample
from geogp.predictive import Predictive

INDUCING = 400
STEPS, BATCH, LEARNING_RATE = 3000, 1024, 1e-2
AT_ONCE = 8192


@dataclass(frozen=True)
class SparseGP:
    """A Gaussian with the latent moments of the sparse GP and a constant noise.

    The log of the count is one more input: the level may shift with it, and under PPGP, whose latent
    variance is trained as part of the predictive one, the variance too.
    """

    model: Any
    likelihood: Any
    centre: Array
    scale: Array
    device: torch.device
    facts: dict[str, Any] = field(default_factory=dict)

    def inputs(self, rows: Sample) -> torch.Tensor:
        Z = (_columns(rows) - self.centre) / self.scale
        return torch.as_tensor(Z, dtype=torch.float32, device=self.device)

    def predictive(self, rows: Sample) -> Predictive:
        self.model.eval()
        X, mean, variance = self.inputs(rows), [], []
        with torch.no_grad():
            for i in range(0, len(X), AT_ONCE):
                latent = self.model(X[i : i + AT_ONCE])
                mean.append(latent.mean.cpu())
                variance.append((latent.variance + self.likelihood.noise).cpu())
        m, v = torch.cat(mean).double().numpy(), torch.cat(variance).double().numpy()
        return Predictive(m, np.sqrt(np.maximum(v, 1e-8)))


def _columns(rows: Sample) -> Array:
    return rows.X if rows.counts is None else np.column_stack([rows.X, np.log(rows.counts)])


def _inducing_points(Z: Array, k: int, seed: int) -> Array:
    from sklearn.cluster import MiniBatchKMeans

    if len(Z) <= k:
        return Z
    means = MiniBatchKMeans(k, random_state=seed, n_init=1, batch_size=4096, max_iter=20)
    return means.fit(Z).cluster_centers_


def build(inducing: torch.Tensor, kernel: Any) -> Any:
    """GPyTorch's variational GP on these inducing points, whitened, with a dense q(u)."""
    from gpytorch.distributions import MultivariateNormal
    from gpytorch.means import ConstantMean
    from gpytorch.models import ApproximateGP
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

    class Sparse(ApproximateGP):
        def __init__(self) -> None:
            q = CholeskyVariationalDistribution(len(inducing))
            super().__init__(VariationalStrategy(self, inducing, q, learn_inducing_locations=True))
            self.mean_module, self.covar_module = ConstantMean(), kernel

        def forward(self, x: torch.Tensor) -> Any:
            return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Sparse()


def _fit(train: Sample, held: Sample, options: Options, *, predictive: bool) -> SparseGP:
    import gpytorch

    columns = _columns(train)
    centre = columns.mean(0)
    scale = np.where(columns.std(0) > 0, columns.std(0), 1.0)
    Z = (columns - centre) / scale
    device = torch.device(options.device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        start = torch.as_tensor(_inducing_points(Z, INDUCING, options.seed), dtype=torch.float32)
        matern = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=Z.shape[1])
        # Generic features: the median distance, which grows with the number of columns; a map: a fifth.
        matern.lengthscale = 0.2 if train.has_position else 0.5 * math.sqrt(Z.shape[1])
        model = build(start, gpytorch.kernels.ScaleKernel(matern)).to(device)
        likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(1e-5)
        ).to(device)
        objective = gpytorch.mlls.PredictiveLogLikelihood if predictive else gpytorch.mlls.VariationalELBO
        loss = objective(likelihood, model, num_data=len(train))
        steps = max(2, round(STEPS * options.effort))
        optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=LEARNING_RATE)
        cycle = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, LEARNING_RATE * 2, total_steps=steps, pct_start=0.1
        )
        X = torch.as_tensor(Z, dtype=torch.float32, device=device)
        z = torch.as_tensor(train.z, dtype=torch.float32, device=device)
        model.train()
        generator = torch.Generator().manual_seed(options.seed)
        for _ in range(steps):
            rows = torch.randint(len(X), (min(BATCH, len(X)),), generator=generator).to(device)
            optimiser.zero_grad()
            value = -loss(model(X[rows]), z[rows])
            value.backward()
            optimiser.step()
            cycle.step()
    facts = {
        "inducing_points": len(start),
        "steps": steps,
        "noise_variance": round(likelihood.noise.item(), 4),
        "lengthscales": [round(float(v), 4) for v in matern.lengthscale.detach().ravel()],
    }
    return SparseGP(model, likelihood, centre, scale, device, facts)


def fit_svgp(train: Sample, held: Sample, options: Options) -> SparseGP:
    """The evidence lower bound."""
    return _fit(train, held, options, predictive=False)


def fit_ppgp(train: Sample, held: Sample, options: Options) -> SparseGP:
    """The predictive log likelihood."""
    return _fit(train, held, options, predictive=True)

"""Warm starts: begin training where a linear model would end.

Without them the noise and the kernel spend most of the schedule travelling from their defaults.
"""

import torch
from torch import Tensor

from geogp.basis.model import LowRankGP
from geogp.linalg import cholesky

#: Rows used to place the basis and to solve for the first weights.
SAMPLE = 4096


def warm_start(model: LowRankGP, X: Tensor, y: Tensor, counts: Tensor | None, *, seed: int) -> None:
    """Place the basis, solve a ridge regression for the weights' mean and share out its residual variance.

    Inducing points go to backbone outputs, lengthscales to their median distance; half of what the ridge
    regression leaves unexplained goes into the noise, half into the weights' covariance. Changes the
    model in place. Cost O(s r^2 + r^3) with s = min(n, 4096) rows.

    Parameters
    ----------
    X : (n, D) raw inputs; y : (n,) standardised targets; counts : (n,) or None
    """
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(X), generator=generator)[:SAMPLE].to(X.device)
    X, y = X[rows], y[rows]
    counts = None if counts is None else counts[rows]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed + 1)
        model.constant_mean.zero_()
        h = model.backbone(model.encoder(X))
        model.expansion.initialise(h)
        Phi = model.expansion(h).double()
        target = y.double()
        ridge = 0.5 * target.square().mean().clamp_min(1e-6)
        A = Phi.T @ Phi + ridge * torch.eye(Phi.shape[1], dtype=torch.float64, device=Phi.device)
        C = cholesky(A, jitter=0.0, what="the ridge regression of the warm start")
        weights = torch.cholesky_solve((Phi.T @ target)[:, None], C)[:, 0]
        left = (target - Phi @ weights).square().mean().clamp_min(1e-4).item()
        size = Phi.square().sum(1).mean().clamp_min(1e-6).item()
        model.noise.initialise(0.5 * left, counts)
        model.posterior.initialise(weights.to(y.dtype), (0.5 * left / size) ** 0.5)

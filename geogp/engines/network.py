"""Plain networks, and the Laplace approximation of their last layer."""

from typing import Self

import torch
from torch import Tensor

from geogp.basis.build import build
from geogp.basis.initialise import warm_start
from geogp.basis.model import LowRankGP
from geogp.basis.posterior import WeightPosterior
from geogp.basis.train import Progress, train
from geogp.data import Data
from geogp.densities import gaussian_nll
from geogp.engines.base import Hooks, Plan
from geogp.engines.lowrank import CHUNK, LowRankEngine
from geogp.linalg import cholesky, inverse_factor

#: Held-out rows from which the noise of a network is fitted to them instead of to the training rows.
ENOUGH = 50


class NetworkEngine(LowRankEngine):
    """A network with a linear output layer: a `LowRankGP` on [h, 1] whose weights are a point.

    With objective 'mse' the noise is fitted afterwards, on the validation rows when there are 50, since the
    training rows' residuals are too small. Row `lla` then gives the last layer its Laplace covariance.
    """

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        model, progress = train_network(plan, data, validation, hooks)
        model.residual.condition(model, data, validation)
        facts: dict = {
            "epochs": progress.epoch,
            "best_epoch": progress.best_epoch + 1,
            "history": progress.history,
        }
        if plan.row.posterior == "laplace":
            facts["prior_precision"] = laplace(model, data)
        return cls(plan, model, facts)


def train_network(
    plan: Plan, data: Data, validation: Data | None, hooks: Hooks
) -> tuple[LowRankGP, Progress]:
    """A trained network with fitted noise, and how its training went."""
    device = torch.device(plan.device)
    model = build(plan.row, plan.shape, plan.size, seed=plan.seed)
    model.encoder.fit_scaling(data.X)
    model.to(device)
    data = data.to(device)
    validation = None if validation is None else validation.to(device)
    warm_start(model, data.X, data.y, data.counts, seed=plan.seed)
    progress = train(
        model,
        data,
        objective=plan.row.objective,
        weights=plan.weights,
        schedule=plan.schedule,
        validation=validation,
        seed=plan.seed,
        resume=hooks.resume,
        on_epoch=hooks.on_epoch,
        checkpoint=hooks.checkpoint,
    )
    if plan.row.objective != "map":
        enough = validation is not None and len(validation) >= ENOUGH
        fit_noise(model, validation if enough and validation is not None else data)
    return model, progress


def fit_noise(model: LowRankGP, data: Data, steps: int = 60) -> None:
    """Maximise the likelihood of the rows over the noise alone, the means held. Cost O(n network)."""
    means, standard = [], []
    with torch.no_grad():
        for i in range(0, len(data), CHUNK):
            means.append(model.moments(data.X[i : i + CHUNK], None).mean)
            standard.append(model.encoder.standardise(data.X[i : i + CHUNK]))
    mean, Z = torch.cat(means), torch.cat(standard)
    miss = (data.y - mean).square().mean().clamp_min(1e-10)
    model.noise.initialise(float(miss), data.counts)  # type: ignore[operator]
    optimiser = torch.optim.LBFGS(model.noise.parameters(), max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = gaussian_nll(data.y, mean, model.noise(Z, data.counts)).mean()
        loss.backward()
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    model.noise.zero_grad()


def laplace(model: LowRankGP, data: Data, iterations: int = 50) -> float:
    """Give the last layer's weights their Laplace covariance (H'WH + delta I)^-1, mean unchanged.

    delta, the prior precision, is the fixed point delta = gamma / ||w||^2 with gamma the number of weights
    that the data determine: it maximises the marginal likelihood of the linearised model (MacKay 1992).
    Returns delta. Cost O(n H^2 + H^3).
    """
    H = torch.zeros(model.expansion.rank, model.expansion.rank, dtype=torch.float64, device=data.y.device)
    with torch.no_grad():
        for i in range(0, len(data), CHUNK):
            part = data.rows(torch.arange(i, min(i + CHUNK, len(data)), device=data.y.device))
            Z, _, phi = model.represent(part.X)
            weighted = phi.double() / model.noise(Z, part.counts).double()[:, None]
            H += weighted.T @ phi.double()
        mean = model.posterior.current().mean.double()  # type: ignore[operator]
        eigenvalues = torch.linalg.eigvalsh(H).clamp_min(0.0)
        delta = 1.0
        size = float(mean.square().sum().clamp_min(1e-12))
        for _ in range(iterations):
            gamma = float((eigenvalues / (eigenvalues + delta)).sum())
            delta = min(max(gamma / size, 1e-6), 1e6)
        eye = torch.eye(len(H), dtype=torch.float64, device=H.device)
        C = cholesky(H + delta * eye, jitter=0.0, what="the precision of the last layer")
        dtype = model.constant_mean.dtype
        # phi = scale * [h, 1] with prior variance 1 / delta: fold the scale into the basis, so that w ~ N(0, I).
        model.expansion.scale.copy_(torch.tensor(delta**-0.5))  # type: ignore[union-attr, operator]
        model.solved = WeightPosterior(
            (mean * delta**0.5).to(dtype), (inverse_factor(C).T * delta**0.5).to(dtype)
        )
    return delta

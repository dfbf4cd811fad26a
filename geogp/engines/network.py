"""Plain networks, and the Laplace approximation of their last layer."""

from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from geogp.basis.build import build
from geogp.basis.expansions.last_layer import LastLayer
from geogp.basis.initialise import warm_start
from geogp.basis.model import LowRankGP
from geogp.basis.objectives.objective import POINT
from geogp.basis.posterior import WeightPosterior
from geogp.basis.train import Progress, Watch, minibatch, train
from geogp.data import Data
from geogp.densities import gaussian_nll
from geogp.engines.base import NETWORK_FAR, Hooks, Plan
from geogp.engines.lowrank import LowRankEngine
from geogp.linalg import cholesky, inverse_factor
from geogp.methods import Method

#: Held-out rows from which the noise of a network is fitted to them instead of to the training rows.
ENOUGH = 50


class NetworkEngine(LowRankEngine):
    """A network with a linear output layer: a `LowRankGP` on [h, 1] whose weights are a point.

    With objective 'mse' the noise is fitted afterwards, on the validation rows when there are 50, since the
    training rows' residuals are too small. Posterior 'laplace' then gives the last layer its Laplace covariance at that
    mean and that noise, neither of which maximises the posterior that Laplace's method expands about.
    """

    objectives_do: ClassVar[tuple[str, ...]] = (POINT,)
    posteriors: ClassVar[tuple[str, ...]] = ("point", "laplace")
    leaves_over: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    chooses_scales: ClassVar[bool] = False
    rescales: ClassVar[bool] = False
    formulas_of: ClassVar[tuple[str, ...]] = ("expansion", "objective")
    model_lines: ClassVar[tuple[str, ...]] = (
        "y | f ~ noise(f(x), n),  f(x) = m + φ(x)'w,  w a point, or its Laplace distribution",
    )

    @classmethod
    def far(cls, row: Method) -> tuple[str, str]:
        if row.posterior == "point":
            return NETWORK_FAR, "0, as everywhere: the interval is the noise alone"
        return super().far(row)

    @classmethod
    def update_kind(cls, row: Method) -> str:
        return ""

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        model, progress = train_network(plan, data, validation, hooks)
        data = data.to(model.constant_mean.device)
        cls.settle_residual(plan, model, data, hooks)
        facts = progress.facts()
        enough = validation is not None and len(validation) >= ENOUGH
        afterwards = plan.row.objective != "map"
        facts["noise_held_out"] = afterwards and bool(enough or hooks.taught.get("noise"))
        if plan.row.posterior == "laplace":
            facts["prior_precision"] = laplace(model, data)
        return cls(plan, model, facts)

    def taught(self) -> dict[str, Any]:
        """The residual, and the noise, where held-out rows gave it: that of training rows is too small."""
        kept = {"residual": self.model.residual.taught()}
        if not self.facts.get("noise_held_out"):
            return kept
        noise = self.model.noise.state_dict()
        return {**kept, "noise": {name: value.tolist() for name, value in noise.items()}}


def train_network(
    plan: Plan, data: Data, validation: Data | None, hooks: Hooks
) -> tuple[LowRankGP, Progress]:
    """A trained network with fitted noise, and how its training went."""
    model = build(plan.row, plan.shape, plan.size, seed=plan.seed)
    data, validation = plan.place(model, data, validation)
    warm_start(model, data.X, data.y, data.counts, seed=plan.seed)
    progress = train(
        model,
        data,
        minibatch(model, plan.row.objective, plan.weights, len(data)),
        schedule=plan.schedule,
        watch=Watch(validation),
        seed=plan.seed,
        hooks=hooks,
    )
    if plan.row.objective != "map":
        enough = validation is not None and len(validation) >= ENOUGH
        if noise := hooks.taught.get("noise"):
            model.noise.load_state_dict({name: torch.tensor(value) for name, value in noise.items()})
        else:
            fit_noise(model, validation if enough and validation is not None else data)
    return model, progress


def fit_noise(model: LowRankGP, data: Data, steps: int = 60) -> None:
    """Maximise the likelihood of the rows over the noise alone, the means held. Cost O(n network)."""
    means, standard = [], []
    with torch.no_grad():
        for part in data.chunks():
            means.append(model.moments(part.X, None).mean)
            standard.append(model.encoder.standardise(part.X))
    mean, Z = torch.cat(means), torch.cat(standard)
    miss = (data.y - mean).square().mean().clamp_min(1e-10)
    model.noise.initialise(float(miss), data.counts)
    optimiser = torch.optim.LBFGS(model.noise.parameters(), max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = gaussian_nll(data.y, mean, model.noise(Z, data.counts)).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    model.noise.zero_grad()


def laplace(model: LowRankGP, data: Data, iterations: int = 50) -> float:
    """Give the last layer's weights their Laplace covariance (H'WH + delta I)^-1, mean unchanged.

    delta, the prior precision, is the fixed point delta = gamma / ||w||^2 with gamma the number of weights
    that the data determine: it maximises the marginal likelihood of the linearised model (MacKay 1992).
    Returns delta. Cost O(n H^2 + H^3).
    """
    H = torch.zeros(model.expansion.rank, model.expansion.rank, dtype=torch.float64, device=data.y.device)
    with torch.no_grad():
        for part in data.chunks():
            Z, _, phi = model.represent(part.X)
            weighted = phi.double() / model.noise(Z, part.counts).double()[:, None]
            H += weighted.T @ phi.double()
        mean = model.posterior.current().mean.double()
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
        assert isinstance(model.expansion, LastLayer)
        model.expansion.scale.copy_(torch.tensor(delta**-0.5))
        model.solved = WeightPosterior(
            (mean * delta**0.5).to(dtype), (inverse_factor(C).T * delta**0.5).to(dtype)
        )
    return delta

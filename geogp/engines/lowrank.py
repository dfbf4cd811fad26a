"""Methods whose kernel is a learned low-rank basis: most rows of the table."""

from typing import ClassVar, Self

import torch
from torch import Tensor

from geogp.build import build
from geogp.engines.base import Engine, Hooks, Plan
from geogp.initialise import warm_start
from geogp.model import LowRankGP, Moments
from geogp.posterior import WeightPosterior
from geogp.train import Data, train

#: Rows a chunk at prediction: 2,048 to 4,096 keeps the activations in cache.
CHUNK = 4096


class LowRankEngine(Engine):
    """A `LowRankGP`, trained by minibatches."""

    has_features: ClassVar[bool] = True

    def __init__(self, plan: Plan, model: LowRankGP, facts: dict):
        self.plan, self.model, self.facts = plan, model.eval(), facts

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
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
        facts = {"epochs": progress.epoch, "best_epoch": progress.best_epoch + 1, "history": progress.history}
        return cls(plan, model, facts)

    @property
    def device(self) -> torch.device:
        return self.model.constant_mean.device

    def moments(self, X: Tensor, counts: Tensor | None = None) -> Moments:
        parts: list[Moments] = []
        with torch.no_grad():
            for i in range(0, max(len(X), 1), CHUNK):
                n = None if counts is None else counts[i : i + CHUNK].to(self.device)
                m = self.model.moments(X[i : i + CHUNK].to(self.device), n)
                parts.append(
                    Moments(
                        *(v.cpu() for v in (m.mean, m.latent_variance, m.noise_variance, m.prior_variance))
                    )
                )
        return concatenate(parts)

    def features(self, X: Tensor) -> Tensor:
        """phi(x) on the CPU: (N, r)."""
        with torch.no_grad():
            return torch.cat(
                [self.model.features(X[i : i + CHUNK].to(self.device)).cpu() for i in range(0, len(X), CHUNK)]
            )

    def prior_covariance(self, X: Tensor, X_ref: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat(
                [
                    self.model.prior_covariance(X[i : i + CHUNK].to(self.device), X_ref.to(self.device)).cpu()
                    for i in range(0, len(X), CHUNK)
                ]
            )

    def posterior_covariance(self, X: Tensor) -> Tensor:
        with torch.no_grad():
            return self.model.posterior_covariance(X.to(self.device)).cpu()

    def state(self) -> tuple[dict[str, Tensor], dict]:
        tensors = {f"model.{k}": v.detach().cpu().contiguous() for k, v in self.model.state_dict().items()}
        if self.model.solved is not None:
            tensors["solved.mean"] = self.model.solved.mean.cpu()
            tensors["solved.scale_tril"] = self.model.solved.scale_tril.cpu().contiguous()
        return tensors, self.facts

    @classmethod
    def from_state(cls, plan: Plan, tensors: dict[str, Tensor], facts: dict) -> Self:
        model = build(plan.row, plan.shape, plan.size, seed=plan.seed)
        model.load_state_dict(
            {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        )
        if "solved.mean" in tensors:
            model.solved = WeightPosterior(tensors["solved.mean"], tensors["solved.scale_tril"])
        model.to(torch.device(plan.device))
        return cls(plan, model, facts)


def concatenate(parts: list[Moments]) -> Moments:
    """Moments of all chunks in order."""
    return Moments(
        torch.cat([p.mean for p in parts]),
        torch.cat([p.latent_variance for p in parts]),
        torch.cat([p.noise_variance for p in parts]),
        torch.cat([p.prior_variance for p in parts]),
    )

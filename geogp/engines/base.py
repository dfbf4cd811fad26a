"""What the estimator needs of whatever carries a method: moments, covariances, a state without pickle."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch
from torch import Tensor

from geogp.basis.build import Shape, Size
from geogp.basis.objectives import Weights
from geogp.basis.schedule import Schedule
from geogp.basis.train import Hooks
from geogp.data import Data, Moments
from geogp.linalg import cholesky
from geogp.methods import Method


@dataclass(frozen=True)
class Plan:
    """Everything a fit is told beside the data: the row, the data's shape, capacity, schedule, weights, seed.

    options : further keywords of the engine (JSON-able, but for a predictor given to fmgp)
    target_mean, target_sd : what the targets were standardised with
    """

    row: Method
    shape: Shape
    size: Size = Size()
    schedule: Schedule = Schedule()
    weights: Weights = Weights()
    seed: int = 0
    device: str = "cpu"
    options: dict = field(default_factory=dict)
    target_mean: float = 0.0
    target_sd: float = 1.0


class Engine(ABC):
    """A fitted model of standardised targets. X (N, D) is float64 raw input, counts (N,) or None.

    Subclasses are registered in `geogp.engines.ENGINES`. They keep tensors on `plan.device` and accept CPU
    inputs there; `state` and `from_state` exchange CPU tensors and JSON-able numbers only.
    """

    #: The latent process is conditioned on stored rows, so it predicts rows one by one, not by features.
    has_features: ClassVar[bool] = False
    #: Of the targets and counts that `fit` is given.
    dtype: ClassVar[torch.dtype] = torch.float32

    plan: Plan

    @classmethod
    @abstractmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        """Train on `data`; `validation` rows choose and stop but are never conditioned on."""

    @abstractmethod
    def moments(self, X: Tensor, counts: Tensor | None = None) -> Moments:
        """Mean, latent, noise and prior variance at X, each (N,). No gradient. Any N: chunk inside."""

    def prior_variance(self, X: Tensor) -> Tensor:
        """k(x, x) before data: (N,)."""
        n = X.new_ones(len(X), dtype=torch.float32) if self.plan.shape.has_counts else None
        return self.moments(X, n).prior_variance

    def prior_slice(self, X: Tensor, x_ref: Tensor) -> tuple[Tensor, Tensor]:
        """Prior covariance and correlation of the surface at X (N, D) with one place x_ref (1, D): (N,) float64 each."""
        covariance = self.prior_covariance(X, x_ref)[:, 0].double()
        variance = self.prior_variance(X).double() * float(self.prior_variance(x_ref)[0])
        return covariance, (covariance / variance.clamp_min(1e-30).sqrt()).clamp(-1.0, 1.0)

    @abstractmethod
    def prior_covariance(self, X: Tensor, X_ref: Tensor) -> Tensor:
        """k(x, x_ref) before data: (N, M)."""

    @abstractmethod
    def posterior_covariance(self, X: Tensor) -> Tensor:
        """Covariance of the surface at X given the data: (N, N)."""

    def sample(self, X: Tensor, n_samples: int, generator: torch.Generator) -> Tensor:
        """Joint draws of the surface at X given the data: (N, n_samples) float64.

        This general way factorises the posterior covariance, O(N^3); engines with features draw weights.
        """
        mean = self.moments(X).mean.double()
        L = cholesky(
            self.posterior_covariance(X), jitter=1e-9, what="the posterior covariance of the sampled places"
        )
        noise = torch.randn(len(X), n_samples, generator=generator, dtype=torch.float64)
        return mean[:, None] + L @ noise

    @abstractmethod
    def state(self) -> tuple[dict[str, Tensor], dict]:
        """Tensors and JSON-able facts from which `from_state` restores the engine."""

    @classmethod
    @abstractmethod
    def from_state(cls, plan: Plan, tensors: dict[str, Tensor], facts: dict) -> Self:
        """The engine that `state` described."""

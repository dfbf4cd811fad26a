"""Exact GPs and exact deep kernel learning: the reference for a few thousand rows."""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from jaxtyping import Float, Num
from torch import Tensor

from geogp.basis.backbones import BACKBONES
from geogp.basis.build import Shape, Size, backbone_of, encoder_of
from geogp.basis.noise import NOISES
from geogp.basis.objectives.objective import SOLVES
from geogp.basis.residuals.base import FEATURE_DISTANCE
from geogp.basis.train import Loss, Progress, Watch, train
from geogp.data import Data, Moments
from geogp.engines.base import Engine, Hooks, Plan
from geogp.engines.closed_form import WATCH_FROM, closed_form_schedule
from geogp.engines.pieces import in_pieces
from geogp.errors import ImpossibleCombination
from geogp.holdout import random_fifth
from geogp.methods import Method

if TYPE_CHECKING:
    from geogp.engines.exact_gp import ExactGP

#: Rows beyond which an exact fit is refused: the covariance alone is 0.8 GB, one step about a minute of a core.
MAX_ROWS = 10_000
#: Rows a piece at prediction, and numbers of their covariances with the observations, which each thread has of its own.
DENSE_ROWS, IN_PIECE = 1024, 2**20
#: Steps are limited so that steps x n^3 stays below this: about a minute of one core up to 3,000 rows.
WORK = 1e12
#: ... but never below so many, which take half an hour at 10,000 rows.
MIN_STEPS = 30


class ExactEngine(Engine):
    """An `ExactGP`, trained on its marginal likelihood and conditioned on every training row."""

    route: ClassVar[str] = "closed_form"
    objectives_do: ClassVar[tuple[str, ...]] = (SOLVES,)
    has_basis: ClassVar[bool] = False
    reads: ClassVar[dict[str, tuple[str, ...]]] = {
        "backbone": tuple(BACKBONES),
        "noise": tuple(name for name, noise in NOISES.items() if noise.of_basis),
    }
    formulas_of: ClassVar[tuple[str, ...]] = ()
    model_lines: ClassVar[tuple[str, ...]] = (
        "y | f ~ N(f(x), σ²),  f ~ GP(m, k),  k(x, x') = s² exp(-½ ‖(h - h')/ℓ‖²)",
        "h = g(x): the inputs as they are, or a network's output",
        "objective: -log N(y; m, K + σ² I)",
    )
    words: ClassVar[dict[str, str]] = {"objective": "-log N(y; m, K + σ² I), all rows at once"}
    dtype: ClassVar[torch.dtype] = torch.float64

    @classmethod
    def far(cls, row: Method) -> tuple[str, str]:
        mean, sd = super().far(row)
        return mean, FEATURE_DISTANCE if BACKBONES[row.backbone].is_network else sd

    def __init__(self, plan: Plan, model: "ExactGP", facts: dict):
        self.plan, self.model, self.facts = plan, model.eval(), facts

    @staticmethod
    def new(row: Method, shape: Shape, size: Size, seed: int) -> "ExactGP":
        """The untrained model. GPyTorch is imported here, not by every user of the table."""
        from geogp.engines.exact_gp import ExactGP

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder = encoder_of(row, shape, size, seed=seed)
            net = backbone_of(row, size, encoder.n_outputs)
            return ExactGP(encoder=encoder, backbone=net, noise=NOISES[row.noise].made(shape.has_counts))

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        if len(data) > MAX_ROWS:
            raise ImpossibleCombination(
                f"method {plan.row.name!r} is exact, with cost n^3: it takes at most {MAX_ROWS} rows and got "
                f"{len(data)}; take {plan.row.instead}."
            )
        model = cls.new(plan.row, plan.shape, plan.size, plan.seed)
        data, validation = plan.place(model, data, validation)
        model.initialise(data)
        progress = learn(model, plan, data, validation, hooks)
        model.condition(data)
        return cls(plan, model, progress.facts())

    @property
    def device(self) -> torch.device:
        return self.model.constant_mean.device

    def moments(self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None) -> Moments:
        def told(part: slice) -> Moments:
            n = None if counts is None else counts[part].to(self.device)
            m = self.model.moments(X[part].to(self.device), n)
            values = (m.mean, m.latent_variance, m.noise_variance, m.prior_variance)
            return Moments(*(v.cpu() for v in values))

        rows = self.model.rows
        assert rows is not None  # conditioned in `fit` and in `from_state`
        size = min(DENSE_ROWS, max(1, IN_PIECE // len(rows)))
        return in_pieces(told, len(X), size, self.device, wide=True)

    def prior_covariance(self, X: Float[Tensor, "N D"], X_ref: Float[Tensor, "M D"]) -> Float[Tensor, "N M"]:
        with torch.no_grad():
            return self.model.covariance(X.to(self.device), X_ref.to(self.device)).cpu()

    def posterior_covariance(
        self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None
    ) -> Float[Tensor, "N N"]:
        with torch.no_grad():
            return self.model.posterior_covariance(X.to(self.device)).cpu()

    def state(self) -> tuple[dict[str, Tensor], dict]:
        tensors = {f"model.{k}": v.detach().cpu().contiguous() for k, v in self.model.state_dict().items()}
        rows = self.model.rows
        assert rows is not None
        tensors |= {"rows.X": rows.X.cpu(), "rows.y": rows.y.cpu()}
        if rows.counts is not None:
            tensors["rows.counts"] = rows.counts.cpu()
        return tensors, self.facts

    @classmethod
    def from_state(cls, plan: Plan, tensors: dict[str, Tensor], facts: dict) -> Self:
        model = cls.new(plan.row, plan.shape, plan.size, plan.seed)
        model.load_state_dict(
            {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        )
        device = torch.device(plan.device)
        model.to(device)
        # The factor is n^2 numbers: computing it again is cheaper than keeping it.
        model.condition(Data(tensors["rows.X"], tensors["rows.y"], tensors.get("rows.counts")).to(device))
        return cls(plan, model, facts)


def learn(model: "ExactGP", plan: Plan, data: Data, validation: Data | None, hooks: Hooks) -> Progress:
    """Train kernel, network and noise on the log marginal likelihood per row."""
    if validation is None and plan.row.backbone != "identity" and len(data) >= WATCH_FROM:
        data, validation = random_fifth(data, plan.seed)
    n = len(data)
    schedule = closed_form_schedule(plan.schedule, plan.row, n)
    if schedule.epochs is None:
        schedule = replace(schedule, epochs=int(min(schedule.n_epochs(n), max(MIN_STEPS, WORK / n**3))))
    return train(
        model,
        data,
        Loss.of(plan.row.objective, lambda batch: -model.log_evidence(batch) / n),
        schedule=schedule,
        watch=Watch(validation, prepare=lambda: model.condition(data)),
        seed=plan.seed,
        hooks=hooks,
    )

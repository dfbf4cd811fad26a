"""Methods that train kernel and noise on the evidence and then solve for the weights exactly."""

import logging
import math
from dataclasses import replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from geogp.basis.backbones import BACKBONES
from geogp.basis.build import build
from geogp.basis.full_batch import Rows, full_batch_backward
from geogp.basis.initialise import warm_start
from geogp.basis.model import LowRankGP
from geogp.basis.objectives import OBJECTIVES, Design
from geogp.basis.objectives.objective import SOLVES, SOLVES_BATCHES
from geogp.basis.objectives.sums import weights_given
from geogp.basis.schedule import Schedule
from geogp.basis.statistics import solve, statistic_of
from geogp.basis.train import Loss, Progress, Watch, robust_score, train
from geogp.data import Data
from geogp.engines.base import Hooks, Plan
from geogp.engines.lowrank import LowRankEngine, facts_of, spread_found
from geogp.errors import NumericalFailure
from geogp.holdout import random_fifth
from geogp.linalg import JITTER, cholesky
from geogp.methods import Method

log = logging.getLogger(__name__)

#: Without a network a fit bears longer steps, and in batches yet longer ones.
KERNEL_RATE = 6.0
BATCH_RATE = 7.0
#: Rows from which kernel and noise go where the evidence is largest: of fewer it says too little, and so many steps are enough.
SEARCHED_FROM = 50
#: Full-batch steps end where steps n r² reaches this (three minutes of one core), but not before the 100th.
WORK, FEWEST_STEPS = 1.5e11, 100
#: Rows in a batch for each point that its evidence has to place.
ROWS_PER_POINT = 4


class ClosedFormEngine(LowRankEngine):
    """A `LowRankGP` in float64, trained on the evidence of all rows (or of batches, for SoftKI).

    Float64 because the objective is a log determinant: in float32 its factorisation fails at condition
    numbers that a well-fitted kernel reaches. An epoch is one full-batch step, at most 400 of them.

    options : latent (outputs of the backbone, instead of the row's)
    """

    route: ClassVar[str] = "closed_form"
    objectives_do: ClassVar[tuple[str, ...]] = (SOLVES, SOLVES_BATCHES)
    posteriors: ClassVar[tuple[str, ...]] = ("solved",)
    chooses_scales: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    dtype: ClassVar[torch.dtype] = torch.float64

    @classmethod
    def new(cls, plan: Plan) -> LowRankGP:
        return build(plan.row, plan.shape, plan.size, seed=plan.seed).double()

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        device = torch.device(plan.device)
        data = data.to(device)
        validation = None if validation is None else validation.to(device)
        latent = hooks.taught.get("latent") or choose_latent(plan, data, validation, hooks)
        plan = replace(plan, size=replace(plan.size, latent=latent))
        model = cls.new(plan)
        plan.place(model, data, validation)
        cls.prepare(plan, model, data, validation, hooks)
        warm_start(model, data.X, data.y, data.counts, seed=plan.seed)
        progress = learn(model, plan, data, validation, hooks)
        evidence = condition(model, data)
        cls.settle_residual(plan, model, data, hooks)
        model.factors = spread_found(plan, model, data, validation, hooks)
        facts = {
            **progress.facts(),
            "latent": plan.size.latent,
            "log_evidence": evidence,
            **facts_of(model.factors),
        }
        return cls(plan, model, facts)

    @classmethod
    def prepare(
        cls, plan: Plan, model: LowRankGP, data: Data, validation: Data | None, hooks: Hooks = Hooks()
    ) -> None:
        """What comes before the evidence, e.g. training a network that then stays as it is."""

    @classmethod
    def from_state(cls, plan: Plan, tensors: dict[str, Tensor], facts: dict) -> Self:
        return super().from_state(
            replace(plan, size=replace(plan.size, latent=facts["latent"])), tensors, facts
        )


def rows_of(model: LowRankGP, batch: Data) -> Design:
    """What a closed-form objective sees of a batch."""
    Z, h, phi = model.represent(batch.X)
    return Design(
        phi=phi,
        y=batch.y - model.constant_mean,
        noise_variance=model.noise(Z, batch.counts),
        residual_variance=model.residual.variance(model.expansion, Z, h, phi),
    )


def batch_of(model: LowRankGP, batch: Data) -> Design:
    """As `rows_of`, but where the basis takes a factor of a matrix that does not have one without more jitter, the
    matrix itself."""
    parts = model.expansion.unfactorised(model.backbone(model.encoder(batch.X)))
    if parts is None:
        return rows_of(model, batch)
    s, K = parts
    inner: Tensor | None = None
    try:
        s = s @ cholesky(K, max_jitter=JITTER, what="the interpolation points' kernel matrix").to(s.dtype)
    except NumericalFailure:
        inner = K
    noise = model.noise(model.encoder.standardise(batch.X), batch.counts)
    return Design(s, batch.y - model.constant_mean, noise, torch.zeros_like(noise), inner)


def condition(model: LowRankGP, data: Data) -> float:
    """Give the model the exact posterior of its weights given the rows; returns their log evidence."""
    if model.residual.in_precision:
        model.residual.settle(model, data)
    solution = solve(statistic_of(model, data))
    model.solved = solution.weights
    return solution.log_evidence


def condition_roughly(model: LowRankGP, data: Data) -> None:
    """As `condition` but by the Gram matrix: for the scores that rank epochs."""
    if model.residual.in_precision:
        model.residual.settle(model, data)
    rows = Rows(model, data)
    model.solved = weights_given(rows.total(in_precision=model.residual.in_precision))


#: Rows from which a network trained on the evidence is watched on a fifth of them held out.
WATCH_FROM = 50


def learn(model: LowRankGP, plan: Plan, data: Data, validation: Data | None, hooks: Hooks) -> Progress:
    """Train kernel, network and noise on the row's objective.

    A network maximises the evidence past all measure (deep-basis-kernel-gp, theorem 2: towards one function),
    so without validation rows it trains on four fifths of the rows and the rest chooses the epoch; the
    weights are solved for all of them afterwards.
    """
    objective = plan.row.objective
    if validation is None and BACKBONES[plan.row.backbone].is_network and len(data) >= WATCH_FROM:
        data, validation = random_fifth(data, plan.seed)
    loss_of = OBJECTIVES[objective]
    if loss_of.does == SOLVES_BATCHES:
        loss = Loss.of(objective, lambda batch: loss_of(batch_of(model, batch), plan.seed))
    else:
        loss = Loss(objective, lambda batch: full_batch_backward(model, objective, batch))
    return train(
        model,
        data,
        loss,
        schedule=closed_form_schedule(plan.schedule, plan.row, len(data), plan.size.rank),
        watch=Watch(validation, prepare=lambda: condition_roughly(model, data)),
        seed=plan.seed,
        hooks=hooks,
    )


def closed_form_schedule(schedule: Schedule, row: Method, n: int, rank: int = 0) -> Schedule:
    """One batch an epoch unless the objective takes batches; without a network steps of L-BFGS, of few rows longer ones.

    A batch (SoftKI) is at least 4 rows for each point: the evidence of fewer rows asks for a smoother function than
    all rows support.
    """
    if OBJECTIVES[row.objective].does == SOLVES_BATCHES:
        size = min(max(schedule.batch_size, ROWS_PER_POINT * rank), n)
        epochs = schedule.epochs or min(60 + n, max(4, round(schedule.steps / math.ceil(n / size))))
        rate = BATCH_RATE * schedule.learning_rate
        return replace(schedule, epochs=epochs, batch_size=size, learning_rate=rate)
    plain = not BACKBONES[row.backbone].is_network
    rate = KERNEL_RATE if plain else 1.0
    schedule = replace(
        schedule,
        batch_size=n,
        learning_rate=rate * schedule.learning_rate,
        quasi_newton=plain and n >= SEARCHED_FROM,
    )
    if schedule.epochs is not None or not rank:
        return schedule
    affordable = max(FEWEST_STEPS, int(WORK / (n * rank**2)))
    return replace(schedule, epochs=min(schedule.n_epochs(n), affordable))


def choose_latent(plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> int | None:
    """The number of backbone outputs: given, the row's only one, or the best of several on validation rows.

    Each candidate trains for a quarter of the epochs; without validation rows a fifth of the training rows
    is held out for the choice.
    """
    given = plan.options.get("latent", plan.size.latent)
    candidates = plan.row.latent
    if given is not None or not candidates:
        return given
    if plan.row.backbone == "linear":
        candidates = tuple(sorted({min(d, plan.shape.n_inputs) for d in candidates}))
    if len(candidates) == 1 or len(data) < 10:
        return candidates[0]
    if validation is None:
        data, validation = random_fifth(data, plan.seed)
    scores: dict[int, float] = {}
    for d in candidates:
        trial = replace(plan, size=replace(plan.size, latent=d))
        trial = replace(
            trial, schedule=replace(plan.schedule, epochs=max(1, plan.schedule.n_epochs(len(data)) // 4))
        )
        model = ClosedFormEngine.new(trial)
        trial.place(model, data, None)
        warm_start(model, data.X, data.y, data.counts, seed=plan.seed)
        learn(model, trial, data, None, hooks.within(f"{d} projected inputs"))
        condition(model, data)
        scores[d] = robust_score(model, validation)
        log.info("%d projected inputs: validation score %.4f", d, scores[d])
    return min(scores, key=lambda d: scores[d])

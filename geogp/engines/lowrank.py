"""Methods whose kernel is a learned low-rank basis: most rows of the table."""

import hashlib
import logging
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Num
from numpy.typing import NDArray
from torch import Tensor

from geogp.basis.build import build
from geogp.basis.initialise import warm_start
from geogp.basis.model import LowRankGP, in_double
from geogp.basis.objectives import OBJECTIVES, Weights
from geogp.basis.objectives.objective import LEARNS
from geogp.basis.posterior import WeightPosterior
from geogp.basis.rescale import ENOUGH, factors_of, rescaled_score
from geogp.basis.spread import SPREADS, Factors
from geogp.basis.statistics import Statistic, solve, statistic_of
from geogp.basis.train import Watch, minibatch, robust_score, train
from geogp.data import CHUNK, Data, Moments
from geogp.engines.base import STATISTICS, Engine, Hooks, Plan
from geogp.engines.growth import growth_of
from geogp.engines.joint import FeatureJoint, Joint
from geogp.engines.pieces import in_pieces
from geogp.errors import InvalidInput
from geogp.methods import Method

log = logging.getLogger(__name__)

#: Up to this many rows predictions are computed in float64: then a row's result does not depend on the rest of
#: its batch (float32 matrix products round differently for each batch size), and costs nothing that matters.
EXACT_ROWS = 512
#: Numbers of phi taken through the weights at once where the basis is wide, so that they stay in a core's cache; and on a GPU,
#: which has more to do at once and keeps some ten times as many bytes of them, 2.5 GiB.
IN_CACHE, ON_DEVICE = 2**20, 2**26
#: Functions from which on a product takes so long that all the cores of a large machine are worth their while.
WIDE = 512


class LowRankEngine(Engine):
    """A `LowRankGP`, trained by minibatches."""

    objectives_do: ClassVar[tuple[str, ...]] = (LEARNS,)
    posteriors: ClassVar[tuple[str, ...]] = ("dense", "lowrank")
    rescales: ClassVar[bool] = True
    leaves_over: ClassVar[bool] = True
    chooses_scales: ClassVar[bool] = True
    has_trials: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    @classmethod
    def update_kind(cls, row: Method) -> str:
        return STATISTICS

    def __init__(self, plan: Plan, model: LowRankGP, facts: dict):
        self.plan, self.model, self.facts = plan, model.eval(), facts

    @classmethod
    def new(cls, plan: Plan) -> LowRankGP:
        """The untrained model of a plan."""
        return build(plan.row, plan.shape, plan.size, seed=plan.seed)

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        model = cls.new(plan)
        data, validation = plan.place(model, data, validation)
        warm_start(model, data.X, data.y, data.counts, seed=plan.seed)
        weights = choose_trace(model, plan, data, validation, hooks)
        by_factors = SPREADS[plan.row.spread].rescales and _asks_validation(validation)
        progress = train(
            model,
            data,
            minibatch(model, plan.row.objective, weights, len(data)),
            schedule=plan.schedule,
            watch=Watch(validation, rescaled_score if by_factors else robust_score),
            seed=plan.seed,
            hooks=hooks,
        )
        cls.settle_residual(plan, model, data, hooks)
        model.factors = spread_found(plan, model, data, validation, hooks)
        facts = {**progress.facts(), "trace_weight": weights.trace, **facts_of(model.factors)}
        return cls(plan, model, facts)

    @classmethod
    def settle_residual(cls, plan: Plan, model: LowRankGP, data: Data, hooks: Hooks = Hooks()) -> None:
        """Give the residual what prediction needs: of the rows, and of a trial or an earlier fit where it learns by one."""
        model.residual.settle(model, data)
        taught = hooks.taught.get("residual")
        if taught is None and model.residual.learns_by_trial:
            taught = growth_of(cls, plan, model.encoder, data, hooks)
        model.residual.take(taught or {})

    @property
    def spread(self) -> str:
        nu = self.facts.get("degrees_of_freedom")
        tails = "" if nu is None else f", t {nu:.1f}"
        return f"{self.plan.row.spread}{tails}" if self.rescales else super().spread

    @property
    def device(self) -> torch.device:
        return self.model.constant_mean.device

    def moments(self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None) -> Moments:
        rank = self.model.expansion.rank
        model = in_double(self.model) if len(X) <= EXACT_ROWS else self.model
        nu = self.facts.get("degrees_of_freedom")

        def told(part: slice) -> Moments:
            n = None if counts is None else counts[part].to(self.device)
            m = model.moments(X[part].to(self.device), n)
            values = (m.mean, m.latent_variance, m.noise_variance, m.prior_variance)
            mean, latent, noise, prior = torch.stack(values).cpu()  # one wait for the device, not four
            tails = None if nu is None else torch.full_like(mean, nu)
            return Moments(mean, latent, noise, prior, degrees_of_freedom=tails)

        size = rows_at_once(rank, self.device.type)
        return in_pieces(told, len(X), size, self.device, wide=rank >= WIDE)

    def features(self, X: Float[Tensor, "N D"]) -> Float[Tensor, "N r"]:
        """phi(x) on the CPU: (N, r)."""
        with torch.no_grad():
            phi = torch.cat([self.model.features(part.to(self.device)).cpu() for part in X.split(CHUNK)])
        return phi * self.model.factors.surface**0.5

    def prior_covariance(self, X: Float[Tensor, "N D"], X_ref: Float[Tensor, "M D"]) -> Float[Tensor, "N M"]:
        with torch.no_grad():
            ref = X_ref.to(self.device)
            return torch.cat(
                [self.model.prior_covariance(part.to(self.device), ref).cpu() for part in X.split(CHUNK)]
            )

    def posterior_covariance(
        self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None
    ) -> Float[Tensor, "N N"]:
        with torch.no_grad():
            return in_double(self.model).posterior_covariance(X.to(self.device)).cpu()

    @property
    def most_places(self) -> int | None:
        return super().most_places if self.model.residual.needs_base_kernel else None

    def joint(self, X: Float[Tensor, "N D"], latent_variance: Float[Tensor, " N"]) -> Joint:
        """Exact through the weights at any number of places; see `Engine.joint`."""
        if self.model.residual.needs_base_kernel:
            return super().joint(X, latent_variance)
        return FeatureJoint(in_double(self.model), X, latent_variance)

    def taught(self) -> dict[str, Any]:
        kept = {name: self.facts[name] for name in ("trace_weight", "latent") if name in self.facts}
        return {**kept, **facts_of(self.model.factors), "residual": self.model.residual.taught()}

    # -- updates -----------------------------------------------------------------------------------

    def check_update(self) -> None:
        row = self.plan.row
        if OBJECTIVES[row.objective].predictive and not isinstance(self._learned(), WeightPosterior):
            raise InvalidInput(
                f"posterior {row.posterior!r} cannot be refreshed under a predictive objective; fit again with "
                "posterior 'dense'."
            )

    def _learned(self) -> object:
        return self.model.posterior.current()

    def summarise(self, data: Data, labels: NDArray[np.str_]) -> dict[str, Statistic]:
        data = data.to(self.device)
        basis = fingerprint(self.model)
        # Closed-form weights see the residual in each row's precision where the residual says so.
        corrected = None if self.route == "closed_form" else False
        out: dict[str, Statistic] = {}
        for label in np.unique(labels):
            rows = torch.as_tensor(np.flatnonzero(labels == label), device=data.y.device)
            out[str(label)] = statistic_of(
                self.model,
                data.rows(rows),
                predictive=OBJECTIVES[self.plan.row.objective].predictive,
                in_precision=corrected,
                basis=basis,
            )
        return out

    def refreshed(self, merged: Statistic) -> Self:
        if merged.basis not in ("", fingerprint(self.model)):
            raise InvalidInput("these statistics belong to another run; summarise the rows with this one.")
        residual = self.model.residual
        if residual.moved_by_rows and merged.places is None:
            raise InvalidInput(
                "these statistics do not say where their rows lie; summarise the rows with this run."
            )
        weights = solve(merged).weights
        if OBJECTIVES[self.plan.row.objective].predictive:
            trained = self._learned()
            assert isinstance(trained, WeightPosterior)  # `check_update` has refused the others
            weights = WeightPosterior(weights.mean, trained.scale_tril.detach().double())
        # The modules are shared, which nothing changes after a fit; `LowRankGP.weights` gives its own dtype.
        newer, newer.model = copy(self), copy(self.model)
        newer.model.solved = weights
        if merged.places is not None:
            newer.model._modules = {**self.model._modules, "residual": residual.grown_from(merged.places)}
        newer.facts = {**self.facts, "rows_in_weights": round(merged.n_rows)}
        return newer

    # -- draws -------------------------------------------------------------------------------------

    def sample(
        self,
        X: Float[Tensor, "N D"],
        n_samples: int,
        generator: torch.Generator,
        counts: Num[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N n_samples"]:
        """Draws of the weights, so exact at any number of places: O(N (network + r n_samples) + r^2 n_samples).

        A residual that completes the basis to a base kernel is itself a process over the places: then the
        general draw by a factorisation, O(N^3).
        """
        if self.model.residual.needs_base_kernel:
            return super().sample(X, n_samples, generator, counts)
        weights = self.model.weights()
        draws = weights.sample(n_samples, generator)
        if self.model.factors.surface != 1.0:
            middle = weights.mean[:, None]
            draws = middle + self.model.factors.surface**0.5 * (draws - middle)
        root = self.model.residual_root(self.model.standardised(X.to(self.device)))
        parts: list[Tensor] = []
        with torch.no_grad():
            for part in X.split(CHUNK):
                Z, h, phi = self.model.represent(part.to(self.device))
                surface = self.model.constant_mean + phi @ draws.to(phi)
                if root is None:
                    own = torch.randn(len(phi), n_samples, generator=generator).to(phi)
                    surface = surface + self.model.residual_variance(Z, h, phi).sqrt()[:, None] * own
                parts.append(surface.double().cpu())
        if root is None:
            return torch.cat(parts)
        own = torch.randn(root.shape[1], n_samples, generator=generator, dtype=torch.float64)
        return torch.cat(parts) + torch.as_tensor(root @ own.numpy())

    def state(self) -> tuple[dict[str, Tensor], dict]:
        tensors = {f"model.{k}": v.detach().cpu().contiguous() for k, v in self.model.state_dict().items()}
        if self.model.solved is not None:
            tensors["solved.mean"] = self.model.solved.mean.cpu()
            tensors["solved.scale_tril"] = self.model.solved.scale_tril.cpu().contiguous()
        return tensors, self.facts

    @classmethod
    def from_state(cls, plan: Plan, tensors: dict[str, Tensor], facts: dict) -> Self:
        model = cls.new(plan)
        model.load_state_dict(
            {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        )
        if "solved.mean" in tensors:
            model.solved = WeightPosterior(tensors["solved.mean"], tensors["solved.scale_tril"])
        model.factors = Factors.from_facts(facts)
        model.to(torch.device(plan.device))
        return cls(plan, model, facts)


def _asks_validation(validation: Data | None) -> bool:
    """Whether validation rows are many enough to say which epoch and which trace weight is best after rescaling."""
    return validation is not None and len(validation) >= ENOUGH


def spread_found(plan: Plan, model: LowRankGP, data: Data, validation: Data | None, hooks: Hooks) -> Factors:
    """The factors of a trained model that its row and the validation rows, or those of an earlier fit, ask for."""
    spread = SPREADS[plan.row.spread]
    if not spread.rescales or validation is None:
        return Factors.from_facts(hooks.taught if spread.rescales else {})
    moves = OBJECTIVES[plan.row.objective].predictive
    factors = factors_of(model, data, validation, moves=moves, tails=spread.tails)
    log.info(
        "surface variance times %.3g, noise variance times %.3g, plus %.3g of the weights' variance",
        factors.surface,
        factors.noise,
        factors.noise_from_weights,
    )
    return factors


def facts_of(factors: Factors) -> dict:
    """What a run's facts say of them."""
    return {"factors": factors.to_dict(), "degrees_of_freedom": factors.degrees_of_freedom}


def choose_trace(
    model: LowRankGP, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()
) -> Weights:
    """The objective's weights, alpha being the candidate whose short training scores the validation rows best.

    The paper tunes alpha on validation rows, too; the default is a fixed .01, without candidates. Costs a fifth of
    a whole training for three of them; changes nothing in the model.
    """
    weights = plan.weights
    if weights.trace_candidates and "trace_weight" in hooks.taught:
        return replace(weights, trace=hooks.taught["trace_weight"])
    if not (
        OBJECTIVES[plan.row.objective].traced and _asks_validation(validation) and weights.trace_candidates
    ):
        return weights
    trial = replace(plan.schedule, epochs=max(1, round(plan.schedule.n_epochs(len(data)) / 15)))
    start = {k: v.detach().clone() for k, v in model.state_dict().items()}
    scores: dict[float, float] = {}
    for alpha in weights.trace_candidates:
        loss = minibatch(model, plan.row.objective, replace(weights, trace=alpha), len(data))
        train(
            model, data, loss, schedule=trial, seed=plan.seed, hooks=hooks.within(f"trace weight {alpha:g}")
        )
        assert validation is not None
        scores[alpha] = rescaled_score(model, validation)
        model.load_state_dict(start)
        log.info("trace weight %g: validation score %.4f", alpha, scores[alpha])
    return replace(weights, trace=min(scores, key=lambda alpha: scores[alpha]))


def rows_at_once(rank: int, kind: str = "cpu") -> int:
    """Places that a basis of `rank` functions predicts at once on a kind of device.

    Examples
    --------
    >>> [rows_at_once(rank) for rank in (16, 512, 1024, 4096)]
    [4096, 2048, 1024, 1024]
    >>> rows_at_once(1024, "cuda")
    65536
    """
    if kind != "cpu":
        return max(
            CHUNK, ON_DEVICE // max(rank, 128)
        )  # a narrow basis has activations of the network beside it
    return min(CHUNK, max(CHUNK // 4, IN_CACHE // rank))


def fingerprint(model: LowRankGP) -> str:
    """Short hash of all that the features, the noise and the constant mean are made of, whichever rows were met."""
    digest = hashlib.blake2b(digest_size=16)
    moved = {f"residual.{name}" for name in model.residual.moved_by_rows}
    for name, value in sorted(model.state_dict().items()):
        if name in moved:
            continue
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(value.detach().cpu().double().numpy()).tobytes())
    return digest.hexdigest()

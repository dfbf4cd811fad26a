"""Methods whose field is a local Gaussian process, alone or on what a basis leaves over."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Num
from numpy.typing import NDArray
from torch import Tensor

from geogp.basis.noise import NOISES
from geogp.basis.objectives.objective import NEIGHBOURS
from geogp.data import Data, Moments
from geogp.engines.base import OBSERVATIONS, Engine, Hooks, Plan
from geogp.engines.closed_form import ClosedFormEngine
from geogp.engines.joint import Joint
from geogp.engines.lowrank import LowRankEngine
from geogp.engines.stages import stages_of
from geogp.errors import ImpossibleCombination, InvalidInput
from geogp.field import FieldMoments, FieldOptions
from geogp.field.columns import Columns
from geogp.field.regions import Field, fit_field, restored_field
from geogp.field.stages import Stages, Tensors, packed, unpacked
from geogp.holdout import random_folds
from geogp.methods import Method
from geogp.transforms import Warp

#: What carries the basis under a field; a row of engine `LOCAL` has none.
LOCAL = "local"
BASES: dict[str, type[Engine]] = {"lowrank": LowRankEngine, "closed_form": ClosedFormEngine}

#: Stages that most fits of a field have, and the name of the one that is the basis under it.
STAGES, BASIS = 6, "basis"
#: Parts of the rows whose base is fitted without them, so that its residuals there are honest.
FOLDS = 3


class LocalEngine(Engine):
    """A `LocalField` on standardised targets, alone or on what a basis leaves over.

    With a basis (any low-rank row and residual 'local') the field sees cross-fitted residuals: a basis' own
    training residuals are too small and would fool it. The latent variance is then the field's, which has
    seen how far the basis errs on rows it was not fitted to. Options of the plan: those of `FieldOptions`; with `region_rows`
    it is a `MergedField`, the basis one for all regions.
    """

    route: ClassVar[str] = "closed_form"
    objectives_do: ClassVar[tuple[str, ...]] = (NEIGHBOURS,)
    has_basis: ClassVar[bool] = False
    reads: ClassVar[dict[str, tuple[str, ...]]] = {"noise": ("auto",)}
    holds_out: ClassVar[bool] = True
    needs_position: ClassVar[bool] = True
    model_lines: ClassVar[tuple[str, ...]] = (
        "y = β t + Φ(x, t)'w + r(x, t) + b(n) + ε,  r ~ GP(0, sum of Matérn kernels),  ε ~ Student-t",
        "Φ(x, t)'w a plane, the covariates, and waves of a year, along the plane, where the means of the times surely show them; w uncertain "
        "and known jointly with r (universal kriging)",
        "over time Matérn 1/2, or 3/2 where rows are likelier by it; the variance of ε times f(t), log f a Gaussian process, where rows "
        "left out surely tell times apart",
        "p(r | data) from the k nearest observations on all sides; far from all of them the prior",
        "fewer than 128 rows, or 64 places of fewer than 1,000: averaged over the lengths and the sds of r and ε that these bear out "
        "(Handcock and Stein 1993)",
        "with the smooth noise: a new average of n is W_n⁻¹(y), where rows left out gain by a scale W_n that is bent where values pile up "
        "(Snelson et al. 2004)",
        "and where rows left out gain by it, too, ε is from a second peak with probability q(x, n) < 1/2: Gaussian, its place and width "
        "functions of what surrounds x (Bishop 1994, mixture density networks)",
    )
    formulas_of: ClassVar[tuple[str, ...]] = ("noise", "objective")
    dtype: ClassVar[torch.dtype] = torch.float64

    def __init__(self, plan: Plan, field: Field, base: Engine | None = None):
        self.plan, self.field, self.base = plan, field, base

    @classmethod
    def far(cls, row: Method) -> tuple[str, str]:
        return (
            "the plane through all rows, levelling off beyond them, and their trend over time",
            "the prior's, within a few lengthscales of the last observation, and what is uncertain of the plane",
        )

    @classmethod
    def own_settings(cls, row: Method) -> tuple[str, ...]:
        return ("steps", "epochs", "hidden", "region_rows") if row.engine == LOCAL else ("region_rows",)

    @classmethod
    def update_kind(cls, row: Method) -> str:
        return OBSERVATIONS

    @property
    def warp(self) -> Warp | None:
        return self.field.warp

    @property
    def has_tails(self) -> bool:
        return True  # the field's, however few rows may tell of them

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        """Fit the field to all rows of `data`, among which it holds out what it needs; `validation` rows are never
        conditioned on: they choose the basis' epoch, teach the noise and calibrate the intervals."""
        if plan.shape.spatial is None:
            raise ImpossibleCombination(
                f"method {plan.row.name!r} needs a position, and the columns are generic features: name two "
                "with spatial=(i, j), or one along a line, or take another residual."
            )
        options = options_of(plan)
        data = data.to(torch.device("cpu"))
        left, base = data.y.double(), None
        # A region is a stage itself, made of others; a basis is one, and so is each fold of what it leaves over.
        regions = options.n_regions(len(data))
        below = 0 if plan.row.engine == LOCAL else 1 + FOLDS
        stages = stages_of(
            _past_training(hooks) if below else hooks,
            below + (STAGES if regions == 1 else regions * (STAGES + 1)),
        )
        if below:
            options = replace(options, warp=False)  # of what the basis leaves over, which piles up nowhere
            left, base = _cross_fitted(plan, data, validation, hooks, stages)
        held = None
        if validation is not None:
            v = validation.to(torch.device("cpu"))
            held = (v.X, v.y - _mean(base, v), v.counts)
        field = fit_field(
            data.X,
            left,
            data.counts,
            space=plan.shape.spatial,
            time=plan.shape.time,
            options=options,
            validation=held,
            device=plan.device,
            stages=stages,
        )
        return cls(plan, field, base)

    def moments(self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None) -> Moments:
        return self.moments_by_count(X, [counts])[0]

    def moments_by_count(
        self, X: Float[Tensor, "N D"], counts: Sequence[Num[Tensor, " N"] | None]
    ) -> list[Moments]:
        X, counts = X.cpu(), [None if n is None else n.cpu() for n in counts]
        found = self.field.moments_by_count(X, counts)
        return [self._with_base(X, n, m) for n, m in zip(counts, found)]

    def _with_base(
        self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None, m: FieldMoments
    ) -> Moments:
        below = None if self.base is None else self.base.moments(X, counts)
        n = None if counts is None else counts.numpy()
        peak = None if m.peak is None else (m.peak.share, m.peak.offset, m.peak.noise_variance)
        return Moments(
            m.mean if below is None else m.mean + below.mean,
            m.latent_variance,
            m.noise_variance,
            m.prior_variance if below is None else m.prior_variance + below.prior_variance,
            degrees_of_freedom=m.degrees_of_freedom,
            log_skewness=m.log_skewness,
            bent=None if self.warp is None else torch.as_tensor(self.warp.strength(n)).expand(len(X)),
            peak=None if peak is None else torch.stack(peak),
        )

    def prior_variance(self, X: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        variance = self.field.prior_variance(X.cpu()).float()
        return variance if self.base is None else variance + self.base.prior_variance(X)

    def prior_covariance(self, X: Float[Tensor, "N D"], X_ref: Float[Tensor, "M D"]) -> Float[Tensor, "N M"]:
        covariance = self.field.prior_covariance(X.cpu(), X_ref.cpu())
        return covariance if self.base is None else covariance + self.base.prior_covariance(X, X_ref)

    def posterior_covariance(
        self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None
    ) -> Float[Tensor, "N N"]:
        return self.field.posterior_covariance(X.cpu(), None if counts is None else counts.cpu())

    def observations(self, data: Data) -> Columns:
        """Rows in float64 as the field conditions on them: what the basis, which stays, leaves over."""
        return self.field.observations(data.X, data.y - _mean(self.base, data), data.counts)

    # -- joint posterior and updates ---------------------------------------------------------------

    @property
    def most_places(self) -> int | None:
        return None

    def joint(self, X: Float[Tensor, "N D"], latent_variance: Float[Tensor, " N"]) -> Joint:
        """Through the errors of the field's own predictions; see `geogp.field.joint`."""
        return self.field.joint(X, latent_variance)

    def correlation(
        self,
        before: Float[Tensor, "N D"],
        after: Float[Tensor, "N D"],
        latent_variance: Float[Tensor, "2 N"],
    ) -> Float[np.ndarray, " N"]:
        """By the cells that predict both times where the places are the same; see `geogp.field.predict.pairs`."""
        others = [d for d in range(before.shape[1]) if d != self.plan.shape.time]
        if not torch.equal(before[:, others], after[:, others]):
            return super().correlation(before, after, latent_variance)
        return self.field.correlation(before, after, latent_variance).numpy()

    def sample(
        self,
        X: Float[Tensor, "N D"],
        n_samples: int,
        generator: torch.Generator,
        counts: Num[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N n_samples"]:
        """Joint draws of the surface, (N, n_samples) float64, through the errors of the field's own predictions."""
        m = self.moments(X, counts)
        errors = self.joint(X, m.latent_variance).draw(n_samples, generator)
        return m.mean.double()[:, None] + torch.as_tensor(errors)

    @property
    def refits_by_conditioning(self) -> bool:
        return self.base is None

    def check_update(self) -> None:
        if self.plan.shape.time is not None and not self.field.knows_time:
            raise InvalidInput(
                "this local field was fitted to a single time and knows no other; fit it again on all quarters."
            )

    def reconditioned(self, data: Data | None, keep: Bool[Tensor, " n"] | None) -> "LocalEngine":
        parts: list[Any] = []  # all of the kind that the field knows
        if keep is None or bool(keep.any()):
            parts.append(self.field.seen if keep is None else self.field.seen.at(keep))
        if data is not None:
            parts.append(self.observations(data))
        if not parts:
            raise InvalidInput("no observation would be left to know; keep at least one quarter.")
        whole = parts[0].together(parts)
        return LocalEngine(self.plan, self.field.conditioned_on(whole), self.base)

    def observed_times(self) -> NDArray[np.float64] | None:
        return self.field.observed_times()

    def observed_rows(self) -> NDArray[np.float64]:
        return self.field.observed_rows()

    # -- state -------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict]:
        tensors, facts = self.field.state()
        if self.base is None:
            return tensors, facts
        below, base_facts = self.base.state()
        return {**tensors, **{f"base.{k}": v for k, v in below.items()}}, {**facts, "base": base_facts}

    @classmethod
    def from_state(cls, plan: Plan, tensors: dict[str, Tensor], facts: dict) -> Self:
        base = None
        if "base" in facts:
            own, kind = _base_of(plan)
            below = {k.removeprefix("base."): v for k, v in tensors.items() if k.startswith("base.")}
            base = kind.from_state(own, below, facts["base"])
        rest = {k: v for k, v in tensors.items() if not k.startswith("base.")}
        field = restored_field(rest, facts, device=plan.device)
        if field.space != plan.shape.spatial:
            raise ValueError("its frame does not say which columns are places and times")
        return cls(plan, field, base)


def _past_training(hooks: Hooks) -> Hooks:
    """Hooks that go on from stages: from none where the basis was still training."""
    known = hooks.resume is not None and any(name.startswith(f"{BASIS}/") for name in hooks.resume["model"])
    return hooks if known else replace(hooks, resume=None)


def _base_of(plan: Plan) -> tuple[Plan, type[Engine]]:
    """The plan and engine of the basis under the field."""
    noise = plan.row.noise if NOISES[plan.row.noise].of_basis else "auto"
    row = replace(plan.row, residual="none", noise=noise)
    return replace(plan, row=row, options={}), BASES[row.engine]


def _cross_fitted(
    plan: Plan, data: Data, validation: Data | None, hooks: Hooks, stages: Stages
) -> tuple[Tensor, Engine]:
    """Residuals (n,) of bases that did not see their rows, and the basis of all rows.

    While the basis trains a checkpoint is its training's, as it is without a field; afterwards it is of `stages`.
    """
    own, kind = _base_of(plan)
    single = Data(data.X, data.y.to(kind.dtype), None if data.counts is None else data.counts.to(kind.dtype))
    held = None
    if validation is not None:
        n = None if validation.counts is None else validation.counts.to(kind.dtype)
        held = Data(validation.X, validation.y.to(kind.dtype), n)

    def of_all() -> Tensors:
        return packed(*kind.fit(own, single, held, hooks).state())

    base = kind.from_state(own, *unpacked(stages.once(BASIS, of_all)))
    left = data.y.double() - _mean(base, data)
    if len(data) >= 2 * FOLDS:
        for k, (outside, inside) in enumerate(random_folds(len(data), FOLDS, plan.seed)):

            def without(outside: Tensor = outside, inside: Tensor = inside, k: int = k) -> Tensors:
                part = hooks.within(f"what its basis leaves over, {k + 1} of {FOLDS}")
                part = replace(part, checkpoint=lambda state: stages.tick())
                other = kind.fit(own, single.rows(outside), held, part)
                return {"left": data.y[inside].double() - _mean(other, data.rows(inside))}

            left[inside] = stages.once(f"fold {k}", without)["left"]
    return left, base


def _mean(base: Engine | None, data: Data) -> Tensor:
    """The basis' mean at rows, zero without one: (n,) float64."""
    if base is None:
        return torch.zeros(len(data), dtype=torch.float64)
    return base.moments(data.X, data.counts).mean.double()


def options_of(plan: Plan) -> FieldOptions:
    """The plan's options as `FieldOptions`; the noise is smooth where the row names no other.

    Raises
    ------
    ImpossibleCombination
        for an option the field does not know
    """
    known = {f.name for f in fields(FieldOptions)} - {"seed"}
    unknown = set(plan.options) - known
    if unknown:
        raise ImpossibleCombination(
            f"method {plan.row.name!r} has no option {sorted(unknown)[0]!r}; it knows {', '.join(sorted(known))}."
        )
    given: dict[str, Any] = dict(plan.options)
    for name in ("components", "block_sizes"):
        if isinstance(given.get(name), list):
            given[name] = tuple(tuple(v) if isinstance(v, list) else v for v in given[name])
    smooth = plan.row.noise in ("auto", "smooth")
    return replace(FieldOptions(smooth=smooth, seed=plan.seed), **given)

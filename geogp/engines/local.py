"""Methods whose field is a local Gaussian process, alone or on what a basis leaves over."""

from dataclasses import fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from geogp.data import Data, Moments
from geogp.engines.base import Engine, Hooks, Plan
from geogp.engines.closed_form import ClosedFormEngine
from geogp.engines.lowrank import LowRankEngine
from geogp.errors import ImpossibleCombination
from geogp.field import FieldOptions, LocalField, Observations

LOWRANK, CLOSED_FORM = "lowrank", "closed_form"
BASES: dict[str, type[Engine]] = {LOWRANK: LowRankEngine, CLOSED_FORM: ClosedFormEngine}

#: Parts of the rows whose base is fitted without them, so that its residuals there are honest.
FOLDS = 3


class LocalEngine(Engine):
    """A `LocalField` on standardised targets, alone or on what a basis leaves over.

    With a basis (any low-rank row and residual 'local') the field sees cross-fitted residuals: a basis' own
    training residuals are too small and would fool it. The latent variance is then the field's, which has
    seen how far the basis errs on rows it was not fitted to. Options of the plan: those of `FieldOptions`.
    """

    has_features: ClassVar[bool] = False
    dtype: ClassVar[torch.dtype] = torch.float64

    def __init__(self, plan: Plan, field: LocalField, base: Engine | None = None):
        self.plan, self.field, self.base = plan, field, base

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        """Fit the field to all rows of `data`, among which it holds out what it needs; `validation` rows are never
        conditioned on: they choose the basis' epoch, teach the noise and calibrate the intervals."""
        if plan.shape.spatial is None:
            raise ImpossibleCombination(
                f"method {plan.row.name!r} needs a position, and the columns are generic features: name two "
                "with spatial=(i, j), or take method 'dbk-rbf'."
            )
        options = options_of(plan)
        data = data.to(torch.device("cpu"))
        left, base = data.y.double(), None
        if plan.row.expansion != "none":
            left, base = _cross_fitted(plan, data, validation, hooks)
        held = None
        if validation is not None:
            v = validation.to(torch.device("cpu"))
            held = (v.X, v.y - _mean(base, v), v.counts)
        field = LocalField.fit(
            data.X,
            left,
            data.counts,
            space=plan.shape.spatial,
            time=plan.shape.time,
            options=options,
            validation=held,
        )
        return cls(plan, field, base)

    def moments(self, X: Tensor, counts: Tensor | None = None) -> Moments:
        X, counts = X.cpu(), None if counts is None else counts.cpu()
        m = self.field.moments(X, counts)
        below = None if self.base is None else self.base.moments(X, counts)
        return Moments(
            m.mean if below is None else m.mean + below.mean,
            m.latent_variance,
            m.noise_variance,
            m.prior_variance if below is None else m.prior_variance + below.prior_variance,
            degrees_of_freedom=m.degrees_of_freedom,
            log_skewness=m.log_skewness,
        )

    def prior_variance(self, X: Tensor) -> Tensor:
        variance = self.field.prior_variance(X.cpu()).float()
        return variance if self.base is None else variance + self.base.prior_variance(X)

    def prior_covariance(self, X: Tensor, X_ref: Tensor) -> Tensor:
        covariance = self.field.prior_covariance(X.cpu(), X_ref.cpu())
        return covariance if self.base is None else covariance + self.base.prior_covariance(X, X_ref)

    def posterior_covariance(self, X: Tensor) -> Tensor:
        return self.field.posterior_covariance(X.cpu())

    def observations(self, data: Data) -> Observations:
        """Rows in float64 as the field conditions on them: what the basis, which stays, leaves over."""
        return self.field.observations(data.X, data.y - _mean(self.base, data), data.counts)

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
        return cls(plan, LocalField.from_state(rest, facts), base)


def _base_of(plan: Plan) -> tuple[Plan, type[Engine]]:
    """The plan and engine of the basis under the field."""
    own = CLOSED_FORM if plan.row.route == "closed_form" else LOWRANK
    row = replace(plan.row, engine=own, residual="none")
    return replace(plan, row=row, options={}), BASES[own]


def _cross_fitted(plan: Plan, data: Data, validation: Data | None, hooks: Hooks) -> tuple[Tensor, Engine]:
    """Residuals (n,) of bases that did not see their rows, and the basis of all rows."""
    own, kind = _base_of(plan)
    single = Data(data.X, data.y.to(kind.dtype), None if data.counts is None else data.counts.to(kind.dtype))
    held = None
    if validation is not None:
        n = None if validation.counts is None else validation.counts.to(kind.dtype)
        held = Data(validation.X, validation.y.to(kind.dtype), n)
    base = kind.fit(own, single, held, hooks)
    left = data.y.double() - _mean(base, data)
    if len(data) >= 2 * FOLDS:
        fold = torch.randint(0, FOLDS, (len(data),), generator=torch.Generator().manual_seed(plan.seed))
        for part in range(FOLDS):
            inside, outside = (fold == part).nonzero()[:, 0], (fold != part).nonzero()[:, 0]
            if len(inside) and len(outside):
                other = kind.fit(own, single.rows(outside), held)
                left[inside] = data.y[inside].double() - _mean(other, data.rows(inside))
    return left, base


def _mean(base: Engine | None, data: Data) -> Tensor:
    """The basis' mean at rows, zero without one: (n,) float64."""
    if base is None:
        return torch.zeros(len(data), dtype=torch.float64)
    return base.moments(data.X, data.counts).mean.double()


def options_of(plan: Plan) -> FieldOptions:
    """The plan's options as `FieldOptions`, the row `local-gp` without smooth noise.

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
    smooth = plan.row.noise != "constant" and plan.row.name != "local-gp"
    return replace(FieldOptions(smooth=smooth, seed=plan.seed), **given)

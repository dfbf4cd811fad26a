"""Methods whose field is a local Gaussian process, alone or on what a basis leaves over."""

from dataclasses import fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from geogp.engines.base import Engine, Hooks, Plan
from geogp.errors import ImpossibleCombination
from geogp.field import FieldOptions, LocalField
from geogp.model import Moments
from geogp.train import Data

#: Fewer validation rows say too little about coverage.
CALIBRATE_FROM = 200


class LocalEngine(Engine):
    """A `LocalField` on standardised targets. Options of the plan: those of `FieldOptions`."""

    has_features: ClassVar[bool] = False
    dtype: ClassVar[torch.dtype] = torch.float64

    def __init__(self, plan: Plan, field: LocalField):
        self.plan, self.field = plan, field

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        """Fit the field to all rows of `data`, among which it holds out what it needs; `validation` rows only
        calibrate the intervals."""
        if plan.shape.spatial is None:
            raise ImpossibleCombination(
                f"method {plan.row.name!r} needs a position, and the columns are generic features: name two "
                "with spatial=(i, j), or take method 'dbk-rbf'."
            )
        field = LocalField.fit(
            data.X.cpu(),
            data.y.cpu(),
            None if data.counts is None else data.counts.cpu(),
            space=plan.shape.spatial,
            time=plan.shape.time,
            options=options_of(plan),
        )
        if validation is not None and len(validation) >= CALIBRATE_FROM:
            counts = None if validation.counts is None else validation.counts.cpu()
            field.calibrate(validation.X.cpu(), validation.y.cpu(), counts)
        return cls(plan, field)

    def moments(self, X: Tensor, counts: Tensor | None = None) -> Moments:
        m = self.field.moments(X.cpu(), None if counts is None else counts.cpu())
        return Moments(
            m.mean,
            m.latent_variance,
            m.noise_variance,
            m.prior_variance,
            degrees_of_freedom=m.degrees_of_freedom,
        )

    def prior_covariance(self, X: Tensor, X_ref: Tensor) -> Tensor:
        return self.field.prior_covariance(X.cpu(), X_ref.cpu())

    def posterior_covariance(self, X: Tensor) -> Tensor:
        return self.field.posterior_covariance(X.cpu())

    def state(self) -> tuple[dict[str, Tensor], dict]:
        return self.field.state()

    @classmethod
    def from_state(cls, plan: Plan, tensors: dict[str, Tensor], facts: dict) -> Self:
        return cls(plan, LocalField.from_state(tensors, facts))


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

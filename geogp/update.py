"""Fresh weights without retraining: statistics of a fitted run's features, merged and solved.

    parts = summarise(model, X, y, counts, groups=quarters)       # {"2023Q4": Statistic, ...}
    newer = refresh(model, parts.values())

Adding a quarter is merging one more statistic, forgetting it is merging the others: both equal, in
float64, solving from scratch on the same rows with the same basis.
"""

import hashlib
from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from geogp.engines.lowrank import LowRankEngine
from geogp.errors import ImpossibleCombination, InvalidInput
from geogp.model import LowRankGP
from geogp.posterior import WeightPosterior
from geogp.statistics import Statistic, merge_all, solve, statistic_of

if TYPE_CHECKING:
    from geogp.estimator import GPRegressor

#: Objectives whose learned scale is part of the predictive variance: a refresh keeps it and renews the mean.
PREDICTIVE = ("ppgp", "dppgp")


def fingerprint(model: LowRankGP) -> str:
    """Short hash of all that the features, the noise and the constant mean are made of."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(value.detach().cpu().double().numpy()).tobytes())
    return digest.hexdigest()


def summarise(
    model: "GPRegressor",
    X: ArrayLike,
    y: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
) -> dict[str, Statistic]:
    """One statistic for each group of rows (quarters, say), under a fitted model's basis.

    Parameters
    ----------
    X, y, counts : as in `GPRegressor.fit`
    groups : (n,) labels; default one group called "all"

    Raises
    ------
    ImpossibleCombination
        for a method without features (an exact GP).
    InvalidInput
        counts missing where the model was fitted with them.
    """
    engine = _features(model)
    y = np.asarray(y, dtype=np.float64)
    if engine.plan.shape.has_counts and counts is None:
        raise InvalidInput("this model was fitted with counts; give the counts of the new rows too.")
    n = np.asarray(counts, dtype=np.float64) if engine.plan.shape.has_counts else None
    data = model._data(model._inputs(X), y, n, dtype=torch.float64).to(engine.device)
    labels = np.full(len(y), "all") if groups is None else np.asarray(groups).astype(str)
    basis = fingerprint(engine.model)
    predictive = engine.plan.row.objective in PREDICTIVE
    out: dict[str, Statistic] = {}
    for label in np.unique(labels):
        rows = torch.as_tensor(np.flatnonzero(labels == label), device=data.y.device)
        out[str(label)] = statistic_of(engine.model, data.rows(rows), predictive=predictive, basis=basis)
    return out


def refresh(model: "GPRegressor", statistics: Iterable[Statistic]) -> "GPRegressor":
    """A copy of a fitted model whose weights are those of exactly the rows in `statistics`.

    Closed-form and ELBO methods take the exact posterior under their noise (for residual 'nystrom' the
    optimal q of the sparse GP). Methods trained on the predictive likelihood keep their learned scale, which
    carries their predictive variance, and renew the mean by generalised least squares with it.

    Raises
    ------
    InvalidInput
        no statistic, or one of another basis.
    """
    engine = _features(model)
    merged = merge_all(statistics)
    if merged.basis not in ("", fingerprint(engine.model)):
        raise InvalidInput("these statistics belong to another run; summarise the rows with this one.")
    weights = solve(merged).weights
    if engine.plan.row.objective in PREDICTIVE:
        trained = engine.model.posterior.current()  # type: ignore[operator]
        if not isinstance(trained, WeightPosterior):
            raise ImpossibleCombination(
                "posterior 'lowrank' cannot be refreshed under a predictive objective; take posterior 'dense'."
            )
        weights = WeightPosterior(weights.mean, trained.scale_tril.detach().double())
    newer = _solved_copy(engine, weights)
    newer.facts = {**engine.facts, "rows_in_weights": round(merged.n_rows)}
    return model._with_engine(newer)


def _features(model: "GPRegressor") -> LowRankEngine:
    engine = model.engine_
    if not isinstance(engine, LowRankEngine):
        raise ImpossibleCombination(
            f"method {model.method!r} has no features to summarise; fit it again, or take a low-rank method."
        )
    return engine


def _solved_copy(engine: LowRankEngine, weights: WeightPosterior) -> LowRankEngine:
    """The engine with other weights; the modules are shared, which nothing changes after a fit."""
    out, out.model = copy(engine), copy(engine.model)
    out.model.solved = as_dtype(weights, engine.model.constant_mean)
    return out


def as_dtype(weights: WeightPosterior, like: Tensor) -> WeightPosterior:
    """Weights in the dtype and on the device of a model's parameters."""
    return WeightPosterior(weights.mean.to(like), weights.scale_tril.to(like))

"""What a fitted model knows, renewed without retraining.

    parts = summarise(model, X, y, counts, groups=quarters)       # {"2023Q4": Statistic, ...}
    newer = refresh(model, parts.values())

Adding a quarter is merging one more statistic, forgetting it is merging the others: both equal, in
float64, solving from scratch on the same rows with the same basis. A local field has no weights: it keeps its
kernel, trend and noise and knows other observations (`recondition`). `way` says which of the two a model takes.
"""

import hashlib
from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike

from geogp.basis.model import LowRankGP
from geogp.basis.posterior import WeightPosterior
from geogp.basis.statistics import Statistic, merge_all, solve, statistic_of
from geogp.data import Data
from geogp.engines.base import Engine
from geogp.engines.local import LocalEngine
from geogp.engines.lowrank import LowRankEngine
from geogp.errors import InvalidInput
from geogp.field import Observations
from geogp.methods import METHODS, Method

if TYPE_CHECKING:
    from geogp.estimator import GPRegressor

#: Objectives whose learned scale is part of the predictive variance: a refresh keeps it and renews the mean.
PREDICTIVE = ("ppgp", "dppgp")
#: Objectives with a Gaussian likelihood of features: their weights have a closed form given the rows.
GAUSSIAN = ("elbo", "mll", "collapsed_elbo", "softki", *PREDICTIVE)

STATISTICS, OBSERVATIONS = "statistics", "observations"


def updatable() -> dict[str, str]:
    """The methods whose runs can be updated: name -> "statistics" or "observations"."""
    return {name: kind for name, row in METHODS.items() if (kind := _kind(row))}


def way(model: "GPRegressor") -> str:
    """How a fitted model is updated: "statistics" by `refresh`, "observations" by `recondition`.

    Raises
    ------
    InvalidInput
        for a method with neither; the message names those that have.
    """
    row, engine = model.row_, model.engine_
    others = "fit it again, or take " + ", ".join(updatable()) + "."
    if isinstance(engine, LocalEngine):
        if engine.plan.shape.time is not None and not engine.field.knows_time:
            raise InvalidInput(
                "this local field was fitted to a single time and knows no other; fit it again on all quarters."
            )
        return OBSERVATIONS
    kind = _kind(row) if isinstance(engine, LowRankEngine) else ""
    if not kind:
        raise InvalidInput(
            f"method {row.name!r} with objective {row.objective!r} has no weights in closed form and no features to "
            f"summarise: {others}"
        )
    if row.residual == "distance":
        raise InvalidInput(
            "residual 'distance' grows from the places a model was trained on, which an update would not move: fit it "
            "again, or take residual 'none', 'nystrom' or 'local'."
        )
    if row.objective in PREDICTIVE and not isinstance(_learned(engine), WeightPosterior):
        raise InvalidInput(
            "posterior 'lowrank' cannot be refreshed under a predictive objective; fit again with posterior 'dense'."
        )
    return kind


def _kind(row: Method) -> str:
    if row.engine == "local":
        return OBSERVATIONS
    closed = row.engine in ("lowrank", "closed_form", "pretrained") and row.objective in GAUSSIAN
    return STATISTICS if closed else ""


def _learned(engine: Engine) -> object:
    assert isinstance(engine, LowRankEngine)
    return engine.model.posterior.current()  # type: ignore[operator]


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
    InvalidInput
        for a method without features (an exact GP); counts missing where the model was fitted with them.
    """
    engine = _features(model)
    y = np.asarray(y, dtype=np.float64)
    data = _rows(model, X, y, counts).to(engine.device)
    labels = np.full(len(y), "all") if groups is None else np.asarray(groups).astype(str)
    basis = fingerprint(engine.model)
    row = engine.plan.row
    # The optimum of the ELBO weighs rows by their noise alone; closed-form methods may have the residual in it.
    corrected = None if row.route == "closed_form" else False
    out: dict[str, Statistic] = {}
    for label in np.unique(labels):
        rows = torch.as_tensor(np.flatnonzero(labels == label), device=data.y.device)
        out[str(label)] = statistic_of(
            engine.model,
            data.rows(rows),
            predictive=row.objective in PREDICTIVE,
            in_precision=corrected,
            basis=basis,
        )
    return out


def refresh(model: "GPRegressor", statistics: Iterable[Statistic]) -> "GPRegressor":
    """A copy of a fitted model whose weights are those of exactly the rows in `statistics`.

    Closed-form and ELBO methods take the exact posterior under their noise (for residual 'nystrom' the
    optimal q of the sparse GP). Methods trained on the predictive likelihood keep their learned scale, which
    carries their predictive variance, and renew the mean by generalised least squares with it.

    Raises
    ------
    InvalidInput
        no statistic, or one of another basis; a method without features.
    """
    engine = _features(model)
    merged = merge_all(statistics)
    if merged.basis not in ("", fingerprint(engine.model)):
        raise InvalidInput("these statistics belong to another run; summarise the rows with this one.")
    weights = solve(merged).weights
    if engine.plan.row.objective in PREDICTIVE:
        trained = _learned(engine)
        assert isinstance(trained, WeightPosterior)  # `way` has refused the others
        weights = WeightPosterior(weights.mean, trained.scale_tril.detach().double())
    newer = _solved_copy(engine, weights)
    newer.facts = {**engine.facts, "rows_in_weights": round(merged.n_rows)}
    return model._with_engine(newer)


def recondition(
    model: "GPRegressor",
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    counts: ArrayLike | None = None,
    *,
    keep: ArrayLike | None = None,
) -> "GPRegressor":
    """A copy of a fitted local field that knows other observations; kernel, trend, noise and calibration stay.

    Parameters
    ----------
    X, y, counts : rows to add, as in `GPRegressor.fit`
    keep : (n,) which of the observations known so far stay, in the order of `observed_times`; default all

    Raises
    ------
    InvalidInput
        nothing left to know; a method that is no local field.

    Notes
    -----
    Adding and forgetting commute, and equal the same field given the same rows at once, bit for bit. Cost: one
    neighbour search, O(n log n).
    """
    engine = _local(model)
    seen = engine.field.seen
    parts = []
    if keep is None or np.any(keep):
        chosen = slice(None) if keep is None else torch.as_tensor(np.asarray(keep, dtype=bool))
        parts.append([getattr(seen, name)[chosen] for name in ("X", "value", "counts", "noise_variance")])
    if X is not None and y is not None and len(np.asarray(y)):
        data = _rows(model, X, np.asarray(y, dtype=np.float64), counts)
        new = engine.observations(data)
        parts.append([new.X, new.value, new.counts, new.noise_variance])
    if not parts:
        raise InvalidInput("no observation would be left to know; keep at least one quarter.")
    whole = Observations(*(torch.cat(columns) for columns in zip(*parts)))
    return model._with_engine(LocalEngine(engine.plan, engine.field.conditioned_on(whole), engine.base))


def observed_times(model: "GPRegressor") -> np.ndarray | None:
    """The time of each observation a local field knows, as X had it: (n,), or None without a time."""
    field = _local(model).field
    frame = field.frame
    if frame.time is None:
        return None
    return np.asarray(field.seen.X[:, 2] * frame.time_unit + frame.origin[frame.time])


def _rows(model: "GPRegressor", X: ArrayLike, y: np.ndarray, counts: ArrayLike | None) -> Data:
    """Rows on the model's working scale, float64."""
    has_counts = model.engine_.plan.shape.has_counts
    if has_counts and counts is None:
        raise InvalidInput("this model was fitted with counts; give the counts of the new rows too.")
    n = np.asarray(counts, dtype=np.float64) if has_counts else None
    return model._data(model._inputs(X), y, n, dtype=torch.float64)


def _local(model: "GPRegressor") -> LocalEngine:
    if not isinstance(model.engine_, LocalEngine):
        raise InvalidInput(f"method {model.method!r} is no local field; renew its weights with `refresh`.")
    return model.engine_


def _features(model: "GPRegressor") -> LowRankEngine:
    if way(model) != STATISTICS:
        raise InvalidInput(
            f"method {model.method!r} has no features to summarise; give it other observations with `recondition`."
        )
    assert isinstance(model.engine_, LowRankEngine)
    return model.engine_


def _solved_copy(engine: LowRankEngine, weights: WeightPosterior) -> LowRankEngine:
    """The engine with other weights; the modules are shared, which nothing changes after a fit."""
    out, out.model = copy(engine), copy(engine.model)
    out.model.solved = weights  # in float64: `LowRankGP.weights` gives them in the model's own dtype
    return out

"""What a fitted model knows, renewed without retraining.

    parts = summarise(model, X, y, counts, groups=quarters)       # {"2023Q4": Statistic, ...}
    newer = refresh(model, parts.values())

Adding a quarter is merging one more statistic, forgetting it is merging the others: both equal, in
float64, solving from scratch on the same rows with the same basis. A local field has no weights: it keeps its
kernel, trend and noise and knows other observations (`recondition`). `way` says which of the two a model takes.
"""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from geogp.basis.statistics import Statistic, merge_all
from geogp.data import Data
from geogp.engines.base import OBSERVATIONS as OBSERVATIONS  # what `way` answers
from geogp.engines.base import STATISTICS as STATISTICS
from geogp.engines.check import engine_of
from geogp.errors import InvalidInput, checked_counts, checked_values
from geogp.estimator import GPRegressor
from geogp.methods import METHODS


def updatable() -> dict[str, str]:
    """The methods whose runs can be updated: name -> "statistics" or "observations"."""
    kinds = {name: engine_of(row).update_kind(row) for name, row in METHODS.items()}
    return {name: kind for name, kind in kinds.items() if kind}


def way(model: GPRegressor) -> str:
    """How a fitted model is updated: "statistics" by `refresh`, "observations" by `recondition`.

    Raises
    ------
    InvalidInput
        for a method with neither; the message names those that have.
    """
    kind = _kind(model)
    model.engine_.check_update()
    return kind


def _kind(model: GPRegressor) -> str:
    """How a method is updated, whatever is asked of this very model."""
    row = model.row_
    kind = model.engine_.update_kind(row)
    if not kind:
        raise InvalidInput(
            f"method {row.name!r} with objective {row.objective!r} has no weights in closed form and no features to "
            f"summarise: fit it again, or take {', '.join(updatable())}."
        )
    return kind


def summarise(
    model: GPRegressor,
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
    y = np.asarray(y, dtype=np.float64)
    way(model)
    labels = np.full(len(y), "all") if groups is None else np.asarray(groups).astype(str)
    return model.engine_.summarise(_rows(model, X, y, counts), labels)


def refresh(model: GPRegressor, statistics: Iterable[Statistic]) -> GPRegressor:
    """A copy of a fitted model whose weights are those of exactly the rows in `statistics`.

    Closed-form and ELBO methods take the exact posterior under their noise (for residual 'nystrom' the
    optimal q of the sparse GP). Methods trained on the predictive likelihood keep their learned scale, which
    carries their predictive variance, and renew the mean by generalised least squares with it.

    Raises
    ------
    InvalidInput
        no statistic, or one of another basis; a method without features.
    """
    way(model)
    return model._with_engine(model.engine_.refreshed(merge_all(statistics)))


def recondition(
    model: GPRegressor,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    counts: ArrayLike | None = None,
    *,
    keep: ArrayLike | None = None,
) -> GPRegressor:
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
    data = None
    if X is not None and y is not None and len(np.asarray(y)):
        data = _rows(model, X, np.asarray(y, dtype=np.float64), counts)
    kept = None if keep is None else torch.as_tensor(np.asarray(keep, dtype=bool))
    return model._with_engine(model.engine_.reconditioned(data, kept))


def knowing(model: GPRegressor, X: ArrayLike, y: ArrayLike, counts: ArrayLike | None = None) -> GPRegressor:
    """A copy of a fitted model that knows exactly these rows, of times it has met, in whichever way it is updated.

    Basis or kernel, trend, noise and calibration stay.

    Raises
    ------
    InvalidInput
        for a method that cannot be updated, no rows, counts missing where the model was fitted with them.
    """
    if _kind(model) == STATISTICS:
        return refresh(model, summarise(model, X, y, counts).values())
    return recondition(model, X, y, counts, keep=np.zeros(1, dtype=bool))


def observed_times(model: GPRegressor) -> Float[np.ndarray, " n"] | None:
    """The time of each observation a local field knows, as X had it: (n,), or None without a time."""
    return model.engine_.observed_times()


def _rows(model: GPRegressor, X: ArrayLike, y: np.ndarray, counts: ArrayLike | None) -> Data:
    """Rows on the model's working scale, float64."""
    has_counts = model.has_counts
    if has_counts and counts is None:
        raise InvalidInput("this model was fitted with counts; give the counts of the new rows too.")
    rows = model._inputs(X)
    values = checked_values(y, len(rows), f"there are {len(rows)} new rows")
    n = None if counts is None else checked_counts(counts, len(rows))
    return model._data(rows, values, n if has_counts else None, dtype=torch.float64)

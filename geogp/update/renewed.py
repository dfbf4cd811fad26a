"""What a fitted model knows, renewed without retraining.

    parts = summarise(model, X, y, counts, groups=quarters)       # {"2023Q4": Statistic, ...}
    newer = refresh(model, parts.values())

Adding a quarter is merging one more statistic, forgetting it is merging the others: both equal, in
float64, solving from scratch on the same rows with the same basis. A local field has no weights: it keeps its
kernel, trend and noise and knows other observations (`recondition`). `way` says which of the two a model takes.
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from geogp.basis.statistics import Statistic, merge_all
from geogp.data import Data
from geogp.engines.base import OBSERVATIONS as OBSERVATIONS  # what `way` answers
from geogp.engines.base import STATISTICS as STATISTICS
from geogp.engines.check import engine_of
from geogp.errors import InvalidInput, checked_counts, checked_values, numbers_of
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
    y = numbers_of(y, "y")
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
    keep: Callable[[np.ndarray], ArrayLike] | ArrayLike | None = None,
) -> GPRegressor:
    """A copy of a fitted local field that knows other observations; kernel, trend, noise and calibration stay.

    Parameters
    ----------
    X, y, counts : rows to add, as in `GPRegressor.fit`
    keep : which of the observations known so far stay; default all. A function of these, as `observed_rows` gives
        them, to True or False for each (n,): `keep=lambda X: X[:, 2] > 2022`. Or such a mask in the order of
        `observed_times`, which is not that of the rows of the fit: it must keep or forget whole times, and most times
        must have several rows, for a mask in another order to be told from it. Who has the rows needs neither:
        `knowing(model, X[mask], y[mask])`

    Raises
    ------
    InvalidInput
        nothing left to know; a method that is no local field; a mask that may be in another order.

    Notes
    -----
    Adding and forgetting commute, and equal the same field given the same rows at once, bit for bit. Cost: one
    neighbour search, O(n log n).
    """
    data = None
    if X is not None and y is not None and len(np.asarray(y)):
        data = _rows(model, X, numbers_of(y, "y"), counts)
    kept = None if keep is None else torch.as_tensor(_kept(model, keep))
    return model._with_engine(model.engine_.reconditioned(data, kept))


def _kept(model: GPRegressor, keep: Callable[[np.ndarray], ArrayLike] | ArrayLike) -> Bool[np.ndarray, " n"]:
    """Which of the observations known so far stay."""
    rows = observed_rows(model)
    told = callable(keep)
    mask = np.asarray(keep(rows) if callable(keep) else keep)
    if mask.dtype != bool or mask.shape != (len(rows),):
        raise InvalidInput(
            f"keep must say True or False of each of the {len(rows)} observations; got {mask.dtype} of shape {mask.shape}."
        )
    if not told and not mask.all() and mask.any():
        _check_whole_times(mask, observed_times(model))
    return mask


def _check_whole_times(mask: Bool[np.ndarray, " n"], times: Float[np.ndarray, " n"] | None) -> None:
    """Refuse a mask that may be in another order than that of the observations: one in their order tells times apart."""
    remedy = (
        "give keep a function of its rows, such as lambda X: X[:, 0] > 500, or, where you have the rows, take "
        "geogp.update.knowing(model, X[mask], y[mask])"
    )
    if times is None:
        raise InvalidInput(
            f"keep is a mask, and without a time nobody can tell whether it is in the order of the model's rows, which is not that of the fit; {remedy}."
        )
    _, of = np.unique(times, return_inverse=True)
    rows, kept = np.bincount(of), np.bincount(of, weights=mask)
    if bool(((kept > 0) & (kept < rows)).any()) or 2 * len(rows) > len(of):
        raise InvalidInput(
            "keep is a mask that does not keep or forget whole times of several rows, so that it may be in another order than that of "
            f"observed_times(model); {remedy}."
        )


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
    return recondition(model, X, y, counts, keep=lambda known: np.zeros(len(known), dtype=bool))


def observed_times(model: GPRegressor) -> Float[np.ndarray, " n"] | None:
    """The time of each observation a local field knows, as X had it: (n,), or None without a time. In the order of
    `observed_rows`, which is not that of the rows of the fit."""
    return model.engine_.observed_times()


def observed_rows(model: GPRegressor) -> Float[np.ndarray, "n d"]:
    """The rows of X of the observations a local field knows, but for rounding: (n, d). Places within metres of each other are one.

    They are in an order of their own, whatever the order of the fit. A column that the model does not keep, as it did not
    change in the fit, is NaN.

    Raises
    ------
    InvalidInput
        a method that is no local field.
    """
    return model.engine_.observed_rows()


def _rows(model: GPRegressor, X: ArrayLike, y: np.ndarray, counts: ArrayLike | None) -> Data:
    """Rows on the model's working scale, float64."""
    has_counts = model.has_counts
    if has_counts and counts is None:
        raise InvalidInput("this model was fitted with counts; give the counts of the new rows too.")
    rows = model._inputs(X)
    values = checked_values(y, len(rows), f"there are {len(rows)} new rows")
    n = None if counts is None else checked_counts(counts, len(rows))
    return model._data(rows, values, n if has_counts else None, dtype=torch.float64)

"""What a field is conditioned on, in an order that does not depend on the one given."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from geogp.field.columns import Columns
from geogp.linalg.distinct import begins


@dataclass(frozen=True)
class Observations(Columns):
    """Coordinates (N, D), values (N,) less trend and count shift, counts (N,), noise variances (N,)."""

    X: Float[Tensor, "N D"]
    value: Float[Tensor, " N"]
    counts: Float[Tensor, " N"]
    noise_variance: Float[Tensor, " N"]


def counted(counts: Num[Tensor, " n"] | None, n: int) -> Float[Tensor, " n"]:
    """Measurements behind each of n rows: (n,) float64, 1 where nothing counts them."""
    return torch.ones(n, dtype=torch.float64) if counts is None else counts.double().clamp_min(1.0)


def typical_precision(counts: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Weights of averages of so many measurements before anything is fitted: a tenth of the noise that one measurement
    has stays at any number."""
    return 1.0 / (0.15 + 1.2 / counts)


def canonical_order(
    X: Float[Tensor, "N D"], value: Float[Tensor, " N"], counts: Num[Tensor, " N"]
) -> Int[np.ndarray, " N"]:
    """Rows by the columns of X: the same table for every order of the rows given.

    Those of one place and time stand in no order of their values: the first few of many are like all.

    Examples
    --------
    >>> canonical_order(torch.tensor([[2.0, 0.0], [1.0, 5.0]]), torch.zeros(2), torch.ones(2)).tolist()
    [1, 0]
    """
    y, n = value.double().numpy(), counts.double().numpy()
    order = np.lexsort((n, y, *X.numpy().T[::-1]))
    new = begins([column[order] for column in X.numpy().T])
    if new.all():
        return order
    # Ranks, unlike values, change neither with the unit nor with rounding; those of each place are shuffled in their own way.
    place = (np.cumsum(new) - 1).astype(np.uint64)
    rank = np.arange(len(order)) - np.flatnonzero(new)[place]
    return order[np.lexsort((_mixed(place << np.uint64(32) | rank.astype(np.uint64)), place))]


def _mixed(key: np.ndarray) -> np.ndarray:
    """Whole numbers (N,) that follow none of the order of others, by the finaliser of SplitMix64.

    References
    ----------
    Steele, Lea and Flood 2014
    """
    key = key + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = (key ^ (key >> np.uint64(shift))) * np.uint64(factor)
    return key ^ (key >> np.uint64(31))


def canonical(
    X: Float[Tensor, "N D"],
    value: Float[Tensor, " N"],
    counts: Num[Tensor, " N"] | None,
    space: tuple[int, ...] = (0, 1),
    time: int | None = None,
) -> tuple[Float[Tensor, "N D"], Float[Tensor, " N"], Float[Tensor, " N"]]:
    """X (N, D), values and counts (N,) in float64, the counts 1 where there are none: in `canonical_order` of place, time and
    further columns, wherever these stand in X."""
    X, value, n = X.double(), value.double(), counted(counts, len(value))
    first = (*space, *(() if time is None else (time,)))
    columns = [*first, *(d for d in range(X.shape[1]) if d not in first)]
    order = canonical_order(X[:, columns], value, n)
    return X[order], value[order], n[order]

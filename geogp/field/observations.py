"""What a field is conditioned on, in an order that does not depend on the one given."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from geogp.field.columns import Columns


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
    return np.lexsort((n, y, _shuffled(y, n), *X.numpy().T[::-1]))


def _shuffled(*columns: np.ndarray) -> np.ndarray:
    """Keys (N,) of float64 columns (N,) each that follow none of them: their bits, mixed by the finaliser of SplitMix64.

    References
    ----------
    Steele, Lea and Flood 2014
    """
    key = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        key ^= (column + 0.0).view(np.uint64)  # -0 is 0
        key += np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            key = (key ^ (key >> np.uint64(shift))) * np.uint64(factor)
        key ^= key >> np.uint64(31)
    return key


def canonical(
    X: Float[Tensor, "N D"], value: Float[Tensor, " N"], counts: Num[Tensor, " N"] | None
) -> tuple[Float[Tensor, "N D"], Float[Tensor, " N"], Float[Tensor, " N"]]:
    """X (N, D), values and counts (N,) in float64 and in `canonical_order`, the counts 1 where there are none."""
    X, value, n = X.double(), value.double(), counted(counts, len(value))
    order = canonical_order(X, value, n)
    return X[order], value[order], n[order]

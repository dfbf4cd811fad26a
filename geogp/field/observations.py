"""What a field is conditioned on, in an order that does not depend on the one given."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.field.columns import Columns


@dataclass(frozen=True)
class Observations(Columns):
    """Coordinates (N, D), values (N,) less trend and count shift, counts (N,), noise variances (N,)."""

    X: Tensor
    value: Tensor
    counts: Tensor
    noise_variance: Tensor


def counted(counts: Tensor | None, n: int) -> Tensor:
    """Measurements behind each of n rows: (n,) float64, 1 where nothing counts them."""
    return torch.ones(n, dtype=torch.float64) if counts is None else counts.double().clamp_min(1.0)


def canonical_order(X: Tensor, value: Tensor, counts: Tensor) -> NDArray[np.int64]:
    """Rows by the columns of X, then by value and count: the same table for every order of the rows given.

    Examples
    --------
    >>> canonical_order(torch.tensor([[2.0, 0.0], [1.0, 5.0]]), torch.zeros(2), torch.ones(2)).tolist()
    [1, 0]
    """
    return np.lexsort((counts.numpy(), value.numpy(), *X.numpy().T[::-1]))


def canonical(X: Tensor, value: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """X (N, D), values and counts (N,) in float64 and in `canonical_order`, the counts 1 where there are none."""
    X, value, n = X.double(), value.double(), counted(counts, len(value))
    order = canonical_order(X, value, n)
    return X[order], value[order], n[order]

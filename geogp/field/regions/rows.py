"""Rows as they are given to a fit: what regions are told of, each in its own coordinates."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from geogp.field.columns import Columns


@dataclass(frozen=True)
class Rows(Columns):
    """Raw inputs (N, D), standardised values (N,), counts (N,), all float64."""

    X: Float[Tensor, "N D"]
    y: Float[Tensor, " N"]
    counts: Float[Tensor, " N"]

"""Rows that repeat a place: their mean stands for them, and what they differ by is noise alone."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.field.likelihood.trained import Trained
from geogp.linalg.distinct import begins, distinct

#: Of the places that are measured again at one time a share of this and more differs where they were read again, not copied.
READ_AGAIN = 0.1


def first_of_copies(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """Numbers of rows (n, D + 1), their last column a value, of which none is a copy of another, ascending.

    Rows that are equal in all are copies, as a table that was joined from two has them; but not where readings are rounded: a
    thermometer that shows whole degrees says the same twice, and other things, too, which lie few different steps apart.

    Notes
    -----
    O(n log n).

    Examples
    --------
    >>> table = np.array([[0.0, 5.1], [1.0, 4.7], [0.0, 5.1]])
    >>> first_of_copies(table).tolist()
    [0, 1]
    >>> len(first_of_copies(np.column_stack([np.arange(40) // 8, np.arange(40) % 3])))
    40
    """
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    new_place, new = begins(list(ordered.T[:-1])), begins(list(ordered.T))
    steps = ordered[1:, -1] - ordered[:-1, -1]
    steps = steps[new[1:] & ~new_place[1:]]
    place = np.cumsum(new_place) - 1
    again, differs = np.bincount(place), np.bincount(place, new & ~new_place)
    if len(steps) and (differs > 0).sum() >= READ_AGAIN * (again > 1).sum():
        kinds = distinct(np.round(steps / steps.max(), 7)[:, None])[0]
        if 2 * len(kinds) <= len(steps):
            return np.arange(len(rows))
    return np.sort(order[new])


def repeat(n_rows: int, n_places: int) -> bool:
    """Whether places are measured twice and more at one time, on average."""
    return 2 * n_places <= n_rows


@dataclass(frozen=True)
class Places:
    """The distinct places of N rows.

    first : (P,) a row at each; at : (N,) the place of each row
    """

    first: Tensor
    at: Tensor

    @classmethod
    def of(cls, X: Tensor) -> "Places":
        """Of coordinates X (N, D), time and what else the kernel sees included.

        Examples
        --------
        >>> places = Places.of(torch.tensor([[2.0], [1.0], [2.0]]))
        >>> places.first.tolist(), places.at.tolist()
        ([1, 0], [1, 0, 1])
        """
        found, at = distinct(X.cpu().numpy())
        first = np.empty(len(found), dtype=np.int64)
        first[at[::-1]] = np.arange(len(at))[::-1]  # the last that is written is the first row
        return cls(torch.from_numpy(first).to(X.device), torch.from_numpy(at).to(X.device))

    @property
    def repeat(self) -> bool:
        """Whether they are measured twice and more, on average."""
        return repeat(len(self.at), len(self.first))

    def summed(self, values: Tensor) -> Tensor:
        """Sums of values (N, ...) of the rows at each: (P, ...)."""
        return values.new_zeros(len(self.first), *values.shape[1:]).index_add(0, self.at, values)


@dataclass(frozen=True)
class Means:
    """The mean of the rows at each place as one observation: X (P, D), its value (P,) and noise variance (P,)."""

    X: Tensor
    mean: Tensor
    variance: Tensor

    def value(self, model: Trained) -> Tensor:
        """(P,)"""
        return self.mean

    def noise_variance(self, model: Trained) -> Tensor:
        """(P,)"""
        return self.variance


def within(places: Places, value: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means (P,) of the rows at each place by their precision, the noise variances (P,) of these, and minus the logarithm of
    what the rows' Gaussian densities are beside those of the means, less a constant.

        ∏ N(y_i; f, σ_i²) = N(ȳ; f, σ²) · ∏ σ_i⁻¹ σ exp(−(y_i − ȳ)² / 2 σ_i²),   σ⁻² = Σ σ_i⁻²

    Examples
    --------
    >>> both = Places(torch.tensor([0]), torch.tensor([0, 0]))
    >>> mean, noise, _ = within(both, torch.tensor([1.0, 3.0]), torch.tensor([0.5, 0.5]))
    >>> mean.tolist(), noise.tolist()
    ([2.0], [0.25])
    """
    precision = 1.0 / noise
    total = places.summed(precision)
    mean = places.summed(precision * value) / total
    apart = (precision * (value - mean[places.at]).square()).sum() + noise.log().sum() + total.log().sum()
    return mean, 1.0 / total, 0.5 * apart

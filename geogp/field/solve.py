"""Conditional Gaussians of r given each place's own neighbours, in batches of small dense systems.

Cost grows with the rows and not with their cube; with all observations as neighbours it is the exact GP.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from geogp.field.columns import Columns
from geogp.field.gradients import Solved
from geogp.field.kernel import LocalKernel
from geogp.field.observations import Observations
from geogp.field.student import heavy_tailed, student_weights
from geogp.linalg import cholesky, inverse_factor, with_diagonal

#: Relative to the covariance's mean diagonal; the noise variances usually dominate it.
JITTER = 1e-12
#: Places solved at once: operations on that many times k² float64 numbers (5 MB at k = 48) take so long that threads seldom
#: meet at Python's lock.
PLACES_AT_ONCE = 256


@dataclass(frozen=True)
class Neighbourhoods:
    """Prior covariances of B places and their neighbours.

    among : (B, k, k) of the neighbours; across : (B, k) of each with the place; a missing neighbour has no
        covariance with anything: with any noise variance of its own it drops out exactly
    rows, present : (B, k) the neighbours' rows, and whether there is one
    """

    among: Float[Tensor, "B k k"]
    across: Float[Tensor, "B k"]
    rows: Int[Tensor, "B k"]
    present: Bool[Tensor, "B k"]

    @classmethod
    def of(
        cls,
        kernel: LocalKernel,
        X_new: Float[Tensor, "B D"],
        X: Float[Tensor, "N D"],
        index: Int[Tensor, "B k"],
    ) -> "Neighbourhoods":
        """Of places X_new (B, D) among X (N, D); index (B, k) rows of X, -1 for none."""
        near = cls.among_rows(kernel, X, index)
        k = kernel(X_new[:, None, :], X[near.rows])[:, 0, :]
        return replace(near, across=k * near.present.to(k.dtype))

    @classmethod
    def among_rows(
        cls, kernel: LocalKernel, X: Float[Tensor, "N D"], index: Int[Tensor, "B k"]
    ) -> "Neighbourhoods":
        """Of no place in particular: `across` is 0."""
        present, rows = index >= 0, index.clamp_min(0)
        A = X[rows]
        K = kernel(A, A)
        if not bool(present.all()):
            mask = present.to(A.dtype)
            K = K * (mask[:, :, None] * mask[:, None, :])
        return cls(K, torch.zeros_like(A[..., 0]), rows, present)

    def of_neighbours(self, values: Float[Tensor, " N *q"]) -> Float[Tensor, "B k *q"]:
        """Values (N,) or (N, Q) of all rows at the neighbours: (B, k) or (B, k, Q), 0 where there is none."""
        mask = self.present.to(values.dtype)
        return values[self.rows] * (mask if values.ndim == 1 else mask[..., None])

    def noise(
        self, noise_variance: Float[Tensor, " N"], y: Float[Tensor, " N *q"], degrees_of_freedom: float | None
    ) -> Float[Tensor, "B k"]:
        """Noise variances (B, k) to solve with, from those (N,) and the values (N,) of all rows; 1 for no neighbour.

        Those of Student-t observations are divided by their `student_weights`, so that one wild value does not pull
        its surroundings along.
        """
        own = torch.where(self.present, noise_variance[self.rows], torch.ones_like(self.across))
        if not heavy_tailed(degrees_of_freedom):
            return own
        with torch.no_grad():
            weights = student_weights(self.among, own, self.of_neighbours(y), degrees_of_freedom)
        return own / weights

    def whitener(self, seen: Observations, degrees_of_freedom: float | None) -> Float[Tensor, "B k k"]:
        """Inverse Cholesky factor of the neighbours' covariance, their noise included."""
        noise = self.noise(seen.noise_variance, seen.value, degrees_of_freedom)
        return inverse_factor(factor(with_diagonal(self.among, noise)))


@dataclass(frozen=True)
class Conditional:
    """Moments of r at B places given their neighbours.

    mean : (B,), or (B, Q) when Q columns of values are carried
    variance : (B,), never negative
    covariance : (B, k) prior covariance with each neighbour, 0 where there is none
    weights : (B, k) of the neighbours' values in the mean
    """

    mean: Float[Tensor, " B *q"]
    variance: Float[Tensor, " B"]
    covariance: Float[Tensor, "B k"]
    weights: Float[Tensor, "B k"]


def conditional_moments(
    kernel: LocalKernel,
    X_new: Float[Tensor, "B D"],
    X: Float[Tensor, "N D"],
    y: Float[Tensor, " N *q"],
    noise_variance: Float[Tensor, " N"],
    index: Int[Tensor, "B k"],
    degrees_of_freedom: float | None = None,
) -> Conditional:
    """Mean and variance of r at X_new given the observations that each row of `index` names.

    mean = kᵀ (K + Σ)⁻¹ y,   variance = k(x, x) − kᵀ (K + Σ)⁻¹ k

    Parameters
    ----------
    kernel : the covariance
    X_new : (B, D)
    X, noise_variance : (N, D), (N,) places and noise variances of the observations
    y : (N,) values, or (N, Q) columns that share places and noise, weighed by the first of them
    index : (B, k) rows of X; -1 counts as no observation
    degrees_of_freedom : of the observations, see `Neighbourhoods.noise`; None, or 30 and more, for Gaussian ones

    Raises
    ------
    NumericalFailure
        when a system stays singular under the bounded jitter of `linalg.cholesky`

    Notes
    -----
    O(B k³) time, O(B k²) memory, differentiable in the kernel, the noise and y.

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> X, y = torch.zeros(1, 2).double(), torch.ones(1).double()
    >>> conditional_moments(kernel, X, X, y, torch.ones(1).double(), torch.zeros(1, 1, dtype=torch.int64)).mean
    tensor([0.5000], dtype=torch.float64)
    """
    near = Neighbourhoods.of(kernel, X_new, X, index)
    columns = y if y.ndim == 2 else y[:, None]
    noise = near.noise(noise_variance, columns[:, 0], degrees_of_freedom)
    with torch.no_grad():
        L = factor(with_diagonal(near.among, noise))
    mean, known, weights = Solved.apply(L, near.among, noise, near.across, near.of_neighbours(columns))
    variance = (kernel.prior_at(X_new) - known).clamp_min(0.0)
    return Conditional(mean if y.ndim == 2 else mean[:, 0], variance, near.across, weights)


@dataclass(frozen=True)
class Predictors(Columns):
    """How each of B predictions is made of its neighbours' values, and what it then misses.

    weights : (B, k) b of the prediction b'y, 0 for no neighbour
    left : (B,) variance of r(x) − b'r, the error without the neighbours' noise
    noise : (B, k) noise variance with which a neighbour counts, 0 for none
    """

    weights: Float[Tensor, "B k"]
    left: Float[Tensor, " B"]
    noise: Float[Tensor, "B k"]

    def of(self, values: Float[Tensor, "N q"], index: Int[Tensor, "B k"]) -> Float[Tensor, "B q"]:
        """b'values for the columns of all rows, index (B, k) of them being the neighbours."""
        return (self.weights[:, None, :] @ values[index.clamp_min(0)])[:, 0]


def predictors(
    kernel: LocalKernel,
    X_new: Float[Tensor, "B D"],
    seen: Observations,
    index: Int[Tensor, "B k"],
    degrees_of_freedom: float | None,
) -> Predictors:
    """The weights behind `conditional_moments`: b = (K + Σ)⁻¹ k,   k(x, x) − 2 b'k + b'K b.

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> one = torch.ones(1).double()
    >>> seen = Observations(torch.zeros(1, 2).double(), one, one, one)
    >>> predictors(kernel, seen.X, seen, torch.zeros(1, 1, dtype=torch.int64), None).weights
    tensor([[0.5000]], dtype=torch.float64)
    """
    near = Neighbourhoods.of(kernel, X_new, seen.X, index)
    K, k = near.among, near.across
    noise = near.noise(seen.noise_variance, seen.value, degrees_of_freedom)
    b = torch.cholesky_solve(k[..., None], factor(with_diagonal(K, noise)))[..., 0]
    quadratic = (b * (K * b[..., None, :]).sum(-1)).sum(-1)
    left = kernel.prior_at(X_new) - 2.0 * (b * k).sum(-1) + quadratic
    return Predictors(b, left.clamp_min(0.0), noise * near.present.to(noise.dtype))


def factor(K: Tensor) -> Tensor:
    """Cholesky factor of a batch; the bounded jitter of `linalg.cholesky` only where plain factorising fails."""
    L, info = torch.linalg.cholesky_ex(K)
    return cholesky(K, jitter=JITTER, what="a neighbourhood's covariance") if bool(info.any()) else L

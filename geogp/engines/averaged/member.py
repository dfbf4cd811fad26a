"""A Gaussian process of a table with one draw of its hyperparameters, conditioned on the rows."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack, solve_triangular

from geogp.engines.averaged.evidence import MEAN_VARIANCE, correlated, noise_of, squared_distances
from geogp.engines.averaged.search import Drawn
from geogp.linalg import cholesky

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Member:
    """A Gaussian process of the rows with one draw of the hyperparameters.

    Z : (n, d) standardised inputs of the rows; y : (n,) their values; inverse_counts : (n,) or None; times : (n,) by which the
        noise of each row is multiplied, None for 1
    """

    drawn: Drawn
    Z: Array
    y: Array
    inverse_counts: Array | None
    times: Array | None = None

    @cached_property
    def factor(self) -> Array:
        """L with L L' = K + noise of the rows: (n, n)."""
        K = self.covariance(self.Z, self.Z)
        K[np.diag_indices(len(K))] += self.own_noise
        return cholesky(torch.from_numpy(K), jitter=0.0, what="the covariance of the observations").numpy()

    @cached_property
    def weights(self) -> Array:
        """(K + noise)⁻¹ y: (n,)."""
        return np.asarray(cho_solve((self.factor, True), self.y))

    @property
    def own_noise(self) -> Array:
        """Of the rows as they are weighed: (n,)."""
        noise = self.noise(self.inverse_counts, len(self.y))
        return noise if self.times is None else self.times * noise

    @cached_property
    def precision(self) -> Array:
        """Diagonal of (K + noise)⁻¹: (n,)."""
        return np.array(lapack.dpotri(self.factor, lower=1)[0].diagonal())

    @property
    def prior_variance(self) -> float:
        """Of the surface, the same everywhere."""
        return MEAN_VARIANCE + float(np.exp(self.drawn.at[self.Z.shape[1]]))

    def left_out(self) -> tuple[Array, Array, Array]:
        """Mean, variance of the surface and of the noise of each row given the others: (n,) each.

        References
        ----------
        Rasmussen and Williams 2006, eq. 5.12
        """
        # Non-negative in exact arithmetic; the bound takes off rounding only.
        surface = np.maximum(1.0 / self.precision - self.own_noise, 0.0)
        return self.y - self.weights / self.precision, surface, self.noise(self.inverse_counts, len(self.y))

    def missed(self) -> Array:
        """E[(y - f)²] of the rows under the posterior: (n,)."""
        noise = self.own_noise
        return np.square(noise * self.weights) + noise - np.square(noise) * self.precision

    def covariance(self, A: Array, B: Array) -> Array:
        """Prior covariance of standardised inputs (n, d) and (m, d): (n, m)."""
        d = A.shape[1]
        shrink = np.exp(-self.drawn.at[:d])
        c, _ = correlated(self.drawn.correlation, squared_distances(A * shrink, B * shrink))
        return MEAN_VARIANCE + np.exp(self.drawn.at[d]) * c

    def noise(self, inverse_counts: Array | None, n: int) -> Array:
        """(n,) variance; without counts here that of single measurements."""
        told = self.drawn.at[self.Z.shape[1] + 1 :]
        if len(told) > 1 and inverse_counts is None:
            inverse_counts = np.ones(n)
        return noise_of(told, inverse_counts if len(told) > 1 else None, n)

    def solve(self, Z: Array) -> tuple[Array, Array]:
        """Mean at Z (N,), and L⁻¹ k(rows, Z) (n, N)."""
        cross = self.covariance(self.Z, Z)
        # Place by place, so that a mean does not depend on what else is asked.
        return np.einsum("ij,i->j", cross, self.weights), np.asarray(
            solve_triangular(self.factor, cross, lower=True, check_finite=False)
        )

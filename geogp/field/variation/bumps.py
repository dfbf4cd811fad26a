"""Lengthscale and variance that vary smoothly over space: what makes a local kernel non-stationary.

    k(x, x') = Σ_c v_c s(x) s(x') · [h h' / h̄²]^(D/2) · M_c(d_c / h̄),   h̄² = (h² + h'²) / 2

with d_c the distance in units of the component's lengthscales over D axes, so that h(x) multiplies them all, and s(x)² the
variance. Free bumps are 1 far from data, where the kernel is the stationary one; blended ones stay what they are at the edge.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.spatial import cKDTree
from torch import Tensor

from geogp.linalg import distances
from geogp.linalg.distinct import distinct

#: Prior sd of the coefficients of log h and log s²: a bump changes a lengthscale by a factor of 1.6 or so.
PRIOR_SD = 0.5
#: A bump is so many times as wide as its nearest centres are apart, on average of so many of them.
OVERLAP, NEAR = 1.2, 3
MOST_PLACES = 20_000
#: Places to a centre of blended bumps, and those that speak for one.
PLACES_A_CENTRE, NEAREST = 2, 8


@dataclass(frozen=True)
class Variation:
    """log h and log s², and the logarithm of a factor on noise variances, as sums of Gaussian bumps.

    Attributes
    ----------
    centres : (m, D) places in the kernel's coordinates
    width : (m,) sd of each bump, in the same unit
    lengthscale, variance : (m,) coefficients of log h and log s²
    blended : the bumps' shares of each place sum to 1, so that what holds at the edge of data holds beyond
    noise : (m,) coefficients of the factor on noise variances, None where it is 1

    References
    ----------
    Paciorek and Schervish 2006, Spatial modelling using a new class of nonstationary covariance functions, eq. 5

    Examples
    --------
    >>> bump = Variation(torch.zeros(1, 2), torch.ones(1), torch.tensor([0.5]), torch.tensor([-1.0]))
    >>> [round(float(v), 3) for v in bump(torch.tensor([[0.0, 0.0]]))]
    [0.5, -1.0]
    """

    centres: Tensor
    width: Tensor
    lengthscale: Tensor
    variance: Tensor
    blended: bool = False
    noise: Tensor | None = None

    @classmethod
    def flat(cls, places: Tensor, m: int, seed: int = 0) -> "Variation":
        """No variation yet, over at most m bumps that overlap their neighbours: small ones where places (N, 2) crowd.

        Notes
        -----
        k-means of at most 20,000 of the distinct places.
        """
        P = distinct(places.cpu().numpy())[0]
        rng = np.random.default_rng(seed)
        P = P[np.sort(rng.permutation(len(P))[:MOST_PLACES])]
        centres = P if len(P) <= m else kmeans2(P, m, minit="++", seed=rng)[0]
        k = min(NEAR, len(centres) - 1)
        if k < 1:
            width = np.ones(len(centres))
        else:
            width = OVERLAP * cKDTree(centres).query(centres, k=np.arange(2, k + 2))[0].mean(1)
        zero = torch.zeros(len(centres), dtype=torch.float64)
        return cls(torch.from_numpy(centres), torch.from_numpy(width), zero, zero.clone())

    @classmethod
    def blending(cls, X: Tensor, most: int) -> "Variation":
        """No variation yet, blended from at most so many centres, one for two of the distinct places of X (N, D)."""
        places = len(distinct(X[:, :2].cpu().numpy())[0])
        return replace(cls.flat(X[:, :2], min(most, max(2, places // PLACES_A_CENTRE))), blended=True)

    def heard(self, places: NDArray[np.float64], said: Tensor) -> Tensor:
        """What places (n, 2) say (n, ..), as the centres hear it: (m, ..), each from those nearest to it."""
        near = cKDTree(places).query(self.centres.numpy(), k=np.arange(1, min(NEAREST, len(places)) + 1))[1]
        return said[torch.from_numpy(near)].mean(1)

    @cached_property
    def bends(self) -> bool:
        """Whether it says anything of lengthscale and variance, or is to learn to; else it is of the noise alone."""
        both = (self.lengthscale, self.variance)
        return any(v.requires_grad or bool(v.any()) for v in both)

    def __call__(self, P: Tensor) -> tuple[Tensor, Tensor]:
        """log h and log s² at places P (..., D): (...,) each."""
        bumps = self.shares(P)
        return bumps @ self.lengthscale.to(P.dtype), bumps @ self.variance.to(P.dtype)

    def shares(self, P: Tensor) -> Tensor:
        """How much of each bump there is at places P (..., D): (..., m)."""
        exponent = self.exponents(P)
        return torch.softmax(exponent, dim=-1) if self.blended else torch.exp(exponent)

    def exponents(self, P: Tensor) -> Tensor:
        """The logarithms of the bumps at places P (..., D): (..., m)."""
        away = distances(P, self.centres.to(P.dtype)) / self.width.to(P.dtype)
        return -0.5 * away.square()

    def noise_factor(self, P: Tensor) -> Tensor | float:
        """By which noise variances at places P (..., D) are multiplied: (...,), or 1 for all."""
        return 1.0 if (log := self.log_noise(P)) is None else torch.exp(log)

    def log_noise(self, P: Tensor) -> Tensor | None:
        """The logarithm of that, None where it is 1 for all."""
        return None if self.noise is None else self.shares(P) @ self.noise.to(P.dtype)

    def between(self, P: Tensor, Q: Tensor, *, axes: int = 2) -> tuple[Tensor, Tensor]:
        """h̄², by which squared distances over so many axes are divided, and the factor on the covariance: (..., N, M) each, of
        (..., N, 2) and (..., M, 2)."""
        (h, s), (g, r) = self(P), self(Q)
        square = 0.5 * (torch.exp(2.0 * h)[..., :, None] + torch.exp(2.0 * g)[..., None, :])
        one, other = (torch.exp(0.5 * (v + axes * u)) for v, u in ((s, h), (r, g)))
        return square, one[..., :, None] * other[..., None, :] * square ** (-0.5 * axes)

    def penalty(self) -> Tensor:
        """Minus the log prior density of the coefficients, less its constant."""
        return 0.5 * (self.lengthscale.square().sum() + self.variance.square().sum()) / PRIOR_SD**2

    def to(self, device: torch.device | str) -> "Variation":
        """The same on a device."""
        return replace(
            self,
            centres=self.centres.to(device),
            width=self.width.to(device),
            lengthscale=self.lengthscale.to(device),
            variance=self.variance.to(device),
            noise=None if self.noise is None else self.noise.to(device),
        )

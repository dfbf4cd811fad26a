"""Lengthscale and variance that vary smoothly over space: what makes a local kernel non-stationary.

    k(x, x') = Σ_c v_c s(x) s(x') · [h h' / h̄²]^(D/2) · M_c(d_c / h̄),   h̄² = (h² + h'²) / 2

with d_c the distance in units of the component's lengthscales, so that h(x) multiplies them all, and s(x)² the
variance. Both are 1 far from data, where the kernel is the stationary one.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from geogp.linalg import distances

#: Prior sd of the coefficients of log h and log s²: a bump changes a lengthscale by a factor of 1.6 or so.
PRIOR_SD = 0.5


@dataclass(frozen=True)
class Variation:
    """log h and log s² as sums of Gaussian bumps.

    Attributes
    ----------
    centres : (m, D) places in the kernel's coordinates
    width : sd of a bump, in the same unit
    lengthscale, variance : (m,) coefficients of log h and log s²

    References
    ----------
    Paciorek and Schervish 2006, Spatial modelling using a new class of nonstationary covariance functions, eq. 5

    Examples
    --------
    >>> bump = Variation(torch.zeros(1, 2), 1.0, torch.tensor([0.5]), torch.tensor([-1.0]))
    >>> [round(float(v), 3) for v in bump(torch.tensor([[0.0, 0.0]]))]
    [0.5, -1.0]
    """

    centres: Tensor
    width: float
    lengthscale: Tensor
    variance: Tensor

    @classmethod
    def flat(cls, centres: Tensor) -> "Variation":
        """No variation yet, over bumps that overlap their neighbours."""
        m = len(centres)
        if m < 2:
            width = 1.0
        else:
            apart = torch.cdist(centres, centres) + torch.diag(
                torch.full((m,), math.inf, dtype=centres.dtype)
            )
            width = 1.2 * float(apart.min(1).values.median())
        zero = torch.zeros(m, dtype=torch.float64)
        return cls(centres, width, zero, zero.clone())

    def __call__(self, P: Tensor) -> tuple[Tensor, Tensor]:
        """log h and log s² at places P (..., D): (...,) each."""
        away = distances(P, self.centres.to(P.dtype)) / self.width
        bumps = torch.exp(-0.5 * away.square())
        return bumps @ self.lengthscale.to(P.dtype), bumps @ self.variance.to(P.dtype)

    def between(self, P: Tensor, Q: Tensor) -> tuple[Tensor, Tensor]:
        """h̄, by which distances are divided, and the factor on the covariance: (..., N, M) each, of (..., N, D) and
        (..., M, D)."""
        (h, s), (g, r) = self(P), self(Q)
        h, g = h[..., :, None], g[..., None, :]
        stretch = torch.sqrt(0.5 * (torch.exp(2.0 * h) + torch.exp(2.0 * g)))
        sizes = torch.exp(0.5 * (s[..., :, None] + r[..., None, :]))
        return stretch, sizes * (torch.exp(0.5 * (h + g)) / stretch) ** P.shape[-1]

    def penalty(self) -> Tensor:
        """Minus the log prior density of the coefficients, less its constant."""
        return 0.5 * (self.lengthscale.square().sum() + self.variance.square().sum()) / PRIOR_SD**2

    def to(self, device: torch.device | str) -> "Variation":
        """The same on a device."""
        return replace(
            self,
            centres=self.centres.to(device),
            lengthscale=self.lengthscale.to(device),
            variance=self.variance.to(device),
        )

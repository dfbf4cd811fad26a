"""Residuals that add a variance and nothing to the mean."""

import torch
from torch import Tensor

from geogp.basis.expansions.base import Expansion
from geogp.basis.residuals.base import FEATURE_DISTANCE, Residual


class NoResidual(Residual):
    """Zero: the kernel is exactly the basis.

    Latent variance then has no reason to grow far from data."""

    formula = "var r(x) = 0"

    def variance(self, expansion: Expansion, Z: Tensor, h: Tensor, phi: Tensor) -> Tensor:
        return torch.zeros_like(phi[:, 0])


class Nystrom(Residual):
    """k~(x, x) - ||phi(x)||^2: what the inducing points miss of their base kernel.

    Source: deep-basis-kernel-gp, eq. 4.
    """

    formula = "var r(x) = k~(x, x) - ‖φ(x)‖²"
    far_behind_network = FEATURE_DISTANCE

    needs_base_kernel = True
    reverts_to_prior = True

    def variance(self, expansion: Expansion, Z: Tensor, h: Tensor, phi: Tensor) -> Tensor:
        # Non-negative in exact arithmetic; the clamp takes off rounding only.
        return (expansion.base_diagonal(h) - phi.square().sum(1)).clamp_min(0.0)

"""Residuals that add a variance and nothing to the mean."""

import torch
from jaxtyping import Float
from torch import Tensor

from geogp.basis.expansions.base import Expansion
from geogp.basis.residuals.base import FEATURE_DISTANCE, Residual


class NoResidual(Residual):
    """Zero: the kernel is exactly the basis.

    Latent variance then has no reason to grow far from data."""

    formula = "var r(x) = 0"
    takes_phi = False

    def variance(
        self,
        expansion: Expansion,
        Z: Float[Tensor, "N D"],
        h: Float[Tensor, "N H"],
        phi: Float[Tensor, "N r"],
    ) -> Float[Tensor, " N"]:
        return torch.zeros_like(phi[:, 0])


class Nystrom(Residual):
    """k~(x, x) - ||phi(x)||^2: what the inducing points miss of their base kernel.

    Source: deep-basis-kernel-gp, eq. 4.
    """

    formula = "var r(x) = k~(x, x) - ‖φ(x)‖²"
    far_behind_network = FEATURE_DISTANCE

    needs_base_kernel = True
    reverts_to_prior = True

    def variance(
        self,
        expansion: Expansion,
        Z: Float[Tensor, "N D"],
        h: Float[Tensor, "N H"],
        phi: Float[Tensor, "N r"],
    ) -> Float[Tensor, " N"]:
        # Non-negative in exact arithmetic; the clamp takes off rounding only.
        return (expansion.base_diagonal(h) - phi.square().sum(1)).clamp_min(0.0)

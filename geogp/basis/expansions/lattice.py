"""Structured kernel interpolation: cubic interpolation from a fixed lattice."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geogp.basis.expansions.base import Expansion
from geogp.densities import matern32_of_squared
from geogp.errors import ImpossibleCombination
from geogp.linalg import cholesky

#: Cells of the lattice beyond the data on each side.
MARGIN = 2


class Lattice(Expansion):
    """phi(h) = (x) over axes of L_j' w_j(h_j): w_j cubic convolution weights, K_j = L_j L_j' Matern-3/2.

    The kernel is W K_ZZ W' with K_ZZ the product over axes, so its factor is a Kronecker product of small
    ones. The lattice covers the sample it is placed by; places beyond it take the border's features.

    Parameters
    ----------
    n_inputs : d, at most 3
    rank : r; the lattice has floor(r^(1/d)) points an axis, at least 6

    Raises
    ------
    ImpossibleCombination
        for d > 3, or a rank with fewer than 6 points an axis.

    Notes
    -----
    Features cost O(N r) and d factorisations of k x k with k = r^(1/d). Source: soft-kernel-interpolation,
    eq. 7-9 (section 2.3); weights of Keys (1981).

    Examples
    --------
    >>> Lattice(2, 100)(torch.zeros(3, 2)).shape
    torch.Size([3, 100])
    """

    formula = "φ(h) = L' w(h), w cubic weights on a lattice"
    factorises = True
    far = (
        "that of the outermost lattice points",
        "that of the outermost lattice points: up to the prior's where they lie beyond the data",
    )

    low: Tensor
    step: Tensor

    def __init__(self, n_inputs: int, rank: int):
        super().__init__()
        if n_inputs > 3:
            raise ImpossibleCombination(
                f"expansion 'ski' interpolates on a lattice, which {n_inputs} input columns would make too "
                "large: take expansion 'softki', or backbone 'linear' with at most 3 outputs."
            )
        k = int(round(rank ** (1.0 / n_inputs), 6))
        if k < 6:
            raise ImpossibleCombination(
                f"expansion 'ski' needs 6 lattice points an axis; rank {rank} gives {k} in {n_inputs} "
                f"dimensions: take rank {6**n_inputs} or more."
            )
        self.n_points, self.rank = k, k**n_inputs
        self.register_buffer("low", torch.full((n_inputs,), -3.0))
        self.register_buffer("step", torch.full((n_inputs,), 6.0 / (k - 1)))
        self.log_lengthscale = nn.Parameter(torch.zeros(n_inputs))
        self.log_variance = nn.Parameter(torch.zeros(()))

    def initialise(self, h: Float[Tensor, "n d"]) -> None:
        """Lay the lattice over the sample with a margin; lengthscale a quarter of its range."""
        with torch.no_grad():
            low, high = h.amin(0), h.amax(0)
            width = torch.where(high - low > 1e-6, high - low, torch.ones_like(low))
            step = width / (self.n_points - 1 - 2 * MARGIN)
            self.step.copy_(step)
            self.low.copy_(low - MARGIN * step)
            self.log_lengthscale.copy_((0.25 * width).log())

    def axis_weights(self, h: Float[Tensor, "N d"], axis: int) -> Float[Tensor, "N k"]:
        """Interpolation weights (N, k) of one axis: four of them differ from zero and they sum to one."""
        position = ((h[:, axis] - self.low[axis]) / self.step[axis]).clamp(1.0, self.n_points - 2.0)
        nodes = torch.arange(self.n_points, dtype=h.dtype, device=h.device)
        return keys_cubic((position[:, None] - nodes).abs())

    def forward(self, h: Float[Tensor, "N d"]) -> Float[Tensor, "N r"]:
        phi = self.log_variance.mul(0.5).exp().expand(len(h), 1)
        nodes = torch.arange(self.n_points, dtype=torch.float64, device=h.device)
        for j in range(h.shape[1]):
            scaled = nodes * (self.step[j].double() / self.log_lengthscale[j].double().exp())
            K = matern32_of_squared((scaled[:, None] - scaled).square())
            L = cholesky(K, what="a lattice axis' kernel matrix").to(h.dtype)
            axis = self.axis_weights(h, j) @ L
            phi = (phi[:, :, None] * axis[:, None, :]).flatten(1)
        return phi

    def kernel_parameters(self) -> list[nn.Parameter]:
        return [self.log_lengthscale, self.log_variance]


def keys_cubic(t: Float[Tensor, " *n"]) -> Float[Tensor, " *n"]:
    """The cubic convolution kernel of Keys (1981), a = -1/2, at distances t >= 0 in lattice steps."""
    near = (1.5 * t - 2.5) * t.square() + 1.0
    far = ((-0.5 * t + 2.5) * t - 4.0) * t + 2.0
    return torch.where(t <= 1.0, near, torch.where(t < 2.0, far, torch.zeros_like(t)))

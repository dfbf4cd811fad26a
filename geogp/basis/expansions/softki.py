"""Soft kernel interpolation: a kernel matrix of learned points, interpolated by softmax weights."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geogp.basis.expansions.base import Expansion
from geogp.basis.expansions.placing import median_lengthscale, spread_of
from geogp.densities import matern32_of_squared
from geogp.linalg import cholesky, squared_distances

#: Lengthscales stay below this: with the temperatures they push and pull at the same thing.
MAX_LENGTHSCALE = 5.0
#: First temperature, as a share of the extra distance to the fifth nearest point.
SHARPNESS = 0.5


class SoftKI(Expansion):
    """phi(h) = L' s(h), with K_ZZ = L L' and s the softmax over j of -||h / T - z_j||.

    K_ZZ is Matern-3/2 with a lengthscale per axis of the interpolation points z; T is one temperature per
    axis. ||phi||^2 = s'K_ZZ s never exceeds the kernel's variance, and far from data it stays that of the
    nearest interpolation points: the latent sd does NOT return to the prior.

    The points are learned as places z T in the units of h: then a temperature stretches an axis of the whole
    kernel at once, instead of pulling the data away from the points.

    Parameters
    ----------
    n_inputs : H
    rank : number of interpolation points m

    Notes
    -----
    Cost O(N m (H + m) + m^3). Source: soft-kernel-interpolation, eq. 10-12 (the text suggests the
    temperature per axis and the cap on the lengthscales).

    Examples
    --------
    >>> SoftKI(2, 16)(torch.zeros(3, 2)).shape
    torch.Size([3, 16])
    """

    formula = "φ(h) = L' s(h), K_ZZ = L L', s the softmax of -‖h/T - z‖"
    factorises = True
    far = (
        "that of the outermost inducing points",
        "that of the outermost inducing points: up to the prior's where they lie beyond the data",
    )

    def __init__(self, n_inputs: int, rank: int):
        super().__init__()
        self.rank = rank
        self.places = nn.Parameter(torch.randn(rank, n_inputs))
        self.log_temperature = nn.Parameter(torch.zeros(n_inputs))
        self.raw_lengthscale = nn.Parameter(torch.zeros(n_inputs))
        self.log_variance = nn.Parameter(torch.zeros(()))

    @property
    def lengthscale(self) -> Float[Tensor, " H"]:
        """(H,) of the base kernel, between 0 and `MAX_LENGTHSCALE`, in units of h / T."""
        return MAX_LENGTHSCALE * torch.sigmoid(self.raw_lengthscale)

    @property
    def temperature(self) -> Float[Tensor, " H"]:
        """(H,) one per axis."""
        return self.log_temperature.exp()

    @property
    def interpolation_points(self) -> Float[Tensor, "m H"]:
        """z: (m, H), in units of h / T."""
        return self.places / self.temperature

    def initialise(self, h: Float[Tensor, "n H"]) -> None:
        """Interpolation points at k-means centres; temperatures at which the nearest few share each row."""
        with torch.no_grad():
            centres = k_means(h, self.rank)
            spread = spread_of(h)
            gap = squared_distances(h[:1024] / spread, centres / spread).sort(1).values
            near = (gap[:, min(4, self.rank - 1)].sqrt() - gap[:, 0].sqrt()).median().clamp_min(1e-3)
            near = SHARPNESS * near
            self.log_temperature.copy_((spread * near).log())
            self.places.copy_(centres)
            share = (median_lengthscale(self.interpolation_points) / MAX_LENGTHSCALE).clamp(0.02, 0.9)
            self.raw_lengthscale.copy_(torch.logit(share))

    def weights(self, h: Float[Tensor, "N H"]) -> Float[Tensor, "N m"]:
        """s(h): (N, m) non-negative, each row summing to one."""
        squared = squared_distances(h / self.temperature, self.interpolation_points)
        # The root's slope is infinite at zero; the constant bounds it and changes no weight by more than 1e-6.
        return torch.softmax(-(squared + 1e-12).sqrt(), 1)

    def base_matrix(self) -> Float[Tensor, "m m"]:
        """K_ZZ (m, m) in float64."""
        Z = (self.interpolation_points / self.lengthscale).double()
        return self.log_variance.exp().double() * matern32_of_squared(squared_distances(Z, Z))

    def forward(self, h: Float[Tensor, "N H"]) -> Float[Tensor, "N m"]:
        L = cholesky(self.base_matrix(), what="the interpolation points' kernel matrix")
        return self.weights(h) @ L.to(h.dtype)

    def unfactorised(self, h: Float[Tensor, "N H"]) -> tuple[Float[Tensor, "N m"], Float[Tensor, "m m"]]:
        return self.weights(h), self.base_matrix()

    def kernel_parameters(self) -> list[nn.Parameter]:
        return [self.places, self.log_temperature, self.raw_lengthscale, self.log_variance]


def k_means(h: Float[Tensor, "n H"], k: int, n_steps: int = 10) -> Float[Tensor, "k H"]:
    """(k, H) centres of Lloyd's algorithm from k rows drawn at random; a centre without rows stays.

    With fewer than k rows the rest are scattered around the rows.
    """
    n = len(h)
    # Drawn on the CPU, so that a seed places alike on any device.
    rows = torch.randperm(n)[:k].to(h.device)
    centres = h[rows].clone()
    if n < k:
        spread = h.std(0, unbiased=False).clamp_min(1e-3)
        extra = torch.randint(0, n, (k - n,)).to(h.device)
        around = h[extra] + spread * torch.randn(k - n, h.shape[1], dtype=h.dtype).to(h.device)
        return torch.cat([centres, around])
    for _ in range(n_steps):
        nearest = squared_distances(h, centres).argmin(1)
        size = torch.bincount(nearest, minlength=k)
        total = torch.zeros_like(centres).index_add_(0, nearest, h)
        centres = torch.where((size > 0)[:, None], total / size.clamp_min(1)[:, None], centres)
    return centres

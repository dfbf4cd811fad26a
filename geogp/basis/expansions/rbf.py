"""Inducing-point basis of a squared-exponential kernel on the backbone's output."""

import torch
from torch import Tensor, nn

from geogp.basis.expansions.base import Expansion
from geogp.basis.expansions.placing import median_lengthscale
from geogp.linalg import cholesky, inverse_factor, squared_distances


class RBF(Expansion):
    """phi(h) = C^-1 k_Z(h) with K_ZZ = C C' and k the squared exponential with a lengthscale per axis.

    phi(h)'phi(h') is the Nystrom approximation of k: exact at the inducing points and falling to zero far
    from all of them. C^-1 stands for K_ZZ^-1/2; they differ by a rotation, which the kernel does not see.

    Parameters
    ----------
    n_inputs : H
    rank : number of inducing points r

    Notes
    -----
    Cost O(N r (H + r) + r^3). Source: deep-basis-kernel-gp, eq. 2, 12 and 16.

    Examples
    --------
    >>> basis = RBF(2, 4)
    >>> phi = basis(basis.inducing_points.detach())
    >>> bool(((phi @ phi.T).diagonal() - basis.variance).abs().max() < 1e-3)
    True
    """

    formula = "φ(h) = K_ZZ^(-1/2) k_Z(h)"

    has_base_kernel = True

    def __init__(self, n_inputs: int, rank: int):
        super().__init__()
        self.rank = rank
        self.inducing_points = nn.Parameter(torch.rand(rank, n_inputs) * 2.0 - 1.0)
        self.log_lengthscale = nn.Parameter(torch.full((n_inputs,), 0.5).mul(float(n_inputs)).log() * 0.5)
        self.log_variance = nn.Parameter(torch.zeros(()))

    @property
    def lengthscale(self) -> Tensor:
        """(H,) one per axis, in units of the backbone's output."""
        return self.log_lengthscale.exp()

    @property
    def variance(self) -> Tensor:
        """k~(h, h), the same everywhere."""
        return self.log_variance.exp()

    def initialise(self, h: Tensor) -> None:
        """Inducing points at a sample of h, lengthscale at the median distance between them."""
        with torch.no_grad():
            n = len(h)
            rows = torch.randperm(n, device=h.device)[: self.rank]
            if n < self.rank:  # fewer rows than inducing points: the rest sit around the rows
                extra = torch.randint(0, n, (self.rank - n,), device=h.device)
                spread = h.std(0, unbiased=False).clamp_min(1e-3)
                around = h[extra] + spread * torch.randn(len(extra), h.shape[1], device=h.device)
                Z = torch.cat([h[rows], around])
            else:
                Z = h[rows]
            self.inducing_points.copy_(Z)
            self.log_lengthscale.copy_(median_lengthscale(h, Z).log())

    def base_kernel(self, h: Tensor, h_ref: Tensor) -> Tensor:
        ell = self.lengthscale
        return self.variance * torch.exp(-0.5 * squared_distances(h / ell, h_ref / ell))

    def base_diagonal(self, h: Tensor) -> Tensor:
        return self.variance.expand(len(h))

    def forward(self, h: Tensor) -> Tensor:
        ell = self.lengthscale
        Z = self.inducing_points / ell
        Zd = Z.double()
        C = cholesky(torch.exp(-0.5 * squared_distances(Zd, Zd)), what="the inducing points' kernel matrix")
        whiten = inverse_factor(C).to(h.dtype)
        k_Z = torch.exp(-0.5 * squared_distances(h / ell, Z))
        return self.variance.sqrt() * (k_Z @ whiten.T)

    def kernel_parameters(self) -> list[nn.Parameter]:
        return [self.inducing_points, self.log_lengthscale, self.log_variance]

"""Inducing-point basis of a squared-exponential kernel on the backbone's output."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geogp.basis.expansions.base import Expansion
from geogp.basis.expansions.placing import median_lengthscale
from geogp.linalg.slopes import gaussian, inverse_cholesky, times_upper, whitened_gaussian


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
    factorises = True

    def __init__(self, n_inputs: int, rank: int):
        super().__init__()
        self.rank = rank
        self.inducing_points = nn.Parameter(torch.rand(rank, n_inputs) * 2.0 - 1.0)
        self.log_lengthscale = nn.Parameter(torch.full((n_inputs,), 0.5).mul(float(n_inputs)).log() * 0.5)
        self.log_variance = nn.Parameter(torch.zeros(()))
        #: What the parameters were when the root was last factorised, and the root.
        self._kept: tuple[list[Tensor], Tensor] | None = None

    @property
    def lengthscale(self) -> Float[Tensor, " H"]:
        """(H,) one per axis, in units of the backbone's output."""
        return self.log_lengthscale.exp()

    @property
    def variance(self) -> Float[Tensor, ""]:
        """k~(h, h), the same everywhere."""
        return self.log_variance.exp()

    def initialise(self, h: Float[Tensor, "n H"]) -> None:
        """Inducing points at a sample of h, lengthscale at the median distance between them."""
        with torch.no_grad():
            n = len(h)
            # Drawn on the CPU, so that a seed places alike on any device.
            rows = torch.randperm(n)[: self.rank].to(h.device)
            if n < self.rank:  # fewer rows than inducing points: the rest sit around the rows
                extra = torch.randint(0, n, (self.rank - n,)).to(h.device)
                spread = h.std(0, unbiased=False).clamp_min(1e-3)
                around = h[extra] + spread * torch.randn(len(extra), h.shape[1]).to(h.device)
                Z = torch.cat([h[rows], around])
            else:
                Z = h[rows]
            self.inducing_points.copy_(Z)
            self.log_lengthscale.copy_(median_lengthscale(h, Z).log())

    def base_kernel(self, h: Float[Tensor, "N H"], h_ref: Float[Tensor, "M H"]) -> Float[Tensor, "N M"]:
        ell = self.lengthscale
        return self.variance * gaussian(h / ell, h_ref / ell)

    def base_diagonal(self, h: Float[Tensor, "N H"]) -> Float[Tensor, " N"]:
        return self.variance.expand(len(h))

    def root(self) -> Float[Tensor, "r r"]:
        """sigma_f C^-T, upper-triangular."""
        Z = (self.inducing_points / self.lengthscale).double()
        W = inverse_cholesky(gaussian(Z, Z), what="the inducing points' kernel matrix")
        return self.variance.sqrt() * W.T.to(self.inducing_points.dtype)

    def before_root(self, h: Float[Tensor, "N H"]) -> Float[Tensor, "N r"]:
        """k_Z(h) / sigma_f²."""
        ell = self.lengthscale
        return gaussian(h / ell, self.inducing_points / ell)

    def kept_root(self) -> Float[Tensor, "r r"]:
        """`root` without gradient, factorised once for all places that the same parameters are asked of."""
        now, kept = list(self.parameters()), self._kept
        # By their values: an address and a count of changes can come again.
        if kept is None or not all(map(_same, now, kept[0])):
            kept = self._kept = [p.detach().clone() for p in now], self.root().detach()
        return kept[1]

    def forward(self, h: Float[Tensor, "N H"]) -> Float[Tensor, "N r"]:
        if not self.training and not torch.is_grad_enabled():
            return times_upper(self.before_root(h), self.kept_root())
        ell = self.lengthscale
        phi = whitened_gaussian(
            h / ell, self.inducing_points / ell, what="the inducing points' kernel matrix"
        )
        return self.variance.sqrt() * phi

    def kernel_parameters(self) -> list[nn.Parameter]:
        return [self.inducing_points, self.log_lengthscale, self.log_variance]


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)

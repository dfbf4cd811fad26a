"""Random Fourier features of a squared-exponential kernel."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geogp.basis.expansions.base import Expansion
from geogp.basis.expansions.placing import median_lengthscale
from geogp.errors import ImpossibleCombination
from geogp.linalg.slopes import waves


class Fourier(Expansion):
    """phi(h) = sigma_f sqrt(2 / r) [cos(O h / l), sin(O h / l)] with frequencies O drawn once from N(0, I).

    phi'phi is a Monte Carlo estimate of sigma_f^2 exp(-||(h - h') / l||^2 / 2): its error falls as
    1 / sqrt(r). The draws are buffers and never trained; only the lengthscale l that scales them is. The
    prior variance is sigma_f^2 everywhere, but r weights are soon all known, so the latent variance far from
    data does not return to it.

    Parameters
    ----------
    n_inputs : H
    rank : r; an odd r is rounded down to a whole number of pairs

    Raises
    ------
    ImpossibleCombination
        for a rank below 2.

    Notes
    -----
    Cost O(N H r). Source: how-good-are-low-rank-approximations, section 5 (the printed spectral density is
    that of cos(2 pi x), not of the printed cos(x): here the frequencies are those of the stated kernel).

    Examples
    --------
    >>> basis = Fourier(2, 6)
    >>> phi = basis(torch.randn(4, 2))
    >>> bool((phi.square().sum(1) - 1.0).abs().max() < 1e-6)
    True
    """

    formula = "φ(h) = sqrt(2/r) [cos(Ω h), sin(Ω h)]"
    far = (
        "the waves go on; what they add up to there means nothing",
        "larger than at the data but below the prior's: the prior variance is the same everywhere, and what the data say of the waves holds everywhere, too",
    )

    frequencies: Tensor

    def __init__(self, n_inputs: int, rank: int):
        super().__init__()
        if rank < 2:
            raise ImpossibleCombination(
                f"expansion 'fourier' needs a rank of at least 2 (a pair); got {rank}."
            )
        self.rank = 2 * (rank // 2)
        self.register_buffer("frequencies", torch.randn(rank // 2, n_inputs))
        self.log_lengthscale = nn.Parameter(torch.zeros(n_inputs))
        self.log_variance = nn.Parameter(torch.zeros(()))

    @property
    def lengthscale(self) -> Float[Tensor, " H"]:
        """(H,) one per axis, in units of the backbone's output."""
        return self.log_lengthscale.exp()

    def initialise(self, h: Float[Tensor, "n H"]) -> None:
        """Lengthscales at the median distance of the sample."""
        with torch.no_grad():
            self.log_lengthscale.copy_(median_lengthscale(h).log())

    def forward(self, h: Float[Tensor, "N H"]) -> Float[Tensor, "N r"]:
        phase = (h / self.lengthscale) @ self.frequencies.T
        scale = (self.log_variance.exp() * 2.0 / self.rank).sqrt()
        return scale * waves(phase)

    def kernel_parameters(self) -> list[nn.Parameter]:
        return [self.log_lengthscale, self.log_variance]

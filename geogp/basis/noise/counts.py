"""A noise that knows how many measurements stand behind each average."""

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from geogp.basis.noise.base import Noise


class PerCount(Noise):
    """tau^2 + s^2 / n: tau does not average away, s does.

    Parameters
    ----------
    floor : smallest variance, in standardised target units

    Notes
    -----
    Counts are clipped to at least one. Cost O(N).

    Examples
    --------
    >>> noise = PerCount()
    >>> v = noise(torch.zeros(2, 1), torch.tensor([1.0, 100.0]))
    >>> bool(v[0] > v[1])
    True
    """

    formula = "ε of squared scale τ² + s²/n"

    def __init__(self, floor: float = 1e-5):
        super().__init__(floor)
        self.log_tau2 = nn.Parameter(torch.tensor(-2.0))
        self.log_s2 = nn.Parameter(torch.tensor(-2.0))

    def initialise(self, variance: float, counts: Num[Tensor, " N"] | None) -> None:
        """Share `variance` so that half of it, at the mean of 1/n, averages away."""
        inverse = 1.0 if counts is None else float((1.0 / counts.clamp_min(1.0)).mean())
        with torch.no_grad():
            self.log_tau2.fill_(torch.tensor(max(0.5 * variance, self.floor)).log().item())
            self.log_s2.fill_(torch.tensor(max(0.5 * variance / inverse, self.floor)).log().item())

    def forward(self, Z: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None) -> Float[Tensor, " N"]:
        n = torch.ones_like(Z[:, 0]) if counts is None else counts.clamp_min(1.0).to(Z.dtype)
        return self.floor + self.log_tau2.exp() + self.log_s2.exp() / n

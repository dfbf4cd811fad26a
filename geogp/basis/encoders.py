"""From what people measure in (metres, years, covariates) to what a network learns from.

Two raw coordinates are a poor input: a plain deep basis on them loses to nearest neighbours. Random
Fourier features of the position at several scales give the network short and long wavelengths to choose
from (Tancik et al. 2020, eq. 5; Rahimi and Recht 2007).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from geogp.errors import InvalidInput


class Encoder(nn.Module):
    """Standardised inputs, with multi-scale Fourier features of the position when there is one.

    Everything learned from data (centre, scale) is fixed by `fit_scaling` on training rows and then part
    of the saved state. Position is scaled by one number for both axes, so that a metre is a metre in
    every direction.

    Parameters
    ----------
    n_inputs : columns of X
    spatial : indices of the easting and northing columns, of the one along a line, or None
    fourier_scales : spread of the frequencies, in radians per standard deviation of position; empty for none
    n_frequencies : frequencies a scale
    generator : draws the frequencies; they are buffers and never trained

    Notes
    -----
    Output width: n_inputs + 2 * len(fourier_scales) * n_frequencies. Cost O(n * width).
    Positions beyond the training box are softly bounded (8 standard deviations), so that a far input
    cannot blow up the network.

    Examples
    --------
    >>> X = torch.tensor([[0.0, 0.0], [1000.0, 500.0], [2000.0, -500.0]], dtype=torch.float64)
    >>> enc = Encoder(2, spatial=(0, 1), fourier_scales=(1.0, 4.0), n_frequencies=8)
    >>> enc.fit_scaling(X)
    >>> enc(X).shape
    torch.Size([3, 34])
    """

    centre: Tensor
    scale: Tensor
    frequencies: Tensor

    def __init__(
        self,
        n_inputs: int,
        *,
        spatial: tuple[int, ...] | None = None,
        fourier_scales: Sequence[float] = (),
        n_frequencies: int = 32,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        if fourier_scales and spatial is None:
            raise InvalidInput(
                "Fourier features need a position: name the two spatial columns, e.g. spatial=(0, 1), or the one of a line."
            )
        self.n_inputs, self.spatial = n_inputs, spatial
        self.fourier_scales = tuple(float(s) for s in fourier_scales)
        self.register_buffer("centre", torch.zeros(n_inputs, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(n_inputs, dtype=torch.float64))
        n_axes = len(spatial or (0, 1))
        draws = [
            s * torch.randn(n_frequencies, n_axes, generator=generator, dtype=torch.float64)
            for s in self.fourier_scales
        ]
        self.register_buffer(
            "frequencies",
            (torch.cat(draws) if draws else torch.zeros(0, n_axes, dtype=torch.float64)).float(),
        )

    @property
    def n_outputs(self) -> int:
        return self.n_inputs + 2 * len(self.frequencies)

    def fit_scaling(self, X: Tensor) -> None:
        """Set centre and scale from training rows X (n, n_inputs); a constant column keeps scale 1."""
        X = X.double()
        self.centre.copy_(X.mean(0))
        sd = X.std(0, unbiased=False)
        if self.spatial is not None:
            both = list(self.spatial)
            sd[both] = sd[both].square().mean().sqrt()
        # A spread at rounding level is no spread: dividing by it would amplify rounding errors.
        floor = 1e-12 * X.abs().amax(0).clamp_min(1e-300)
        self.scale.copy_(torch.where(sd > floor, sd, torch.ones_like(sd)))

    def standardise(self, X: Tensor) -> Tensor:
        """(X - centre) / scale in the model's dtype: (n, n_inputs). The subtraction is done in float64."""
        return ((X.double() - self.centre) / self.scale).to(self.frequencies.dtype)

    def forward(self, X: Tensor) -> Tensor:
        Z = self.standardise(X)
        if not len(self.frequencies):
            return Z
        assert self.spatial is not None
        # Columns by their numbers would send these to the device, at every step.
        phase = torch.stack([Z[:, i] for i in self.spatial], 1) @ self.frequencies.T
        bounded = Z / (1.0 + (Z / 8.0).square()).sqrt()
        return torch.cat([bounded, math.sqrt(2.0) * torch.sin(phase), math.sqrt(2.0) * torch.cos(phase)], 1)


#: What a row may choose: how inputs are encoded.
ENCODERS: dict[str, str] = {
    "fourier": "standardised inputs and multi-scale Fourier features of the position",
    "standardise": "inputs with mean 0 and sd 1",
    "none": "coordinates in spacings of the places, time in spans of the data",
}

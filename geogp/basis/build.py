"""From a row of the table and the shape of the data to a model."""

from dataclasses import dataclass

import torch

from geogp.basis.backbones import BACKBONES, Backbone, Reduced
from geogp.basis.encoders import Encoder
from geogp.basis.expansions import expansion_named
from geogp.basis.model import LowRankGP
from geogp.basis.noise import NOISES
from geogp.basis.posterior import POSTERIORS
from geogp.basis.residuals import RESIDUALS
from geogp.methods import Method


@dataclass(frozen=True)
class Shape:
    """What the data says about the model: inputs, where the position and the time are, whether counts came."""

    n_inputs: int
    spatial: tuple[int, ...] | None
    time: int | None
    has_counts: bool


@dataclass(frozen=True)
class Size:
    """Capacity: hidden width h, rank r, Fourier scales (radians per sd of position), frequencies a scale.

    latent : outputs of the backbone before the expansion; None for the row's (or the network's own)
    """

    hidden: int = 64
    rank: int = 128
    fourier_scales: tuple[float, ...] = (1.0, 4.0, 12.0)
    n_frequencies: int = 32
    latent: int | None = None


def encoder_of(row: Method, shape: Shape, size: Size, *, seed: int) -> Encoder:
    """The row's encoder, its scaling still to be fitted."""
    fourier = row.encoder == "fourier" and shape.spatial is not None
    return Encoder(
        shape.n_inputs,
        spatial=shape.spatial,
        fourier_scales=size.fourier_scales if fourier else (),
        n_frequencies=size.n_frequencies,
        generator=torch.Generator().manual_seed(seed),
    )


def backbone_of(row: Method, size: Size, n_inputs: int) -> Backbone:
    """The row's network with `latent` outputs, where the row or the size asks for a number of them."""
    latent = size.latent or (row.latent[0] if row.latent else None)
    if latent is None or row.backbone == "identity":
        return BACKBONES[row.backbone](n_inputs, size.hidden)
    if row.backbone == "linear":
        return BACKBONES["linear"](n_inputs, latent)
    return Reduced(BACKBONES[row.backbone](n_inputs, size.hidden), latent)


def build(row: Method, shape: Shape, size: Size, *, seed: int) -> LowRankGP:
    """An untrained model of a row that `geogp.engines.check` lets pass, in float32 on the CPU; the same seed gives the same model, bit for bit."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = encoder_of(row, shape, size, seed=seed)
        net = backbone_of(row, size, encoder.n_outputs)
        expansion = expansion_named(row.expansion)(net.n_outputs, size.rank)
        residual = RESIDUALS[row.residual](expansion)
        noise = NOISES[row.noise].made(shape.has_counts)
        posterior = POSTERIORS[row.posterior](expansion.rank)
    return LowRankGP(
        encoder=encoder,
        backbone=net,
        expansion=expansion,
        residual=residual,
        noise=noise,
        posterior=posterior,
    )

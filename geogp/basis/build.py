"""From a row of the table and the shape of the data to a model."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from geogp.basis.backbones import BACKBONES, Backbone, Reduced
from geogp.basis.encoders import Encoder
from geogp.basis.expansions import EXPANSIONS, expansion_named
from geogp.basis.model import LowRankGP
from geogp.basis.noise import NOISES
from geogp.basis.objectives import BATCH_EVIDENCES, EVIDENCES, OBJECTIVES
from geogp.basis.posterior import POSTERIORS
from geogp.basis.residuals import RESIDUALS
from geogp.errors import ImpossibleCombination
from geogp.methods import Method


@dataclass(frozen=True)
class Shape:
    """What the data says about the model: inputs, where the position and the time are, whether counts came."""

    n_inputs: int
    spatial: tuple[int, int] | None
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


def _choose(registry: dict[str, Any], kind: str, name: str) -> Any:
    if name not in registry:
        raise ImpossibleCombination(f"there is no {kind} {name!r}; choose from {', '.join(registry)}.")
    return registry[name]


def resolve_noise(row: Method, has_counts: bool) -> str:
    """The noise that "auto" stands for."""
    return ("counts" if has_counts else "constant") if row.noise == "auto" else row.noise


def check(row: Method) -> None:
    """Refuse impossible choices by name.

    Raises
    ------
    ImpossibleCombination
    """
    _choose(BACKBONES, "backbone", row.backbone)
    if row.expansion == "exact" and row.residual != "local":
        return
    if row.residual == "local":
        # The local field is fitted to what the rest of the row leaves over (geogp.engines.local).
        if row.expansion == "none":
            return
        if row.engine not in ("lowrank", "closed_form"):
            raise ImpossibleCombination(
                f"residual 'local' cannot go with method {row.name!r}, which has no basis to leave something over: "
                "take a method whose engine is lowrank or closed_form, or 'geogp'."
            )
        row = replace(row, residual="none")
    expansion_named(row.expansion)
    has_base_kernel = row.expansion in EXPANSIONS and EXPANSIONS[row.expansion].has_base_kernel
    residual = _choose(RESIDUALS, "residual", row.residual)
    _choose(POSTERIORS, "posterior", row.posterior)
    closed_form = {**EVIDENCES, **BATCH_EVIDENCES}
    if row.route == "variational" and row.objective in closed_form:
        raise ImpossibleCombination(
            f"objective {row.objective!r} solves for the weights and method {row.name!r} learns them: take "
            f"objective {', '.join(map(repr, OBJECTIVES))}, or a method whose route is closed form."
        )
    if row.route == "closed_form" and row.objective in OBJECTIVES:
        raise ImpossibleCombination(
            f"objective {row.objective!r} learns the weights and method {row.name!r} solves for them: take "
            f"objective {', '.join(map(repr, closed_form))}, or a method whose route is variational."
        )
    _choose({**OBJECTIVES, **closed_form}, "objective", row.objective)
    if (row.posterior in ("point", "laplace")) != (row.objective in ("mse", "map")):
        raise ImpossibleCombination(
            f"posterior {row.posterior!r} cannot go with objective {row.objective!r}: a network's loss ('mse', 'map') "
            "leaves its weights a point ('point', or 'laplace' afterwards), every other objective needs a distribution."
        )
    if (row.objective == "poisson") != (row.engine == "cox"):
        raise ImpossibleCombination(
            f"objective {row.objective!r} cannot go with method {row.name!r}: 'poisson' models counts and belongs to "
            "method 'cox', which knows no other."
        )
    if (row.objective == "fixed_mean") != (row.engine == "fixed_mean"):
        raise ImpossibleCombination(
            f"objective {row.objective!r} cannot go with method {row.name!r}: 'fixed_mean' belongs to method 'fmgp', "
            "which knows no other."
        )
    if row.posterior == "laplace" and row.expansion != "last_layer":
        raise ImpossibleCombination(
            f"posterior 'laplace' cannot go with expansion {row.expansion!r}: it is the covariance of a network's "
            "last layer; take expansion 'last_layer', or posterior 'dense' with objective 'dppgp'."
        )
    if (row.route == "closed_form") != (row.posterior == "solved"):
        raise ImpossibleCombination(
            f"posterior {row.posterior!r} cannot go with method {row.name!r}, whose route is {row.route}: "
            "'solved' belongs to closed-form methods, 'dense' and 'lowrank' to variational ones."
        )
    if residual.needs_base_kernel and not has_base_kernel:
        raise ImpossibleCombination(
            f"residual {row.residual!r} cannot go with expansion {row.expansion!r}, which approximates no base "
            "kernel: take expansion 'rbf', or residual 'none', 'unit' or 'local'."
        )
    if row.objective == "ppgp" and not residual.needs_base_kernel:
        raise ImpossibleCombination(
            f"objective 'ppgp' needs the exact variance of a base kernel, which residual {row.residual!r} does "
            "not give: take objective 'dppgp', or residual 'nystrom' with expansion 'rbf'."
        )


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
    """An untrained model in float32 on the CPU; the same seed gives the same model, bit for bit."""
    check(row)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = encoder_of(row, shape, size, seed=seed)
        net = backbone_of(row, size, encoder.n_outputs)
        expansion = expansion_named(row.expansion)(net.n_outputs, size.rank)
        residual = RESIDUALS[row.residual](expansion)
        noise = NOISES[resolve_noise(row, shape.has_counts)]()
        posterior = POSTERIORS[row.posterior](expansion.rank)
    return LowRankGP(
        encoder=encoder,
        backbone=net,
        expansion=expansion,
        residual=residual,
        noise=noise,
        posterior=posterior,
    )

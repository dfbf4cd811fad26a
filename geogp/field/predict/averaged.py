"""What a field says of places, averaged over the kernels and noises that few rows bear out."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from geogp.field.conditioned import Conditioned
from geogp.field.noise.smooth import SmoothNoise
from geogp.field.predict.around import around
from geogp.field.predict.blend import blended
from geogp.field.predict.moments import FieldMoments, moments_of
from geogp.field.predict.outlook import Outlook, outlooks
from geogp.field.solve import Neighbourhoods

#: Places by rows whose covariances are computed at once.
AT_ONCE = 2**19


def moments_at(
    known: Conditioned, X: Tensor, counts: Sequence[Tensor], noise: SmoothNoise | None
) -> list[tuple[FieldMoments, Int[np.ndarray, " N"]]]:
    """Moments before calibration, and the groups of that, at X (N, D) raw inputs, float64, for each of several (N,) counts.

    Notes
    -----
    Where there is something to average over O(N n²) for each of its members, n rows.
    """
    places = outlooks(known, X, counts)
    if not known.members:
        return [(moments_of(known, here, noise), here.group) for here in places]
    told = zip(*(_seen_by(member, places, X) for _, member in known.members))
    said = [[moments_of(m, here, noise) for (_, m), here in zip(known.members, each)] for each in told]
    place = torch.arange(len(X)).repeat(len(known.members))
    weight = torch.tensor([w for w, _ in known.members], dtype=torch.float64).repeat_interleave(len(X))
    mixed = (blended(FieldMoments.together(each), place, weight, len(X)) for each in said)
    return [(m, here.group) for m, here in zip(mixed, places)]


def between(known: Conditioned, C: Float[Tensor, "N D"]) -> Float[Tensor, "N M"]:
    """How far the M members' means at coordinates C lie from that of all, times the roots of their weights: the factor of the covariance
    that not knowing the kernel brings, which does not average out; (N, 0) where there is nothing to average over."""
    if not known.members:
        return torch.zeros(len(C), 0, dtype=C.dtype)
    weight = torch.tensor([w for w, _ in known.members], dtype=C.dtype)
    means = torch.stack([_mean_of(member, C) for _, member in known.members], dim=1)
    return (means - (means @ weight)[:, None]) * weight.sqrt()


def _mean_of(member: Conditioned, C: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
    """Of the drift and of r."""
    mean = _by_all(member, C)[0] if member.rests_on_all else around(member, C).mean
    return mean + member.drift(C)


def _seen_by(member: Conditioned, places: list[Outlook], X: Tensor) -> list[Outlook]:
    """Places, for each of several counts, as a member sees them."""
    if not member.rests_on_all:  # told of many others since the fit
        return outlooks(member, X, [here.counts for here in places])
    C = places[0].coordinates
    mean, variance, leaning = _by_all(member, C)
    here = replace(places[0].around, mean=mean, variance=variance, leaning=leaning)
    return [
        replace(
            each,
            around=here,
            prior_mean=member.prior_mean(C, each.counts),
            drift_variance=member.drift.extra(C, leaning)[1],
            prior_variance=member.gp.kernel.prior_at(C).expand(len(C)),
            open_variance=member.drift.covariance_of(C, C, diagonal=True),
        )
        for each in places
    ]


def _by_all(
    known: Conditioned, C: Float[Tensor, "N D"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Float[Tensor, "N q"]]:
    """Mean and variance of r at C given all observations, and what these make of the drift's columns."""
    kernel, seen = known.on_device
    every = torch.arange(len(seen), device=seen.X.device)[None]
    half = Neighbourhoods.among_rows(kernel, seen.X, every).whitener(seen, known.gp.tails)[0]
    columns = torch.cat([seen.value[:, None], known.columns.to(half.device)], dim=1)
    sums = half.T @ (half @ columns)
    parts = []
    for some in C.to(half.device).split(max(1, AT_ONCE // len(seen))):
        cross = kernel(some, seen.X)
        variance = kernel.prior_at(some) - (cross @ half.T).square().sum(-1)
        parts.append(torch.cat([variance.clamp_min(0.0)[:, None], cross @ sums], dim=1))
    out = torch.cat(parts).cpu()
    return out[:, 1], out[:, 0], out[:, 2:]

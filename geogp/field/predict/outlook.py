"""What is known about places to predict before the smooth noise has its say."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.calibrate import groups_of
from geogp.field.conditioned import Conditioned
from geogp.field.observations import counted
from geogp.field.predict.around import around
from geogp.field.surroundings import NAMES, Surroundings, count_features


@dataclass(frozen=True)
class Outlook:
    """N places to predict.

    around : moments of r and the surroundings
    inputs : (N, F) of the smooth noise
    counts : (N,) measurements behind each average
    coordinates : (N, D) of the frame
    prior_mean : (N,) trend, drift and count shift
    drift_variance : (N,) that the drift's uncertain weights add
    time_variance : (N,) of the mean beyond what was learned
    prior_variance : (N,) of r
    open_variance : (N,) of the drift where no neighbour says anything
    group : (N,) of calibration
    """

    around: Surroundings
    inputs: Tensor
    counts: Tensor
    coordinates: Tensor
    prior_mean: Tensor
    drift_variance: Tensor
    time_variance: Tensor
    prior_variance: Tensor
    open_variance: Tensor
    group: NDArray[np.int64]


def outlook(known: Conditioned, X: Tensor, counts: Tensor | None) -> Outlook:
    """At X (N, D) raw inputs, float64, for averages of `counts` (N,) measurements (default 1)."""
    return outlooks(known, X, [counted(counts, len(X))])[0]


def outlooks(known: Conditioned, X: Tensor, counts: Sequence[Tensor]) -> list[Outlook]:
    """`outlook` for each of several (N,) counts; what the neighbours say is found once."""
    C = known.frame.coordinates(X)
    here = around(known, C)
    _, uncertain = known.drift.extra(C, here.leaning)
    regional = None if known.regional is None else known.regional.between_nodes(C[:, :2])
    distance = torch.expm1(here.features[:, NAMES.index("log_nearest")]).numpy()
    time_variance, prior_variance = known.time_variance(C), known.gp.kernel.prior_at(C).expand(len(X))
    open_variance = known.drift.covariance_of(C, C, diagonal=True)
    return [
        Outlook(
            around=here,
            inputs=noise_inputs(known, here, n, X, regional),
            counts=n,
            coordinates=C,
            prior_mean=known.prior_mean(C, n),
            drift_variance=uncertain,
            time_variance=time_variance,
            prior_variance=prior_variance,
            open_variance=open_variance,
            group=groups_of(n.numpy(), distance),
        )
        for n in counts
    ]


def noise_inputs(
    known: Conditioned,
    around: Surroundings,
    counts: Tensor,
    X: Tensor,
    regional: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Inputs (N, F) of the smooth noise: surroundings, what the neighbours measured, mean and variance of the regional
    surface, time (held at the newest learned from), count, covariates, and by what noises of the time and near the place are larger."""
    parts = [around.features, around.testimony]
    if regional is not None:
        g, variance = regional
        gap = g - around.mean
        unknown = around.variance / known.gp.kernel.prior_variance
        parts.append(torch.stack([g, gap, gap * unknown, variance.clamp_min(1e-12).log()], dim=-1))
    if known.frame.time is not None:
        C = known.frame.coordinates(X)
        parts.append(C[:, 2:3].clamp_max(known.learned_until))
        if known.gp.of_times is not None:
            parts.append(known.gp.of_times.log_factor(C[:, 2])[:, None])
    if known.has_counts:
        parts.append(count_features(counts))
    parts += [X[:, d : d + 1] for d in known.frame.others]
    bumps = known.gp.kernel.variation
    if bumps is not None and (louder := bumps.log_noise(known.frame.coordinates(X)[:, :2])) is not None:
        parts.append(louder[:, None])
    return torch.cat(parts, dim=-1)

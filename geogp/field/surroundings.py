"""What the neighbours of a place say: the inputs of the smooth noise and of the level shift.

Everything is computed from the conditioning set alone, so it means the same for a training row whose own value
was held out and for a new place, and far from data every entry tends to a constant.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from geogp.field.kernel import CHUNK, LocalKernel, condition

NAMES = (
    "mean",
    "variance",
    "busyness",
    "log_spread",
    "lean",
    "log_weight",
    "near_busyness",
    "log_nearest",
    "log_ninth",
    "time_gap",
)
#: Distances saturate here, in units of the spacing of places.
FAR = 1000.0
#: Places solved at once on an accelerator: about 1 GB of float64 at k = 48.
DEVICE_CHUNK = 8192


@dataclass(frozen=True)
class Observations:
    """What is conditioned on: places (N, D), values (N,) less trend and shift, counts (N,), noise (N,)."""

    X: Tensor
    value: Tensor
    counts: Tensor
    noise_variance: Tensor

    def to(self, device: torch.device | str) -> "Observations":
        """The same observations on a device."""
        return Observations(*(getattr(self, f.name).to(device) for f in fields(self)))


@dataclass(frozen=True)
class Surroundings:
    """mean, variance of r (N,) each, and features (N, len(NAMES)) with mean and variance among them."""

    mean: Tensor
    variance: Tensor
    features: Tensor


def survey(
    kernel: LocalKernel,
    seen: Observations,
    X_new: Tensor,
    index: Tensor,
    *,
    spacing: float,
    space: tuple[int, ...],
    latest: float,
    degrees_of_freedom: float | None = None,
) -> Surroundings:
    """Local GP moments at X_new, and a summary of the observations they rest on.

    Parameters
    ----------
    kernel : of r
    seen : all observations
    X_new : (N, D)
    index : (N, k) rows of `seen` to condition on, -1 for none
    spacing : typical distance between neighbouring places
    space : spatial columns of X
    latest : time of the newest observation; places after it have a time gap
    degrees_of_freedom : of the observations, None for Gaussian ones

    Returns
    -------
    Surroundings: besides the moments of r, the local GP's mean of log counts ("busyness"), the log ratio of
    the observed to the expected squared deviation ("spread"), the mean signed deviation ("lean"), the summed
    weights, and distances to the first and the ninth neighbour.

    Notes
    -----
    O(N k³) time; memory does not grow with N beyond the result.
    """
    log_counts = seen.counts.log()
    level = log_counts.mean()
    values = torch.stack([seen.value, log_counts - level], dim=-1)
    means, variances, features = [], [], []
    chunk = CHUNK if X_new.device.type == "cpu" else DEVICE_CHUNK
    for start in range(0, len(X_new), chunk):
        x, i = X_new[start : start + chunk], index[start : start + chunk]
        c = condition(kernel, x, seen.X, values, seen.noise_variance, i, degrees_of_freedom)
        rows, present = i.clamp_min(0), (i >= 0).to(x.dtype)
        expected = seen.noise_variance[rows] + 0.3
        weight = c.covariance / kernel.prior_variance / expected
        total = weight.sum(-1)
        deviation = (seen.value[rows] - c.mean[:, :1]) / expected.sqrt()
        # Half a tenth of a pseudo-observation that agrees with expectation keeps both defined without neighbours.
        spread = ((weight * deviation.square()).sum(-1) + 0.05) / (total + 0.05)
        lean = (weight * deviation).sum(-1) / (total + 0.05)
        away = seen.X[rows][..., list(space)] - x[:, None, list(space)]
        distance = torch.linalg.vector_norm(away, dim=-1) / spacing
        close = present * torch.exp(-distance / 3.5)
        near = (close * (log_counts[rows] - level)).sum(-1) / (close.sum(-1) + 0.1)
        distance = (
            torch.where(i >= 0, distance.clamp_max(FAR), torch.full_like(distance, FAR)).sort(-1).values
        )
        gap = (x[:, -1] - latest).clamp_min(0.0) if len(space) < x.shape[1] else torch.zeros_like(near)
        features.append(
            torch.stack(
                [
                    c.mean[:, 0],
                    c.variance,
                    c.mean[:, 1],
                    spread.log(),
                    lean,
                    torch.log(total + 1e-3),
                    near,
                    torch.log1p(distance[:, 0]),
                    torch.log1p(distance[:, min(8, distance.shape[1] - 1)]),
                    gap,
                ],
                dim=-1,
            )
        )
        means.append(c.mean[:, 0])
        variances.append(c.variance)
    if not means:
        empty = X_new.new_zeros(0)
        return Surroundings(empty, empty, X_new.new_zeros(0, len(NAMES)))
    return Surroundings(torch.cat(means), torch.cat(variances), torch.cat(features))


def count_features(counts: Tensor) -> Tensor:
    """(N, 2): log n and n^(-1/2), through which noise and level may depend on the count."""
    return torch.stack([counts.log(), counts.rsqrt()], dim=-1)

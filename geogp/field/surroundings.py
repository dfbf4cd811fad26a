"""What the neighbours of a place say: the inputs of the smooth noise.

Everything is computed from the conditioning set alone, so it means the same for a training row whose own value
was held out and for a new place, and far from data every entry tends to a constant.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from geogp.field.columns import Columns
from geogp.field.kernel import LocalKernel
from geogp.field.observations import Observations, typical_precision
from geogp.field.solve import PLACES_AT_ONCE, Conditional, conditional_moments

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
#: What neighbours measured, less the mean: means at so many spacings and units of time, quantiles of the nearest.
RANGES, TIMES = (0.7, 3.0, 10.0), (0.26, 1.6)
NEAREST, SHARES = 24, (0.1, 0.25, 0.5, 0.75, 0.9)
SAID = 3 * len(RANGES) * len(TIMES) + 6 + len(SHARES)
#: Weight, in observations of typical precision, with which a mean of deviations holds to none.
HOLD = 0.1
#: Nearer than this share of a spacing is the same place.
SAME = 1e-6
#: Distances saturate here, in units of the spacing of places.
FAR = 1000.0
#: Places solved at once on an accelerator: about 1 GB of float64 at k = 48.
PLACES_AT_ONCE_ON_DEVICE = 8192


@dataclass(frozen=True)
class Surroundings(Columns):
    """mean, variance of r (N,) each, features (N, len(NAMES)) with mean and variance among them, what the same
    weights make of the drift's columns (N, q), and testimony (N, p) as `what_they_measured` gives it, or (N, 0) where it
    is not asked for."""

    mean: Tensor
    variance: Tensor
    features: Tensor
    leaning: Tensor
    testimony: Tensor

    def moved(self, change: Tensor) -> "Surroundings":
        """With another mean of r: this one and a change (N,)."""
        mean = self.mean + change
        return replace(self, mean=mean, features=torch.cat([mean[:, None], self.features[:, 1:]], dim=1))


def survey(
    kernel: LocalKernel,
    seen: Observations,
    X_new: Tensor,
    index: Tensor,
    *,
    spacing: float,
    latest: float,
    columns: Tensor | None = None,
    degrees_of_freedom: float | None = None,
    in_detail: bool = False,
) -> Surroundings:
    """Local GP moments at X_new, and a summary of the observations they rest on.

    Parameters
    ----------
    kernel : of r
    seen : all observations
    X_new : (N, D)
    index : (N, k) rows of `seen` to condition on, -1 for none
    spacing : typical distance between neighbouring places
    latest : time of the newest observation; places after it have a time gap
    columns : (n, q) of the drift at the observations, or None
    degrees_of_freedom : of the observations, None for Gaussian ones
    in_detail : with what they measured one by one

    Returns
    -------
    Surroundings: besides the moments of r, the local GP's mean of log counts ("busyness"), the log ratio of
    the observed to the expected squared deviation ("spread"), the mean signed deviation ("lean"), the summed
    weights, the log counts close by ("near busyness"), distances to the first and the ninth neighbour, and the
    time since the newest observation.

    Notes
    -----
    O(N k³) time; memory does not grow with N beyond the result.

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> one = torch.ones(1).double()
    >>> seen = Observations(torch.zeros(1, 2).double(), one, one, one)
    >>> here = survey(kernel, seen, seen.X, torch.tensor([[0]]), spacing=1.0, latest=0.0)
    >>> here.mean, here.features.shape
    (tensor([0.5000], dtype=torch.float64), torch.Size([1, 10]))
    """
    busyness = seen.counts.log()
    busyness = busyness - busyness.mean()
    values = torch.stack([seen.value, busyness], dim=-1)
    columns = seen.value.new_zeros(len(seen), 0) if columns is None else columns
    pieces = []
    chunk = PLACES_AT_ONCE if X_new.device.type == "cpu" else PLACES_AT_ONCE_ON_DEVICE
    for start in range(0, len(X_new), chunk):
        x, i = X_new[start : start + chunk], index[start : start + chunk]
        c = conditional_moments(kernel, x, seen.X, values, seen.noise_variance, i, degrees_of_freedom)
        spread, lean, total = _deviations(c, seen, i, kernel.prior_variance)
        rows = i.clamp_min(0)
        leaning = (c.weights * (i >= 0))[:, None, :] @ columns[rows]
        near = seen.X[rows]
        distance = torch.linalg.vector_norm(near[..., :2] - x[:, None, :2], dim=-1) / spacing
        busy_near = _busyness_close_by(distance, busyness, i)
        first, ninth = _log_distances(distance, i)
        t = kernel.time_axis
        gap = torch.zeros_like(first) if t is None else (x[:, t] - latest).clamp_min(0.0)
        mean, busy = c.mean.unbind(-1)
        said = mean.new_zeros(len(mean), 0)
        if in_detail:
            known = 1.0 - (c.variance / kernel.prior_at(x)).clamp(0.0, 1.0)
            age = torch.zeros_like(distance) if t is None else (x[:, None, t] - near[..., t]).abs()
            said = what_they_measured(seen, i, mean, known, distance, age)
        features = [
            mean,
            c.variance,
            busy,
            spread.log(),
            lean,
            torch.log(total + 1e-3),
            busy_near,
            first,
            ninth,
            gap,
        ]
        pieces.append(Surroundings(mean, c.variance, torch.stack(features, dim=-1), leaning[:, 0], said))
    if not pieces:
        nobody = X_new.new_zeros(0)
        widths = len(NAMES), columns.shape[1], SAID if in_detail else 0
        return Surroundings(nobody, nobody, *(X_new.new_zeros(0, m) for m in widths))
    return Surroundings.together(pieces)


def what_they_measured(
    seen: Observations, index: Tensor, mean: Tensor, known: Tensor, distance: Tensor, age: Tensor
) -> Tensor:
    """What the neighbours measured, less the mean at the place: (B, p). A linear prediction is the same whatever they
    agree or disagree on; this is where rare, skewed and short-lived values show.

    Parameters
    ----------
    index : (B, k) rows of `seen`, -1 for none
    mean, known : (B,) of r, and the share of its prior variance that the neighbours take away
    distance, age : (B, k) to the neighbours, in spacings and units of time

    Returns
    -------
    means, log weights and spreads at every range and time; of the place's own history its mean, weight, length,
    recent mean, recent weight and spread; quantiles of the nearest. All tend to constants far from data.

    References
    ----------
    Sekulić, Kilibarda, Heuvelink, Nikolić and Bajat 2020, Random forest spatial interpolation
    """
    rows, there = index.clamp_min(0), (index >= 0).to(mean.dtype)
    # Where no neighbour is, its value counts as the mean, its weight as none and its distance as far.
    value = (seen.value[rows] - mean[:, None]) * there
    weight = there * typical_precision(seen.counts[rows])
    distance = torch.where(index >= 0, distance.clamp_max(FAR), torch.full_like(distance, FAR))
    recent = [torch.exp(-age / span) for span in TIMES]
    out: list[Tensor] = []
    for reach in RANGES:
        near = weight * torch.exp(-distance / reach)
        for lasting in recent:
            out += _mean_weight_spread(value, near * lasting)
    own = weight * (distance < SAME)
    m, w, spread = _mean_weight_spread(value, own)
    lately, weight_lately, _ = _mean_weight_spread(value, own * recent[0])
    out += [m, w, torch.log((own > 0).to(own.dtype).sum(-1) + 0.5), lately, weight_lately, spread]
    nearest = (distance + 1e-3 * age).argsort(-1)[:, :NEAREST]
    shares = torch.tensor(SHARES, dtype=value.dtype, device=value.device)
    quantiles = torch.quantile(value.gather(1, nearest), shares, dim=1) * known
    return torch.cat([torch.stack(out, dim=-1), quantiles.mT], dim=1)


def _mean_weight_spread(value: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of deviations (B, k), each (B,): held to 0, on a log scale, and held to log 1."""
    total = weight.sum(-1)
    mean = (weight * value).sum(-1) / (total + HOLD)
    spread = ((weight * (value - mean[:, None]).square()).sum(-1) + HOLD) / (total + HOLD)
    return mean, torch.log(total + HOLD), torch.log(spread)


def _deviations(
    c: Conditional, seen: Observations, index: Tensor, prior_variance: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Spread and lean of the neighbours about the mean, in units of what is expected, and their summed weight: (B,)."""
    rows = index.clamp_min(0)
    expected = seen.noise_variance[rows] + 0.3
    weight = c.covariance / prior_variance / expected
    total = weight.sum(-1)
    deviation = (seen.value[rows] - c.mean[:, :1]) / expected.sqrt()
    # Half a tenth of a pseudo-observation that agrees with expectation keeps both defined without neighbours.
    spread = ((weight * deviation.square()).sum(-1) + 0.05) / (total + 0.05)
    return spread, (weight * deviation).sum(-1) / (total + 0.05), total


def _busyness_close_by(distance: Tensor, busyness: Tensor, index: Tensor) -> Tensor:
    """Mean log count of the neighbours within a few spacings, 0 for the typical count: (B,)."""
    close = (index >= 0).to(distance.dtype) * torch.exp(-distance / 3.5)
    return (close * busyness[index.clamp_min(0)]).sum(-1) / (close.sum(-1) + 0.1)


def _log_distances(distance: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """log(1 + distance) to the first and the ninth neighbour: (B,) each."""
    found = torch.where(index >= 0, distance.clamp_max(FAR), torch.full_like(distance, FAR)).sort(-1).values
    return torch.log1p(found[:, 0]), torch.log1p(found[:, min(8, found.shape[1] - 1)])


def count_features(counts: Tensor) -> Tensor:
    """(N, 2): log n and n^(-1/2), through which noise and count shift may depend on the count."""
    return torch.stack([counts.log(), counts.rsqrt()], dim=-1)

"""The level over time: a line while there is evidence for one, and how far it may drift beyond the data."""

from dataclasses import dataclass

import torch
from torch import Tensor

from geogp.holdout import PERIODS

#: Fewer distinct periods than this say nothing trustworthy about a slope.
SLOPE_FROM = 4


@dataclass(frozen=True)
class Trend:
    """level + slope · t, t in the time unit of the coordinates.

    drift : variance gained per unit of time beyond the newest data (a random walk of the level)
    slope_variance : of the slope; its square root times the gap is how far the line may miss
    """

    level: float
    slope: float = 0.0
    drift: float = 0.0
    slope_variance: float = 0.0

    def __call__(self, C: Tensor) -> Tensor:
        """(N,) at coordinates C (N, 2), or (N, 3) with time last."""
        level = torch.full((len(C),), self.level, dtype=C.dtype)
        return level if C.shape[1] < 3 else level + self.slope * C[:, 2]

    def extra_variance(self, gap: Tensor) -> Tensor:
        """(N,) variance of the level a time `gap` (N,) beyond what the data cover."""
        return self.drift * gap + self.slope_variance * gap.square()


def fit_trend(time: Tensor | None, y: Tensor, weight: Tensor) -> Trend:
    """Weighted least squares; the drift from the changes between successive periods' means.

    Examples
    --------
    >>> t = torch.arange(8.0).double()
    >>> round(fit_trend(t, 1 + 2 * t, torch.ones(8).double()).slope, 6)
    2.0
    """
    total = weight.sum()
    mean = float((weight * y).sum() / total)
    if time is None:
        return Trend(mean)
    moments, period = torch.unique(time, return_inverse=True)
    if len(moments) > 2 * PERIODS:
        edges = torch.linspace(float(moments[0]), float(moments[-1]), PERIODS + 1, dtype=time.dtype)[1:-1]
        period = torch.bucketize(time, edges)
        moments, period = torch.unique(period, return_inverse=True)
    mass = torch.zeros(len(moments), dtype=y.dtype).index_add(0, period, weight)
    center = torch.zeros_like(mass).index_add(0, period, weight * time) / mass
    level = torch.zeros_like(mass).index_add(0, period, weight * y) / mass
    if len(center) < 2:
        return Trend(mean)
    step = center.diff()
    if len(center) < SLOPE_FROM:
        change = float((level.diff() / step).square().mean())
        return Trend(mean, drift=float((level.diff().square() / step).mean()), slope_variance=change)
    middle = float((weight * time).sum() / total)
    slope = float((weight * (time - middle) * y).sum() / (weight * (time - middle).square()).sum())
    rest = level - mean - slope * (center - middle)
    drift = float((rest.diff().square() / step).mean())
    spread = float((center - center.mean()).square().sum())
    slope_variance = float(rest.square().sum() / (len(center) - 2) / spread)
    return Trend(mean - slope * middle, slope, drift, slope_variance)

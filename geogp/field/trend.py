"""The mean over time: a line while there is evidence for one, and how far it may drift beyond the data."""

from dataclasses import dataclass

import torch
from torch import Tensor

from geogp.holdout import PERIODS

#: Fewer distinct periods than this say nothing trustworthy about a slope.
SLOPE_FROM = 4


@dataclass(frozen=True)
class Trend:
    """intercept + slope · t, t in the time unit of the coordinates.

    drift : variance gained per unit of time beyond the newest data (a random walk of the mean)
    slope_variance : of the slope; its square root times the gap is how far the line may miss
    """

    intercept: float
    slope: float = 0.0
    drift: float = 0.0
    slope_variance: float = 0.0

    def __call__(self, C: Tensor) -> Tensor:
        """(N,) at coordinates C (N, 2), or (N, 3) with time last."""
        intercept = torch.full((len(C),), self.intercept, dtype=C.dtype)
        return intercept if C.shape[1] < 3 else intercept + self.slope * C[:, 2]

    def extra_variance(self, gap: Tensor) -> Tensor:
        """(N,) variance of the mean a time `gap` (N,) beyond what the data cover."""
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
    when, means = _period_means(time, y, weight)
    if len(when) < 2:
        return Trend(mean)
    step = when.diff()
    if len(when) < SLOPE_FROM:
        change = float((means.diff() / step).square().mean())
        return Trend(mean, drift=float((means.diff().square() / step).mean()), slope_variance=change)
    middle = float((weight * time).sum() / total)
    slope = float((weight * (time - middle) * y).sum() / (weight * (time - middle).square()).sum())
    rest = means - mean - slope * (when - middle)
    drift = float((rest.diff().square() / step).mean())
    spread = float((when - when.mean()).square().sum())
    slope_variance = float(rest.square().sum() / (len(when) - 2) / spread)
    return Trend(mean - slope * middle, slope, drift, slope_variance)


def _period_means(time: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean time and value (P,) of each distinct time, or of each of `PERIODS` where times are many."""
    moments, period = torch.unique(time, return_inverse=True)
    if len(moments) > 2 * PERIODS:
        edges = torch.linspace(float(moments[0]), float(moments[-1]), PERIODS + 1, dtype=time.dtype)[1:-1]
        moments, period = torch.unique(torch.bucketize(time, edges), return_inverse=True)
    mass = torch.zeros(len(moments), dtype=y.dtype).index_add(0, period, weight)
    when = torch.zeros_like(mass).index_add(0, period, weight * time) / mass
    return when, torch.zeros_like(mass).index_add(0, period, weight * y) / mass

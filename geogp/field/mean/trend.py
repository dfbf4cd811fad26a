"""The mean over time: a line while there is evidence for one, levelling off beyond the data, and its doubt there."""

from dataclasses import dataclass

import torch
from torch import Tensor

from geogp.holdout import PERIODS

#: Fewer distinct periods than this say nothing trustworthy about a slope.
SLOPE_FROM = 4
#: Share of the mean squared change of fewer that is left to a slope nobody fitted.
FEW = 0.25
#: Of what levelling off takes from a line beyond the data so much is one sd: it may as well go on.
DOUBTED = 0.6


@dataclass(frozen=True)
class Trend:
    """intercept + slope · t, t in the time unit of the coordinates; beyond the data the line levels off:

        t -> T + τ (1 - exp(-(t - T) / τ)),   T the newest time and τ the span of the data,

    and in the same way before the oldest, T - τ.

    drift : variance gained per unit of time beyond the data (a random walk of the mean)
    slope_variance : of the slope; its square root times the gap is how far the line may miss
    newest, span : T and τ; None for a line that goes on for ever

    References
    ----------
    Gardner and McKenzie 1985, Forecasting trends in time series (damped trends)
    """

    intercept: float
    slope: float = 0.0
    drift: float = 0.0
    slope_variance: float = 0.0
    newest: float | None = None
    span: float | None = None

    def __call__(self, time: Tensor | None, n: int) -> Tensor:
        """(n,) at times (n,), or without any."""
        intercept = torch.full((n,), self.intercept, dtype=torch.float64)
        return intercept if time is None else intercept + self.slope * self.levelled(time)

    def levelled(self, time: Tensor) -> Tensor:
        """(N,) the times at which the line is read."""
        if self.newest is None or not self.span:
            return time
        inside = time.clamp(self.newest - self.span, self.newest)
        beyond = time - inside
        return inside + self.span * beyond.sign() * -torch.expm1(-beyond.abs() / self.span)

    def extra_variance(self, gap: Tensor) -> Tensor:
        """(N,) variance of the mean a time `gap` (N,) beyond what the data cover."""
        return self.drift * gap + self.slope_variance * gap.square()

    def doubt(self, time: Tensor, since: float) -> Tensor:
        """(N,) variance at times (N,) of a line that levels off, where it may go on: of what that takes away after `since`, or before."""
        taken = (time - self.levelled(time)).abs()
        known = abs(since - float(self.levelled(torch.tensor(since, dtype=time.dtype))))
        return (DOUBTED * self.slope * (taken - known).clamp_min(0.0)).square()


def fit_trend(time: Tensor | None, y: Tensor, weight: Tensor, taken: int = 0) -> Trend:
    """Weighted least squares; the drift from the changes between successive periods' means, of which weights of a season have
    `taken` some.

    Examples
    --------
    >>> t = torch.arange(8.0).double()
    >>> trend = fit_trend(t, 1 + 2 * t, torch.ones(8).double())
    >>> round(trend.slope, 6)
    2.0
    >>> trend(torch.tensor([7.0, 8.0, 700.0]), 3).round(decimals=2).tolist()  # 15, nearly 17, and never 29
    [15.0, 16.86, 29.0]
    """
    total = weight.sum()
    mean = float((weight * y).sum() / total)
    if time is None:
        return Trend(mean)
    when, means = _period_means(time, y, weight)
    if len(when) < 2:
        return Trend(mean)
    step = when.diff()
    newest, span = float(time.max()), float(time.max() - time.min())
    if len(when) < SLOPE_FROM:
        # The same few differences speak of a walk and of a line: the walk has them, the line a quarter of them.
        change = FEW * float((means.diff() / step).square().mean())
        return Trend(mean, drift=float((means.diff().square() / step).mean()), slope_variance=change)
    middle = float((weight * time).sum() / total)
    slope = float((weight * (time - middle) * y).sum() / (weight * (time - middle).square()).sum())
    rest = means - mean - slope * (when - middle)
    free = max(len(when) - 2 - taken, 1)
    drift = (
        float((rest.diff().square() / step).sum()) / (free + 1) / _of_means(len(time.unique()) / len(when))
    )
    spread = float((when - when.mean()).square().sum())
    slope_variance = float(rest.square().sum() / free / spread)
    return Trend(mean - slope * middle, slope, drift, slope_variance, newest, span)


def _of_means(k: float) -> float:
    """Squared change of means of k times each of a walk, over that of the walk itself in as long: 1 of one time, 2/3 of many."""
    return (2.0 * k * k + 1.0) / (3.0 * k * k)


def _period_means(time: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean time and value (P,) of each distinct time, or of each of `PERIODS` where times are many."""
    moments, period = torch.unique(time, return_inverse=True)
    if len(moments) > 2 * PERIODS:
        edges = torch.linspace(float(moments[0]), float(moments[-1]), PERIODS + 1, dtype=time.dtype)[1:-1]
        moments, period = torch.unique(torch.bucketize(time.contiguous(), edges), return_inverse=True)
    mass = torch.zeros(len(moments), dtype=y.dtype).index_add(0, period, weight)
    when = torch.zeros_like(mass).index_add(0, period, weight * time) / mass
    return when, torch.zeros_like(mass).index_add(0, period, weight * y) / mass

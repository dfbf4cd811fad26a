"""The metric in which a field is as rough in one direction as in another: distances, spacings and blocks follow it."""

import math

import numpy as np
import torch
from torch import Tensor

from geogp.field.earlier import earlier, nearest
from geogp.field.frame import ISOTROPIC
from geogp.field.kernel import LocalKernel
from geogp.field.likelihood.conditional import conditional_log_density
from geogp.field.likelihood.sketch import ANCESTORS, descend, total
from geogp.field.noise.least import least
from geogp.holdout import spacing

#: Fewer rows say too little about two more numbers; more than the second add nothing but time.
METRIC_FROM, SAMPLE = 50, 3000
STEPS, ROUNDS = 40, 2
#: Fewer rows are taken all at once, in so many passes or until one gains no more than such a share, numbers going so far at most; that
#: magnifies the last digits of values, and none of these are left in the metric.
ALL_BELOW, PASSES, ENOUGH, FARTHEST, DIGITS = 500, 15, 1e-5, 6.0, 3
#: Logarithms of lengthscale in spacings, variance and noise variance that a fit starts from.
START = torch.tensor([10.0, 0.7, 0.3], dtype=torch.float64).log()
#: Rate of the exponential prior on the log of the square root of the ratio of axes: isotropy is the simple case.
SIMPLE = 2.0
#: Lengthscale in spacings that few rows must have in a metric: directions of less are those of a few pairs of neighbours.
LONG = 3.0
#: Total log likelihood, of the sample, that a metric must gain; of rows that are taken all at once, which leave no steps to chance.
GAIN, GAIN_OF_ALL = 20.0, 5.0
#: Places so many times as far spread along one axis as along the other may have axes in different units: the metric in which
#: they are spread alike is tried, too; few rows are enough to tell it, by as much.
SLENDER, SLENDER_FROM, SLENDER_GAIN = 30.0, 50, 4.0

Metric = tuple[float, float, float, float]


def learned_metric(P: Tensor, y: Tensor, seed: int = 0) -> Metric:
    """A symmetric matrix M of determinant 1, row by row, such that y at P M' is nearest to isotropic.

    Parameters
    ----------
    P, y : (N, 2) places in one unit, (N,) values less their trends

    Notes
    -----
    Vecchia likelihood of an exponential covariance with M = exp([[a, b], [b, -a]]) on up to 3,000 of the rows, about
    a second whatever N, of fewer than 500 some tenths of one; isotropic where rows are few or the likelihood gains nothing.

    References
    ----------
    Fuglstad, Simpson, Lindgren and Rue 2019, Constructing priors that penalize the complexity of Gaussian random
    fields (the prior is of their kind)

    Examples
    --------
    >>> P = torch.rand(600, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> y = torch.sin(40 * P[:, 0]) + torch.sin(4 * P[:, 1])
    >>> a, b, c, d = learned_metric(P, y)
    >>> a > 1.2 * d and b == c
    True
    """
    slender = _slender(P) if len(P) >= SLENDER_FROM else 0.0
    if len(P) < (SLENDER_FROM if slender else METRIC_FROM):
        return ISOTROPIC
    pick = np.random.default_rng(seed).permutation(len(P))[:SAMPLE]
    P, y = P[pick].double(), y[pick].double()
    P = (P - P.mean(0)) / spacing(P.numpy())
    y = (y - y.mean()) / y.std().clamp_min(1e-300)
    straight = _Fit(y, seed, bends=False)
    straight.improve(P)
    bends = [_Fit(y, seed, bends=True, start=straight.numbers)] if len(P) >= METRIC_FROM else []
    for fit in bends * ROUNDS + [straight]:
        fit.improve(P)
    if slender:
        alike = _Fit(y, seed, bends=False, shape=(slender, 0.0))
        alike.improve(P)
        bends += [_Fit(y, seed, bends=True, start=alike.numbers, shape=(slender, 0.0)), alike]
        for fit in bends[-2:] * ROUNDS:
            fit.improve(P)
    if len(P) < ALL_BELOW and not slender and float(bends[0].numbers[0].detach()) < math.log(LONG):
        return ISOTROPIC
    gains = [bent.log_likelihood(P) - straight.log_likelihood(P) for bent in bends]
    least = SLENDER_GAIN if slender else GAIN_OF_ALL if len(P) < ALL_BELOW else GAIN
    if max(gains) < least:
        return ISOTROPIC
    a, b, c, d = bends[int(np.argmax(gains))].metric().detach().ravel().tolist()
    return a, b, c, d


def _slender(P: Tensor) -> float:
    """The first number of the metric in which places are spread alike along both axes; 0 where they nearly are, or lie on a line."""
    spread = P.double().std(dim=0)
    if not bool((spread > 0.0).all()):
        return 0.0
    ratio = float(spread[1].log() - spread[0].log())
    return 0.5 * ratio if abs(ratio) > math.log(SLENDER) else 0.0


class _Fit:
    """An exponential covariance of y (m,) in a metric that is learned, or stays."""

    def __init__(
        self,
        y: Tensor,
        seed: int,
        *,
        bends: bool,
        start: Tensor = START,
        shape: tuple[float, float] = (0.0, 0.0),
    ):
        self.y, self.generator = y, torch.Generator().manual_seed(seed)
        self.shape = torch.tensor(shape, dtype=torch.float64, requires_grad=bends)
        self.numbers = start.detach().clone().requires_grad_()
        self.bends = bends

    def metric(self) -> Tensor:
        """exp of a symmetric traceless matrix, (2, 2)."""
        a, b = self.shape
        r = (a.square() + b.square() + 1e-12).sqrt()
        straight = torch.stack([torch.stack([a, b]), torch.stack([b, -a])])
        return torch.cosh(r) * torch.eye(2, dtype=r.dtype) + torch.sinh(r) / r * straight

    def improve(self, P: Tensor) -> None:
        """Some steps, with the neighbours of the present metric."""
        before = self._before(P)

        def loss(rows: Tensor) -> Tensor:
            simple = SIMPLE * (self.shape.square().sum() + 1e-12).sqrt() / len(P)
            return simple - self._density(P, rows, before[rows]).mean()

        if len(P) >= ALL_BELOW:
            parameters = [self.numbers, self.shape] if self.bends else [self.numbers]
            descend(loss, parameters, n=len(P), steps=STEPS, generator=self.generator)
            return
        numbers, shape, every = self.numbers.detach(), self.shape.detach(), torch.arange(len(P))
        n, bent = len(numbers), len(shape) if self.bends else 0

        def away(at: Tensor) -> Tensor:
            self.numbers, self.shape = numbers + at[:n], shape + at[n:] if bent else shape
            return len(P) * loss(every)

        with torch.enable_grad():
            at = least(away, n + bent, [(-FARTHEST, FARTHEST)] * (n + bent), steps=PASSES, enough=ENOUGH)
        self.numbers = numbers + at[:n]
        self.shape = (shape + at[n:] if bent else shape).round(decimals=DIGITS)

    def log_likelihood(self, P: Tensor) -> float:
        """Of all rows."""
        before = self._before(P)
        return total(lambda rows: self._density(P, rows, before[rows]), len(P))

    def _before(self, P: Tensor) -> Tensor:
        Q = (P @ self.metric().detach().T).numpy()
        return torch.from_numpy(earlier(Q, ANCESTORS, nearest))

    def _density(self, P: Tensor, rows: Tensor, before: Tensor) -> Tensor:
        length, variance, noise = self.numbers
        kernel = LocalKernel(length.expand(1, 2), variance[None], ("matern12",))
        return conditional_log_density(
            kernel, P @ self.metric().T, self.y, noise.exp().expand(len(P)), rows, before
        )

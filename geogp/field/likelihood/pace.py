"""How fast a field changes: the time over which it changes as much as over a unit of space. Who is near follows from it."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.field.earlier import earlier, nearest
from geogp.field.kernel import LocalKernel
from geogp.field.likelihood.conditional import conditional_log_density
from geogp.field.likelihood.sketch import ANCESTORS, descend, total
from geogp.holdout import PERIODS
from geogp.linalg.distinct import distinct

#: So few distinct times, of so many rows at most, lie near each other in any case: neighbours reach them all.
FEW_TIMES, ASKED = 2 * PERIODS, 10_000
#: Fewer rows say too little; rows that are looked at together, about so many places of them at least, and in how many pieces.
PACE_FROM, ROWS, PLACES, PIECES = 500, 1000, 30, 3
STEPS, ROUNDS = 60, 6
#: Logarithms of lengthscale in space and in time, variance and noise variance that a fit starts from.
START = torch.tensor([3.0, 3.0, 0.7, 0.3], dtype=torch.float64).log()
#: Total log likelihood, of the rows looked at, that another pace must gain, and the pace that is another.
GAIN, ANOTHER = 20.0, 0.5


def learned_pace(C: Tensor, y: Tensor, seed: int = 0) -> float:
    """Share of a unit of time over which y changes as much as over a unit of space, 1 where that is not surely less than half.

    Parameters
    ----------
    C, y : (N, 3) places and time, (N,) values less their trends

    Notes
    -----
    Vecchia likelihood of a covariance that is exponential in space and in time, on up to 3,000 of the rows: those of about 30
    places that lie together, at times that lie together, in three parts of the map. The neighbours of each round are those
    of the pace that the one before found. About two seconds whatever N; nothing where times are few, as of quarters.

    References
    ----------
    Vecchia 1988; Cressie and Huang 1999, Classes of nonseparable, spatio-temporal stationary covariance functions (of which this
    is the separable case)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> place, time = np.meshgrid(np.arange(20.0), np.arange(80.0))
    >>> C = np.stack([place.ravel(), 0 * place.ravel(), time.ravel()], axis=1)
    >>> y = np.repeat(rng.normal(size=80), 20) + 0.1 * rng.normal(size=1600)  # another value each day, everywhere
    >>> learned_pace(torch.from_numpy(C), torch.from_numpy(y)) < 0.2
    True
    """
    if len(C) < PACE_FROM:
        return 1.0
    rng = np.random.default_rng(seed)
    some = C[:, 2].numpy() if len(C) <= ASKED else C[rng.integers(0, len(C), ASKED), 2].numpy()
    if len(np.unique(some)) <= FEW_TIMES:
        return 1.0
    rows = torch.from_numpy(_together(C.numpy(), rng))
    C, y = C[rows].double(), y[rows].double()
    y = (y - y.mean()) / y.std().clamp_min(1e-300)
    usual = _Fit(C, y, 1.0, START, seed)
    found = usual
    for _ in range(ROUNDS):
        found = _Fit(C, y, min(1.0, found.learned), found.numbers.detach(), seed)
    if found.pace > ANOTHER or found.log_likelihood() - usual.log_likelihood() < GAIN:
        return 1.0
    return found.pace


def _together(C: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows that lie near each other in space and in time, in some parts of the map, in no order."""
    places, at = distinct(C[:, :2])
    many = np.bincount(at)
    chosen = []
    for centre in places[rng.permutation(len(places))[:PIECES]]:
        closest = np.argsort(np.square(places - centre).sum(axis=1), kind="stable")
        n = max(PLACES, 1 + int(np.searchsorted(np.cumsum(many[closest]), ROWS)))
        rows = np.flatnonzero(np.isin(at, closest[:n]))
        moment = C[rng.choice(rows), 2]
        chosen.append(rows[np.argsort(np.abs(C[rows, 2] - moment), kind="stable")[:ROWS]])
    return rng.permutation(np.unique(np.concatenate(chosen)))


class _Fit:
    """A covariance of y (m,) at C (m, 3), each row given earlier ones that are near at a pace."""

    def __init__(self, C: Tensor, y: Tensor, pace: float, start: Tensor, seed: int):
        self.C, self.y, self.pace = C, y, pace
        self.before = torch.from_numpy(
            earlier((C * torch.tensor([1.0, 1.0, 1.0 / pace])).numpy(), ANCESTORS, nearest)
        )
        self.numbers = start.clone().requires_grad_()
        descend(
            lambda rows: -self._density(rows).mean(),
            [self.numbers],
            n=len(C),
            steps=STEPS,
            generator=torch.Generator().manual_seed(seed),
        )

    @property
    def learned(self) -> float:
        """The length in time over that in space."""
        space, time, *_ = self.numbers.detach().exp().tolist()
        return time / space

    def log_likelihood(self) -> float:
        """Of all rows."""
        return total(self._density, len(self.C))

    def _density(self, rows: Tensor) -> Tensor:
        space, time, variance, noise = self.numbers
        lengths = torch.stack([space, space, time])[None]
        kernel = LocalKernel(lengths, variance[None], ("matern12",), 2)
        return conditional_log_density(
            kernel, self.C, self.y, noise.exp().expand(len(self.C)), rows, self.before[rows]
        )

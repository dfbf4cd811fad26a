"""What comes back each year: waves over time, where the means of the times surely show them."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import fdtrc
from torch import Tensor

from geogp.field.student import left_open
from geogp.linalg.distinct import distinct

Array = NDArray[np.float64]

#: Chance passes for waves in this share of tables.
SURELY = 1e-2
#: The period that is asked for by default, and how long it is where times are numbers of months, weeks or days.
YEAR, YEARS = "year", (12.0, 365.2425 / 7, 365.2425)
#: Whole numbers between these are years themselves.
COUNTED_AS_YEARS = (1500.0, 2200.0)
#: Times of a period that are told apart, of all periods together at most so many; fewer than the last leave nothing to tell by.
A_PERIOD, MOST_TIMES, SPARE = 24, 1500, 3
#: Waves: how often they come in a period, and quarters of their own by which they are late.
WAVES = ((1, 0), (1, 1), (2, 0), (2, 1))
#: A wave is another than those before if they leave so much of its length.
ANOTHER = 0.1
#: Variance that the mean gains from time to time as it walks, in those by which each mean errs by itself; which of these are heard:
#: those that are by so many nats less likely than the likeliest.
WALKS, LESS_LIKELY = (0.0, 0.1, 1.0, 10.0, 100.0, 1000.0), 2.0
#: Rounds in which places and times take turns to explain.
ROUNDS = 20


@dataclass(frozen=True)
class Season:
    """Waves cos(2π k (t − origin) / period − s π / 2) for each of the `waves` (k, s).

    axis : the column with time; period, origin : in its unit
    doubt : (w, w) covariance of the waves' heights by what the means of the times err, which all rows of a time err together

    References
    ----------
    Harvey 1989, Forecasting, Structural Time Series Models and the Kalman Filter, section 2.3.4 (trigonometric seasons); Harville 1974
    (restricted likelihood)

    Examples
    --------
    >>> quarters = torch.tensor([[0.125], [0.375], [0.625], [0.875]])
    >>> Season(0, 1.0, 0.125, ((1, 0), (1, 1)))(quarters).round().int().tolist()
    [[1, 0], [0, 1], [-1, 0], [0, -1]]
    """

    axis: int
    period: float
    origin: float
    waves: tuple[tuple[int, int], ...]
    doubt: tuple[tuple[float, ...], ...] = ()

    def __call__(self, C: Float[Tensor, "N D"]) -> Float[Tensor, "N w"]:
        """The waves at rows C."""
        return self.at(C[:, self.axis])

    def at(self, time: Float[Tensor, " N"]) -> Float[Tensor, "N w"]:
        """The waves at times."""
        turns = (time - self.origin) / self.period
        return torch.stack([torch.cos(2 * np.pi * (k * turns - s / 4)) for k, s in self.waves], dim=1)

    def measured_in(self, axis: int, origin: float, unit: float) -> "Season":
        """The same of rows whose column `axis` is (t − origin) / unit."""
        return replace(self, axis=axis, period=self.period / unit, origin=(self.origin - origin) / unit)

    def fitted(self, C: Float[Tensor, "n D"], y: Float[Tensor, " n"], weight: Float[Tensor, " n"]) -> Tensor:
        """What the waves say of (n,) weighted values y at rows C, least squares of them and a line over time."""
        time = C[:, self.axis]
        phi = torch.cat([torch.stack([torch.ones_like(y), time - time.mean()], dim=1), self.at(time)], dim=1)
        root = weight.sqrt()
        w = torch.linalg.lstsq(phi * root[:, None], (root * y)[:, None], driver="gelsd").solution[:, 0]
        return phi[:, 2:] @ w[2:]


def season_of(
    X: Float[Tensor, "n D"],
    y: Float[Tensor, " n"],
    weight: Float[Tensor, " n"],
    space: tuple[int, ...],
    time: int | None,
    period: float | str | None,
) -> Season | None:
    """The waves of a period in (n,) weighted values y at rows X, None where they do not surely show.

    They are asked of the means of the times, less what is the places' own where these are seen again: an F test beside a line,
    whatever part of the rest is a walk and what errs each time anew, as far as they bear that out. At least two periods, and times in different parts of them. A
    `YEAR` is 1, or where times are whole numbers that are no years themselves that of months, weeks or days which shows most.

    Notes
    -----
    O(n + T³) for T times, 24 a period and 1,500 in all at most.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = torch.from_numpy(np.stack([rng.random(600), rng.random(600), 2020 + rng.integers(0, 12, 600) / 4], axis=1))
    >>> warm, noise = torch.sin(2 * np.pi * X[:, 2]), torch.from_numpy(rng.normal(size=600))
    >>> one = torch.ones(600, dtype=torch.float64)
    >>> season_of(X, warm + noise, one, (0, 1), 2, 1.0).waves
    ((1, 0), (1, 1), (2, 0))
    >>> season_of(X, noise, one, (0, 1), 2, 1.0) is None
    True
    >>> months = torch.cat([X[:, :2], 12 * (X[:, 2:] - 2020)], dim=1)
    >>> season_of(months, warm + noise, one, (0, 1), 2, "year").period
    12.0
    """
    if time is None or not period:
        return None
    periods = years_of(X[:, time].numpy()) if isinstance(period, str) else (period,)
    found = [_of_period(X, y, weight, space, time, each) for each in periods]
    sure = [one for one in found if one is not None and one[0] <= SURELY / len(periods)]
    return min(sure, key=lambda one: one[0])[1] if sure else None


def years_of(when: Array) -> tuple[float, ...]:
    """How long a year may be where these are times (n,).

    Examples
    --------
    >>> years_of(np.array([2019.25, 2023.5])), years_of(np.array([1999.0, 2023.0])), years_of(np.array([1.0, 48.0]))
    ((1.0,), (1.0,), (12.0, 52.1775, 365.2425))
    """
    low, high = COUNTED_AS_YEARS
    if (when != np.round(when)).any() or (low <= when.min() and when.max() <= high):
        return (1.0,)
    return YEARS


def _of_period(
    X: Tensor, y: Tensor, weight: Tensor, space: tuple[int, ...], time: int, period: float
) -> tuple[float, Season] | None:
    """The waves of a period, and the share of tables in which chance passes for them; None where nothing can be told."""
    when = X[:, time].numpy()
    first, last = float(when.min()), float(when.max())
    periods = (last - first) / period
    a_period = min(A_PERIOD, int(MOST_TIMES / max(periods, 1.0)))
    if a_period < 2:
        return None
    at = np.unique(np.floor((when - first) / period * a_period + 0.5), return_inverse=True)[1]
    mass = np.bincount(at, weight.numpy())
    moments = np.bincount(at, weight.numpy() * when) / mass
    # From the first to the last there is a step less than there are times.
    if periods * len(moments) / max(len(moments) - 1, 1) < 2.0 - 1e-6:
        return None
    season = Season(time, period, first, WAVES)
    line = np.stack([np.ones(len(moments)), (moments - first) / max(last - first, 1e-300)], axis=1)
    waves = season.at(torch.from_numpy(moments)).numpy()
    kept = _independent(waves)
    if not kept or len(moments) < 2 + len(kept) + SPARE:
        return None
    means = _means(distinct(X[:, list(space)].numpy())[1], at, y.numpy(), weight.numpy())
    chance = _chance(line, waves[:, kept], means, mass.mean() / mass)
    both = np.concatenate([line, waves[:, kept]], axis=1)
    error = _left(both, means) / len(means) * left_open(len(means), both.shape[1])
    doubt = error * np.linalg.inv(both.T @ both)[2:, 2:]
    return chance, replace(
        season, waves=tuple(WAVES[k] for k in kept), doubt=tuple(map(tuple, doubt.tolist()))
    )


def _independent(waves: Array) -> list[int]:
    """Which of the columns are neither constant nor made of those before."""
    basis, kept = [np.full(len(waves), len(waves) ** -0.5)], []
    for k, wave in enumerate(waves.T):
        left = wave - sum(b * (b @ wave) for b in basis)
        if np.linalg.norm(left) > ANOTHER * np.sqrt(len(wave)):
            kept.append(k)
            basis.append(left / np.linalg.norm(left))
    return kept


def _means(place: NDArray[np.int64], at: NDArray[np.int64], y: Array, weight: Array) -> Array:
    """(T,) of the times, less what is the places' own where most of these are seen at several."""
    total = np.bincount(at, weight)
    of_a_place = np.bincount(place, weight)
    means = np.bincount(at, weight * y) / total
    if 2 * len(of_a_place) > len(y):
        return means
    for _ in range(ROUNDS):
        own = np.bincount(place, weight * (y - means[at])) / of_a_place
        means = np.bincount(at, weight * (y - own[place])) / total
    return means


def _chance(line: Array, waves: Array, means: Array, error: Array) -> float:
    """In which share of tables chance explains as much of what a line leaves of the means as the waves do: T with independent errors
    of variance 1 + error and a walk, of all sizes that the means bear out (by restricted likelihood) the one with the largest share."""
    walk = np.minimum.outer(np.arange(len(means)), np.arange(len(means))).astype(float)
    both = np.concatenate([line, waves], axis=1)
    free = len(means) - both.shape[1]
    likely, chance = np.zeros((2, len(WALKS)))
    for k, size in enumerate(WALKS):
        L = np.linalg.cholesky(np.diag(1.0 + error) + size * walk)
        white = solve_triangular(L, np.column_stack([both, means]), lower=True)
        A, b = white[:, :-1], white[:, -1]
        with_waves, without = (_left(A[:, :q], b) for q in (both.shape[1], line.shape[1]))
        variance = max(with_waves / free, 1e-300)
        chance[k] = fdtrc(waves.shape[1], free, (without - with_waves) / waves.shape[1] / variance)
        information = np.linalg.slogdet(A.T @ A)[1]
        likely[k] = -0.5 * (free * np.log(variance) + information) - np.log(L.diagonal()).sum()
    return float(chance[likely >= likely.max() - LESS_LIKELY].max())


def _left(A: Array, b: Array) -> float:
    """Sum of squares that columns leave."""
    return float(np.square(b - A @ np.linalg.lstsq(A, b, rcond=None)[0]).sum())

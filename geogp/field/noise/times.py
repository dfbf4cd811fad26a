"""How noisy each time is: a factor on the noise variance of all that was measured then.

    τ²_i = f(t_i) τ²,   s²_i = f(t_i) s²,   log f ~ GP(0, σ² exp(−|t − t'| / ℓ))

One quarter's tests may be noisier than another's: another tool, another crowd. How far rows lie from what their neighbours
say tells a time's factor; σ and ℓ are as likely as they make them, and so is that there are no factors at all.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from geogp.densities import log_density
from geogp.field.columns import Columns
from geogp.field.student import SMALLEST_DF

Array = NDArray[np.float64]

#: A time's rows at least: times of fewer speak with the next. Times at most.
ROWS_OF_A_TIME, TIMES = 20, 64
#: ℓ, in steps from a time to the next; of 0 no time says anything of another.
LENGTHS = (0.0, 1.0, 3.0, 10.0)
#: σ where the search for it begins, the least, and how often it is renewed.
SPREAD, LEAST_SPREAD, RENEWED = 0.5, 0.05, 4
#: How often factors and the rest of a local GP are learned in turn.
IN_TURN = 2
#: A time is one of those that were learned where it is off by so much of the least gap between two of them, by rounding.
OFF = 0.01
#: The logarithm of a factor stays within ±this.
FARTHEST = 4.0
#: Degrees of freedom beyond the smallest, at least and at most.
FEWEST, MOST = 0.1, 100.0


@dataclass(frozen=True)
class Misses(Columns):
    """Of N rows: how far a value lies from what its neighbours say, the variance of what they say, the squared scale of its own noise,
    and its time."""

    miss: Float[Tensor, " N"]
    variance: Float[Tensor, " N"]
    noise: Float[Tensor, " N"]
    time: Float[Tensor, " N"]


@dataclass(frozen=True, eq=False)
class NoiseOfTimes:
    """log f (m,) at ascending times, each from `first` to `last` (m,); elsewhere what these say of it, and of what they leave open the
    mean of f.

    spread, length : σ, and ℓ in the unit of time

    Examples
    --------
    >>> at = torch.tensor([0.0, 1.0]).double()
    >>> noise = NoiseOfTimes(torch.tensor([0.0, 2.0]).double(), at, at, 1.0, 1.0)
    >>> [round(f, 3) for f in noise.factor(torch.tensor([0.0, 0.5, 1.0, 99.0]).double()).tolist()]
    [1.0, 3.058, 7.389, 1.649]
    """

    log: Float[Tensor, " m"]
    first: Float[Tensor, " m"]
    last: Float[Tensor, " m"]
    spread: float
    length: float

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> "NoiseOfTimes | None":
        """From `tensors`, None where there are none."""
        if "times.log" not in tensors:
            return None
        spread, length = tensors["times.prior"].tolist()
        log, first, last = (tensors[f"times.{name}"] for name in ("log", "first", "last"))
        return cls(log, first, last, spread, length)

    def tensors(self) -> dict[str, Tensor]:
        """Its numbers."""
        prior = torch.tensor([self.spread, self.length], dtype=torch.float64)
        each = {"log": self.log, "first": self.first, "last": self.last, "prior": prior}
        return {f"times.{name}": value for name, value in each.items()}

    def log_factor(self, time: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        """log f of any times."""
        each, of = np.unique(time.detach().cpu().numpy(), return_inverse=True)
        first, last = self.first.numpy(), self.last.numpy()
        off = OFF * min(first[1:] - last[:-1], default=0.0)
        here = np.searchsorted(first - off, each, side="right") - 1
        known = (here >= 0) & (each <= np.append(last + off, -np.inf)[here])
        at = 0.5 * (first + last)
        if self.length > 0.0 and len(at):
            across = correlation(each, at, self.length)
            weights = np.linalg.solve(correlation(at, at, self.length), across.T).T
            log, left = weights @ self.log.numpy(), 1.0 - (weights * across).sum(1)
        else:
            log, left = np.zeros(len(each)), np.ones(len(each))
        log = np.where(known, np.append(self.log.numpy(), 0.0)[here], log + 0.5 * self.spread**2 * left)
        return torch.from_numpy(log[of]).to(time)

    def until(self, time: float) -> "NoiseOfTimes":
        """As it was known then, of times that had passed."""
        past = self.last <= time
        return replace(self, log=self.log[past], first=self.first[past], last=self.last[past])

    def factor(self, time: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        """f of any times."""
        return self.log_factor(time).exp()


def correlation(a: Array, b: Array, length: float) -> Array:
    """Of log f at times a (n,) and b (m,): (n, m)."""
    apart = np.abs(a[:, None] - b)
    return (apart == 0.0).astype(float) if length == 0.0 else np.exp(-apart / length)


@dataclass(frozen=True, eq=False)
class TimesTold:
    """Factors of times, one for all of them beside these, the degrees of freedom that go with them (None: Gaussian), and how many nats
    speak for them: the logarithm of a Bayes factor against one noise for all times."""

    noise: NoiseOfTimes
    overall: float
    degrees_of_freedom: float | None
    nats: float


def noise_of_times(rows: Misses, degrees_of_freedom: float | None) -> TimesTold | None:
    """What rows that were left out say of each time; None where there are too few times to tell.

    Notes
    -----
    O(N) for each of some hundred passes. The factors' posterior is taken as Gaussian about its mode, σ by expectation and maximisation,
    ℓ of a few.

    References
    ----------
    Dempster, Laird and Rubin 1977 (σ); Tierney and Kadane 1986 (the Bayes factor)

    Examples
    --------
    >>> rng = torch.Generator().manual_seed(0)
    >>> time = torch.arange(400).double() % 4
    >>> miss = torch.randn(400, generator=rng).double() * torch.where(time == 2, 3.0, 1.0)
    >>> learned = noise_of_times(Misses(miss, torch.zeros(400).double(), torch.ones(400).double(), time), None)
    >>> learned.nats > 50, bool(learned.noise.factor(torch.tensor([2.0])) > 4.0)
    (True, True)
    """
    first, last, group = _times(rows.time.numpy())
    m = len(first)
    if m < 2:
        return None
    at = 0.5 * (first + last)
    step = float(np.median(np.diff(at)))
    # One factor for all and the tails are learned without the others, too: what is compared is these alone.
    plain = _Fit(rows, group, degrees_of_freedom, np.zeros((0, 0)), None)
    tried: list[tuple[float, _Fit, float, float]] = []
    for length in (step * steps for steps in LENGTHS):
        R, spread, fit = correlation(at, at, length), SPREAD, None
        for _ in range(RENEWED):
            fit = _Fit(rows, group, degrees_of_freedom, spread**2 * R, fit)
            used, spread = spread, max(fit.likelier_spread(R), LEAST_SPREAD)
        assert fit is not None
        tried.append((plain.loss - fit.loss - fit.occam, fit, used, length))
    best, fit, spread, length = max(tried, key=lambda one: one[0])
    nats = best + math.log(sum(math.exp(one[0] - best) for one in tried) / len(tried))
    noise = NoiseOfTimes(fit.log, torch.from_numpy(first), torch.from_numpy(last), spread, length)
    return TimesTold(noise, math.exp(fit.overall), fit.degrees_of_freedom, nats)


class _Fit:
    """One factor for all rows, one for each group of such a prior covariance K (m, m), and tails, as likely as they can be; from where
    another has come.

    at : all numbers; overall : the logarithm of the first; log (m,) of the others; loss : minus the log posterior density, less a constant
    occam : what must be taken from minus that for a Bayes factor, log det(I + K H) / 2, H what rows know of the others
    """

    def __init__(self, rows: Misses, group: Tensor, nu: float | None, K: Array, begun: "_Fit | None"):
        self.rows, self.group, m = rows, group, len(K)
        self._precision = torch.from_numpy(np.linalg.inv(K))
        tails = [] if nu is None else [min(max(math.log(nu - SMALLEST_DF), math.log(FEWEST)), math.log(MOST))]
        start = np.array([0.0, *tails, *[0.0] * m]) if begun is None else begun.at
        self._n_tails = len(tails)
        bounds = [(-FARTHEST, FARTHEST)] * len(start)
        if tails:
            bounds[1] = (math.log(FEWEST), math.log(MOST))
        found = minimize(self._loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
        self.loss = float(found.fun)
        self.at: Array = found.x
        p = torch.from_numpy(found.x)
        self.overall, self.log = float(p[0]), p[1 + len(tails) :].clone()
        self.degrees_of_freedom = SMALLEST_DF + math.exp(float(p[1])) if tails else None
        H = self._information(m)
        self.occam = 0.5 * float(np.linalg.slogdet(np.eye(m) + K * H)[1])
        self._left = np.linalg.inv(np.diag(H) + self._precision.numpy())

    def likelier_spread(self, R: Array) -> float:
        """The sd of factors of this correlation that makes them likeliest."""
        c = self.log.numpy()
        return math.sqrt(float(np.trace(np.linalg.solve(R, self._left + np.outer(c, c)))) / len(R))

    def _noise(self, overall: Tensor | float, log: Tensor) -> Tensor:
        more = log[self.group] if len(log) else torch.zeros(())
        return self.rows.noise * torch.exp(overall + more)

    def _loss(self, at: Array) -> tuple[float, Array]:
        with torch.enable_grad():
            p = torch.from_numpy(at).clone().requires_grad_()
            log, rows = p[1 + self._n_tails :], self.rows
            nu = SMALLEST_DF + p[1].exp() if self._n_tails else None
            scale2 = rows.variance + self._noise(p[0], log)
            loss = -log_density(rows.miss, torch.zeros_like(rows.miss), scale2, nu).sum()
            loss = loss + 0.5 * log @ self._precision @ log
            loss.backward()
        assert p.grad is not None
        return loss.item(), p.grad.numpy()

    def _information(self, m: int) -> Array:
        noise, nu = self._noise(self.overall, self.log), self.degrees_of_freedom
        each = 0.5 * (noise / (self.rows.variance + noise)).square()
        each = each if nu is None else each * nu / (nu + 3.0)
        if not m:
            return np.zeros(0)
        return np.bincount(self.group.numpy(), each.numpy(), minlength=m).astype(np.float64)


def _times(time: Array) -> tuple[Array, Array, Tensor]:
    """The first and the last of times (m,) that have rows enough, those of fewer taken together, and which each row is of: (N,)."""
    each, of, rows = np.unique(time, return_inverse=True, return_counts=True)
    enough = max(ROWS_OF_A_TIME, len(time) / TIMES)
    number, had, m = np.zeros(len(each), dtype=np.int64), 0, 0
    for k, n in enumerate(rows):
        if had >= enough:
            had, m = 0, m + 1
        number[k] = m
        had += n
    if had < enough and m:  # the last, too
        number[number == m] = m - 1
    begins = np.flatnonzero(np.diff(number, prepend=-1))
    first, last = each[begins], each[np.append(begins[1:], len(each)) - 1]
    return first, last, torch.from_numpy(number[of])

"""Where values of the target pile up, learned from rows that were left out: the scale on which new observations are as the smooth noise
says.

Lines are sold by plans, and many single tests end just below one. What a place's neighbours say of it is one hill, whatever is
learned of its width and its tails; bent by one curve for all places it has the peaks that all places share.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from geogp.field.noise.judged import surely_likelier, surely_no_worse
from geogp.field.noise.least import least
from geogp.field.noise.smooth import Parts
from geogp.scores import error_of_mean
from geogp.transforms import Identity, Warp, Warped

Array = NDArray[np.float64]

#: So few rows tell too little; of more than the second as many are looked at.
LEAST_ROWS, MOST_ROWS = 1000, 12_000
#: Knots at most, as even in the rows as can be, between these quantiles; distinct values between two knots at least: else what is rounded would
#: be likely at every whole number.
KNOTS, ENDS, DISTINCT, ROUNDING = 80, (0.001, 0.999), 5, 1e-9
#: What it costs, in nats: squared steps from knot to knot of the log slope of averages of very many, and of how much more single ones bend;
#: their squares, together.
SMOOTH_MANY, SMOOTH_SINGLE, NONE = 300.0, 5.0, 1.0
#: Measurements after which half has blurred, less one: as far as nothing is known, and how well that is known, in logarithms.
BLUR, BLUR_SD = 5.0, 2.0
#: Steps of the search.
STEPS = 100
#: CRPS that rows may lose, in sd of the target: what half of the rows taught bends worse than what all of them do.
TOLERATED = 0.002
#: Level -> how much farther from it the share of a kind's rows within their intervals may come to lie.
SHARES = {0.5: 0.04, 0.8: 0.03, 0.95: 0.015}
#: Parts of the whole bend, tried in turn where with more of it a kind would lose its shares.
FADED = (1.0, 0.5, 0.25)


def learned_warp(
    parts: Parts,
    value: Float[Tensor, " N"],
    counts: Float[Tensor, " N"],
    weight: Float[Tensor, " N"],
    square: Int[Tensor, " N"],
    seed: int = 0,
    kind: Int[Tensor, " N"] | None = None,
) -> Warp | None:
    """The warp under which values are likeliest where `parts` say how they are distributed; None where other rows do not gain by it, or
    lose more than a little in CRPS.

    One curve for all is too much where predictions are sharp if it is learned where they are vague: what is bent as far as a whole
    pile is no hill of a small part of it. So intervals must hold of each kind of missing data what they held before; where they would
    not, a half or a quarter of the bend is tried.

    Parameters
    ----------
    parts : distributions of rows by what has not learned from them
    value, counts : of the rows, on the working scale
    weight : how many rows each stands for: rows are drawn by it
    square : those of a square share their luck; half of the squares judge what the other half taught
    kind : of missing data, by number from 0; None where all rows are of one

    Notes
    -----
    O(steps · rows), about four seconds of a core.
    """
    rng = np.random.default_rng(seed)
    if len(value) < LEAST_ROWS:
        return None
    n, share = min(len(value), MOST_ROWS), weight.numpy() / float(weight.sum())
    rows = torch.from_numpy(np.sort(rng.choice(len(value), n, replace=False, p=share)))
    drawn = Rows(parts.at(rows), value[rows], counts[rows])
    kinds = np.zeros(n, dtype=int) if kind is None else kind[rows].numpy()
    own, number = np.unique(square[rows].numpy(), return_inverse=True)
    half = rng.permutation(len(own)) % 2
    first = half[number] == 0
    if first.all() or not first.any():
        return None
    halves = (first, ~first)
    found = [warp for learn in halves if (warp := fitted(drawn.at(learn))) is not None]
    if len(found) < len(halves):
        return None

    def told(part: float, of: Callable[[Rows, Warp], Array]) -> Array:
        """Of each row by so much of what the other half taught."""
        out = np.empty(n)
        for judge, warp in zip(reversed(halves), found):
            out[judge] = of(drawn.at(judge), warp.faded(part))
        return out

    for part in FADED:
        # A CRPS takes as long as the rest together.
        if not surely_likelier(told(part, Rows.gain), number):
            return None
        if not surely_no_worse(told(part, Rows.gain_in_crps), number, TOLERATED):
            return None
        if hold_as_much(told(part, Rows.within), drawn.within(), kinds, number):
            whole = fitted(drawn)
            return None if whole is None else whole.faded(part)
    return None


def hold_as_much(
    new: Float[np.ndarray, " N"],
    old: Float[np.ndarray, " N"],
    kind: Int[np.ndarray, " N"],
    number: Int[np.ndarray, " N"],
) -> bool:
    """Whether central intervals hold of each kind of rows about the share they say, or come not much farther from it than others.

    new, old : levels of the narrowest central intervals that hold the rows
    number : of the rows' squares, from 0

    Examples
    --------
    >>> level, one = np.linspace(0.0, 1.0, 1000), np.zeros(1000, dtype=int)
    >>> hold_as_much(level, level, one, np.arange(1000)), hold_as_much(level**0.5, level, one, np.arange(1000))
    (True, False)
    """
    for each in np.unique(kind):
        rows = kind == each
        for level, tolerated in SHARES.items():
            now, then = (1.0 * (within[rows] <= level) for within in (new, old))
            lost = abs(now.mean() - level) - abs(then.mean() - level)
            if lost > max(tolerated, error_of_mean(now - then, number[rows])):
                return False
    return True


@dataclass(frozen=True)
class Rows:
    """Rows that a warp is learned from, or judged by: their distributions, values and counts (N,)."""

    parts: Parts
    value: Tensor
    counts: Tensor

    def at(self, some: NDArray[np.bool_]) -> "Rows":
        return Rows(self.parts.at(some), self.value[some], self.counts[some])

    def gain(self, warp: Warp) -> Array:
        """Nats that each gains by it."""
        a = warp.strength(self.counts.numpy())
        u = self.value.numpy()
        bent = self.parts.log_density(torch.from_numpy(warp.forward(u, a)))
        return np.asarray(bent - self.parts.log_density(self.value)) + np.log(warp.slope(u, a))

    def within(self, warp: Warp | None = None) -> Array:
        """The level of the narrowest central interval that holds each."""
        u = self.value.numpy()
        v = u if warp is None else warp.forward(u, warp.strength(self.counts.numpy()))
        return np.abs(2.0 * self.parts.predictive().cdf(v) - 1.0)

    def gain_in_crps(self, warp: Warp) -> Array:
        """By how much the CRPS of each falls by it."""
        y = self.value.numpy()
        bent = Warped(Identity(), warp, warp.strength(self.counts.numpy()))
        return self.parts.predictive().crps(y) - self.parts.predictive(bent).crps(y)


def fitted(rows: Rows) -> Warp | None:
    """The likeliest warp of these rows, what it costs counted in; None where their values are too few for two pieces."""
    knots = knots_of(rows.value.numpy())
    if len(knots) < 3:
        return None
    inner, K = len(knots) - 2, torch.from_numpy(knots)
    width = K.diff()
    held = rows.value.clamp(knots[0], knots[-1])
    piece = (torch.searchsorted(K, held, right=True) - 1).clamp(0, len(knots) - 2)
    share = (held - K[piece]) / width[piece]
    outside = rows.value != held
    beyond, zero = rows.value - held, torch.zeros(1, dtype=torch.float64)

    def curves(at: Tensor) -> tuple[Tensor, Tensor]:
        """Log slopes of averages of very many, and of single measurements."""
        many, more = at[:inner], at[inner : 2 * inner]
        return torch.cat([zero, many, zero]), torch.cat([zero, many + more, zero])

    def cost(at: Tensor) -> Tensor:
        shifts, log_blur = at[2 * inner : 2 * inner + 2], at[-1]
        a = 1.0 / (1.0 + (rows.counts - 1.0) / (BLUR * log_blur.exp()))
        many, single = curves(at)
        v, slope = [], []
        for log_slope, shift in zip((many, single), shifts):
            s = log_slope.exp()
            start = torch.cat([zero, (0.5 * (s[1:] + s[:-1]) * width).cumsum(0)])
            low, rise = s[piece], s[piece + 1] - s[piece]
            v.append(K[0] + shift + start[piece] + width[piece] * share * (low + 0.5 * rise * share) + beyond)
            slope.append(torch.where(outside, 1.0, low + rise * share))
        bent, steep = (m + a * (s - m) for m, s in (v, slope))
        more = single - many
        rough = SMOOTH_MANY * many.diff().square().sum() + SMOOTH_SINGLE * more.diff().square().sum()
        prior = rough + NONE * (many.square().sum() + more.square().sum()) + 0.5 * (log_blur / BLUR_SD) ** 2
        return prior - (rows.parts.log_density(bent) + steep.log()).sum()

    best = least(cost, 2 * inner + 3, steps=STEPS)
    many, single = (log_slope.exp().numpy() for log_slope in curves(best))
    of_many, of_single, log_blur = best[2 * inner :].tolist()
    return Warp(knots, many, single, (of_many, of_single), BLUR * math.exp(log_blur))


def knots_of(values: Array) -> Array:
    """Increasing places between which about as many values lie, and some that differ."""
    wanted = np.unique(np.quantile(values, np.linspace(*ENDS, KNOTS)))
    # What differs by rounding alone does not differ.
    inside = np.sort(values[(values >= wanted[0]) & (values <= wanted[-1])])
    new = np.diff(inside, prepend=-np.inf) > ROUNDING * (wanted[-1] - wanted[0])
    place = np.searchsorted(inside[new], wanted)
    kept = [0]
    for k in range(1, len(wanted)):
        if place[k] - place[kept[-1]] >= DISTINCT:
            kept.append(k)
    return wanted[kept]

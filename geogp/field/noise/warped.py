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


def learned_warp(
    parts: Parts,
    value: Float[Tensor, " N"],
    counts: Float[Tensor, " N"],
    weight: Float[Tensor, " N"],
    square: Int[Tensor, " N"],
    seed: int = 0,
) -> Warp | None:
    """The warp under which values are likeliest where `parts` say how they are distributed; None where other rows do not gain by it, or
    lose more than a little in CRPS.

    Parameters
    ----------
    parts : distributions of rows by what has not learned from them
    value, counts : of the rows, on the working scale
    weight : how many rows each stands for: rows are drawn by it
    square : those of a square share their luck; half of the squares judge what the other half taught

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
    own, number = np.unique(square[rows].numpy(), return_inverse=True)
    half = rng.permutation(len(own)) % 2
    first = half[number] == 0
    if first.all() or not first.any():
        return None
    halves = (first, ~first)
    found = [warp for learn in halves if (warp := fitted(drawn.at(learn))) is not None]
    if len(found) < len(halves):
        return None

    def gained(of: Callable[[Rows, Warp], Array]) -> Array:
        """What each row gains by what the other half taught."""
        gain = np.empty(n)
        for judge, warp in zip(reversed(halves), found):
            gain[judge] = of(drawn.at(judge), warp)
        return gain

    # A CRPS takes as long as the rest together.
    surely = surely_likelier(gained(Rows.gain), number) and surely_no_worse(
        gained(Rows.gain_in_crps), number, TOLERATED
    )
    return fitted(drawn) if surely else None


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

"""What held-out rows say of the surface's variance in gaps: more where the places around disagree, less where they agree.

    a(x) v(x) <= v₀,   log a = b w(k) s(x),   w = (27/4) k² (1 - k) <= 1,   k = v / v₀,   b >= 0

A stationary kernel gives every gap of one shape the same variance. s, the log of how much the neighbours deviate from the mean
over what they are expected to (`geogp.field.surroundings`), tells a quiet country from a rough one. Where r is known (k = 0)
and where nothing is known of it (k = 1), beyond the data most of all, the variance is the kernel's own.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from geogp.field.noise.least import least

#: Prior sd of b, and the most that it is.
SLOPE_SD, STEEPEST = 0.5, 1.5
#: log a stays within ±`MOST`, s within ±`CLIP`.
MOST, CLIP = 1.5, 3.0
#: Nats that unseen rows gain at least where b is believed.
LEAST_GAIN = 3.0

#: (log a or 0, log of the factor on the noise) -> the weighted log densities (N,) of held-out rows.
Say = Callable[[Tensor | float, Tensor | float], Tensor]


def log_factor(
    slope: Float[Tensor, ""], known: Float[Tensor, " N"], spread: Float[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """log a where b is `slope`, v / v₀ `known` and s `spread`.

    Examples
    --------
    >>> known, spread = torch.tensor([0.0, 0.5, 0.5, 1.0]), torch.tensor([1.0, 1.0, -1.0, 1.0])
    >>> log_factor(torch.tensor(0.4), known, spread)
    tensor([ 0.0000,  0.3375, -0.3375,  0.0000])
    """
    k = known.clamp(0.0, 1.0)
    free = slope * (6.75 * k.square() * (1.0 - k)) * spread.clamp(-CLIP, CLIP)
    return torch.minimum(free.clamp(-MOST, MOST), -k.clamp_min(1e-9).log())


def learned_in_gaps(
    say: Say,
    known: Float[Tensor, " N"],
    spread: Float[Tensor, " N"],
    fold: Int[Tensor, " N"],
    square: Int[Tensor, " N"],
) -> Float[Tensor, " 2"] | None:
    """b, and the log of the factor on the noise beside it, that make held-out rows likeliest; None where it is not believed.

    It is where rows of squares that it was not learned from gain by it, more than the standard error of this gain over the
    squares.

    fold : which rows are judged together, by what the others say; square : rows of one share their luck

    Notes
    -----
    O(N) for each of some hundred passes.

    References
    ----------
    Breiman, Friedman, Olshen and Stone 1984, section 3.4.3 (one standard error)
    """

    def fitted(rows: Tensor) -> Tensor:
        def cost(at: Tensor) -> Tensor:
            said = say(log_factor(at[0], known, spread), at[1])
            return (0.5 * (at[0] / SLOPE_SD).square() - said[rows].sum()) / len(known)

        return least(cost, 2, [(0.0, STEEPEST), (-MOST, MOST)])

    def plain(rows: Tensor) -> Tensor:
        return least(lambda at: -say(0.0, at)[rows].sum() / len(known), 1)

    gain = torch.zeros_like(known)
    for part in fold.unique():
        unseen, seen = fold == part, fold != part
        if not bool(seen.any()):
            return None
        (slope, beside), level = fitted(seen), plain(seen)
        with torch.no_grad():
            gained = say(log_factor(slope, known, spread), beside) - say(0.0, level)
        gain[unseen] = gained[unseen]
    numbers, at_square = square.unique(return_inverse=True)
    each = gain.new_zeros(len(numbers)).index_add_(0, at_square, gain)
    doubt = float(each.var() * len(numbers)) ** 0.5
    if not float(each.sum()) > max(doubt, LEAST_GAIN):
        return None
    return fitted(torch.ones_like(fold, dtype=torch.bool))

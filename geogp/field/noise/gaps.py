"""What held-out rows say of the surface's variance in gaps: more where the places around disagree, less where they agree.

    a(x) v(x) <= v₀,   log a = 4c k (1 - k) + b k s(x),   k = v(x) / v₀,   b >= 0

A stationary kernel gives every gap of one shape the same variance. s, the log of how much the neighbours deviate from the mean
over what they are expected to (`geogp.field.surroundings`), tells a quiet country from a rough one. Where r is known, and
where there are no neighbours (k = 1, s = 0), the variance is the kernel's own.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from geogp.field.noise.least import least

#: Prior sd of c and b: a constant is what the kernel's own variance is for.
CONSTANT_SD, SLOPE_SD = 0.1, 0.5
#: log a, c and b stay within ±this.
MOST = 1.5
#: s is clipped here.
CLIP = 3.0

#: (log a or 0, log of the factor on the noise) -> the weighted log densities (N,) of held-out rows.
Say = Callable[[Tensor | float, Tensor | float], Tensor]


def log_factor(
    coefficients: Float[Tensor, " 2"], known: Float[Tensor, " N"], spread: Float[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """log a where v / v₀ is `known` and s is `spread`, c and b given.

    Examples
    --------
    >>> known, spread = torch.tensor([0.0, 0.5, 0.5, 1.0]), torch.tensor([1.0, 1.0, -1.0, 0.0])
    >>> log_factor(torch.tensor([0.0, 0.4]), known, spread)
    tensor([ 0.0000,  0.2000, -0.2000,  0.0000])
    """
    c, b = coefficients
    k = known.clamp(0.0, 1.0)
    free = 4.0 * c * k * (1.0 - k) + b * k * spread.clamp(-CLIP, CLIP)
    return torch.minimum(free.clamp(-MOST, MOST), -k.clamp_min(1e-9).log())


def learned_in_gaps(
    say: Say,
    known: Float[Tensor, " N"],
    spread: Float[Tensor, " N"],
    fold: Int[Tensor, " N"],
    square: Int[Tensor, " N"],
) -> Float[Tensor, " 3"] | None:
    """c, b and the log of the factor on the noise beside them, that make held-out rows likeliest; None where they are not believed.

    They are where rows of squares that they were not learned from gain, by more than the standard error of this gain over the
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
            penalty = 0.5 * ((at[0] / CONSTANT_SD).square() + (at[1] / SLOPE_SD).square())
            said = say(log_factor(at[:2], known, spread), at[2])
            return (penalty - said[rows].sum()) / len(known)

        return least(cost, 3, [(-MOST, MOST), (0.0, MOST), (-MOST, MOST)])

    def plain(rows: Tensor) -> Tensor:
        return least(lambda at: -say(0.0, at)[rows].sum() / len(known), 1)

    gain = torch.zeros_like(known)
    with torch.no_grad():
        for part in fold.unique():
            unseen, seen = fold == part, fold != part
            if not bool(seen.any()):
                return None
            with torch.enable_grad():
                at, level = fitted(seen), plain(seen)
            gained = say(log_factor(at[:2], known, spread), at[2]) - say(0.0, level)
            gain[unseen] = gained[unseen]
    numbers, at_square = square.unique(return_inverse=True)
    each = gain.new_zeros(len(numbers)).index_add_(0, at_square, gain)
    doubt = (each.var() * len(numbers)).sqrt()
    if not bool(each.sum() > doubt):
        return None
    return fitted(torch.ones_like(fold, dtype=torch.bool))

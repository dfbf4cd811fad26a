"""Which areas are worst, and how sure that is: ranks of joint draws."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from geogp.errors import InvalidInput, check_level


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of A areas, 1 the worst; of those that draws know nothing of, NaN.

    rank : (A,) posterior median; lower, upper : (A,) ends of its credible interval
    p_worst : (A,) probability of being among the `worst` worst
    """

    rank: Float[np.ndarray, " A"]
    lower: Float[np.ndarray, " A"]
    upper: Float[np.ndarray, " A"]
    p_worst: Float[np.ndarray, " A"]
    worst: int


def ranked(
    draws: Float[np.ndarray, "A S"], worst: int, *, lowest_first: bool = True, level: float = 0.95
) -> Ranks:
    """Ranks of areas from joint draws (A, S) of what they are ranked by.

    Each draw of the surface ranks all areas, so that neighbours which err together swap places less often than their
    intervals overlap.

    Parameters
    ----------
    worst : k of P(among the k worst), at most the number of areas that have draws
    lowest_first : whether the lowest is the worst (a speed) or the highest (a latency)
    level : of the interval of the rank

    Raises
    ------
    InvalidInput
        worst below 1, a level outside (0, 1).

    Notes
    -----
    O(S A log A) time, O(A S) memory. p_worst sums to `worst` over the areas.

    Examples
    --------
    >>> found = ranked(np.array([[1.0, 1.0], [2.0, 3.0], [3.0, 2.0]]), 2)
    >>> found.rank.tolist(), found.p_worst.tolist()
    ([1.0, 2.5, 2.5], [1.0, 0.5, 0.5])
    """
    check_level(level)
    known = np.isfinite(draws).all(axis=1)
    if worst < 1:
        raise InvalidInput(f"the number of worst areas must be 1 or more; got {worst}.")
    places = _places(draws[known] if lowest_first else -draws[known])
    tails = np.array([0.5 * (1 - level), 0.5 * (1 + level)])
    # Ranks are whole numbers: the ends are ranks that were drawn, taken outwards.
    low = np.quantile(places, tails[0], axis=1, method="lower")
    high = np.quantile(places, tails[1], axis=1, method="higher")

    def of_all(values: NDArray) -> Float[np.ndarray, " A"]:
        out = np.full(len(draws), np.nan)
        out[known] = values
        return out

    return Ranks(
        of_all(np.median(places, axis=1)),
        of_all(low),
        of_all(high),
        of_all((places <= worst).mean(axis=1)),
        worst,
    )


def _places(values: Float[np.ndarray, "A S"]) -> Int[np.ndarray, "A S"]:
    """Place of each row among all, 1 the lowest, column by column; ties in the order of the rows."""
    order = np.argsort(values, axis=0, kind="stable")
    out = np.empty(order.shape, dtype=np.int64)
    np.put_along_axis(out, order, np.arange(1, len(values) + 1)[:, None], axis=0)
    return out


def p_below(draws: Float[np.ndarray, "A S"], a: int, b: int) -> float:
    """P(area a lies below area b) from joint draws (A, S), ties counting half.

    Examples
    --------
    >>> p_below(np.array([[1.0, 1.0], [2.0, 0.0]]), 0, 1)
    0.5
    """
    difference = draws[a] - draws[b]
    return float((difference < 0).mean() + 0.5 * (difference == 0).mean())

"""Where a surface lies above (or below) a threshold all at once: excursion sets with joint probability.

A map of P(f(x) > u) says of each place how likely it alone exceeds. A set of places that all do, with one probability for
the whole set, is smaller: it needs how the errors go together.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.special import ndtr

from geogp.areas.averages import Surface
from geogp.errors import InvalidInput, check_level

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Excursion:
    """The excursion function at N places, and what it was made of.

    function : (N,) F(x): the largest joint probability of any set of the family that holds x
    marginal : (N,) probability of each place alone; F is never above it but for Monte Carlo error
    n_samples : joint draws; F is off by up to 1/(2 sqrt(n_samples)) (one sd)
    """

    function: Float[np.ndarray, " N"]
    marginal: Float[np.ndarray, " N"]
    n_samples: int

    def inside(self, level: float) -> Bool[np.ndarray, " N"]:
        """The set: the most places that with this probability all exceed (fall below) at once.

        Raises
        ------
        InvalidInput
            a level outside (0, 1).
        """
        check_level(level)
        return self.function >= level


def excursion(
    found: Surface,
    threshold: float,
    *,
    above: bool = True,
    n_samples: int = 2000,
    random_state: int | None = 0,
) -> Excursion:
    """The excursion function of a surface at its places: F(x) >= 1 - α where x is in the set of joint probability 1 - α.

    Sets of the family hold the places of largest marginal probability, D_1 ⊂ D_2 ⊂ ..; F of the i-th is
    P(all of D_i exceed), counted among joint draws. Where surfaces are alike everywhere but for mean and sd no other sets
    are larger; in general some may be, and the set found is still one of its probability.

    Parameters
    ----------
    threshold : on the scale of y
    above : whether all lie above it, or below

    Raises
    ------
    InvalidInput
        a threshold that is no number, fewer than 100 draws.

    Notes
    -----
    Cost: the draws, and O(N n_samples) to count. The more places, the rarer it is that all exceed: a finer grid makes the
    set a little smaller, not larger.

    References
    ----------
    Bolin and Lindgren 2015, Excursion and contour uncertainty regions for latent Gaussian models
    """
    if not np.isfinite(threshold):
        raise InvalidInput(f"the threshold must be a number; got {threshold!r}.")
    if n_samples < 100:
        raise InvalidInput(f"an excursion set needs at least 100 joint draws; got {n_samples}.")
    side = 1.0 if above else -1.0
    u = found.transform.forward(np.array(threshold, dtype=np.float64))
    marginal = ndtr(side * (found.location - u) / found.scale)
    order = np.argsort(-marginal, kind="stable")
    held = np.zeros(len(order), dtype=np.int64)
    for y in found.batches(n_samples, random_state):
        beyond = y[order] > threshold if above else y[order] < threshold
        held += np.logical_and.accumulate(beyond, axis=0).sum(axis=1)
    function = np.empty(len(order))
    function[order] = held / n_samples
    return Excursion(function, marginal, n_samples)

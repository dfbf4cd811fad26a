"""Whether other distributions of new observations are surely better: judged by rows that were not learned from."""

import numpy as np
from jaxtyping import Float, Int

from geogp.predictive import Predictive
from geogp.scores import error_of_mean

#: Nats a row that must be gained, more than their standard error over squares; in CRPS no more than that may be lost.
WORTH = 0.003


def surely_likelier(nats: Float[np.ndarray, " N"], number: Int[np.ndarray, " N"]) -> bool:
    """Whether nats that rows gain are worth it, and more than chance; rows of one square, by number from 0, share their luck."""
    return bool(nats.mean() > max(WORTH, error_of_mean(nats, number)))


def surely_no_worse(
    crps: Float[np.ndarray, " N"], number: Int[np.ndarray, " N"], tolerated: float = 0.0
) -> bool:
    """Whether CRPS that rows gain is no loss beyond both chance and what is tolerated."""
    return bool(crps.mean() > -max(tolerated, error_of_mean(crps, number)))


def surely_better(
    new: Predictive, old: Predictive, values: Float[np.ndarray, " N"], square: Int[np.ndarray, " N"]
) -> bool:
    """Whether values are surely likelier by the new distributions than by the old ones, and their CRPS not surely worse.

    Parameters
    ----------
    values, square : (N,) of rows that neither has learned from; those of a square share their luck

    Examples
    --------
    >>> y, zero = np.linspace(-2.0, 2.0, 40), np.zeros(40)
    >>> wide, narrow = (Predictive(zero, zero + scale) for scale in (9.0, 1.0))
    >>> surely_better(narrow, wide, y, np.arange(40)), surely_better(wide, narrow, y, np.arange(40))
    (True, False)
    """
    number = np.unique(square, return_inverse=True)[1]
    if not surely_likelier(new.log_density(values) - old.log_density(values), number):
        return False
    return surely_no_worse(old.crps(values) - new.crps(values), number)

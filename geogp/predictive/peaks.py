"""A second peak of distributions, and what of two peaks has to be searched or added up."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Steps in which a quantile is found, and how near, in units of what lies between those of the two; how short a step of Newton's may be
#: the last.
STEPS, NEAR, SQUARED = 80, 1e-13, 1e-7


@dataclass(frozen=True)
class Peak:
    """A second peak of N distributions, Gaussian on the working scale, e.g. lines of another technology than most around.

    share : (N,) its probability, below 1; 0 where there is none
    location, scale : (N,) on the working scale; scale > 0
    """

    share: Float[np.ndarray, " N"]
    location: Float[np.ndarray, " N"]
    scale: Float[np.ndarray, " N"]

    def rows(self, index: NDArray) -> "Peak":
        """The same at some of the places."""
        return Peak(self.share[index], self.location[index], self.scale[index])


def zero_between(
    start: Float[np.ndarray, " N"],
    other: Float[np.ndarray, " N"],
    miss: Callable[[Array, Int[np.ndarray, " m"]], Array],
    slope: Callable[[Array, Int[np.ndarray, " m"]], Array],
) -> Float[np.ndarray, " N"]:
    """Where an increasing function is zero, between two places that are none beyond it: (N,).

    Newton's steps from `start`; halves of what is left where they leave that or do not gain.

    Parameters
    ----------
    miss, slope : the function and its derivative at u (m,), of the rows (m,) out of N

    Examples
    --------
    >>> root = zero_between(np.array([3.0]), np.array([0.0]), lambda u, i: u * u - 2.0, lambda u, i: 2.0 * u)
    >>> round(float(root[0]), 6)
    1.414214
    """
    low, high = np.minimum(start, other), np.maximum(start, other)
    reach, out, step = high - low, start.copy(), high - low
    left = np.flatnonzero(high > low)
    for _ in range(STEPS):
        if not len(left):
            break
        u = out[left]
        away = miss(u, left)
        low[left], high[left] = np.where(away < 0.0, u, low[left]), np.where(away < 0.0, high[left], u)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            wanted = -away / slope(u, left)
        inside = (u + wanted > low[left]) & (u + wanted < high[left])
        newton = inside & (np.abs(wanted) < 0.5 * np.abs(step[left]))
        halved = low[left] + 0.5 * (high[left] - low[left])
        moved = np.where(away == 0.0, u, np.where(newton, u + wanted, halved))
        step[left], out[left] = moved - u, moved
        # After a step of Newton's what is left is about its square.
        enough = np.where(newton, SQUARED, NEAR) * reach[left]
        left = left[(np.abs(moved - u) > enough) & (away != 0.0)]
    return out


def crps_between(
    nodes: Float[np.ndarray, "N K"],
    y: Float[np.ndarray, " N"],
    cdf: Callable[[Array], Array],
    function: Callable[[Array], Array],
) -> Float[np.ndarray, " N"]:
    """∫ (F(t) - 1{y <= t})² df(t) from the first node to the last: (N,); each interval by Simpson's rule.

    Parameters
    ----------
    nodes : increasing, y among them
    cdf : F at t (N,)
    function : f, increasing
    """
    middle = 0.5 * (nodes[:, 1:] + nodes[:, :-1])
    F = [np.stack([cdf(column) for column in at.T], axis=1) for at in (nodes, middle)]
    before = nodes[:, 1:] <= y[:, None]
    g = [np.square(np.where(before, v, 1.0 - v)) for v in (F[0][:, :-1], F[1], F[0][:, 1:])]
    own = function(nodes)
    f = [own[:, :-1], function(middle), own[:, 1:]]
    # The slopes, times the width, of the parabola through f.
    slopes = (4.0 * f[1] - 3.0 * f[0] - f[2], f[2] - f[0], f[0] - 4.0 * f[1] + 3.0 * f[2])
    each = g[0] * slopes[0] + 4.0 * g[1] * slopes[1] + g[2] * slopes[2]
    return np.asarray(each.sum(axis=1) / 6.0)

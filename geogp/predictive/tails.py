"""Tails and moments of a standard Student-t, skewed or not."""

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, stdtrit

from geogp.densities import standard_log_density

Array = NDArray[np.float64]

#: Probability from which on the tail of a Student-t may be a power, and u / √ν from which on it is one.
_FAR, _POWER = 1e-15, 1e6


def student_tail(degrees_of_freedom: ArrayLike, p: ArrayLike) -> Array:
    """The p-quantile, p at most a half, of a standard Student-t.

    Far out, where scipy's `stdtrit` is +inf, NaN or off by half, the tail is a power of p.

    Examples
    --------
    >>> [f"{u:.2e}" for u in student_tail(5.5, np.array([0.025, 1e-300]))]
    ['-2.50e+00', '-5.92e+54']
    """
    nu, p = np.broadcast_arrays(np.asarray(degrees_of_freedom, dtype=np.float64), p)
    u = np.asarray(stdtrit(nu, p))
    few = p < _FAR
    if few.any():
        nu, p = nu[few], p[few]
        # P(U < -u) -> Γ((ν+1)/2) / (Γ(ν/2) √π) ν^(ν/2 - 1) u^-ν, to ν/u² of itself
        log_mass = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * math.log(math.pi)
        log_u = (log_mass + (0.5 * nu - 1.0) * np.log(nu) - np.log(p)) / nu
        with np.errstate(over="ignore"):
            u[few] = np.where(log_u > math.log(_POWER) + 0.5 * np.log(nu), -np.exp(log_u), u[few])
    return u


def standard_moments(
    degrees_of_freedom: Float[np.ndarray, " N"] | None, log_skewness: Float[np.ndarray, " N"] | None
) -> tuple[Float[np.ndarray, " N"] | float, Float[np.ndarray, " N"] | float]:
    """Mean and variance at location 0 and scale 1; the mean of a skewed distribution is not its location.

    Examples
    --------
    >>> mean, variance = standard_moments(np.array([4.0]), np.array([0.0]))
    >>> float(mean[0]), float(variance[0])
    (0.0, 2.0)

    References
    ----------
    Fernández and Steel 1998, eq. 5
    """
    nu = degrees_of_freedom
    square = 1.0 if nu is None else nu / (nu - 2.0)
    if log_skewness is None:
        return 0.0, square
    left, right = np.exp(-log_skewness), np.exp(log_skewness)
    mean = 2.0 * mean_of_half(nu) * (right - left)
    return mean, square * (left**3 + right**3) / (left + right) - np.square(mean)


def mean_of_half(nu: Array | None) -> Array | float:
    """Integral of u times the base's density over u > 0."""
    if nu is None:
        return 1.0 / math.sqrt(2.0 * math.pi)
    return np.exp(standard_log_density(np.zeros_like(nu), nu)) * nu / (nu - 1.0)

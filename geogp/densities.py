"""Gaussian, Student-t, Matérn: each formula once.

For tensors, elementwise and differentiable; `standard_log_density` for arrays, whose special functions are scipy's.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import gammaln
from torch import Tensor

Array = NDArray[np.float64]

LOG_2PI = math.log(2.0 * math.pi)


def gaussian_nll(
    y: Float[Tensor, " *#n"], mean: Float[Tensor, " *#n"], variance: Float[Tensor, " *#n"]
) -> Float[Tensor, " *#n"]:
    """-log N(y; mean, variance) = (y - mean)² / 2v + log(v) / 2 + log(2π) / 2, elementwise.

    Examples
    --------
    >>> round(float(gaussian_nll(torch.tensor(1.0), torch.tensor(0.0), torch.tensor(1.0))), 4)
    1.4189
    """
    return 0.5 * ((y - mean).square() / variance + variance.log() + LOG_2PI)


def gaussian_crps(
    y: Float[Tensor, " *#n"], mean: Float[Tensor, " *#n"], variance: Float[Tensor, " *#n"]
) -> Float[Tensor, " *#n"]:
    """Continuous ranked probability score of N(mean, variance) at y, elementwise, in the unit of y.

    s [u erf(u / √2) + 2 φ(u) - 1 / √π],   u = (y - mean) / s,   s² = variance

    References
    ----------
    Gneiting and Raftery 2007, eq. 21

    Examples
    --------
    >>> round(float(gaussian_crps(torch.tensor(0.0), torch.tensor(0.0), torch.tensor(1.0))), 4)
    0.2337
    """
    sd = variance.sqrt()
    u = (y - mean) / sd
    density = torch.exp(-0.5 * u.square()) / math.sqrt(2.0 * math.pi)
    return sd * (u * torch.erf(u / math.sqrt(2.0)) + 2.0 * density - 1.0 / math.sqrt(math.pi))


def log_density(
    y: Float[Tensor, " *#n"],
    location: Float[Tensor, " *#n"],
    scale2: Float[Tensor, " *#n"],
    degrees_of_freedom: Float[Tensor, " *#n"] | None,
) -> Float[Tensor, " *#n"]:
    """Log density of a Student-t with squared scale `scale2`, of N(location, scale2) without degrees of freedom.

    log Γ((ν + 1) / 2) - log Γ(ν / 2) - log(νπ) / 2 - log(s²) / 2 - (ν + 1) / 2 · log(1 + (y - location)² / (ν s²))

    Parameters
    ----------
    y, location, scale2, degrees_of_freedom : of shapes that broadcast

    Examples
    --------
    >>> zero, one = torch.tensor([0.0, 1.0])
    >>> cauchy = log_density(zero, zero, one, one)
    >>> abs(float(cauchy.exp()) - 1.0 / math.pi) < 1e-7
    True
    """
    if degrees_of_freedom is None:
        return -gaussian_nll(y, location, scale2)
    nu = degrees_of_freedom
    constant = torch.lgamma(0.5 * (nu + 1.0)) - torch.lgamma(0.5 * nu) - 0.5 * torch.log(nu * math.pi)
    square = (y - location).square() / scale2
    return constant - 0.5 * scale2.log() - 0.5 * (nu + 1.0) * torch.log1p(square / nu)


def standard_log_density(
    u: Float[np.ndarray, " *#n"], degrees_of_freedom: Float[np.ndarray, " *#n"] | None
) -> Float[np.ndarray, " *#n"]:
    """`log_density` at location 0 and scale 1, of arrays.

    Examples
    --------
    >>> standard_log_density(np.zeros(1), None).round(4)
    array([-0.9189])
    """
    nu = degrees_of_freedom
    if nu is None:
        return -0.5 * u * u - 0.5 * LOG_2PI
    constant = gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * np.log(nu * math.pi)
    return constant - 0.5 * (nu + 1) * np.log1p(u * u / nu)


def matern(
    distance: Float[Tensor, " *n"], smoothness: str, log_scale: Tensor | float = 0.0
) -> Float[Tensor, " *n"]:
    """Matérn correlation at a distance in units of lengthscale, times exp(log_scale); `smoothness` is a key of `MATERN`.

    References
    ----------
    Rasmussen and Williams 2006, eq. 4.14, 4.17

    Examples
    --------
    >>> [round(float(matern(torch.tensor(1.0), name)), 4) for name in MATERN]
    [0.3679, 0.4834, 0.524]
    """
    if smoothness not in MATERN:
        raise ValueError(f"smoothness must be one of {', '.join(MATERN)}; got {smoothness!r}.")
    a = math.sqrt(2.0 * MATERN_ORDER[smoothness]) * distance
    decay = torch.exp(log_scale - a)
    return decay if smoothness == "matern12" else MATERN[smoothness](a) * decay


def matern32_of_squared(squared: Float[Tensor, " *n"]) -> Float[Tensor, " *n"]:
    """Matérn-3/2 correlation at squared distances, its slope finite at zero, where a root's is not.

    Examples
    --------
    >>> round(float(matern32_of_squared(torch.tensor(1.0))), 4)
    0.4834
    """
    a = (3.0 * squared + 1e-12).sqrt()
    return MATERN["matern32"](a) * torch.exp(-a)


#: The polynomial in a = sqrt(2 nu) distance that multiplies exp(-a).
MATERN: dict[str, Callable[[Tensor], Tensor]] = {
    "matern12": torch.ones_like,
    "matern32": lambda a: 1.0 + a,
    "matern52": lambda a: 1.0 + a + a * a / 3.0,
}
#: Its order ν by name.
MATERN_ORDER = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}

"""Two targets at one place: how their errors go together, and the chance that either misses its threshold.

Download and upload of a tile come from the same tests and much the same lines, so that where one is worse than
mapped, the other often is. Each run knows its own errors; what they share is learned from rows that both predicted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.special import ndtr

from geogp.areas.averages import Surface, batches_of, stream
from geogp.errors import InvalidInput

Array = NDArray[np.float64]

#: Prior sd of the surface's and the noise's correlation about that of both together, which rows always tell.
APART = 0.3
#: No pair of targets is taken for one.
MOST = 0.99
#: Nodes of the Gauss-Legendre rule of `either_below`: to 1e-6 up to `MOST`.
NODES = np.polynomial.legendre.leggauss(48)


@dataclass(frozen=True)
class Correlation:
    """Cross-correlation of two runs' errors: of all (`total`), of the surfaces', of the noises'; sds; from n rows."""

    surface: float
    surface_sd: float
    noise: float
    noise_sd: float
    total: float
    n: int


def cross_correlation(
    z_a: Float[np.ndarray, " n"],
    z_b: Float[np.ndarray, " n"],
    share_a: Float[np.ndarray, " n"],
    share_b: Float[np.ndarray, " n"],
) -> Correlation:
    """How the errors of two runs go together, from their residuals at n rows that both predicted.

    E[z_a z_b] = ρ_s √(s_a s_b) + ρ_n √((1 - s_a)(1 - s_b)), fitted by least squares with both ρ drawn to the correlation
    of all (prior sd `APART`): rows whose shares of the surface hardly differ tell no more than that.

    Parameters
    ----------
    z_a, z_b : standardised residuals, normal scores Φ⁻¹(F(y)) of each predictive distribution
    share_a, share_b : the surface's share of each predictive variance

    Raises
    ------
    InvalidInput
        fewer than 30 rows.
    """
    n = len(z_a)
    if n < 30:
        raise InvalidInput(
            f"the two runs share {n} {'row' if n == 1 else 'rows'} to learn from; at least 30 are needed."
        )
    z_a, z_b = z_a / np.sqrt(np.mean(z_a**2)), z_b / np.sqrt(np.mean(z_b**2))
    total = float(np.mean(z_a * z_b))
    A = np.column_stack([np.sqrt(share_a * share_b), np.sqrt((1 - share_a) * (1 - share_b))])
    # var(z_a z_b) = 1 + ρ² of a Gaussian pair
    precision = A.T @ A / (1 + total**2) + np.eye(2) / APART**2
    told = A.T @ (z_a * z_b) / (1 + total**2) + total / APART**2
    rho = np.clip(np.linalg.solve(precision, told), -MOST, MOST)
    sd = np.sqrt(np.linalg.inv(precision).diagonal())
    return Correlation(float(rho[0]), float(sd[0]), float(rho[1]), float(sd[1]), total, n)


def draws_together(
    a: Surface, b: Surface, correlation: float, n_samples: int, seed: int = 0
) -> Iterator[tuple[Float[np.ndarray, "N draws"], Float[np.ndarray, "N draws"]]]:
    """Joint draws of two surfaces at the same N places, (y_a, y_b), a batch at once; y_a as `Surface.batches` draws.

    e_b / s_b = ρ e_a / s_a + √(1 - ρ²) e' with e' as run b draws alone: the variance of b is its own at every place and the
    correlation with a is ρ; between places b's errors then go together as a's do with weight ρ² and as b's with 1 - ρ².
    """
    for number, m in batches_of(n_samples):
        yield draw_together(a, b, correlation, number, m, seed)


def draw_together(
    a: Surface, b: Surface, correlation: float, number: int, n_samples: int, seed: int = 0
) -> tuple[Float[np.ndarray, "N n_samples"], Float[np.ndarray, "N n_samples"]]:
    """A batch of `draws_together`, whose first surface is that of `Surface.batch`."""
    if len(a.location) != len(b.location):
        raise InvalidInput(
            f"the surfaces are at {len(a.location)} and {len(b.location)} places; give the same."
        )
    ratio = (b.scale / np.maximum(a.scale, 1e-300))[:, None]
    e_a = a.factor * a.joint.draw(n_samples, stream(seed, number))
    own = b.factor * b.joint.draw(n_samples, stream(seed, number, 1))
    e_b = correlation * ratio * e_a + np.sqrt(1 - correlation**2) * own
    return a.transform.inverse(a.location[:, None] + e_a), b.transform.inverse(b.location[:, None] + e_b)


def either_below(
    h: Float[np.ndarray, " N"], k: Float[np.ndarray, " N"], correlation: float
) -> Float[np.ndarray, " N"]:
    """P(z_a < h or z_b < k) of standard Gaussian pairs with a correlation below `MOST`: (N,).

    Φ(h) + Φ(k) - Φ₂(h, k; ρ), the last by Plackett's integral over the correlation (Drezner and Wesolowsky 1990).

    Examples
    --------
    >>> either_below(np.zeros(1), np.zeros(1), 0.0).round(6).tolist()
    [0.75]
    """
    if not abs(correlation) <= MOST:
        raise InvalidInput(f"the correlation must lie within {MOST:g} of 0; got {correlation:g}.")
    angle = 0.5 * np.arcsin(correlation)
    h, k = np.clip(h, -38.0, 38.0), np.clip(k, -38.0, 38.0)
    both = ndtr(h) * ndtr(k)
    for node, weight in zip(*NODES):
        theta = angle * (node + 1)
        exponent = (h**2 + k**2 - 2 * h * k * np.sin(theta)) / (2 * np.cos(theta) ** 2)
        both += weight * angle / (2 * np.pi) * np.exp(-exponent)
    return np.clip(ndtr(h) + ndtr(k) - both, 0.0, 1.0)


def missed(y: Float[np.ndarray, " *shape"], threshold: float, better: str) -> Bool[np.ndarray, " *shape"]:
    """Where values miss a threshold: lie below it or, where lower is better, above."""
    return y > threshold if better == "lower" else y < threshold

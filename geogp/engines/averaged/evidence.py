"""How likely a kernel and a noise are, given a table: the evidence of its rows and a prior, and their gradient.

    y = m + r(x) + ε,   m ~ N(0, .03),   r ~ GP(0, v c(‖(x − x') / ℓ‖)),   ε ~ N(0, τ² + s²/n)

of standardised x and y, a lengthscale ℓ_d a column. A column that says nothing gets a long one.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack

Array = NDArray[np.float64]

#: What correlations there are: squared exponential and Matérn 3/2.
SMOOTH, ROUGH = "squared exponential", "matern32"
CORRELATIONS = (SMOOTH, ROUGH)
#: Prior of log ℓ: mean for one column, to which half the logarithm of their number is added, and sd.
LENGTH, LENGTH_SD = 2.65, 1.73
#: Rate of the prior of √v; mean and sd of that of a noise variance's logarithm.
LARGE, NOISE, NOISE_SD = 1.0, math.log(0.1), 3.0
#: Variance of the mean m: targets are standardised, and what little is left of it no row far away may undo.
MEAN_VARIANCE = 0.03
#: Logarithms of ℓ, v and a noise variance stay between these.
LENGTHS, VARIANCES, NOISES = (-4.0, 7.0), (-9.0, 4.0), (-13.0, 2.0)
#: What is said of hyperparameters whose covariance has no factor.
IMPOSSIBLE = 1e10


@dataclass(frozen=True)
class Evidence:
    """Minus the log posterior density of hyperparameters (p,), less a constant, and its gradient.

    Z : (n, d) standardised inputs; y : (n,) standardised values; inverse_counts : (n,) or None where the noise knows no
        counts; correlation : one of `CORRELATIONS`; times : (n,) by which the noise of each row is multiplied, None for 1

    Hyperparameters are the logarithms of ℓ (d of them), v, τ² and, with counts, s².

    Notes
    -----
    O(n³ + n² d) a call.

    References
    ----------
    Rasmussen and Williams 2006, section 5.4.1; Hvarfner, Hellsten and Nardi 2024, Vanilla Bayesian Optimization Performs
    Great in High Dimensions (the prior of lengthscales)

    Examples
    --------
    >>> Z = np.linspace(-1.7, 1.7, 30)[:, None]
    >>> of = Evidence(Z, np.sin(Z[:, 0]), None, SMOOTH)
    >>> of(np.log([1.0, 1.0, 0.01]))[0] < of(np.log([0.1, 1.0, 0.01]))[0]
    True
    """

    Z: Array
    y: Array
    inverse_counts: Array | None
    correlation: str
    times: Array | None = None

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Where each hyperparameter stays."""
        noises = [NOISES] if self.inverse_counts is None else [NOISES, NOISES]
        return [LENGTHS] * self.Z.shape[1] + [VARIANCES] + noises

    def among(self, rows: NDArray[np.int64]) -> "Evidence":
        """Of some of the rows."""
        n = None if self.inverse_counts is None else self.inverse_counts[rows]
        times = None if self.times is None else self.times[rows]
        return Evidence(self.Z[rows], self.y[rows], n, self.correlation, times)

    def begun_at(self, length: float, noise: float) -> Array:
        """Hyperparameters with such a length of each of several columns, and half the values' variance in the surface."""
        d = self.Z.shape[1]
        share = [noise] if self.inverse_counts is None else [0.5 * noise, 0.5 * noise]
        return np.log([length * math.sqrt(d)] * d + [0.5] + share)

    def __call__(self, at: Array) -> tuple[float, Array]:
        n, d = self.Z.shape
        scaled, v = self.Z * np.exp(-at[:d]), math.exp(at[d])
        squares = np.square(scaled).sum(1)
        # By a product of matrices, ten times as fast; rounding moves near rows by 1e-8 of a length.
        d2 = np.maximum(squares[:, None] + squares - 2.0 * scaled @ scaled.T, 0.0)
        c, slope = correlated(self.correlation, d2)
        K = MEAN_VARIANCE + v * c
        times = 1.0 if self.times is None else self.times
        K[np.diag_indices(n)] += times * noise_of(at[d + 1 :], self.inverse_counts, n)
        L, failed = lapack.dpotrf(K, lower=1)
        if failed:
            return IMPOSSIBLE, np.zeros_like(at)
        a = cho_solve((L, True), self.y, check_finite=False)
        value = 0.5 * float(self.y @ a) + float(np.log(L.diagonal()).sum())
        inverse = lapack.dpotri(L, lower=1)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        # dF = ½ tr((K⁻¹ − a a') dK); over squared differences by products of matrices, never (n, n, d) at once.
        D = 0.5 * (inverse - np.outer(a, a))
        gradient = np.empty_like(at)
        A = v * D * slope
        gradient[:d] = 2.0 * (A.sum(1) @ scaled**2 - ((A @ scaled) * scaled).sum(0))
        gradient[d] = v * (D * c).sum()
        of_noise = times * D.diagonal()
        gradient[d + 1] = math.exp(at[d + 1]) * of_noise.sum()
        if self.inverse_counts is not None:
            gradient[d + 2] = math.exp(at[d + 2]) * (of_noise @ self.inverse_counts)
        prior, its = self._prior(at)
        return value + prior, gradient + its

    def _prior(self, at: Array) -> tuple[float, Array]:
        d = self.Z.shape[1]
        mean = np.full(len(at), NOISE)
        sd = np.full(len(at), NOISE_SD)
        mean[:d], sd[:d] = LENGTH + 0.5 * math.log(d), LENGTH_SD
        off = (at - mean) / sd
        off[d] = 0.0
        gradient = off / sd
        root = LARGE * math.exp(0.5 * at[d])
        gradient[d] = 0.5 * root
        return 0.5 * float(off @ off) + root, gradient


def correlated(kind: str, d2: Array) -> tuple[Array, Array]:
    """Correlation c at squared distances d2 and W of its slope, ∂c / ∂log ℓ_d = W (difference_d / ℓ_d)²."""
    if kind == SMOOTH:
        c = np.exp(-0.5 * d2)
        return c, c
    a = np.sqrt(3.0 * d2)
    e = np.exp(-a)
    return (1.0 + a) * e, 3.0 * e


def squared_distances(A: Array, B: Array) -> Array:
    """Between rows of A (n, d) and of B (m, d), each by itself: (n, m).

    A sum over columns rather than a product of matrices: what is said of a row does not depend on the others.
    """
    out = np.zeros((len(A), len(B)))
    for a, b in zip(A.T, B.T):
        out += np.square(a[:, None] - b)
    return out


def noise_of(logarithms: Array, inverse_counts: Array | None, n: int) -> Array:
    """τ² + s²/n of n averages: (n,)."""
    if inverse_counts is None:
        return np.full(n, math.exp(logarithms[0]))
    return math.exp(logarithms[0]) + math.exp(logarithms[1]) * inverse_counts

"""Student-t observations of a Gaussian process, each weighed by how well its neighbours bear it out; and how few rows tell a variance."""

from typing import TypeGuard

import torch
from scipy.special import ndtri, stdtrit
from torch import Tensor

from geogp.linalg import inverse_factors, with_diagonal

#: Variational steps for the weights; they come near to convergence fast.
REWEIGHTINGS = 3
#: From these degrees of freedom on observations count as Gaussian: no weight would leave 1 by more than a tenth.
GAUSSIAN_FROM = 30.0
#: From this ratio of the smallest noise variance to the mean prior variance on, float32 tells the weights well enough.
SINGLE_FROM = 1e-3
#: Degrees of freedom that are learned stay above this, where a Student-t's variance is still finite.
SMALLEST_DF = 2.05
#: The upper end of a 95% interval.
UPPER = 0.975


def heavy_tailed(degrees_of_freedom: float | None) -> TypeGuard[float]:
    """Whether observations with these degrees of freedom (None: Gaussian ones) are weighed at all."""
    return degrees_of_freedom is not None and degrees_of_freedom < GAUSSIAN_FROM


def variance_over_scale2(degrees_of_freedom: float | None) -> float:
    """Variance of a Student-t of squared scale 1, of which a Gaussian reading of observations makes their noise; 1 for None.

    Examples
    --------
    >>> variance_over_scale2(4.0), variance_over_scale2(None)
    (2.0, 1.0)
    """
    return 1.0 if degrees_of_freedom is None else degrees_of_freedom / (degrees_of_freedom - 2.0)


def left_open(n_rows: int, n_weights: int) -> float:
    """By how much the variance of n rows about so many fitted weights must grow to be that of new ones, 95% of which lie
    within 1.96 standard deviations: n / (n − q) for what the weights took, and the square of Student's t with n − q degrees
    of freedom over the normal distribution's for how little n rows tell of a variance. 1 where they tell nothing of it.

    References
    ----------
    Student 1908

    Examples
    --------
    >>> [round(left_open(n, 1), 2) for n in (1, 4, 30, 400)]
    [1.0, 3.52, 1.13, 1.01]
    """
    free = n_rows - n_weights
    if free < 1:
        return 1.0
    return float(n_rows / free * (stdtrit(free, UPPER) / ndtri(UPPER)) ** 2)


def student_weights(
    K: Tensor, noise_variance: Tensor, y: Tensor, degrees_of_freedom: float, steps: int = REWEIGHTINGS
) -> Tensor:
    """Expected precision of Student-t observations of a Gaussian process, in units of 1/noise_variance: (B, k).

    w = (ν + 1) / (ν + E[(y − f)²] / σ²), the expectation under the Gaussian posterior that the weights of the
    step before give: E[(y − f)²] = (Σ α)² + Σ − Σ² diag Q, Q = (K + Σ)⁻¹, α = Q y, Σ = σ² / w.

    Parameters
    ----------
    K : (B, k, k) prior covariances
    noise_variance, y : (B, k) squared scales σ² and values

    Notes
    -----
    O(steps · B k³); in float32 where no noise variance is below a thousandth of the mean prior variance.

    References
    ----------
    Tipping and Lawrence 2005, Variational inference for Student-t models, section 3

    Examples
    --------
    >>> K, y = torch.ones(1, 3, 3).double(), torch.tensor([[0.1, -0.1, 9.0]]).double()
    >>> [round(w, 1) for w in student_weights(K, torch.full((1, 3), 0.1).double(), y, 4.0)[0].tolist()]
    [1.0, 0.9, 0.0]
    """
    single = noise_variance.amin(-1) >= SINGLE_FROM * K.diagonal(dim1=-2, dim2=-1).mean(-1)
    if bool(single.all()):
        return _weights(K.float(), noise_variance.float(), y.float(), degrees_of_freedom, steps).to(K.dtype)
    if not bool(single.any()):
        return _weights(K, noise_variance, y, degrees_of_freedom, steps)
    out = torch.empty_like(y)
    for some in (single, ~single):
        out[some] = student_weights(K[some], noise_variance[some], y[some], degrees_of_freedom, steps)
    return out


def _weights(K: Tensor, noise_variance: Tensor, y: Tensor, nu: float, steps: int) -> Tensor:
    weights = torch.ones_like(y)
    for _ in range(steps):
        noise = noise_variance / weights
        half = inverse_factors(with_diagonal(K, noise))  # Q = half' half
        # As passes over the entries: batched products with one column are ten times as slow, and so is a norm.
        white = (half * y[..., None, :]).sum(-1, keepdim=True)
        missed = noise * (half * white).sum(-2)
        square = missed.square() + noise - noise.square() * half.square().sum(-2)
        weights = (nu + 1.0) / (nu + square / noise_variance)
    return weights

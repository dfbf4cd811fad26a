"""What a fitted model is made of, and whether its probabilities hold.

    report = geogp.diagnostics.report(model, X_test, y_test)

Kernel: eigenvalues, effective rank, the rank that would do. Variance: how much of it is the surface's.
Calibration: PIT, reliability, centred quantile metric. Stationarity: an index of kernel slices.
"""

import math
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from geogp.errors import InvalidInput
from geogp.estimator import GPRegressor
from geogp.scores import binomial_band, centred_quantile_metric, pit

Array = NDArray[np.float64]

#: Rows of which a kernel matrix is decomposed at most.
SAMPLE = 2000
#: Effective rank below which a basis counts as collapsed.
COLLAPSED = 1.5


class RankCollapse(UserWarning):
    """The learned basis has collapsed onto (almost) one function: its latent variance means nothing."""


def eigenvalues(model: GPRegressor, X: ArrayLike) -> Array:
    """Eigenvalues of the prior covariance of the places X divided by their number, largest first.

    They estimate the eigenvalues of the kernel's operator under the distribution of X (in squared standardised
    target units). (r,) for a method with features, else (n,), of at most 2,000 of the places.

    Notes
    -----
    Cost O(n r^2 + r^3), or O(n^3) without features.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 2)); y = X[:, 0]
    >>> model = GPRegressor(method="sv-rbf", epochs=2, rank=8).fit(X, y)
    >>> len(eigenvalues(model, X))
    8
    """
    inputs = np.asarray(X, dtype=np.float64)
    if len(inputs) > SAMPLE:
        inputs = inputs[np.random.default_rng(0).choice(len(inputs), SAMPLE, replace=False)]
    places = torch.as_tensor(inputs)
    engine = model.engine_
    features = engine.features(places)
    if features is not None:
        Phi = features.double()
        # Singular values, not Phi'Phi, which would square the condition number.
        values = torch.linalg.svdvals(Phi).square() / len(Phi)
    else:
        K = engine.prior_covariance(places, places).double()
        values = torch.linalg.eigvalsh(0.5 * (K + K.T)).flip(0).clamp_min(0.0) / len(K)
    return np.asarray(values.numpy())


def effective_rank(values: ArrayLike) -> float:
    """exp of the entropy of the normalised eigenvalues: r equal ones give r, a single one gives 1.

    Source: Roy and Vetterli 2007, eq. 2.

    Examples
    --------
    >>> effective_rank([1.0, 1.0, 1.0, 1.0]), effective_rank([3.0, 0.0])
    (4.0, 1.0)
    """
    v = np.asarray(values, dtype=np.float64)
    total = v.sum()
    if not total > 1e-300:  # nothing, or what division would not survive
        return 0.0
    p = v / total
    p = p[p > 0]
    return float(round(math.exp(-float(p @ np.log(p))), 12))


def warn_of_collapse(values: ArrayLike) -> bool:
    """Warn (`RankCollapse`) when the effective rank is below 1.5; returns whether it is.

    Maximum likelihood of a flexible basis with one noise level has a rank-1 optimum (deep-basis-kernel-gp,
    corollary 1): the mean may be right while the latent variance measures the signal's size alone.
    """
    rank = effective_rank(values)
    if rank < COLLAPSED:
        warnings.warn(
            f"the kernel has collapsed to an effective rank of {rank:.2f}: do not read its latent sd; train with "
            "objective 'dppgp' and a larger trace_weight, or take a method with residual 'nystrom' or 'unit'.",
            RankCollapse,
            stacklevel=2,
        )
    return rank < COLLAPSED


def kl_of_truncation(values: ArrayLike, n: int, noise_variance: float) -> Array:
    """KL(N(0, K + s I) || N(0, K_r + s I)) of n rows when K keeps its r leading eigenvalues: (len + 1,), r = 0, 1, ...

    With eigenvalues n v_t of the matrix each one left out costs (x - log(1 + x)) / 2, x = n v_t / s. Exact.

    Source: how-good-are-low-rank-approximations, section 4.3 (the divergence that theorem 3 bounds).

    Parameters
    ----------
    values : of the operator, largest first, see `eigenvalues`

    Examples
    --------
    >>> kl_of_truncation([1.0, 0.0], n=4, noise_variance=1.0).round(3).tolist()
    [1.195, 0.0, 0.0]
    """
    x = n * np.asarray(values, dtype=np.float64) / noise_variance
    each = 0.5 * (x - np.log1p(x))
    return np.concatenate([np.cumsum(each[::-1])[::-1], [0.0]])


def kl_bound(
    values: ArrayLike, n: int, noise_variance: float, *, largest: float, delta: float = 0.1
) -> Array:
    """Theorem 3's bound of that divergence, with probability 1 - delta over the places: (len + 1,), r = 0, 1, ...

    n / (2 s) (T + sqrt(B T / (n delta))), T the sum of the operator's eigenvalues left out, B = max k(x, x).

    Source: how-good-are-low-rank-approximations, theorem 3, eq. 9.
    """
    v = np.asarray(values, dtype=np.float64)
    tail = np.concatenate([np.cumsum(v[::-1])[::-1], [0.0]])
    return n / (2.0 * noise_variance) * (tail + np.sqrt(largest * tail / (n * delta)))


def rank_needed(curve: ArrayLike, n: int, epsilon: float = 0.01) -> int:
    """The smallest rank whose divergence, by a curve of `kl_of_truncation` or `kl_bound`, is at most epsilon n.

    Examples
    --------
    >>> rank_needed([5.0, 2.0, 0.5, 0.0], n=100, epsilon=0.01)
    2
    """
    below = np.flatnonzero(np.asarray(curve) <= epsilon * n)
    if not len(below):
        raise InvalidInput(
            f"no rank of the {len(np.asarray(curve)) - 1} on the curve brings the divergence to {epsilon:g} n; "
            "give more eigenvalues or a larger epsilon."
        )
    return int(below[0])


def fourier_rank_needed(
    values: ArrayLike, n: int, noise_variance: float, *, epsilon: float = 0.01, delta: float = 0.1
) -> int:
    """Random Fourier features that bring the divergence to epsilon n with probability 1 - delta (unit kernel).

    When (1 - D)(K + s I) <= Phi Phi' + s I <= (1 + D)(K + s I), each eigenvalue a of (Phi Phi' + s I)^-1 (K + s I)
    lies in [1 / (1 + D), 1 / (1 - D)] and the divergence is at most n / 2 (D / (1 - D) + log(1 - D)); D is solved
    for, and plain features reach it at 8 / (3 D^2) (n / s) log(16 d / delta) of them, d = sum n v / (n v + s).

    Source: how-good-are-low-rank-approximations, proposition 1 and theorem 2 (which improves the dependence on n
    by sampling other frequencies); Avron et al. 2017, theorem 7.
    """
    if not 0.0 < epsilon < 0.5:
        raise InvalidInput(f"epsilon must lie in (0, 0.5); got {epsilon}.")
    low, high = 0.0, 1.0 - 1e-12
    for _ in range(100):
        D = 0.5 * (low + high)
        low, high = (D, high) if 0.5 * (D / (1 - D) + math.log1p(-D)) < epsilon else (low, D)
    x = n * np.asarray(values, dtype=np.float64)
    freedom = max(float((x / (x + noise_variance)).sum()), 1e-12)
    return math.ceil(8.0 / (3.0 * low**2) * (n / noise_variance) * math.log(max(16.0 * freedom / delta, 2.0)))


def variance_shares(
    model: GPRegressor, X: ArrayLike, counts: ArrayLike | float | None = None
) -> dict[str, float]:
    """Mean shares of the predictive variance at X: `latent` (the surface's) and `noise`; they add up to 1."""
    m = model.moments(X, counts)
    share = (m.latent_variance / (m.latent_variance + m.noise_variance)).double()
    return {"latent": float(share.mean()), "noise": float(1.0 - share.mean())}


def reliability(
    model: GPRegressor, X: ArrayLike, y: ArrayLike, counts: ArrayLike | None = None, *, n_levels: int = 19
) -> dict[str, list]:
    """Data of a reliability diagram and of a PIT histogram.

    Returns
    -------
    levels, achieved : nominal and achieved coverage of central intervals
    low, high : what a calibrated model achieves with probability .99
    pit : share of y in each of 20 equal classes of F(y); .05 each for a calibrated model
    """
    predictive = model.predictive(X, counts)
    u = pit(predictive, np.asarray(y, dtype=np.float64))
    levels = (np.arange(n_levels) + 1.0) / (n_levels + 1.0)
    central = np.abs(2.0 * u - 1.0)
    bands = [binomial_band(len(u), level) for level in levels]
    return {
        "levels": levels.tolist(),
        "achieved": [float((central <= level).mean()) for level in levels],
        "low": [b[0] for b in bands],
        "high": [b[1] for b in bands],
        "pit": (np.histogram(u, bins=20, range=(0.0, 1.0))[0] / len(u)).tolist(),
    }


def non_stationarity(
    model: GPRegressor,
    places: ArrayLike,
    reach: float,
    *,
    n_steps: int = 200,
    columns: tuple[int, int] = (0, 1),
) -> float:
    """How much the kernel's shape depends on where it is looked at: 0 stationary, 1 nothing in common.

    The correlations c(i, d) = corr(f(x_i), f(x_i + d)) of several places x_i with the same displacements d, within
    `reach` in every direction; the index is the share of their variance that the displacement leaves open,
    sum (c - mean over places)^2 / sum (c - mean)^2. A stationary kernel, isotropic or not, gives 0.

    Parameters
    ----------
    places : (m, d) at least two reference inputs, e.g. one urban, one rural and one wild
    reach : longest displacement, in the unit of the columns
    columns : the two that are displaced

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 2)); y = X[:, 0]
    >>> model = GPRegressor(method="sv-rbf", epochs=2, rank=8).fit(X, y)
    >>> non_stationarity(model, X[:3], reach=1.0) < 1e-6
    True
    """
    refs = np.asarray(places, dtype=np.float64)
    if refs.ndim != 2 or len(refs) < 2:
        raise InvalidInput(f"places must be at least two rows of inputs; got shape {refs.shape}.")
    rng = np.random.default_rng(0)
    radius, angle = reach * np.sqrt(rng.random(n_steps)), 2 * np.pi * rng.random(n_steps)
    steps = np.zeros((n_steps, refs.shape[1]))
    steps[:, columns[0]], steps[:, columns[1]] = radius * np.cos(angle), radius * np.sin(angle)
    c = np.empty((len(refs), n_steps))
    for i, ref in enumerate(refs):
        moved = torch.as_tensor(ref + steps)
        k = model.engine_.prior_covariance(moved, torch.as_tensor(ref[None]))[:, 0].double().numpy()
        own = float(
            model.engine_.prior_covariance(torch.as_tensor(ref[None]), torch.as_tensor(ref[None]))[0, 0]
        )
        there = model.engine_.prior_covariance(moved, moved).diagonal().double().numpy()
        c[i] = k / np.sqrt(np.maximum(own * there, 1e-30))
    total = float(np.square(c - c.mean()).sum())
    if total <= 1e-12 * c.size:
        return 0.0
    return float(np.square(c - c.mean(0)).sum() / total)


def report(model: GPRegressor, X: ArrayLike, y: ArrayLike, counts: ArrayLike | None = None) -> dict[str, Any]:
    """Every diagnostic of a fitted model on held-out rows, JSON-able; warns when its rank has collapsed.

    Notes
    -----
    `rank_needed` tells the rank that keeps the divergence of n = len(X) rows below 1% of n, by the eigenvalues
    themselves and by theorem 3's bound.
    """
    values = eigenvalues(model, X)
    n = len(np.asarray(y))
    m = model.moments(X, counts)
    noise = float(m.noise_variance.mean())
    exact = kl_of_truncation(values, n, noise)
    bound = kl_bound(values, n, noise, largest=float(m.prior_variance.max()))
    predictive = model.predictive(X, counts)
    return {
        "eigenvalues": values.tolist(),
        "effective_rank": effective_rank(values),
        "rank_collapsed": warn_of_collapse(values),
        "kl_by_rank": exact.tolist(),
        "rank_needed": {"exact": rank_needed(exact, n), "bound": rank_needed(bound, n)},
        "variance_shares": variance_shares(model, X, counts),
        "reliability": reliability(model, X, y, counts),
        "centred_quantile_metric": centred_quantile_metric(predictive, np.asarray(y, dtype=np.float64)),
    }

"""Where to measure next: the places whose measurements narrow the whole map most, each chosen knowing the others.

One more observation at c takes C(x, c)² / (C(c, c) + τ²(c)) off the variance at x, with C the posterior covariance
of the surface; the best c takes most off the average over the map (active learning Cohn). Then C is what that
observation leaves, C(x, x') - C(x, c) C(c, x') / (C(c, c) + τ²(c)), and the next is chosen: a second point beside the
first gains little, so points spread. Variances do not depend on what will be measured, so all can be known ahead.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from geogp.errors import InvalidInput
from geogp.estimator import GPRegressor

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Suggestions:
    """Places in the order of their choice, and what each is expected to bring; variances in squared units of y.

    chosen : (n,) rows of the candidates
    average_before, average_after : (n,) variance of the surface, averaged over the map, before and after each
    variance_before, variance_after : (n,) at the place itself
    noise_variance : (n,) of the measurement there
    """

    chosen: Int[np.ndarray, " n"]
    average_before: Float[np.ndarray, " n"]
    average_after: Float[np.ndarray, " n"]
    variance_before: Float[np.ndarray, " n"]
    variance_after: Float[np.ndarray, " n"]
    noise_variance: Float[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.chosen)


def suggest_places(
    model: GPRegressor,
    candidates: ArrayLike,
    n: int,
    *,
    places: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    counts: ArrayLike | float | None = None,
    budget: float | None = None,
    spatial: tuple[int, int] = (0, 1),
) -> Suggestions:
    """The n candidates (M, d) to measure next, greedily, for the smallest variance averaged over the map.

    Parameters
    ----------
    model : fitted
    candidates : (M, d) where one may measure, once each
    places : (P, d) over which the variance is averaged; default the candidates. Where these stand for wide cells,
        places of their own keep a measurement from passing for one of its whole cell
    weights : (P,) how much each place counts in the average; default all alike
    counts : measurements behind each new observation; default `typical_count_`. The surface whose variance counts
        is that of `reference_count_`
    budget : length of the path through the chosen places at most, in the unit of their coordinates; then n is a bound
    spatial : the columns of these coordinates

    Raises
    ------
    InvalidInput
        n below 1 or above M; weights that are not P shares.

    Notes
    -----
    O((M + P)²) memory, a choice O(M (M + P)), after one covariance of all places (`geogp.engines.joint`). Noise is that of
    the predictive distribution, as if Gaussian. Of n places together another set may do a little better.

    References
    ----------
    Cohn 1996, Neural network exploration using optimal experiment design; Krause, Singh and Guestrin 2008,
    Near-optimal sensor placements in Gaussian processes (greedy choice)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 5, (200, 2)); y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> model = GPRegressor("local-gp", options={"steps": 20}).fit(X, y)
    >>> found = suggest_places(model, np.array([[1.0, 1.0], [2.0, 2.0], [9.0, 9.0]]), 1)
    >>> found.chosen.tolist()
    [2]
    """
    first = np.asarray(candidates, dtype=np.float64)
    C, noise = covariance_and_noise(model, first, places, counts)
    distances = None if budget is None else cdist(first[:, spatial], first[:, spatial])
    start = 0 if places is None else len(first)
    return greedy(C, noise, n, first_place=start, weights=weights, distances=distances, budget=budget)


def covariance_and_noise(
    model: GPRegressor,
    candidates: Float[np.ndarray, "M d"],
    places: ArrayLike | None,
    counts: ArrayLike | float | None,
) -> tuple[Float[np.ndarray, "N N"], Float[np.ndarray, " M"]]:
    """Posterior covariance of the surface at candidates and places (N = M + P), and the noise variance of a measurement
    at each candidate, in squared units of y; arguments as for `suggest_places`."""
    X = candidates if places is None else np.concatenate([candidates, np.asarray(places, dtype=np.float64)])
    m = model.moments(X, model.reference_count_)
    joint = model.engine_.joint(torch.as_tensor(X), m.latent_variance)
    unit = model.target_sd_**2
    C = unit * joint.covariance(sparse.csr_array(sparse.eye_array(len(X))))
    return C, unit * model.moments(candidates, counts).noise_variance.double().numpy()


def greedy(
    C: Float[np.ndarray, "N N"],
    noise_variance: Float[np.ndarray, " M"],
    n: int,
    *,
    first_place: int = 0,
    weights: ArrayLike | None = None,
    distances: Float[np.ndarray, "M M"] | None = None,
    budget: float | None = None,
) -> Suggestions:
    """n of the first M rows of a posterior covariance C (N, N) whose measurement, one by one, lowers the variance.

    Parameters
    ----------
    noise_variance : (M,) of a measurement at each candidate
    first_place : the rows from here on are the places over which the variance is averaged
    weights : (N - first_place,) of each place in the average, default all alike
    distances, budget : (M, M) between candidates, and how long the path through the chosen ones may be: each is put in
        where it makes the path least longer, and those that no longer fit are left out

    Notes
    -----
    O(n N M). C is left as it is.
    """
    M, N = len(noise_variance), len(C)
    if not 1 <= n <= M:
        raise InvalidInput(f"the number of places to suggest must lie between 1 and {M}; got {n}.")
    w = np.ones(N - first_place) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != (N - first_place,) or not (np.isfinite(w).all() and (w >= 0).all() and w.sum() > 0):
        raise InvalidInput(f"weights must be {N - first_place} numbers, none negative and not all zero.")
    w = w / w.sum()
    average = float(w @ C.diagonal()[first_place:])
    S = np.array(C[:, :M], dtype=np.float64)  # of everything with the candidates: all that is needed
    free = np.ones(M, dtype=bool)
    chosen, averages, before, after = list[int](), [average], list[float](), list[float]()
    path, length = list[int](), 0.0
    for _ in range(n):
        own = np.maximum(S[:M].diagonal(), 0.0)
        gain = (w @ np.square(S[first_place:])) / np.maximum(own + noise_variance, 1e-300)
        if distances is not None and budget is not None and path:
            longer, at = _detours(distances, path)
            free &= length + longer <= budget  # a path only grows, so what does not fit now never will
            if not free.any():
                break
        gain[~free] = -1.0
        c = int(np.argmax(gain))
        free[c] = False
        if distances is not None and path:
            length += float(longer[c])
            path.insert(int(at[c]), c)
        elif distances is not None:
            path = [c]
        column = S[:, c] / np.sqrt(max(own[c] + noise_variance[c], 1e-300))
        S -= np.outer(column, column[:M])
        average -= float(gain[c])
        chosen.append(c)
        averages.append(average)
        before.append(own[c])
        after.append(max(S[c, c], 0.0))
    at = np.array(chosen)
    return Suggestions(
        at,
        np.array(averages[:-1]),
        np.array(averages[1:]),
        np.array(before),
        np.array(after),
        np.asarray(noise_variance, dtype=np.float64)[at],
    )


def _detours(distances: Array, path: list[int]) -> tuple[Array, NDArray[np.int64]]:
    """How much longer a path becomes with each candidate (M,), and where in it the candidate then stands."""
    D = distances[:, path]
    between = D[:, :-1] + D[:, 1:] - distances[path[:-1], path[1:]]
    options = np.column_stack([D[:, 0], between, D[:, -1]])
    at = options.argmin(axis=1)
    return options[np.arange(len(D)), at], at

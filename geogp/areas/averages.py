"""Means over areas, and everything else that depends on a whole area at once.

An area is a row of weights over places (a quadrature: equal weights over a grid of points inside, summing to one).
Its average is f̄ = Σ w_i f(x_i), and its uncertainty needs how the surface's errors at those places go together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import ndtr

from geogp.data import Moments
from geogp.engines.joint import Joint
from geogp.errors import ImpossibleCombination, InvalidInput, seed_of
from geogp.estimator import GPRegressor
from geogp.linalg.workers import Workers, by
from geogp.transforms import Identity, Transform

Array = NDArray[np.float64]
#: (A, N), an array or a sparse one of scipy.
Weights: TypeAlias = Any

#: Draws held at once: 64 of 100,000 points are 51 MB.
DRAWS = 64
#: Places predicted together: few enough that each of several workers has some.
PLACES = 2048
#: Halvings of a bracket of percentiles: to 1e-12 of the surface's range.
HALVINGS = 40


@dataclass(frozen=True)
class AreaMoments:
    """Mean (A,) and covariance (A, A) of the surface's averages over A areas, in the unit of y."""

    mean: Float[np.ndarray, " A"]
    covariance: Float[np.ndarray, "A A"]

    @property
    def sd(self) -> Float[np.ndarray, " A"]:
        """(A,)"""
        return np.sqrt(np.maximum(self.covariance.diagonal(), 0.0))


@dataclass(frozen=True, eq=False)
class Surface:
    """The joint posterior of a model's surface at N places. Make one with `surface`.

    location (N,), factor : u = location + factor * e on the working scale, e from `joint`, y = transform.inverse(u)
    scale : (N,) sd of u
    """

    location: Float[np.ndarray, " N"]
    scale: Float[np.ndarray, " N"]
    factor: float
    joint: Joint
    transform: Transform

    def moments(self, weights: Weights) -> AreaMoments:
        """Exact moments of weighted averages of the surface, a row of weights (A, N) for each.

        Raises
        ------
        ImpossibleCombination
            under a target transform, where averages of y are not Gaussian: take `draws`.
        """
        if not isinstance(self.transform, Identity):
            raise ImpossibleCombination(
                "exact area moments need target_transform 'identity'; use draws under another transform."
            )
        W = _rows(weights, len(self.location))
        return AreaMoments(W @ self.location, self.factor**2 * self.joint.covariance(W))

    def draws(
        self,
        weights: Weights,
        functions: Sequence[Callable[[Array], Array]] = (lambda y: y,),
        n_samples: int = 500,
        random_state: int | None = 0,
    ) -> Float[np.ndarray, "functions A n_samples"]:
        """Joint draws of the averages of functions of y over the areas: (len(functions), A, n_samples).

        All functions and areas see the same draws of the surface, so that sums and differences of results are
        those of the averages: an area in two parts is the weighted sum of both, draw by draw.

        Parameters
        ----------
        functions : elementwise, such as the speed whose logarithm y is, or (y < threshold): the share below it
        """
        W = _rows(weights, len(self.location))
        out = np.empty((len(functions), W.shape[0], n_samples))
        start = 0
        for y in self.batches(n_samples, random_state):
            part = slice(start, start := start + y.shape[1])
            for i, function in enumerate(functions):
                out[i, :, part] = W @ np.asarray(function(y), dtype=np.float64)
        return out

    def batches(self, n_samples: int, random_state: int | None = 0) -> Iterator[Float[np.ndarray, "N draws"]]:
        """The draws of y behind `draws`, at most `DRAWS` at once: (N, draws) each."""
        for number, m in batches_of(n_samples):
            yield self.batch(number, m, random_state)

    def batch(
        self, number: int, n_samples: int, random_state: int | None = 0
    ) -> Float[np.ndarray, "N n_samples"]:
        """One of `batches`: its random numbers are its own, so that whoever draws it draws the same."""
        e = self.joint.draw(n_samples, stream(random_state, number))
        return self.transform.inverse(self.location[:, None] + self.factor * e)

    def percentiles(
        self, weights: Weights, probabilities: Sequence[float]
    ) -> Float[np.ndarray, "probabilities A"]:
        """Percentiles of y within each area: (len(probabilities), A), exact at the points.

        Below the p-percentile the surface is expected to lie on a share p of the area: Σ w_i P(y_i < q) = p. What is
        unsure of the surface counts as well as what differs from place to place.

        Parameters
        ----------
        weights : (A, N) shares, none negative

        Notes
        -----
        O(HALVINGS · len(probabilities) · N) and as many of the matrix' entries.
        """
        W = _rows(weights, len(self.location))
        total = np.asarray(W.sum(axis=1)).ravel()
        row, at = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr)), W.indices
        used = np.unique(at)
        reach = 9.0 * self.scale[used]
        ends = (self.location[used] - reach).min(initial=0.0), (self.location[used] + reach).max(initial=0.0)
        out = np.empty((len(probabilities), W.shape[0]))
        for i, p in enumerate(probabilities):
            low, high = np.full(W.shape[0], ends[0]), np.full(W.shape[0], ends[1])
            for _ in range(HALVINGS):
                middle = 0.5 * (low + high)
                below = W.data * ndtr((middle[row] - self.location[at]) / self.scale[at])
                under = np.bincount(row, below, minlength=W.shape[0]) < p * total
                low, high = np.where(under, middle, low), np.where(under, high, middle)
            out[i] = np.where(total > 0, self.transform.inverse(0.5 * (low + high)), np.nan)
        return out


def batches_of(n_samples: int) -> Iterator[tuple[int, int]]:
    """Number and size of each batch of so many draws.

    Examples
    --------
    >>> list(batches_of(150))
    [(0, 64), (1, 64), (2, 22)]
    """
    for number, start in enumerate(range(0, n_samples, DRAWS)):
        yield number, min(DRAWS, n_samples - start)


def stream(random_state: int | None, *key: int) -> torch.Generator:
    """Random numbers that depend on a seed and a key alone, independent of those of other keys."""
    seeds = np.random.SeedSequence([seed_of(random_state), *key])
    return torch.Generator().manual_seed(int(seeds.generate_state(1, np.uint64)[0]))


def surface(
    model: GPRegressor,
    X: ArrayLike,
    *,
    counts: ArrayLike | float | None = None,
    workers: Workers | None = None,
) -> Surface:
    """The joint posterior of the surface at X (N, d), for averages over areas.

    Parameters
    ----------
    counts : measurements behind the averages whose level the surface is (it may move with them); default
        `reference_count_`
    workers : who predict parts of the places, and work out what all draws share; the same to the last bit

    Raises
    ------
    InvalidInput
        more places than the method takes at once, see `GPRegressor.most_places`.
    """
    X = np.asarray(X, dtype=np.float64)
    n = model.reference_count_ if counts is None else counts
    of_each = n is not None and np.ndim(n) > 0
    if workers is not None:
        model.moments(X[:1], np.asarray(n)[:1] if of_each else n)  # what is to be warned of is told here
    parts = [slice(start, start + PLACES) for start in range(0, max(len(X), 1), PLACES)]
    pieces = ((X[part], np.asarray(n)[part] if of_each else n) for part in parts)
    moments = Moments.joined(list(by(workers, GPRegressor.moments, model, pieces)))
    latent = model.distribution(moments, latent=True)
    joint = model.engine_.joint(torch.as_tensor(X), moments.latent_variance)
    if workers is not None:
        joint.prepare(workers)
    return Surface(latent.location, latent.scale, model.target_sd_, joint, latent.transform)


def area_moments(
    model: GPRegressor, X: ArrayLike, weights: Weights, *, counts: ArrayLike | float | None = None
) -> AreaMoments:
    """Mean and covariance of the surface's averages over areas.

    Parameters
    ----------
    model : fitted
    X : (N, d) places, as `predict` takes them
    weights : (A, N), dense or sparse: row a averages over the places of area a (rows that sum to one)
    counts : see `surface`

    Returns
    -------
    AreaMoments, in the unit of y; the covariance is that of the joint posterior of all places, a local field's
    residual included, positive semi-definite and additive: weights of a union give the union's moments

    Raises
    ------
    ImpossibleCombination
        under a target transform other than "identity".

    Notes
    -----
    Cost by method: `geogp.engines.joint`. Of the integral over an area the quadrature adds at most the surface's variance at
    lengths below its spacing, divided by its number of points.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (300, 2)); y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(300)
    >>> model = GPRegressor("local-gp", options={"steps": 20}).fit(X, y)
    >>> east = X[:, 0] > 5
    >>> halves = np.stack([east / east.sum(), ~east / (~east).sum()])
    >>> found = area_moments(model, X, halves)
    >>> single = model.predict(X, return_std=True, latent=True)[1]
    >>> bool((found.sd < 0.5 * single.min()).all())
    True
    """
    return surface(model, X, counts=counts).moments(weights)


def _rows(weights: Weights, n: int) -> sparse.csr_array:
    """Weights as (A, n) rows."""
    W = weights if sparse.issparse(weights) else np.atleast_2d(np.asarray(weights, dtype=np.float64))
    W = sparse.csr_array(W)
    if W.shape[1] != n:
        raise InvalidInput(f"weights must have one column for each of the {n} places; got shape {W.shape}.")
    if not np.isfinite(W.data).all():
        raise InvalidInput("weights hold NaN or infinity; give each place of an area a share of it.")
    return W

"""Kernels and noises that few rows bear out about as well as the best: predictions are averaged over them.

Few rows leave open how far a surface reaches and what of them is noise, and the likeliest answer is often an extreme one: all noise, or
none. Here the answers are weighed by the rows' likelihood and by a prior, on a grid of three numbers: the lengths, the surface's sd
and the noise's sd; what else was learned stays. Of few places, however often they are measured, lengths and the surface's sd are as
open; the noise is not.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from geogp.field.frame import SPACINGS
from geogp.field.likelihood.together import LARGE, SHORT
from geogp.field.local_gp import LocalGP
from geogp.field.observations import Observations
from geogp.field.student import heavy_tailed, student_weights
from geogp.linalg.distinct import distinct

Array = NDArray[np.float64]

#: Fewer rows are averaged over, all of which predictions rest on; still fewer have no say.
BELOW, FROM = 128, 5
#: And fewer rows of fewer places that are measured at many times, of which about so many speak.
ROWS_BELOW, PLACES_BELOW, SPEAK = 1000, 64, 256
#: Lengths of the widest term from so many spacings to so many extents of the data, sds of the surface and of the noise for values
#: whose sd is about 1.
SHORTEST, LONGEST = 0.5, 2.0
SURFACE, NOISE = (0.1, 3.0), (1e-4, 1.5)
#: How many of each are asked, and how many then where these have more than such a share of all.
COARSE, FINE, MATTERS = (12, 9, 20), (8, 12, 16), 1e-3
#: Rate of the noise's sd.
LOUD = 1.0


@dataclass(frozen=True, eq=False)
class Averaged:
    """Answers beside a local GP: weights (M,) that sum to one, and (M, 3) logarithms of how many times its lengths, its surface's
    variance and its noise's variance they have.

    References
    ----------
    Handcock and Stein 1993, A Bayesian analysis of kriging; Fuglstad, Simpson, Lindgren and Rue 2019 (the prior)
    """

    weight: Float[Tensor, " M"]
    times: Float[Tensor, "M 3"]

    def of(self, gp: LocalGP) -> list[tuple[float, LocalGP]]:
        """Each, with its weight."""
        return [(w, gp.times(*each)) for w, each in zip(self.weight.tolist(), self.times.exp().tolist())]

    def centred(self, gp: LocalGP) -> tuple[LocalGP, "Averaged"]:
        """The local GP in their middle, and they beside that one."""
        middle = self.weight @ self.times
        return gp.times(*middle.exp().tolist()), replace(self, times=self.times - middle)


def averaged(
    gp: LocalGP, seen: Observations, columns: Float[Tensor, "n q"], prior_sd: float
) -> Averaged | None:
    """What rows bear out beside a local GP that was fitted to them; None where they, or their places, are too many, too few or all
    the same.

    columns, prior_sd : of the drift, whose weights are integrated out

    Notes
    -----
    O(n³) for each of 20 lengths, n 256 at most: sds of surface and noise are told apart by the eigenvalues of one matrix. The points
    stand for the mean and covariance of the logarithms, moved together so that the variances have their own means, too.

    Examples
    --------
    >>> from geogp.field.kernel import LocalKernel
    >>> X = torch.rand(30, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> gp = LocalGP(LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern32",)), 0.1, 0.0, None, torch.zeros(0), ())
    >>> found = averaged(gp, gp.observed(X, X[:, 0].sin(), torch.ones(30).double()), torch.ones(30, 1).double(), 3.0)
    >>> round(float(found.weight.sum()), 6), found.times.shape[1]
    (1.0, 3)
    """
    if bool((seen.value == seen.value[0]).all()) or len(seen) < FROM:
        return None
    alike = float(seen.noise_variance.mean())
    noises, how_many = np.geomspace(*NOISE, COARSE[-1]), FINE
    if len(seen) >= BELOW:
        some = _of_few_places(seen.X, gp.kernel.time_axis)
        if some is None:
            return None
        seen, columns = seen.at(some), columns[some]
        noises, how_many = np.array([math.sqrt(alike)]), (*FINE[:-1], 1)
    kernel, noise = gp.kernel, seen.noise_variance
    if heavy_tailed(tails := gp.tails):
        K, left = kernel(seen.X, seen.X), seen.value - columns @ torch.linalg.pinv(columns) @ seen.value
        noise = noise / student_weights(K[None], noise[None], left[None], tails)[0]
    own = float(kernel.prior_at(seen.X).mean())
    widest = int(kernel.log_variance.argmax())
    length = float(kernel.log_lengthscale[widest, :2].mean())
    space = seen.X[:, :2]
    extent = float((space.amax(0) - space.amin(0)).norm())
    spacing = 1.0 / SPACINGS
    root = (alike / noise).sqrt()
    value, phi = ((root[:, None] * v).numpy() for v in (seen.value[:, None], columns))

    def bearing(lengths: Array, surface: Array, noise: Array) -> Array:
        """How likely all these are, prior included: densities by logarithms of lengths and sds."""
        out = np.empty((len(lengths), len(surface), len(noise)))
        for i, reach in enumerate(lengths):
            among = gp.times(reach / math.exp(length), 1.0, 1.0).kernel(seen.X, seen.X)
            K = (root[:, None] * among * root / own).numpy()
            out[i] = _evidence(K, value[:, 0], phi, surface, noise, prior_sd) - SHORT * spacing / reach
        out += np.log(surface)[:, None] - LARGE * surface[:, None] + np.log(noise) - LOUD * noise
        return np.asarray(np.exp(out - out.max()))

    ends = (SHORTEST * spacing, max(LONGEST * extent, 2.0 * SHORTEST * spacing)), SURFACE
    grid = [*(np.geomspace(*end, n) for end, n in zip(ends, COARSE)), noises]
    grid = [np.geomspace(*end, n) for end, n in zip(_where_it_matters(grid, bearing(*grid)), how_many)]
    mass = bearing(*grid)
    lengths, surface, noises = _points(grid, mass).T
    # A long tail towards no noise at all is none towards much: the variances have their own means.
    surface = _with_mean_square(surface, grid[1], mass.sum((0, 2)))
    noises = _with_mean_square(noises, grid[2], mass.sum((0, 1)))
    at = np.stack([lengths - length, 2.0 * surface - math.log(own), 2.0 * noises - math.log(alike)], axis=1)
    return Averaged(torch.full((len(at),), 1.0 / len(at), dtype=torch.float64), torch.from_numpy(at))


def _of_few_places(X: Float[Tensor, "n D"], time_axis: int | None) -> Tensor | None:
    """Numbers of rows that speak for all: of each place some evenly through its times; None where rows or places are many.

    Examples
    --------
    >>> X = torch.cartesian_prod(torch.arange(60.0), torch.zeros(1), torch.arange(12.0))
    >>> some = _of_few_places(X, 2)
    >>> len(some), X[some[:4], 2].tolist()
    (240, [1.0, 4.0, 7.0, 10.0])
    """
    if time_axis is None or len(X) >= ROWS_BELOW:
        return None
    places, at = distinct(X[:, :2].numpy())
    if len(places) >= PLACES_BELOW:
        return None
    order = np.lexsort((X[:, time_axis].numpy(), at))
    many = np.bincount(at)
    rank = np.arange(len(X)) - np.repeat(np.cumsum(many) - many, many)
    every = -(-len(X) // SPEAK)
    chosen = rank % every == np.minimum(every // 2, np.repeat(many, many) - 1)
    return torch.from_numpy(np.sort(order[chosen]))


def _evidence(K: Array, value: Array, phi: Array, surface: Array, noise: Array, prior_sd: float) -> Array:
    """Log density of values (n,) with covariance s² K + t² I + prior_sd² φφ', for all s of the surface and t of the noise."""
    size, axes = np.linalg.eigh(K)
    value, phi = axes.T @ value, axes.T @ phi
    variance = surface[:, None, None] ** 2 * size.clip(0.0) + noise[:, None] ** 2
    weighted = phi / variance[..., None]
    precision = phi.T @ weighted + np.eye(phi.shape[1]) / prior_sd**2
    told = (weighted.swapaxes(-1, -2) @ value)[..., None]
    explained = (told * np.linalg.solve(precision, told)).sum((-1, -2))
    volume = np.log(variance).sum(-1) + np.linalg.slogdet(precision)[1]
    return np.asarray(-0.5 * (volume + (value**2 / variance).sum(-1) - explained))


def _where_it_matters(grid: list[Array], mass: Array) -> list[tuple[float, float]]:
    """Along each axis the ends of what has more than a little of the mass, and a step beyond."""
    ends = []
    for axis, values in enumerate(grid):
        others = tuple(a for a in range(mass.ndim) if a != axis)
        along = np.flatnonzero(mass.sum(others) > MATTERS * mass.sum())
        ends.append((values[max(along[0] - 1, 0)], values[min(along[-1] + 1, len(values) - 1)]))
    return ends


def _points(grid: list[Array], mass: Array) -> Array:
    """Logarithms (2 q, d) whose mean and covariance are those of the mass of a grid of d axes, q of more than one value: on either
    side of the mean along each principal axis, √q sd away. They stand for all of it up to polynomials of degree three, for a normal
    distribution.

    References
    ----------
    Stroud 1971, Approximate calculation of multiple integrals; Arasaratnam and Haykin 2009, Cubature Kalman filters

    Examples
    --------
    >>> _points([np.exp([-1.0, 0.0, 1.0]), np.exp([2.0])], np.ones((3, 1))).round(3).tolist()
    [[0.816, 2.0], [-0.816, 2.0]]
    """
    share = mass.ravel() / mass.sum()
    logs = np.stack(np.meshgrid(*map(np.log, grid), indexing="ij"), axis=-1).reshape(-1, len(grid))
    middle = share @ logs
    size, axes = np.linalg.eigh((share[:, None] * (logs - middle)).T @ (logs - middle))
    q = sum(len(values) > 1 for values in grid)
    steps = (axes * np.sqrt(q * size.clip(0.0))).T[len(grid) - q :]
    return np.concatenate([middle + steps, middle - steps])


def _with_mean_square(logs: Array, values: Array, mass: Array) -> Array:
    """Logarithms of points moved together, so that the mean of their squares is that of values under a mass."""
    wanted = mass @ np.square(values) / mass.sum()
    return logs + 0.5 * np.log(wanted / np.exp(2.0 * logs).mean())

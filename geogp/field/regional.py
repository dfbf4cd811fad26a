"""The regional surface g: what the wider surroundings say, from all observations and not just the nearest.

Far from data a place's 48 nearest neighbours are a few places on the edge of a gap, each measured many times. If one
of them is exceptional in every quarter, no weight of a single observation tells. Here places have one vote each:

    M_p = g(x_p) + e_p,   g ~ GP(0, v_g · Matérn-3/2 of a long range),   e_p ~ Student-t(0, v_e + variance of M_p)

with M_p the weighted mean at place p. g has low rank (inducing points on a grid), so that leaving rows out, as the
smooth noise needs it, costs one small solve.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from geogp.densities import matern
from geogp.field.predict.lattice import interpolated
from geogp.field.student import heavy_tailed
from geogp.linalg import cholesky, distances, inverse_factor
from geogp.linalg.distinct import distinct
from geogp.linalg.slopes import gram

#: Inducing points; a range of 100 spacings needs few.
RANK = 256
#: More places than this are put together by grid cells.
MOST_SITES = 20_000
#: Solves with weights renewed in between; Gaussian observations need one.
SOLVES = 4
#: Relative to a unit diagonal: inducing points lie far closer together than the range.
JITTER = 1e-8
#: Rows evaluated at once: their basis stays in the cache.
ROWS_AT_ONCE = 512
#: Nodes of the lattice for many places, a range; beyond so many ranges of all centres nothing is left of g.
NODES_A_RANGE, NOTHING_LEFT = 24, 60.0
#: Variances below are none.
LEAST = 1e-12


def thinned(P: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of places P (N, 2) in the cells of the finest square grid with at most `most` occupied cells.

    Returns
    -------
    (M, 2) means and (N,) the row of each place; P itself where it has at most `most` distinct rows

    Examples
    --------
    >>> thinned(np.array([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0]]), 2)[0].tolist()
    [[0.05, 0.0], [9.0, 9.0]]
    """
    sites, row = distinct(P)
    if len(sites) <= most:
        return sites, row
    origin, span = sites.min(axis=0), float(np.ptp(sites, axis=0).max())

    def cells(across: int) -> np.ndarray:  # one number each, whose order is that of the pairs
        cell = np.minimum(np.floor((sites - origin) / span * across), across - 1).astype(np.int64)
        return cell[:, 0] * across + cell[:, 1]

    few, many = 1, 4096
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if len(np.unique(cells(middle))) <= most else (few, middle)
    occupied, number = np.unique(cells(few), return_inverse=True)
    count = len(occupied)
    size = np.bincount(number, minlength=count)
    means = np.stack([np.bincount(number, sites[:, d], count) / size for d in range(2)], axis=1)
    return means, number[row]


@dataclass(frozen=True)
class Region:
    """Places and inducing points, shared by every surface fitted to some of the observations.

    centres : (r, 2) inducing points; factor : (r, r) Cholesky factor of their correlation
    lengthscale : in the unit of the coordinates
    site : (n,) number of each observation's place; basis : (sites, r) whitened basis at the places
    """

    centres: Tensor
    factor: Tensor
    lengthscale: float
    site: Tensor
    basis: Tensor

    @classmethod
    def of(cls, P: Tensor, lengthscale: float) -> "Region":
        """From the places P (n, 2) of all observations."""
        sites, site = thinned(P.numpy(), MOST_SITES)
        centres = torch.from_numpy(thinned(sites, RANK)[0])
        K = _correlation(centres, centres, lengthscale)
        factor = cholesky(K, jitter=JITTER, what="the regional surface's inducing points")
        empty = torch.zeros(0, len(centres), dtype=P.dtype)
        bare = cls(centres, factor, lengthscale, torch.from_numpy(site), empty)
        return replace(bare, basis=bare.at(torch.from_numpy(sites)))

    def at(self, P: Tensor) -> Tensor:
        """Whitened basis at P (N, 2): (N, r)."""
        return _correlation(P, self.centres, self.lengthscale) @ self._half.T

    @cached_property
    def _half(self) -> Tensor:
        return inverse_factor(self.factor)


@dataclass(frozen=True)
class RegionalSurface:
    """g given some observations: coefficients (r,) of the basis, the Cholesky factor (r, r) of their precision, v_g."""

    region: Region
    coefficients: Tensor
    factor: Tensor
    prior_variance: float

    def __call__(self, P: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of g at P (N, 2): (N,) each; far from all places 0 and v_g.

        Notes
        -----
        O(N r²) time, memory that does not grow with N beyond the result.
        """
        return self._moments([self.region.at(p) for p in P.split(ROWS_AT_ONCE)])

    def between_nodes(self, P: Tensor) -> tuple[Tensor, Tensor]:
        """The same at P (N, 2), by cubic interpolation between nodes that are a twenty-fourth of a range apart.

        Notes
        -----
        O(N) where places lie closer than the nodes. The mean is off by a thousandth of its sd at most, the variance,
        interpolated on a log scale, by a few percent where centres crowd.
        """
        reach = NOTHING_LEFT * self.region.lengthscale
        low, high = self.region.centres.aminmax(dim=0)
        mean, log_variance = interpolated(
            self._on_log_scale, P.clamp(low - reach, high + reach), self.region.lengthscale / NODES_A_RANGE
        )
        return mean, log_variance.exp()

    def _on_log_scale(self, P: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = self(P)
        return mean, variance.clamp_min(LEAST).log()

    @cached_property
    def _half(self) -> Tensor:
        return inverse_factor(self.factor)

    def at_observations(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance at the places of the observations `rows` (m,)."""
        return self._moments([self.region.basis[self.region.site[i]] for i in rows.split(ROWS_AT_ONCE)])

    def _moments(self, pieces: list[Tensor]) -> tuple[Tensor, Tensor]:
        mean = [phi @ self.coefficients for phi in pieces]
        half = [phi @ self._half.T for phi in pieces]
        # What the basis cannot carry at a place is unknown there.
        variance = [
            v.square().sum(1) + self.prior_variance * (1.0 - phi.square().sum(1)).clamp_min(0.0)
            for v, phi in zip(half, pieces)
        ]
        return torch.cat(mean), torch.cat(variance)


def fit_regional(
    region: Region,
    rows: Tensor,
    value: Tensor,
    noise_variance: Tensor,
    *,
    place_variance: float,
    prior_variance: float,
    degrees_of_freedom: float | None = None,
) -> RegionalSurface:
    """The regional surface given the observations `rows` (m,) of the region.

    Parameters
    ----------
    value, noise_variance : (n,) of all observations; only `rows` are used
    place_variance : v_e, what places differ by beside g
    prior_variance : v_g
    degrees_of_freedom : of places and of observations; None, or 30 and more, for Gaussian ones

    Notes
    -----
    O(sites r² + r³) a reweighting (iteratively reweighted least squares), r <= 256, sites <= 20,000.

    References
    ----------
    Lange, Little and Taylor 1989, section 3 (Student-t by reweighting); Quiñonero-Candela and Rasmussen 2005,
    section 6 (the basis of inducing points and what it leaves)

    Examples
    --------
    >>> P = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]).double()
    >>> some = dict(place_variance=0.1, prior_variance=1.0)
    >>> one = torch.ones(3).double()
    >>> g = fit_regional(Region.of(P, 50.0), torch.arange(3), one, 0.01 * one, **some)
    >>> [round(float(v), 2) for v in g(torch.tensor([[1.0, 0.0], [9000.0, 0.0]]).double())[0]]
    [0.96, 0.0]
    """
    site, y, own = region.site[rows], value[rows], noise_variance[rows]
    n_sites, r = region.basis.shape
    robust = heavy_tailed(degrees_of_freedom)
    nu = degrees_of_freedom or 0.0
    by_row, by_site = torch.ones_like(y), torch.ones(n_sites, dtype=y.dtype)
    occupied = torch.bincount(site, minlength=n_sites) > 0
    phi = region.basis[occupied]
    coefficients, factor = y.new_zeros(r), torch.eye(r, dtype=y.dtype)
    for _ in range(SOLVES if robust else 1):
        weight = by_row / own
        total = torch.zeros(n_sites, dtype=y.dtype).index_add(0, site, weight)
        mean = torch.zeros(n_sites, dtype=y.dtype).index_add(0, site, weight * y) / total.clamp_min(1e-300)
        variance = place_variance + 1.0 / total[occupied]
        precision = by_site[occupied] / variance
        A = gram(phi * precision.sqrt()[:, None]) + torch.eye(r, dtype=y.dtype) / prior_variance
        factor = cholesky(A, jitter=0.0, what="the regional surface's normal equations")
        right = phi.T @ (precision * mean[occupied])
        coefficients = torch.cholesky_solve(right[:, None], factor)[:, 0]
        if robust:
            away = mean[occupied] - phi @ coefficients
            by_site[occupied] = (nu + 1.0) / (nu + away.square() / variance)
            by_row = (nu + 1.0) / (nu + (y - mean[site]).square() / own)
    return RegionalSurface(region, coefficients, factor, prior_variance)


def _correlation(A: Tensor, B: Tensor, lengthscale: float) -> Tensor:
    return matern(distances(A / lengthscale, B / lengthscale), "matern32")

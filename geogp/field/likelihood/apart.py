"""Counts apart from where they were made: what tells a shift with the count from a surface that counts follow."""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor

from geogp.densities import matern
from geogp.field.likelihood.repeated import Places
from geogp.field.solve import JITTER
from geogp.linalg import cholesky, with_diagonal

#: Lengths, in extents of the data, of the surfaces that are tried, and noise variances beside theirs.
LENGTHS, NOISES = (0.03, 0.1, 0.3), (0.03, 0.2, 1.0, 8.0)


def apart_from_places(P: Float[Tensor, "N 2"], columns: Float[Tensor, "N q"]) -> Float[Tensor, "N q"]:
    """Columns less what the places P say of them: the likeliest of some surfaces of each, given all rows.

    Where most is measured where values are high, counts stand for the surface, and a shift with the count takes of it what they do.
    A count that is not what its place lets expect tells the shift alone: of places that are seen again and again each from the others there.

    Notes
    -----
    O(p³) for each of twelve surfaces of p different places.

    References
    ----------
    Dupont, Wood and Augustin 2022, Spatial+: a novel approach to spatial confounding

    Examples
    --------
    >>> P = torch.rand(60, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> by_itself = torch.randn(60, generator=torch.Generator().manual_seed(1)).double()
    >>> both = torch.stack([P[:, 0].sin(), by_itself], dim=1)
    >>> [bool(left.std() < 0.1 * each.std()) for left, each in zip(apart_from_places(P, both).T, both.T)]
    [True, False]
    """
    places = Places.of(P)
    often = places.summed(torch.ones_like(columns[:, :1]))
    means = places.summed(columns) / often
    if places.repeat:
        return columns - means[places.at]
    at = P[places.first]
    extent = float((at.amax(0) - at.amin(0)).norm())
    away = torch.cdist(at, at) / extent
    best = torch.full_like(means[0], torch.inf)
    surface = torch.zeros_like(means)
    for length, noise in itertools.product(LENGTHS, NOISES):
        K = matern(away / length, "matern32")
        L = cholesky(with_diagonal(K, noise / often[:, 0]), jitter=JITTER, what="the counts' covariance")
        one = torch.cholesky_solve(torch.ones_like(often), L)
        middle = one.T @ means / one.sum()
        weights = torch.cholesky_solve(means - middle, L)
        size = ((means - middle) * weights).sum(0) / len(at)
        loss = 0.5 * len(at) * size.clamp_min(torch.finfo(size.dtype).tiny).log() + L.diagonal().log().sum()
        surface = torch.where(loss < best, middle + K @ weights, surface)
        best = torch.minimum(loss, best)
    return columns - surface[places.at]

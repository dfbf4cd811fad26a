"""Draws of a local kernel's Gaussian process at many points, term by term, each point given nearby earlier ones."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu
from torch import Tensor

from geogp.field.earlier import earlier, nearest
from geogp.field.kernel import LocalKernel
from geogp.field.solve import Neighbourhoods
from geogp.linalg import cholesky

Array = NDArray[np.float64]

#: Earlier points each point is drawn given.
ANCESTORS = 30
#: Relative jitter: points may coincide.
JITTER = 1e-9
#: Points solved at once, and draws at once: 16 columns keep the triangular solve in the cache.
POINTS_AT_ONCE, DRAWS_AT_ONCE = 512, 16


class PriorSampler:
    """f ~ GP(0, k) at X (n, D), drawn point by point in a random order (Vecchia's approximation of the prior).

    f_j = a_j' f_(ancestors of j) + sqrt(d_j) ε_j, the ancestors being the nearest, in the term's own lengthscales, of
    the points before j; exact when n <= ANCESTORS + 1. Each additive term of the kernel is drawn by itself: a sum of
    a short and a long one hides the long one from the nearest points, a single Matérn term does not.

    Notes
    -----
    O(n m³) once, O(n m) a draw and term, with m ancestors; O(n m) memory.

    References
    ----------
    Vecchia 1988; Guinness 2018, Permutation and grouping methods for sharpening Gaussian process approximations
    (random orders do nearly as well as the best)

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> sampler = PriorSampler(kernel, torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    >>> sampler.draw(5, torch.Generator().manual_seed(0)).shape
    (2, 5)
    """

    def __init__(self, kernel: LocalKernel, X: Tensor, *, ancestors: int = ANCESTORS, seed: int = 0):
        # Coinciding points are one point, drawn once.
        places, self.place = np.unique(X.double().numpy(), axis=0, return_inverse=True)
        self.place = self.place.ravel()
        self.order = np.random.default_rng(seed).permutation(len(places))
        P = torch.from_numpy(places[self.order])
        self.factors = [_factor(kernel.term(c), P, ancestors) for c in range(len(kernel.smoothness))]

    def draw(self, n_samples: int, generator: torch.Generator) -> Array:
        """(n, n_samples)"""
        n = len(self.order)
        total = np.zeros((n, n_samples))
        for first in range(0, n_samples, DRAWS_AT_ONCE):
            width = min(DRAWS_AT_ONCE, n_samples - first)
            for solver, sd in self.factors:
                noise = torch.randn(width, n, generator=generator, dtype=torch.float64).numpy().T
                total[:, first : first + width] += solver.solve(sd[:, None] * noise)
        out = np.empty_like(total)
        out[self.order] = total
        return out[self.place]


def _factor(term: LocalKernel, P: Tensor, ancestors: int) -> tuple[SuperLU, Array]:
    """(I - A) ready to solve with, and the conditional sds, for points in their order."""
    scaled = (P * torch.exp(-term.log_lengthscale[0])).numpy()
    index = earlier(scaled, max(min(ancestors, len(P) - 1), 1), nearest)
    coefficients, left = [], []
    with torch.no_grad():
        variances = term.prior_at(P).expand(len(P))
        typical = float(variances.mean())
        for start in range(0, len(P), POINTS_AT_ONCE):
            part = slice(start, start + POINTS_AT_ONCE)
            near = Neighbourhoods.of(term, P[part], P, torch.from_numpy(index[part]))
            missing = torch.diag_embed((~near.present).double()) * typical
            L = cholesky(near.among + missing, jitter=JITTER, what="the covariance of neighbouring points")
            a = torch.cholesky_solve(near.across[..., None], L)[..., 0]
            coefficients.append(a)
            v = variances[part]
            left.append(torch.maximum(v - (a * near.across).sum(-1), JITTER * v))
    n, m = index.shape
    rows, inside = np.repeat(np.arange(n), m), (index >= 0).ravel()
    values = -torch.cat(coefficients).numpy().ravel()[inside]
    lower = sparse.csc_array((values, (rows[inside], index.ravel()[inside])), shape=(n, n))
    # Triangular already: the factorisation fills nothing in and pivots nowhere.
    solver = splu((lower + sparse.eye_array(n)).tocsc(), permc_spec="NATURAL", diag_pivot_thresh=0.0)
    return solver, torch.cat(left).sqrt().numpy()

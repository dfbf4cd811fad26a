"""Draws of a local kernel's Gaussian process at many points, term by term, each point given nearby earlier ones."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu
from scipy.spatial import cKDTree
from torch import Tensor

from geogp.field.kernel import LocalKernel
from geogp.field.kernel_sums import term_of
from geogp.linalg import cholesky

Array = NDArray[np.float64]

#: Earlier points each point is drawn given.
ANCESTORS = 30
#: Relative jitter: points may coincide.
JITTER = 1e-9
#: Points solved at once, and draws at once: 16 columns keep the triangular solve in the cache.
CHUNK, COLUMNS = 512, 16


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
    """

    def __init__(self, kernel: LocalKernel, X: Tensor, *, ancestors: int = ANCESTORS, seed: int = 0):
        # Coinciding points are one point, drawn once.
        places, self.place = np.unique(X.double().numpy(), axis=0, return_inverse=True)
        self.place = self.place.ravel()
        self.order = np.random.default_rng(seed).permutation(len(places))
        P = torch.from_numpy(places[self.order])
        self.factors = [_factor(term_of(kernel, c), P, ancestors) for c in range(len(kernel.smoothness))]

    def draw(self, n_samples: int, generator: torch.Generator) -> Array:
        """(n, n_samples)"""
        n = len(self.order)
        total = np.zeros((n, n_samples))
        for first in range(0, n_samples, COLUMNS):
            width = min(COLUMNS, n_samples - first)
            for solver, sd in self.factors:
                noise = torch.randn(width, n, generator=generator, dtype=torch.float64).numpy().T
                total[:, first : first + width] += solver.solve(sd[:, None] * noise)
        out = np.empty_like(total)
        out[self.order] = total
        return out[self.place]


def _factor(term: LocalKernel, P: Tensor, ancestors: int) -> tuple[SuperLU, Array]:
    """(I - A) ready to solve with, and the conditional sds, for points in their order."""
    index = _earlier((P * torch.exp(-term.log_lengthscale[0])).numpy(), ancestors)
    variance = float(term.prior_variance)
    coefficients, left = [], []
    with torch.no_grad():
        for start in range(0, len(P), CHUNK):
            i = torch.from_numpy(index[start : start + CHUNK])
            present = (i >= 0).double()
            A = P[i.clamp_min(0)]
            K = term(A, A) * (present[:, :, None] * present[:, None, :])
            K = K + torch.diag_embed((1.0 - present) * variance)
            k = term(P[start : start + CHUNK, None, :], A)[:, 0, :] * present
            L = cholesky(K, jitter=JITTER, what="the covariance of neighbouring points")
            a = torch.cholesky_solve(k[..., None], L)[..., 0]
            coefficients.append(a)
            left.append((variance - (a * k).sum(-1)).clamp_min(JITTER * variance))
    n, m = index.shape
    rows, inside = np.repeat(np.arange(n), m), (index >= 0).ravel()
    values = -torch.cat(coefficients).numpy().ravel()[inside]
    lower = sparse.csc_array((values, (rows[inside], index.ravel()[inside])), shape=(n, n))
    # Triangular already: the factorisation fills nothing in and pivots nowhere.
    solver = splu((lower + sparse.eye_array(n)).tocsc(), permc_spec="NATURAL", diag_pivot_thresh=0.0)
    return solver, torch.cat(left).sqrt().numpy()


def _earlier(P: Array, m: int) -> NDArray[np.int64]:
    """Up to m of the nearest rows before each row of P (n, d), -1 for none: (n, m).

    The rows of each half are looked up among all before its end, of which at least half lie before the row.
    """
    n = len(P)
    out = np.full((n, max(min(m, n - 1), 1)), -1, dtype=np.int64)
    stop = n
    while stop > 1:
        begin = stop // 2
        found = cKDTree(P[:stop]).query(P[begin:stop], k=np.arange(1, min(3 * m + 8, stop) + 1))[1]
        found[found >= np.arange(begin, stop)[:, None]] = -1
        first = np.argsort(found < 0, axis=1, kind="stable")[:, : out.shape[1]]
        out[begin:stop, : first.shape[1]] = np.take_along_axis(found, first, axis=1)
        stop = begin
    return out

"""Draws of a local kernel's Gaussian process at many points, term by term, each point given nearby earlier ones."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree
from torch import Tensor

from geogp.field.earlier import earlier, nearest
from geogp.field.kernel import LocalKernel
from geogp.field.solve import Neighbourhoods
from geogp.linalg import cholesky
from geogp.linalg.distinct import distinct
from geogp.linalg.threads import side_by_side
from geogp.linalg.workers import Workers, by

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: Earlier points each point is drawn given.
ANCESTORS = 30
#: Relative jitter: points may coincide.
JITTER = 1e-9
#: Points solved at once, and draws at once.
POINTS_AT_ONCE, DRAWS_AT_ONCE = 128, 32
#: So many times the points that are solved at once are sent together.
SENT = 16
#: Points looked at together while generations are counted, as a share of those before.
TOGETHER = 0.1


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

    def __init__(
        self,
        kernel: LocalKernel,
        X: Tensor,
        *,
        ancestors: int = ANCESTORS,
        seed: int = 0,
        workers: Workers | None = None,
    ):
        # Coinciding points are one point, drawn once.
        places, place = distinct(X.double().numpy())
        order = np.random.default_rng(seed).permutation(len(places))
        P = torch.from_numpy(places[order])
        self.n_drawn, drawn_as = len(places), np.argsort(order)[place]
        terms = [kernel.term(c) for c in range(len(kernel.smoothness))]
        self.factors = [_factor(term, P, ancestors, workers) for term in terms]
        self.drawn_as = [factor.place[drawn_as] for factor in self.factors]

    def draw(self, n_samples: int, generator: torch.Generator) -> Array:
        """(n, n_samples)"""
        total = np.zeros((len(self.drawn_as[0]), n_samples))
        for first in range(0, n_samples, DRAWS_AT_ONCE):
            width = min(DRAWS_AT_ONCE, n_samples - first)
            for factor, drawn_as in zip(self.factors, self.drawn_as):
                noise = torch.randn(self.n_drawn, width, generator=generator)
                total[:, first : first + width] += factor.drawn(noise)[drawn_as]
        return total


@dataclass(frozen=True)
class _Factor:
    """f = A f + sd ε, where A takes each point's ancestors; points by generations, none of which has ancestors in its own.

    place : (n,) where in that order each point stands, those of a generation as they lie together, for what lies together
        has ancestors in common; sd : (n,) in that order; generations : of each its last point, and its rows of A
    """

    place: Index
    sd: Array
    generations: list[tuple[int, sparse.csr_array]]

    @classmethod
    def of(cls, P: Array, index: Index, coefficients: Array, sd: Array) -> "_Factor":
        """From points P (n, d), each one's ancestors (n, m), -1 for none, all of them before it, and their coefficients (n, m)."""
        n = len(index)
        generation, beside = generations(index), np.empty(n, dtype=np.int64)
        beside[cKDTree(P).indices] = np.arange(n)
        at = np.lexsort((beside, generation))
        place = np.empty(n, dtype=np.int64)
        place[at] = np.arange(n)
        inside = index[at] >= 0
        columns = place[index[at]][inside]
        starts = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
        A = sparse.csr_array((coefficients[at][inside], columns, starts), shape=(n, n))
        ends = np.cumsum(np.bincount(generation))
        return cls(place, sd[at], [(int(e), A[b:e]) for b, e in pairwise(ends)])

    def drawn(self, noise: Tensor) -> Array:
        """(n, draws) in its order, from standard normal noise (n, draws)."""
        f = noise.numpy() * self.sd[:, None]
        for end, A in self.generations:
            f[end - A.shape[0] : end] += A @ f
        return f


def generations(index: Index) -> Index:
    """The longest line of ancestors of each point, (n,), from the ancestors of each (n, m), -1 for none.

    Examples
    --------
    >>> generations(np.array([[-1, -1], [0, -1], [0, 1], [0, -1]])).tolist()
    [0, 1, 2, 1]
    """
    n = len(index)
    out = np.full(n + 1, -1, dtype=np.int64)  # the last one is nobody's, and the ancestor of those without
    start = 0
    while start < n:
        stop = min(n, start + 1 + int(TOGETHER * start))
        while True:
            found = out[index[start:stop]].max(axis=1) + 1
            if np.array_equal(found, out[start:stop]):
                break
            out[start:stop] = found
        start = stop
    return out[:n]


@dataclass(frozen=True)
class _Line:
    """Points P (n, d) in their order, the ancestors of each (n, m), and their prior variances (n,) under a term."""

    term: LocalKernel
    P: Tensor
    index: Index
    variances: Tensor
    typical: float

    def given(self, start: int) -> tuple[Tensor, Tensor]:
        """Of some points from one on: coefficients of their ancestors, and what is left of the variance."""
        part = slice(start, start + POINTS_AT_ONCE)
        near = Neighbourhoods.of(self.term, self.P[part], self.P, torch.from_numpy(self.index[part]))
        missing = torch.diag_embed((~near.present).double()) * self.typical
        L = cholesky(near.among + missing, jitter=JITTER, what="the covariance of neighbouring points")
        a = torch.cholesky_solve(near.across[..., None], L)[..., 0]
        v = self.variances[part]
        return a, torch.maximum(v - (a * near.across).sum(-1), JITTER * v)


def _factor(term: LocalKernel, P: Tensor, ancestors: int, workers: Workers | None) -> _Factor:
    """Of a term of the kernel, for points in their order."""
    scaled = (P * torch.exp(-term.log_lengthscale[0])).detach().numpy()
    index = earlier(scaled, ancestors, nearest)
    variances = term.prior_at(P).expand(len(P)).detach()
    line = _Line(term, P, index, variances, float(variances.mean()))
    starts = range(0, len(P), POINTS_AT_ONCE)
    together = len(starts) if workers is None else SENT
    pieces = ((starts[i : i + together],) for i in range(0, len(starts), together))
    coefficients, left = zip(*by(workers, _given, line, pieces))
    return _Factor.of(scaled, index, torch.cat(coefficients).numpy(), torch.cat(left).sqrt().numpy())


def _given(line: _Line, starts: range) -> tuple[Tensor, Tensor]:
    """Of all points from these on."""
    coefficients, left = zip(*side_by_side(line.given, starts))
    return torch.cat(coefficients), torch.cat(left)

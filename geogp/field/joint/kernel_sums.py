"""Covariances of weighted sums over many points, without ever holding their kernel matrix."""

from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from geogp.densities import matern
from geogp.field.kernel import LocalKernel

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: Points of a block: 2 MB of kernel values.
BLOCK = 512
#: Pairs of blocks whose correlation cannot exceed this are left out, term by term of the kernel.
NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class _Block:
    """Points X (b, D) that lie together, between low and high (D,); the sums (a,) that count them, and their weights
    (a, b) in those."""

    X: Tensor
    low: Tensor
    high: Tensor
    sums: Index
    weights: Array

    @classmethod
    def of(cls, X: Tensor, columns: sparse.csc_array, rows: Index) -> "_Block":
        part = columns[:, rows].tocoo()
        sums, at = np.unique(part.row, return_inverse=True)
        weights = np.zeros((len(sums), len(rows)))
        np.add.at(weights, (at, part.col), part.data)
        return cls(X[rows], X[rows].min(0).values, X[rows].max(0).values, sums, weights)


def kernel_quadratic(
    kernel: LocalKernel, X: Tensor, W: sparse.csr_array, *, negligible: float = NEGLIGIBLE
) -> Array:
    """W K W' for the kernel matrix K of X (n, D) and weights W (A, n): (A, A).

    Blocks of points that are near each other are multiplied pair by pair; of far pairs those terms of the kernel are
    left out whose correlation is below `negligible` everywhere in the pair, so that no entry is off by more than
    negligible * k(x, x) * (sum |w|)². Of a kernel that varies over space the longest lengthscales count.

    Notes
    -----
    O(n²) kernel values at most, far fewer where the kernel is short; memory O(BLOCK² + A²).

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> X = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    >>> kernel_quadratic(kernel, X, sparse.csr_array(np.eye(2))).round(4).tolist()
    [[1.0, 0.0067], [0.0067, 1.0]]
    """
    X, columns = X.double(), W.tocsc()
    parts = _blocks(X[:, kernel.space_axes].numpy())
    blocks = [b for b in (_Block.of(X, columns, rows) for rows in parts) if len(b.sums)]
    terms = [kernel.term(c) for c in range(len(kernel.smoothness))]
    out = np.zeros((W.shape[0], W.shape[0]))
    longest = 1.0
    if kernel.variation is not None:
        longest = float(kernel.variation(X[:, :2])[0].max().exp())
    for one, other in combinations_with_replacement(blocks, 2):
        gap = torch.maximum(one.low - other.high, other.low - one.high).clamp_min(0.0)
        near = [term for term in terms if _most(term, gap, longest) > negligible]
        if not near:
            continue
        K = sum((term(one.X, other.X) for term in near[1:]), near[0](one.X, other.X)).numpy()
        piece = one.weights @ K @ other.weights.T
        out[np.ix_(one.sums, other.sums)] += piece
        if one is not other:
            out[np.ix_(other.sums, one.sums)] += piece.T
    return 0.5 * (out + out.T)


def _most(term: LocalKernel, gap: Tensor, longest: float) -> float:
    """The largest correlation of a term between two boxes this far apart along each axis (D,), where the lengthscales
    over space are at most so many times the term's."""
    scaled = gap * torch.exp(-term.log_lengthscale[0])
    t = term.time_axis
    over_space = float(matern(scaled[term.space_axes].norm() / longest, term.smoothness[0]))
    return over_space if t is None else over_space * float(matern(scaled[t], term.over_time))


def _blocks(P: Array) -> list[Index]:
    """Rows of P (n, d) in blocks of at most BLOCK that lie together: halved at the median of the widest axis."""
    todo, out = [np.arange(len(P))], []
    while todo:
        rows = todo.pop()
        if len(rows) <= BLOCK:
            out.append(rows)
            continue
        axis = int(np.argmax(np.ptp(P[rows], axis=0)))
        half = len(rows) // 2
        order = np.argpartition(P[rows, axis], half)
        todo += [rows[order[:half]], rows[order[half:]]]
    return [rows for rows in out if len(rows)]

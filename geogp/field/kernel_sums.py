"""Covariances of weighted sums over many points, without ever holding their kernel matrix."""

from itertools import combinations_with_replacement

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from geogp.densities import matern
from geogp.field.kernel import LocalKernel

Array = NDArray[np.float64]

#: Points of a block: 2 MB of kernel values.
BLOCK = 512
#: Pairs of blocks whose correlation cannot exceed this are left out, term by term of the kernel.
NEGLIGIBLE = 1e-9


def kernel_quadratic(
    kernel: LocalKernel, X: Tensor, W: sparse.csr_array, *, negligible: float = NEGLIGIBLE
) -> Array:
    """W K W' for the kernel matrix K of X (n, D) and weights W (A, n): (A, A).

    Blocks of points that are near each other are multiplied pair by pair; of far pairs those terms of the kernel are
    left out whose correlation is below `negligible` everywhere in the pair, so that no entry is off by more than
    negligible * k(x, x) * (sum |w|)².

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
    X = X.double()
    t = kernel.time_axis
    axes = [d for d in range(X.shape[1]) if d != t]
    blocks = _blocks(X[:, axes].numpy())
    columns = W.tocsc()
    parts, seen, low, high = [], [], [], []
    for rows in blocks:
        part = columns[:, rows].tocoo()
        areas, at = np.unique(part.row, return_inverse=True)
        dense = np.zeros((len(areas), len(rows)))
        np.add.at(dense, (at, part.col), part.data)
        parts.append(dense)
        seen.append(areas)
        low.append(X[rows].min(0).values)
        high.append(X[rows].max(0).values)
    terms = [term_of(kernel, c) for c in range(len(kernel.smoothness))]
    out = np.zeros((W.shape[0], W.shape[0]))
    for i, j in combinations_with_replacement(range(len(blocks)), 2):
        if not (len(seen[i]) and len(seen[j])):
            continue
        gap = torch.maximum(low[i] - high[j], low[j] - high[i]).clamp_min(0.0)
        near = [term for term in terms if _most(term, gap) > negligible]
        if not near:
            continue
        A, B = X[blocks[i]], X[blocks[j]]
        K = sum((term(A, B) for term in near[1:]), near[0](A, B)).numpy()
        piece = parts[i] @ K @ parts[j].T
        out[np.ix_(seen[i], seen[j])] += piece
        if i != j:
            out[np.ix_(seen[j], seen[i])] += piece.T
    return 0.5 * (out + out.T)


def term_of(kernel: LocalKernel, c: int) -> LocalKernel:
    """One additive term of a kernel."""
    one = slice(c, c + 1)
    return LocalKernel(
        kernel.log_lengthscale[one].double(),
        kernel.log_variance[one].double(),
        kernel.smoothness[one],
        kernel.time_axis,
    )


def _most(term: LocalKernel, gap: Tensor) -> float:
    """The largest correlation of a term between two boxes this far apart along each axis (D,)."""
    scaled = gap * torch.exp(-term.log_lengthscale[0])
    t = term.time_axis
    space = [d for d in range(len(gap)) if d != t]
    lag = 0.0 if t is None else float(scaled[t])
    return float(matern(scaled[space].norm(), term.smoothness[0])) * float(np.exp(-lag))


def _blocks(P: Array) -> list[NDArray[np.int64]]:
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

"""A process of variance one over places, by weights on a lattice: draws and covariances at any number of them."""

from itertools import product

import numpy as np
from jaxtyping import Float
from scipy import sparse

from geogp.linalg.distinct import distinct

#: Radius of a bump, and spacing of the lattice, in lengths: the correlation one length apart is then 1 / e.
RADIUS, SPACING = 1.25, 0.625
#: Beyond so many lattice spacings from the origin places are one.
FARTHEST = 2.0**50


def bumps(P: Float[np.ndarray, "N p"], length: float) -> sparse.csr_array:
    """B (N, K) with rows of length one such that B v, v ~ N(0, I), is a smooth process over the places P.

    Parameters
    ----------
    P : (N, 1) or (N, 2) places
    length : where the correlation has fallen to 1 / e; it is none from 2.5 lengths on

    Notes
    -----
    The lattice lies where it lies, whatever the places, so that those of two calls belong together when they are asked
    for at once. A bump is (1 - (s / radius)²)² at the distance s from its point, each place's are scaled to one.
    At most 13 points a place: O(N) memory. Source: Higdon 2002, process convolutions.

    Examples
    --------
    >>> B = bumps(np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0]]), length=1.0)
    >>> np.round((B @ B.T).toarray(), 1).tolist()
    [[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    S = np.clip(P / (SPACING * length), -FARTHEST, FARTHEST)
    cells, cell = distinct(np.floor(S).astype(np.int64))
    reach = int(RADIUS / SPACING)
    steps = np.array(list(product(range(1 - reach, reach + 1), repeat=P.shape[1])))
    points, point = distinct((cells[:, None] + steps).reshape(-1, P.shape[1]))
    near = point.reshape(len(cells), len(steps))[cell]
    squared = np.zeros(near.shape)
    for d in range(P.shape[1]):
        squared += (points[:, d][near] - S[:, d, None]) ** 2
    height = np.square(np.maximum(1.0 - squared * (SPACING / RADIUS) ** 2, 0.0))
    height /= np.sqrt(np.square(height).sum(axis=1, keepdims=True))
    begins = np.arange(0, near.size + 1, near.shape[1])
    B = sparse.csr_array((height.ravel(), near.ravel(), begins), shape=(len(P), len(points)))
    B.eliminate_zeros()
    return B

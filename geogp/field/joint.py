"""How the errors of a local field's predictions go together, at many places at once.

The map predicts r(x) by a weighted sum of the observations near x. What it errs there, e(x) = r(x) - b(x)'(r_O + ε),
is linear in a Gaussian process and in noise, so that errors at any two places, whose neighbours differ, have an
exact covariance under the fitted kernel: nothing is approximated between them, and no place pretends to know more
than its own neighbours told it. With all observations as neighbours this is the posterior covariance of the exact GP.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from geogp.field import neighbours
from geogp.field.kernel import CHUNK, GAUSSIAN_FROM, student_weights
from geogp.field.kernel_sums import kernel_quadratic
from geogp.field.local_field import LocalField
from geogp.field.prior_draws import PriorSampler

Array = NDArray[np.float64]


def stationary(field: LocalField) -> bool:
    """Whether the sums and draws below serve: they lean on a kernel that is the same everywhere."""
    return field.local.kernel.variation is None


class FieldJoint:
    """Joint errors of a local field's surface at X (N, D), on the standardised scale.

        e(x) = r(x) - b(x)'(r_O + ε),   cov(e) = [I, -B] K [I, -B]' + B Σ B',   scaled to `variance`

    with b(x) the weights of the prediction at x, Student-t observations weighed as there. The scale, the ratio of
    what the smooth noise learned of the surface's spread to the local GP's own, changes no correlation. What a level
    may drift ahead of the data is common to all places of a moment and does not average out.

    Parameters
    ----------
    variance : (N,) latent variances that `moments` gives

    Notes
    -----
    O(N k³) once. A covariance of A sums costs O((N + n)²) kernel values with n the observations that are anyone's
    neighbours, far pairs left out, in memory that grows with N + n; draws are those of `PriorSampler`.
    """

    def __init__(self, field: LocalField, X: Tensor, variance: Array):
        self.field, self.kernel = field, field.local.kernel
        C = field.frame.coordinates(X.double())
        k = min(field.options.neighbours, len(field.seen.X))
        index = neighbours.query(field.search, C.numpy(), k)
        b, left, told = _weights(field, C, torch.from_numpy(index))
        rows, column = np.unique(np.where(index >= 0, index, index.max()), return_inverse=True)
        N, n = len(C), len(rows)
        column = column.reshape(N, k)
        start = np.arange(N + 1) * k
        self.B = sparse.csr_array((b.ravel(), column.ravel(), start), shape=(N, n))
        # Each neighbourhood weighs an observation anew: its noise is the mean over those that lean on it.
        square = sparse.csr_array((b.ravel() ** 2, column.ravel(), start), shape=(N, n))
        share = np.asarray(square.sum(axis=0)).ravel()
        noise = np.zeros(n)
        np.add.at(noise, column.ravel(), (b**2 * told).ravel())
        plain = field.seen.noise_variance.numpy()[rows]
        self.noise = np.where(share > 0, noise / np.where(share > 0, share, 1.0), plain)
        ahead = np.zeros(N)
        if field.time_axis is not None:
            gap = (C[:, 2] - field.latest - field.horizon).clamp_min(0.0)
            ahead = field.trend.extra_variance(gap).numpy()
        self.common = np.sqrt(ahead)
        own = np.maximum(left + square @ self.noise, 1e-300)
        self.scale = np.sqrt(np.maximum(variance - ahead, 0.0) / own)
        self.points = torch.cat([C, field.seen.X[torch.from_numpy(rows)]])
        self._prior: PriorSampler | None = None

    def covariance(self, W: sparse.csr_array) -> Array:
        """Covariance of the sums W f for W (A, N): (A, A), positive semi-definite."""
        Ws: Any = W @ sparse.diags_array(self.scale)
        back: Any = -(Ws @ self.B)
        with torch.no_grad():
            total = kernel_quadratic(self.kernel, self.points, sparse.hstack([Ws, back], format="csr"))
        common = W @ self.common
        return total + (back @ sparse.diags_array(self.noise) @ back.T).toarray() + np.outer(common, common)

    def draw(self, n_samples: int, generator: torch.Generator) -> Array:
        """Joint draws of the errors: (N, n_samples). Prior draws, less what the prediction makes of them."""
        if self._prior is None:
            self._prior = PriorSampler(self.kernel, self.points)
        N, n = self.B.shape
        f = self._prior.draw(n_samples, generator)
        noise = torch.randn(n, n_samples, generator=generator, dtype=torch.float64).numpy()
        level = torch.randn(1, n_samples, generator=generator, dtype=torch.float64).numpy()
        told = f[N:] + np.sqrt(self.noise)[:, None] * noise
        return self.scale[:, None] * (f[:N] - self.B @ told) + self.common[:, None] * level


def _weights(field: LocalField, C: Tensor, index: Tensor) -> tuple[Array, Array, Array]:
    """Of the neighbours: b (N, k), the error's variance without their noise (N,), the noise they count with (N, k).

    b = (K + Σ)⁻¹ k,   k(x, x) - 2 b'k + b'K b;   all zero for missing neighbours.
    """
    kernel, seen, nu = field.local.kernel, field.seen, field.local.tails
    weights, left, told = [], [], []
    for c, i in zip(C.split(CHUNK), index.split(CHUNK)):
        with torch.no_grad():
            present, rows = (i >= 0).to(C.dtype), i.clamp_min(0)
            A = seen.X[rows]
            K = kernel(A, A) * (present[:, :, None] * present[:, None, :])
            k = kernel(c[:, None, :], A)[:, 0, :] * present
            noise = torch.where(i >= 0, seen.noise_variance[rows], torch.ones_like(present))
            if nu is not None and nu < GAUSSIAN_FROM:
                noise = noise / student_weights(K, noise, seen.value[rows] * present, nu)
            b = torch.linalg.solve(K + torch.diag_embed(noise), k[..., None])
            quadratic = (b * (K @ b)).sum((-2, -1))
            b = b[..., 0]
            left.append(kernel.prior_at(c) - 2.0 * (b * k).sum(-1) + quadratic)
            weights.append(b)
            told.append(noise * present)
    return torch.cat(weights).numpy(), torch.cat(left).clamp_min(0.0).numpy(), torch.cat(told).numpy()

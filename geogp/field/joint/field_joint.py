"""How the errors of a local field's predictions go together, at many places at once.

The map predicts r(x) by a weighted sum of the observations near x. What it errs there, e(x) = r(x) - b(x)'(r_O + ε),
is linear in a Gaussian process and in noise, so that errors at any two places, whose neighbours differ, have an
exact covariance under the fitted kernel: nothing is approximated between them, and no place pretends to know more
than its own neighbours told it. With all observations as neighbours this is the posterior covariance of the exact GP.
"""

from copy import copy
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from geogp.field.joint.kernel_sums import kernel_quadratic
from geogp.field.joint.prior_draws import PriorSampler
from geogp.field.kernel import LocalKernel
from geogp.field.observations import Observations
from geogp.field.solve import Predictors
from geogp.linalg.workers import Workers

Array = NDArray[np.float64]


class FieldJoint:
    """Joint errors of a local field's surface at N places, on the standardised scale.

        e(x) = r(x) - b(x)'(r_O + ε),   cov(e) = [I, -B] K [I, -B]' + B Σ B',   scaled to `variance`

    with b(x) the weights of the prediction at x, Student-t observations weighed as there. The scale, the ratio of
    what the smooth noise learned of the surface's spread to the local GP's own, changes no correlation. What is uncertain
    of the drift, and how far the mean may walk ahead of the data, all places share: it does not average out.

    Parameters
    ----------
    kernel : of r
    seen : all observations
    C : (N, D) coordinates of the places
    index : (N, k) rows of `seen` that each prediction rests on, -1 for none
    made : how each prediction is made of them
    variance : (N,) latent variances that `moments` gives
    common : (N, c) factor of how much of that all places err together, the last column `ahead`

    Notes
    -----
    A covariance of A sums costs O((N + n)²) kernel values with n the observations that are anyone's
    neighbours, far pairs left out, in memory that grows with N + n; draws are those of `PriorSampler`.

    Examples
    --------
    >>> from geogp.field.solve import predictors
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> one = torch.ones(1).double()
    >>> seen = Observations(torch.zeros(1, 2).double(), one, one, one)
    >>> index = torch.tensor([[0]])
    >>> made = predictors(kernel, seen.X, seen, index, None)
    >>> given = dict(variance=np.array([0.5]), common=torch.zeros(1, 1))
    >>> FieldJoint(kernel, seen, seen.X, index, made, **given).covariance(sparse.csr_array(np.eye(1)))
    array([[0.5]])
    """

    def __init__(
        self,
        kernel: LocalKernel,
        seen: Observations,
        C: Float[Tensor, "N D"],
        index: Int[Tensor, "N k"],
        made: Predictors,
        *,
        variance: Float[np.ndarray, " N"],
        common: Float[Tensor, "N c"],
    ):
        self.kernel = kernel
        (N, k), present = index.shape, index.numpy() >= 0
        rows, column = np.unique(np.where(present, index, index.max()), return_inverse=True)
        b, at, start = made.weights.numpy().ravel(), column.ravel(), np.arange(N + 1) * k
        self.B = sparse.csr_array((b, at, start), shape=(N, len(rows)))
        square = sparse.csr_array((b**2, at, start), shape=(N, len(rows)))
        self.noise = _mean_noise(b**2, made.noise.numpy().ravel(), at, square)
        own = np.maximum(made.left.numpy() + square @ self.noise, 1e-300)
        self.common = common.numpy()
        self.own = np.maximum(variance - np.square(self.common).sum(1), 0.0)
        self.scale = np.sqrt(self.own / own)
        self.points = torch.cat([C, seen.X[torch.from_numpy(rows)]])
        self._prior: PriorSampler | None = None

    @property
    def pairs(self) -> float:
        """Pairs of points, of places and observations: what a covariance sums over."""
        return float(len(self.points)) ** 2

    @property
    def variance(self) -> Float[np.ndarray, " N"]:
        """(N,) of these errors."""
        return np.asarray(self.own + np.square(self.common).sum(1))

    @property
    def ahead(self) -> Float[np.ndarray, "N 2"]:
        """(N, 2) how far the mean walks ahead of the data and before them, errors that all places share: the last of `common`."""
        return np.asarray(self.common[:, -2:])

    def not_ahead(self) -> Self:
        """These errors without `ahead`."""
        other = copy(self)
        other.common = self.common[:, :-2]
        return other

    def covariance(self, W: sparse.csr_array) -> Float[np.ndarray, "A A"]:
        """Covariance of the sums W f for W (A, N): (A, A), positive semi-definite."""
        Ws: Any = W @ sparse.diags_array(self.scale)
        back: Any = -(Ws @ self.B)
        with torch.no_grad():
            total = kernel_quadratic(self.kernel, self.points, sparse.hstack([Ws, back], format="csr"))
        common = W @ self.common
        return total + (back @ sparse.diags_array(self.noise) @ back.T).toarray() + common @ common.T

    def dense(self) -> Float[np.ndarray, "N N"]:
        """Covariance of the surface at the places: (N, N), its diagonal the variances given."""
        return self.covariance(sparse.csr_array(sparse.eye_array(len(self.scale))))

    def prepare(self, workers: Workers | None = None) -> None:
        """How each point follows from earlier ones."""
        if self._prior is None:
            self._prior = PriorSampler(self.kernel, self.points, workers=workers)

    def draw(self, n_samples: int, generator: torch.Generator) -> Float[np.ndarray, "N n_samples"]:
        """Joint draws of the errors, (N, n_samples): prior draws, less what the prediction makes of them."""
        self.prepare()
        assert self._prior is not None
        N, n = self.B.shape
        f = self._prior.draw(n_samples, generator)
        noise = torch.randn(n, n_samples, generator=generator).numpy()
        c = self.common.shape[1]
        drift = torch.randn(c, n_samples, generator=generator, dtype=torch.float64).numpy()
        told = f[N:] + np.sqrt(self.noise)[:, None] * noise
        return self.scale[:, None] * (f[:N] - self.B @ told) + self.common @ drift


def _mean_noise(square: Array, noise: Array, at: NDArray[np.int64], squares: sparse.csr_array) -> Array:
    """Noise variance (n,) of each observation. Each neighbourhood weighs an observation anew: its noise is the mean
    over those that lean on it, by their squared weights; 0 of one that nobody leans on, which tells nothing."""
    share = np.asarray(squares.sum(axis=0)).ravel()
    total = np.zeros(len(share))
    np.add.at(total, at, square * noise)
    return np.divide(total, share, out=total, where=share > 0)

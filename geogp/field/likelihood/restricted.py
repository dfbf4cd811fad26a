"""Restricted likelihood of all rows: exact, or as a product of each row's density given rows before it."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from geogp.field.earlier import earlier, nearest
from geogp.field.gradients import KnownSlopes
from geogp.field.kernel import LocalKernel
from geogp.field.likelihood.repeated import Means, Places, within
from geogp.field.likelihood.trained import Trained
from geogp.field.solve import JITTER, Neighbourhoods, conditional_moments
from geogp.field.student import student_weights
from geogp.linalg import cholesky, with_diagonal
from geogp.linalg.threads import side_by_side

#: Columns of a plane with less than this share of the largest are none.
FLAT = 1e-8
#: Rows before it that each row is given.
NEIGHBOURS = 30
#: The first so many rows of a random order, each far from those before it, all count; of the others a sample of so many.
FIRST, SAMPLED = 1500, 1500
#: Rows solved at once: their systems stay in the cache.
AT_ONCE = 128


@dataclass(frozen=True)
class Rows:
    """What is to be made likely.

    X, y, counts : (N, D), (N,), (N,) observations, float64, all on one device
    columns : (N, P) that shift the mean linearly
    weights : (N,) of Student-t observations, 1 for Gaussian ones
    """

    X: Tensor
    y: Tensor
    counts: Tensor
    columns: Tensor
    weights: Tensor

    def value(self, model: Trained) -> Tensor:
        """Values less the shift: (N,)."""
        return self.y - self.columns @ model.shift

    def noise_variance(self, model: Trained) -> Tensor:
        """(N,)"""
        return model.noise_variance(self.counts) / self.weights

    def weighed(self, likelihood: "Restricted", model: Trained, degrees_of_freedom: float) -> "Rows":
        """With the weights that Student-t observations have under a model."""
        with torch.no_grad():
            return replace(self, weights=likelihood.student_weights(model, self, degrees_of_freedom))


class Restricted(Protocol):
    """Likelihood of all rows, what a plane explains left out."""

    def student_weights(self, model: Trained, rows: Rows, degrees_of_freedom: float) -> Tensor:
        """Weights (N,) of the rows as Student-t observations."""

    def backward(self, model: Trained, rows: Rows | Means) -> float:
        """Minus its logarithm, less a constant; its gradient is added to that of the model's parameters."""


def restricted(X: Tensor, kernel: LocalKernel, *, dense_below: int, seed: int) -> Restricted:
    """Exact where there are fewer rows than `dense_below`, else a product whose neighbours are near as the kernel sees it; of
    places that are measured again and again these are means, whose neighbours are other places."""
    whole = Dense(plane_over(X)) if len(X) < dense_below else Product.over(X, kernel, seed=seed)
    places = Places.of(X)
    if not places.repeat:
        return whole
    return Repeated(whole, places, restricted(X[places.first], kernel, dense_below=dense_below, seed=seed))


def plane_over(X: Tensor) -> Tensor:
    """Orthonormal columns (N, q) that span the planes over the first two axes: of places on a line what differs along it."""
    columns = torch.cat([torch.ones_like(X[:, :1]), X[:, :2]], dim=1)
    plane, size, _ = torch.linalg.svd(columns, full_matrices=False)
    return plane[:, size > FLAT * size[0]]


@dataclass(frozen=True)
class Dense:
    """By one factorisation: O(N³).

    plane : (N, q)

    References
    ----------
    Harville 1974; Rasmussen and Williams 2006, eq. 2.45
    """

    plane: Tensor

    def student_weights(self, model: Trained, rows: Rows, degrees_of_freedom: float) -> Tensor:
        """Weights (N,) of the rows as Student-t observations, given all rows."""
        K, own = model.kernel()(rows.X, rows.X), rows.noise_variance(model)
        return student_weights(K[None], own[None], rows.value(model)[None], degrees_of_freedom)[0]

    def backward(self, model: Trained, rows: Rows | Means) -> float:
        """Minus its logarithm, less a constant; its gradient is added to that of the model's parameters."""
        K, noise, value = model.kernel()(rows.X, rows.X), rows.noise_variance(model), rows.value(model)
        with torch.no_grad():
            S = with_diagonal(K, noise)
            L = cholesky(S, jitter=JITTER, what="the rows' covariance")
            both = torch.cat([value[:, None], self.plane], dim=1)
            white = torch.linalg.solve_triangular(L, both, upper=False)
            a, Q = white[:, 0], white[:, 1:]
            A = Q.T @ Q
            rest = a - Q @ torch.linalg.solve(A, Q.T @ a)
            total = 0.5 * rest.square().sum() + L.diagonal().log().sum() + 0.5 * torch.logdet(A)
            # ½ (P − P y y' P) with P y and P's plane by solves: an inverse has lost the digits of smooth values by little noise.
            back = torch.linalg.solve_triangular(L.T, torch.cat([rest[:, None], Q], dim=1), upper=True)
            left, planes = back[:, 0], back[:, 1:]
            inverse = torch.cholesky_inverse(L)
            P = torch.addmm(inverse, planes, torch.linalg.solve(A, planes.T), alpha=-1.0)
            of_covariance = torch.addr(P, left, left, alpha=-1.0).mul_(0.5)
        slopes = [of_covariance, of_covariance.diagonal(), left]
        KnownSlopes.apply(total, slopes, K, noise, value).backward()
        return total.item()


@dataclass(frozen=True)
class Product:
    """By densities of some rows given the nearest of those before them in a random order: O(n k³) for n such rows.

    The first rows of a random order lie far from those before them and tell of long ranges, the last near: of the latter a
    sample suffices, each of which counts for several. Exact where all rows are taken and given all before them.

    plane : (N, q)
    chunks : rows (m,), the earlier rows (m, k) that each is given, -1 for none, and how many it counts for (m,)
    near : (N, k) each row and those nearest to it, which tell how much it weighs as a Student-t observation

    References
    ----------
    Vecchia 1988; Stein, Chi and Welty 2004 (restricted likelihood, rows far and near); Guinness 2018 (random orders)

    Examples
    --------
    >>> X = torch.rand(40, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern32",))
    >>> one = torch.ones(40).double()
    >>> rows = Rows(X, X[:, 0].sin(), one, torch.zeros(40, 0).double(), one)
    >>> model = Trained(kernel, 0, None, None, student=False, per_count=False)
    >>> product, dense = Product.over(X, kernel, seed=0, neighbours=39), Dense(plane_over(X))
    >>> abs(product.backward(model, rows) - dense.backward(model, rows)) < 1e-9
    True
    """

    plane: Tensor
    chunks: tuple[tuple[Tensor, Tensor, Tensor], ...]
    near: Tensor

    @classmethod
    def over(
        cls,
        X: Tensor,
        kernel: LocalKernel,
        *,
        seed: int,
        neighbours: int = NEIGHBOURS,
        first: int = FIRST,
        sampled: int = SAMPLED,
    ) -> "Product":
        """Over rows X (N, D), near in the unit of the kernel's longest lengthscale along each axis."""
        n, rng = len(X), np.random.default_rng(seed)
        P = (X / kernel.log_lengthscale.detach().to(X).exp().amax(0)).cpu().numpy()
        order = rng.permutation(n)
        picked, counts_for = np.arange(n), np.ones(n)
        if n > first + sampled:
            others = first + np.sort(rng.choice(n - first, sampled, replace=False))
            picked = np.concatenate([picked[:first], others])
            counts_for = np.where(picked < first, 1.0, (n - first) / sampled)
        before = earlier(P[order], neighbours, nearest)[picked]
        before = np.where(before >= 0, order[before], -1)
        parts = (torch.from_numpy(a).to(X.device) for a in (order[picked], before, counts_for))
        chunks = tuple(zip(*(part.split(AT_ONCE) for part in parts)))
        found = cKDTree(P).query(P, k=np.arange(1, min(neighbours, n) + 1))[1]
        itself = np.arange(n)[:, None]
        # Itself first, though others may lie at its place: so many that it is not found, then one of those is left out.
        rank = np.argsort(found != itself, axis=1, kind="stable")
        others = np.take_along_axis(found, rank, axis=1)[:, 1:]
        near = torch.from_numpy(np.concatenate([itself, others], axis=1)).to(X.device)
        return cls(plane_over(X), chunks, near)

    def student_weights(self, model: Trained, rows: Rows, degrees_of_freedom: float) -> Tensor:
        """Weights (N,) of the rows as Student-t observations, each given those nearest to it."""
        kernel, own, value = model.kernel(), rows.noise_variance(model), rows.value(model)
        out = []
        for near in self.near.split(AT_ONCE):
            K = Neighbourhoods.among_rows(kernel, rows.X, near).among
            out.append(student_weights(K, own[near], value[near], degrees_of_freedom)[:, 0])
        return torch.cat(out)

    def backward(self, model: Trained, rows: Rows | Means) -> float:
        """Minus its logarithm, less a constant; its gradient is added to that of the model's parameters.

        The plane's coefficients and their precision come of all chunks; with both held, the gradient is a sum over chunks:
        the first because they are where the density is largest, the second because d log|A| = tr(A⁻¹ dA). Each chunk has a
        tape of its own, from the kernel's numbers, noises and values on, so that chunks may go side by side.

        Notes
        -----
        O(n k²) memory for n rows.
        """
        made = model.kernel()
        both = torch.cat([rows.value(model)[:, None], self.plane], dim=1)
        cut = Cut(rows.noise_variance(model), both, *made.numbers)

        def whitened(chunk: tuple[Tensor, Tensor, Tensor]) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
            """Leaves; value and plane (m, 1 + q) less what earlier rows say, in sd (m,); the sd, how many each counts for."""
            leaves = cut.leaves()
            noise, both, *numbers = leaves
            kernel = made.with_numbers(numbers)
            target, before, counts_for = chunk
            with torch.enable_grad():
                c = conditional_moments(kernel, rows.X[target], rows.X, both, noise, before)
                sd = (c.variance + noise[target]).sqrt()
                return leaves, (both[target] - c.mean) / sd[:, None], sd, counts_for

        known = list(side_by_side(whitened, self.chunks))
        with torch.no_grad():
            A = b = torch.zeros((), dtype=both.dtype)
            for _, white, _, counts_for in known:
                weighed = white[:, 1:] * counts_for[:, None]
                A, b = A + weighed.T @ white[:, 1:], b + weighed.T @ white[:, 0]
            coefficients, covariance = torch.linalg.solve(A, b), torch.linalg.inv(A)

        def slopes(chunk: tuple[list[Tensor], Tensor, Tensor, Tensor]) -> tuple[float, list[Tensor]]:
            """Minus the logarithm of its density, and its slopes by what all chunks are made of."""
            leaves, white, sd, counts_for = chunk
            with torch.enable_grad():
                a, Q = white[:, 0], white[:, 1:]
                missed = 0.5 * (a - Q @ coefficients).square() + sd.log()
                loss = (counts_for * (missed + 0.5 * ((Q @ covariance) * Q).sum(1))).sum()
                return float((counts_for * missed).detach().sum()), slopes_by(leaves, loss)

        total = 0.5 * torch.logdet(A).item()
        for missed, slope in side_by_side(slopes, known):
            total += missed
            cut.gather(slope)
        cut.backward()
        return total


@dataclass(frozen=True)
class Repeated:
    """By the means of the rows at each place, and by what these rows differ by: exact where `means` is.

    whole : over all rows, for their weights; means : over the places
    """

    whole: Restricted
    places: Places
    means: Restricted

    def student_weights(self, model: Trained, rows: Rows, degrees_of_freedom: float) -> Tensor:
        """Weights (N,) of the rows as Student-t observations."""
        return self.whole.student_weights(model, rows, degrees_of_freedom)

    def backward(self, model: Trained, rows: Rows | Means) -> float:
        """Minus its logarithm, less a constant; its gradient is added to that of the model's parameters."""
        value, noise = rows.value(model), rows.noise_variance(model)
        mean, variance, apart = within(self.places, value, noise)
        cut = Cut(apart, mean, variance)
        _, *known = cut.leaves()
        total = self.means.backward(model, Means(rows.X[self.places.first], *known))
        slopes = (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in known)
        cut.gather([torch.ones_like(apart), *slopes])
        cut.backward()
        return total + apart.item()


class Cut:
    """Where a tape ends and others begin, which may be wound back side by side.

    Each begins with leaves of its own: torch may wait forever for itself where two threads put one leaf on their tapes.

    Examples
    --------
    >>> x = torch.tensor(2.0, requires_grad=True)
    >>> cut = Cut(x.square())
    >>> for loss in (lambda leaf: 3.0 * leaf, torch.square):
    ...     leaves = cut.leaves()
    ...     cut.gather(slopes_by(leaves, loss(*leaves)))
    >>> cut.backward()
    >>> float(x.grad)  # (3 + 2 · 4) · 4
    44.0
    """

    def __init__(self, *ends: Tensor):
        self._ends, self._gathered = ends, [torch.zeros_like(end) for end in ends]

    def leaves(self) -> list[Tensor]:
        """New ones with the ends' values, of which those are to be learned of that the ends are."""
        return [end.detach().requires_grad_(end.requires_grad) for end in self._ends]

    def gather(self, slopes: list[Tensor]) -> None:
        """Add slopes by each leaf to those of other losses."""
        for total, slope in zip(self._gathered, slopes):
            total += slope

    def backward(self) -> None:
        """Carry the sum of what was gathered on along the tape that was cut."""
        KnownSlopes.apply(torch.zeros(()), self._gathered, *self._ends).backward()


def slopes_by(leaves: list[Tensor], loss: Tensor) -> list[Tensor]:
    """Of a loss, by each of some leaves, 0 by those of which nothing is to be learned; its tape is gone after."""
    learned = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(torch.autograd.grad(loss, learned, allow_unused=True, materialize_grads=True))
    return [next(found) if leaf.requires_grad else torch.zeros_like(leaf) for leaf in leaves]

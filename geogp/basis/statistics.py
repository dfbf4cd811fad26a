"""Exact weights from summaries that merge: one triangular factor of W^1/2 [Phi y] for each part of the data.

The factor comes from QR decompositions, never from Phi'Phi, which would square the condition number. Merging
is associative, so a loop, a process pool and next quarter's data are the same call, and forgetting a quarter
is merging the others again.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from geogp.basis.model import LowRankGP, in_double
from geogp.basis.posterior import TriangularWeights, WeightPosterior
from geogp.basis.residuals.places import Places
from geogp.data import Data
from geogp.errors import InvalidInput, NumericalFailure


@dataclass(frozen=True)
class Statistic:
    """All that a Gaussian likelihood needs to know of n rows.

    factor : (r + 1, r + 1) upper-triangular R with R'R = [Phi y]' W [Phi y], W = diag(1 / noise variance),
        diagonal >= 0, float64
    n_rows : rows summed
    log_noise : sum of log noise variance
    energy : y'Wy
    basis : fingerprint of the features; statistics of different bases are never merged
    places : of the rows, where the residual grows from them
    """

    factor: Tensor
    n_rows: float
    log_noise: float
    energy: float
    basis: str = ""
    places: Places | None = None

    @property
    def rank(self) -> int:
        """r, the number of basis functions."""
        return self.factor.shape[1] - 1

    def to_tensors(self) -> dict[str, Tensor]:
        """What `statistics/<quarter>.safetensors` holds."""
        return {
            "factor": self.factor.contiguous(),
            "sums": torch.tensor([self.n_rows, self.log_noise, self.energy], dtype=torch.float64),
            "basis": torch.tensor(list(self.basis.encode("ascii")), dtype=torch.uint8),
            **({} if self.places is None else self.places.to_tensors()),
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "Statistic":
        """The inverse of `to_tensors`."""
        n_rows, log_noise, energy = tensors["sums"].tolist()
        basis = bytes(tensors["basis"].tolist()).decode("ascii")
        places = Places.from_tensors(tensors)
        return cls(tensors["factor"].double(), n_rows, log_noise, energy, basis, places)


@dataclass(frozen=True)
class Solution:
    """The weights' distribution given a statistic, and the log evidence of its rows."""

    weights: WeightPosterior
    log_evidence: float


def triangular(rows: Tensor) -> Tensor:
    """Upper-triangular R (k, k) with R'R = rows' rows and a diagonal >= 0, for rows (n, k) of any n."""
    k = rows.shape[1]
    if len(rows) < k:
        rows = torch.cat([rows, rows.new_zeros(k - len(rows), k)])
    R = torch.linalg.qr(rows, mode="r").R
    sign = torch.where(R.diagonal() < 0, -1.0, 1.0).to(R.dtype)
    return sign[:, None] * R


def empty(rank: int, *, basis: str = "", device: torch.device | str = "cpu") -> Statistic:
    """The statistic of no rows: merging it changes nothing."""
    zeros = torch.zeros(rank + 1, rank + 1, dtype=torch.float64, device=device)
    return Statistic(zeros, 0.0, 0.0, 0.0, basis)


def add_rows(statistic: Statistic, phi: Tensor, y: Tensor, noise_variance: Tensor) -> Statistic:
    """The statistic of some rows more.

    Parameters
    ----------
    phi : (n, r) features; y : (n,) targets less the constant mean; noise_variance : (n,)

    Raises
    ------
    NumericalFailure
        for features, targets or noise variances that are not finite, or a noise variance that is not positive.

    Notes
    -----
    Cost O(n r^2).

    Examples
    --------
    >>> phi, y = torch.eye(2, dtype=torch.float64), torch.tensor([1.0, 2.0])
    >>> one = add_rows(empty(2), phi, y, torch.ones(2))
    >>> round(solve(one).weights.mean[1].item(), 12)
    1.0
    """
    phi, y, noise_variance = phi.double(), y.double(), noise_variance.double()
    if not bool((noise_variance > 0).all() and torch.isfinite(noise_variance).all()):
        raise NumericalFailure("a noise variance is not positive and finite; the noise model has run away.")
    if not bool(torch.isfinite(phi).all() and torch.isfinite(y).all()):
        raise NumericalFailure(
            "a feature or target is not finite; check the inputs for extreme values or lower the learning rate."
        )
    scaled = torch.cat([phi, y[:, None]], 1) * (1.0 / noise_variance).sqrt()[:, None]
    return Statistic(
        factor=triangular(torch.cat([statistic.factor, scaled])),
        n_rows=statistic.n_rows + len(y),
        log_noise=statistic.log_noise + float(noise_variance.log().sum()),
        energy=statistic.energy + float(scaled[:, -1].square().sum()),
        basis=statistic.basis,
        places=statistic.places,
    )


def statistic_of(
    model: LowRankGP,
    data: Data,
    *,
    predictive: bool = False,
    in_precision: bool | None = None,
    basis: str = "",
) -> Statistic:
    """The statistic of rows under a model's features and noise, in float64, one chunk in memory at a time.

    Parameters
    ----------
    predictive : weigh each row by its whole predictive variance (learned scale and residual included)
        instead of its noise variance alone
    in_precision : add the residual's variance to a row's noise; None as the residual has it in closed form

    Notes
    -----
    Cost O(n (network + r^2)).
    """
    model = in_double(model)
    corrected = model.residual.in_precision if in_precision is None else in_precision
    out = empty(model.expansion.rank, basis=basis, device=data.y.device)
    positions: list[np.ndarray] = []
    with torch.no_grad():
        for part in data.chunks():
            Z, h, phi = model.represent(part.X)
            at = model.residual.positions(Z)
            if at is not None:
                positions.append(at)
            variance = model.noise(Z, part.counts)
            if corrected and not predictive:
                variance = variance + model.residual.variance(model.expansion, Z, h, phi)
            if predictive:
                # Of the trained scale, never of an earlier refresh: so that refreshing twice changes nothing.
                learned = model.posterior.current().moments(phi)[1]
                variance = model.noise_variance(Z, part.counts, learned) + model.factors.surface * learned
                if at is None:  # of a residual that grows from rows nothing is left at them
                    variance = variance + model.residual_variance(Z, h, phi)
            out = add_rows(out, phi, part.y.double() - model.constant_mean, variance)
    return replace(out, places=Places.of(positions)) if positions else out


def merge(a: Statistic, b: Statistic) -> Statistic:
    """The statistic of both parts' rows together. Associative and commutative up to rounding. Cost O(r^3).

    Raises
    ------
    InvalidInput
        when the two were made with different bases.
    """
    if a.rank != b.rank or a.basis != b.basis:
        raise InvalidInput(
            f"two statistics of different bases cannot be merged (ranks {a.rank} and {b.rank}); "
            "make both with the same fitted run."
        )
    return Statistic(
        factor=triangular(torch.cat([a.factor, b.factor])),
        n_rows=a.n_rows + b.n_rows,
        log_noise=a.log_noise + b.log_noise,
        energy=a.energy + b.energy,
        basis=a.basis,
        places=_together(a.places, b.places),
    )


def _together(a: Places | None, b: Places | None) -> Places | None:
    return a.joined(b) if a is not None and b is not None else a or b


def merge_all(statistics: Iterable[Statistic]) -> Statistic:
    """All of them merged, pairwise, so that rounding grows with the logarithm of their number.

    Raises
    ------
    InvalidInput
        for no statistic at all, or different bases.
    """
    parts: Sequence[Statistic] = list(statistics)
    if not parts:
        raise InvalidInput("there is no statistic left to merge; keep at least one quarter.")
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [merge(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def solve(statistic: Statistic, prior: WeightPosterior | None = None) -> Solution:
    """The exact distribution of w given the rows, and their log evidence, from one factor.

    With prior N(0, I) the rows [R; I] have the triangular factor U with U'U = I + Phi'W Phi; the mean
    solves U m = u and the covariance is U^-1 U^-T. Columns are taken in reverse, which makes the
    returned square root lower-triangular: the Cholesky factor of the covariance.

    Parameters
    ----------
    prior : N(m0, S0) with a lower-triangular scale; default N(0, I)

    Notes
    -----
    log p(y) = -1/2 [rho^2 + log|U'U| (+ log|S0|) + sum log noise variance + n log 2 pi], rho^2 the squared
    last diagonal entry. Cost O(r^3). Source: deep-basis-kernel-gp, eq. 10 and 11;
    soft-kernel-interpolation, eq. 20-22.
    """
    r, R = statistic.rank, statistic.factor
    eye = torch.eye(r, dtype=R.dtype, device=R.device)
    if prior is None:
        below, log_det_prior = torch.cat([eye, R.new_zeros(r, 1)], 1), 0.0
    else:
        L0 = prior.scale_tril.to(R)
        whiten = torch.linalg.solve_triangular(L0, eye, upper=False)
        below = torch.cat([whiten, (whiten @ prior.mean.to(R))[:, None]], 1)
        log_det_prior = 2.0 * float(L0.diagonal().abs().log().sum())
    stacked = torch.cat([R, below])
    U = triangular(torch.cat([stacked[:, :r].flip(1), stacked[:, r:]], 1))
    # Reversing rows and columns of the upper factor gives a lower-triangular M with M'M = I + Phi'W Phi.
    M = U[:r, :r].flip(0, 1)
    scale_tril = torch.linalg.solve_triangular(M, eye, upper=False)
    mean = scale_tril @ U[:r, r].flip(0)
    log_det = 2.0 * float(M.diagonal().log().sum())
    misfit = float(U[r, r] ** 2)
    log_evidence = -0.5 * (
        misfit + log_det + log_det_prior + statistic.log_noise + statistic.n_rows * math.log(2.0 * math.pi)
    )
    return Solution(TriangularWeights(mean, scale_tril), log_evidence)

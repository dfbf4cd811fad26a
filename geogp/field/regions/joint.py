"""How the errors of merged predictions go together, at many places at once."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import sparse

from geogp.field.joint import FieldJoint
from geogp.linalg.workers import Workers

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Part:
    """What a region adds to the errors at some of the places.

    rows : (n,) numbers of the places; share : (n,) of its errors there; joint : those
    """

    rows: NDArray[np.int64]
    share: Array
    joint: FieldJoint


@dataclass(frozen=True, eq=False)
class MergedJoint:
    """Joint errors of a merged surface at N places, on the standardised scale. Make one with `of`.

        e(x) = Σ_k √w_k(x) e_k(x) + a(x) z,   cov(e(x), e(x')) = Σ_k √(w_k(x) w_k(x')) cov(e_k(x), e_k(x')) + a(x) a(x')

    with e_k the errors of region k's own predictions, those of different regions independent, scaled to the latent variance
    that was given. At a place the variance is as of regions that err alike, Σ w v, never that of an average of
    independent ones. From place to place the covariance passes from one region's to the next: where they say the same it
    falls short by the factor Σ_k √(w_k(x) w_k(x')), 1 for places of equal weights and 0 from one side of a cut's overlap to
    the other. How far the mean may walk ahead of the data and before them (a) all places share.

    parts : one for each region that is asked, without their walks
    ahead : (N, 2) a

    Notes
    -----
    What `FieldJoint` costs for each region, of its own places.
    """

    parts: list[Part]
    ahead: Array

    @classmethod
    def of(cls, parts: list[Part], variance: Array) -> Self:
        """Of the regions' errors as they say them, each's share its weight; the whole has variances (N,)."""
        walk = np.zeros((len(variance), 2))
        for part in parts:
            walk[part.rows] += part.share[:, None] * np.square(part.joint.ahead)
        own = []
        for part in parts:
            joint = part.joint.not_ahead()
            # What is common to a region may be more than the blend's whole variance.
            wanted = np.maximum(variance - walk.sum(1), 0.0)[part.rows] / np.maximum(joint.variance, 1e-300)
            own.append(Part(part.rows, np.sqrt(part.share * wanted), joint))
        return cls(own, np.sqrt(walk))

    @property
    def pairs(self) -> float:
        """Pairs of points that a covariance sums over."""
        return sum(part.joint.pairs for part in self.parts)

    def covariance(self, W: sparse.csr_array) -> Float[np.ndarray, "A A"]:
        """Covariance of the sums W f for W (A, N): (A, A), positive semi-definite."""
        columns, walk = sparse.csc_array(W), W @ self.ahead
        total = walk @ walk.T
        for part in self.parts:
            own = columns[:, part.rows] @ sparse.diags_array(part.share)
            total += part.joint.covariance(sparse.csr_array(own))
        return total

    def dense(self) -> Float[np.ndarray, "N N"]:
        """Covariance of the surface at the places: (N, N), its diagonal the variances given."""
        return self.covariance(sparse.csr_array(sparse.eye_array(len(self.ahead))))

    def prepare(self, workers: Workers | None = None) -> None:
        """What the draws of each region share."""
        for part in self.parts:
            part.joint.prepare(workers)

    def draw(self, n_samples: int, generator: torch.Generator) -> Float[np.ndarray, "N n_samples"]:
        """Joint draws of the errors, (N, n_samples): each region's, in order, and the walk's."""
        z = torch.randn(2, n_samples, generator=generator, dtype=torch.float64).numpy()
        out = self.ahead @ z
        for part in self.parts:
            out[part.rows] += part.share[:, None] * part.joint.draw(n_samples, generator)
        return out

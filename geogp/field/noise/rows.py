"""How noisy each observation is, by what the places around it say: what it counts for where predictions rest on it.

    τ²_i = τ² exp(z_i'a),   s²_i = s² exp(z_i'b)

with z_i the level, the busyness, the density and the scatter of the nearest other places. With the same noise everywhere
a rough, noisy countryside passes for a surface that changes from one place to the next.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from geogp.field.observations import typical_precision
from geogp.linalg.distinct import distinct

Array = NDArray[np.float64]

#: Other places that speak for a place; density is the distance to the one of this rank.
AROUND, RANK = 24, 9
#: z: mean value, mean log count, log density, log scatter.
SAYS = 4
#: Least scatter, of values whose variance is about 1; z is clipped here.
LEAST, CLIP = 0.02, 3.0
#: Prior sd of the coefficients.
PRIOR_SD = 0.5


@dataclass(frozen=True, eq=False)
class RowNoise:
    """Factors on τ² and s²; with those of `ToldNoise.over` there is no effect yet.

    center, scale : (4,) of what places say, over the rows that it was learned from
    coefficients : (4, 2) a and b

    Examples
    --------
    >>> X = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> told = ToldNoise.over(X, X[:, 0], torch.ones(50).double())
    >>> told.noise.factors(told.says)[:, 0].unique()
    tensor([1.], dtype=torch.float64)
    """

    center: Float[Tensor, " p"]
    scale: Float[Tensor, " p"]
    coefficients: Float[Tensor, "p 2"]

    def says(
        self,
        X: Float[Tensor, "n D"],
        value: Float[Tensor, " n"],
        counts: Float[Tensor, " n"],
        of: Int[Tensor, " m"] | None = None,
    ) -> Float[Tensor, "m p"]:
        """z of observations, or of those of these numbers: standardised, and clipped so that no place is stranger than
        those learned from."""
        return self.standardised(what_places_say(X, value, counts, of))

    def standardised(self, said: Float[Tensor, "n p"]) -> Float[Tensor, "n p"]:
        """z of `what_places_say`."""
        return ((said - self.center) / self.scale).clamp(-CLIP, CLIP)

    def factors(self, says: Float[Tensor, "n p"]) -> Float[Tensor, "n 2"]:
        """On τ² and on s²."""
        return torch.exp(says @ self.coefficients.to(says.device))

    def penalty(self) -> Float[Tensor, ""]:
        """Minus the log prior density of the coefficients, less its constant."""
        return 0.5 * self.coefficients.square().sum() / PRIOR_SD**2


@dataclass(frozen=True, eq=False)
class ToldNoise:
    """A noise, and what the places around say (n, p) of each of n observations."""

    noise: RowNoise
    says: Float[Tensor, "n p"]

    @classmethod
    def over(
        cls, X: Float[Tensor, "n D"], value: Float[Tensor, " n"], counts: Float[Tensor, " n"]
    ) -> "ToldNoise":
        """For observations at X, their first two columns places in one unit; see `what_places_say`."""
        said = what_places_say(X, value, counts)
        scale = said.std(0, unbiased=False)
        scale = torch.where(scale > 1e-8, scale, torch.ones_like(scale))
        noise = RowNoise(said.mean(0), scale, torch.zeros(SAYS, 2, dtype=torch.float64))
        return cls(noise, noise.standardised(said))

    def to(self, device: torch.device | str) -> "ToldNoise":
        """What is said on a device; the few numbers of the noise follow it."""
        return replace(self, says=self.says.to(device))


def noise_variance(
    tau2: Tensor | float, s2: Tensor | float, counts: Float[Tensor, " n"], told: ToldNoise | None
) -> Float[Tensor, " n"]:
    """τ² + s²/n of averages of so many measurements, each part with its factor where places tell."""
    if told is None:
        return tau2 + s2 / counts
    tau, s = told.noise.factors(told.says).unbind(-1)
    return tau2 * tau + s2 * s / counts


def what_places_say(
    X: Float[Tensor, "n D"],
    value: Float[Tensor, " n"],
    counts: Float[Tensor, " n"],
    of: Int[Tensor, " m"] | None = None,
) -> Float[Tensor, "m p"]:
    """Of the places nearest to each observation's, its own left out: their mean value, mean log count, log density and
    log scatter; each place has one voice, however often it was measured.

    of : numbers of the observations that are asked about; None for all

    Notes
    -----
    O(n log n), most of it for those that are asked about; the rows of one place share what is said of it.

    Examples
    --------
    >>> X = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]).double()
    >>> what_places_say(X, torch.tensor([5.0, 1.0, 5.0]).double(), torch.ones(3).double())[:, 0].tolist()
    [1.0, 5.0, 1.0]
    """
    places, at = distinct(X[:, :2].cpu().numpy())
    m = len(places)
    told = at if of is None else at[of.cpu().numpy()]
    if m < 2:
        return torch.zeros(len(told), SAYS, dtype=torch.float64)
    asked, told = np.unique(told, return_inverse=True)
    distance, near = cKDTree(places).query(places[asked], k=np.arange(2, min(AROUND + 1, m) + 1))
    heard = np.zeros(m, dtype=bool)
    heard[near] = True
    rows, number = torch.from_numpy(np.flatnonzero(heard[at])), np.cumsum(heard) - 1
    at, near = number[at[rows.numpy()]], number[near]
    value, counts = (v[rows.to(v.device)] for v in (value, counts))
    y, n, w = (v.cpu().numpy() for v in (value, counts, typical_precision(counts)))
    weight = np.bincount(at, w)
    mean, square = np.bincount(at, w * y) / weight, np.bincount(at, w * y**2) / weight
    busy = np.bincount(at, np.log(n)) / np.bincount(at)
    share = weight[near] / weight[near].sum(1, keepdims=True)
    level = (share * mean[near]).sum(1)
    scatter = (share * (square[near] - 2.0 * level[:, None] * mean[near])).sum(1) + level**2
    dense = -np.log(distance[:, min(RANK, distance.shape[1]) - 1])
    said = np.column_stack([level, busy[near].mean(1), dense, np.log(scatter.clip(0.0) + LEAST)])
    return torch.from_numpy(said[told])

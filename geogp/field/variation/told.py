"""Lengthscale and variance that follow what the places around say: a few coefficients, whatever the bumps.

    log h = u(x)'a,   log s² = u(x)'b,   u(x) the numbers of `what_places_say`, blended from centres

A gap is told as little when its rows are left out as it will be told on a map: centres within it hear the places at its
edge, about these places alone.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geogp.field.kernel import LocalKernel
from geogp.field.noise.rows import RowNoise, what_places_say
from geogp.field.variation.bumps import Variation

#: Centres at most.
CENTRES = 200
#: Prior sd of the coefficients.
PRIOR_SD = 0.5


@dataclass(frozen=True, eq=False)
class Following:
    """How lengthscale and variance follow what is said: bumps about the centres, and a and b.

    coefficients : (p, 2)
    """

    bumps: Variation
    coefficients: Float[Tensor, "p 2"]

    def variation(self, says: Float[Tensor, "m p"]) -> Variation:
        """What lengthscale and variance are where this is said at the m centres."""
        # Each in one piece, as a file has them: products are the same to the last bit.
        lengthscale, variance = (says @ self.coefficients.to(says.device)).T.contiguous().unbind()
        return replace(self.bumps, lengthscale=lengthscale, variance=variance)

    def penalty(self) -> Float[Tensor, ""]:
        """Minus the log prior density of the coefficients, less its constant."""
        return 0.5 * self.coefficients.square().sum() / PRIOR_SD**2


def following(
    kernel: LocalKernel, follows: Following | None, says: Float[Tensor, "m p"] | None
) -> LocalKernel:
    """The kernel as it is where this is said; itself where it follows nothing, or nothing is said."""
    if follows is None or says is None:
        return kernel
    return replace(kernel, variation=follows.variation(says))


@dataclass(frozen=True, eq=False)
class Told:
    """What the places of X (n, D), value (n,), counts (n,) say at the centres of bumps, in the units of a row noise.

    Examples
    --------
    >>> from geogp.field.noise.rows import ToldNoise
    >>> X = torch.rand(90, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> value, counts = X[:, 0], torch.ones(90).double()
    >>> told = Told.over(X, value, counts, ToldNoise.over(X, value, counts).noise)
    >>> told.says(torch.arange(90)).shape, told.says(torch.arange(45)).shape
    (torch.Size([45, 4]), torch.Size([45, 4]))
    """

    X: Float[Tensor, "n D"]
    value: Float[Tensor, " n"]
    counts: Float[Tensor, " n"]
    noise: RowNoise
    start: Following

    @classmethod
    def over(
        cls, X: Float[Tensor, "n D"], value: Float[Tensor, " n"], counts: Float[Tensor, " n"], noise: RowNoise
    ) -> "Told":
        """Of observations, with no effect yet."""
        none = torch.zeros(len(noise.center), 2, dtype=torch.float64)
        return cls(X, value, counts, noise, Following(Variation.blending(X, CENTRES), none))

    def says(self, rows: Tensor) -> Float[Tensor, "m p"]:
        """At each centre what the places nearest to it say, told by some of the rows alone.

        Notes
        -----
        O(n log n).
        """
        X = self.X[rows]
        said = self.noise.standardised(what_places_say(X, self.value[rows], self.counts[rows]))
        places, first = np.unique(X[:, :2].numpy(), axis=0, return_index=True)
        return self.start.bumps.heard(places, said[torch.from_numpy(first)])

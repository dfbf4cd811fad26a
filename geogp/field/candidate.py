"""A local Gaussian process that was tried, and when another is better."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor

from geogp.field.left_out import SIDES
from geogp.field.local_gp import LocalGP


@dataclass(frozen=True)
class Candidate:
    """A local GP, and the log densities (m,) it gives held-out rows of each kind of missing data."""

    gp: LocalGP
    each: dict[str, Tensor]

    @property
    def densities(self) -> dict[str, float]:
        """Their means."""
        return {kind: float(each.mean()) for kind, each in self.each.items()}

    @property
    def density(self) -> float:
        """All kinds count alike, but for sides."""
        return sum(_share(kind) * d for kind, d in self.densities.items())

    def doubt_beside(self, other: "Candidate") -> float:
        """Standard error of how much denser one of the two is."""
        gain = {kind: other.each[kind] - each for kind, each in self.each.items()}
        return math.sqrt(sum(_share(kind) ** 2 * float(g.var()) / len(g) for kind, g in gain.items()))

    def surely_gains(self, other: "Candidate", kind: str, least: float) -> bool:
        """Whether missing data of a kind are denser under it than under the other, by so much and by two standard errors."""
        if kind not in self.each:
            return False
        gain = self.each[kind] - other.each[kind]
        return float(gain.mean()) > max(least, 2.0 * math.sqrt(float(gain.var()) / len(gain)))

    def never_loses_to(self, other: "Candidate", kinds: Collection[str] | None = None) -> bool:
        """Whether no kind of missing data, or none of these, speaks for the other."""
        return all(
            d >= other.densities[kind] for kind, d in self.densities.items() if kinds is None or kind in kinds
        )


def _share(kind: str) -> float:
    return SIDES if kind == "sides" else 1.0


def better(one: Candidate, other: Candidate) -> Candidate:
    """The other, if it is."""
    return other if other.density > one.density else one


def surely_better(simple: Candidate, other: Candidate, least: float = 0.0) -> Candidate:
    """The other, if it gains more than the standard error of its gain (Breiman et al. 1984, section 3.4.3), and than the least."""
    gain = other.density - simple.density
    return other if gain > max(least, simple.doubt_beside(other)) else simple

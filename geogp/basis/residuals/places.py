"""The places that a residual grows from, few enough to search, and the same however the rows came."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor, from_numpy

from geogp.linalg.distinct import distinct

#: Places kept, at most.
MOST = 2**16
#: Places gathered before they are thinned.
GATHERED = 2**20
#: Cells of the finest and of the coarsest grid have sides of 2^-40 and 2^40.
FINEST = 40


@dataclass(frozen=True, eq=False)
class Places:
    """Distinct places, or, of more than 65,536, the middles of the cells of a grid that hold one.

    points : (A, p) float64, in ascending order; level : the cells have sides of 2^-level, None for the places themselves

    The grids lie one in the other and where they lie whatever the places, the finest with few enough cells is taken, so
    places joined in any order are those gathered at once.

    Examples
    --------
    >>> one, other = (Places.of([np.array(P)]) for P in ([[0.0], [2.0]], [[2.0], [1.0]]))
    >>> one.joined(other).points.tolist(), one.radius
    ([[0.0], [1.0], [2.0]], 0.0)
    """

    points: Float[np.ndarray, "A p"]
    level: int | None = None

    @classmethod
    def of(cls, parts: Iterable[Float[np.ndarray, "_ p"]]) -> "Places":
        """Those of parts that are looked at one after the other; at least one."""
        found: Places | None = None
        gathered: list[np.ndarray] = []
        waiting = 0
        for part in parts:
            gathered.append(part)
            waiting += len(part)
            if waiting > GATHERED:
                found, gathered, waiting = _joined(found, gathered), [], 0
        return _joined(found, gathered)

    @property
    def radius(self) -> float:
        """No place lies farther than so from the nearest point."""
        return 0.0 if self.level is None else 0.5 * math.sqrt(self.points.shape[1]) * 2.0**-self.level

    def joined(self, other: "Places") -> "Places":
        """The places of both."""
        level = min((p.level for p in (self, other) if p.level is not None), default=None)
        both = np.concatenate([self.at(level).points, other.at(level).points])
        return Places(distinct(both)[0], level).thinned()

    def at(self, level: int | None) -> "Places":
        """In cells of a level that is no finer than their own; themselves without one."""
        if level is None:
            return self
        side = 2.0**-level
        cells = np.floor(np.clip(self.points / side, -(2.0**60), 2.0**60)).astype(np.int64)
        return Places((distinct(cells)[0] + 0.5) * side, level)

    def thinned(self) -> "Places":
        """In cells of the finest level that leaves at most 65,536 of them; themselves where they are as few."""
        if len(self.points) <= MOST:
            return self
        low, high = -FINEST, FINEST + 1 if self.level is None else self.level
        best = self.at(low)
        while high - low > 1:
            middle = (low + high) // 2
            tried = self.at(middle)
            if len(tried.points) <= MOST:
                low, best = middle, tried
            else:
                high = middle
        return best

    def to_tensors(self) -> dict[str, Tensor]:
        """What a statistic keeps of them."""
        level = np.array([] if self.level is None else [self.level], dtype=np.int64)
        return {"places": from_numpy(np.ascontiguousarray(self.points)), "places_level": from_numpy(level)}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "Places | None":
        """The inverse of `to_tensors`; None where there are none."""
        if "places" not in tensors:
            return None
        level = tensors["places_level"].tolist()
        return cls(tensors["places"].double().numpy(), int(level[0]) if level else None)


def _joined(found: Places | None, parts: list[np.ndarray]) -> Places:
    if not parts:
        assert found is not None  # `of` was given a part
        return found
    more = Places(distinct(np.concatenate(parts))[0]).thinned()
    return more if found is None else found.joined(more)

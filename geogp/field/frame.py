"""Raw inputs -> coordinates in which one unit means the same on every data set."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geogp.field import neighbours
from geogp.holdout import spacing

#: One unit of space is this many spacings of places, one unit of time this share of the time span: the metric
#: in which neighbours are near.
SPACINGS, SPAN_SHARE = 3.5, 0.4


@dataclass(frozen=True)
class Frame:
    """How raw inputs become coordinates: centred, space in units of `space_unit`, time in `time_unit`."""

    space: tuple[int, int]
    time: int | None
    others: tuple[int, ...]
    origin: tuple[float, ...]
    space_unit: float
    time_unit: float

    @property
    def time_axis(self) -> int | None:
        """The column of time in `coordinates`, None where there is none."""
        return None if self.time is None else 2

    def coordinates(self, X: Tensor) -> Tensor:
        """(N, 2) or (N, 3): easting, northing and, when there is one, time."""
        columns = [(X[:, d] - self.origin[d]) / self.space_unit for d in self.space]
        if self.time is not None:
            columns.append((X[:, self.time] - self.origin[self.time]) / self.time_unit)
        return torch.stack(columns, dim=-1).contiguous()


def frame_of(X: np.ndarray, space: tuple[int, int], time: int | None) -> Frame:
    """The frame of training inputs X (N, D); time that stands still in them is none.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0, 2020.0], [7.0, 0.0, 2020.0], [14.0, 0.0, 2021.0]])
    >>> frame_of(X, (0, 1), 2).coordinates(torch.from_numpy(X))[:, 0].numpy().round(3)  # 7 apart is one spacing
    array([-0.286,  0.   ,  0.286])
    """
    span = 0.0 if time is None else float(np.ptp(X[:, time]))
    others = tuple(d for d in range(X.shape[1]) if d not in (*space, time))
    h = spacing(X[:, list(space)])
    return Frame(
        space=space,
        time=time if span > 0 else None,
        others=others,
        origin=tuple(float(v) for v in X.mean(axis=0)),
        space_unit=SPACINGS * h,
        time_unit=SPAN_SHARE * span if span > 0 else 1.0,
    )


def times(C: Tensor) -> Tensor | None:
    """The times (N,) of coordinates C (N, 2 or 3), None where they have none."""
    return C[:, 2] if C.shape[1] > 2 else None


def newest(C: Tensor) -> float:
    """The largest time among coordinates, 0 without a time."""
    return 0.0 if (t := times(C)) is None else float(t.max())


def search_among(C: Tensor) -> neighbours.NeighbourSearch:
    """A neighbour search over coordinates, in whose units space and time compare."""
    time_axis = None if times(C) is None else 2
    return neighbours.build(C.numpy(), scale=np.ones(C.shape[1]), time_axis=time_axis)

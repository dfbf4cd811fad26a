"""Raw inputs -> coordinates in which one unit means the same on every data set."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from geogp.field import neighbours
from geogp.field.mean.season import Season
from geogp.holdout import clusters, spacing

#: One unit of space is this many spacings of places, one unit of time this share of the time span: the metric
#: in which neighbours are near.
SPACINGS, SPAN_SHARE = 3.5, 0.4
#: The metric of inputs as they are.
ISOTROPIC = (1.0, 0.0, 0.0, 1.0)
#: Share of the extent by which equal places may differ once they have been turned and turned back.
ROUNDING = 1e-11
#: The middle 68% of a covariate, half of which is one sd of a normal; of more than so many of these the sd is that of a few values.
MIDDLE, FAR_OUT = (0.16, 0.84), 3.0


@dataclass(frozen=True)
class Frame:
    """How raw inputs become coordinates: centred, space in units of `space_unit`, time in `time_unit`, covariates in
    those of `other_units`.

    space : the columns of easting and northing, or the one along a line: its places have northing 0
    metric : the 2 x 2 matrix, row by row, that makes the field as rough in one direction as in another
    other_units : of the covariates, that is of the columns `others`; none where they are no coordinates
    """

    space: tuple[int, ...]
    time: int | None
    others: tuple[int, ...]
    origin: tuple[float, ...]
    space_unit: float
    time_unit: float
    metric: tuple[float, float, float, float] = ISOTROPIC
    other_units: tuple[float, ...] = ()

    @property
    def time_axis(self) -> int | None:
        """The column of time in `coordinates`, None where there is none."""
        return None if self.time is None else 2

    @property
    def n_axes(self) -> int:
        """How many columns `coordinates` has."""
        return 2 + (self.time is not None) + len(self.other_units)

    def coordinates(self, X: Tensor) -> Tensor:
        """(N, n_axes): easting and northing in the metric, time when there is one, covariates."""
        e, *rest = ((X[:, d] - self.origin[d]) / self.space_unit for d in self.space)
        n = rest[0] if rest else torch.zeros_like(e)
        a, b, c, d = self.metric
        columns = [e, n] if self.metric == ISOTROPIC else [a * e + b * n, c * e + d * n]
        if self.time is not None:
            columns.append((X[:, self.time] - self.origin[self.time]) / self.time_unit)
        columns += [(X[:, o] - self.origin[o]) / unit for o, unit in zip(self.others, self.other_units)]
        return torch.stack(columns, dim=-1).contiguous()

    def inputs(self, C: Tensor) -> np.ndarray:
        """(N, D) raw inputs of coordinates C, but for rounding: the inverse of `coordinates`. A column that is no coordinate is NaN.

        Examples
        --------
        >>> X = np.array([[0.0, 0.0, 2020.0], [7.0, 0.0, 2020.0], [14.0, 3.0, 2021.0]])
        >>> frame = frame_of(X, (0, 1), 2)
        >>> np.allclose(frame.inputs(frame.coordinates(torch.from_numpy(X))), X)
        True
        """
        out = np.full((len(C), len(self.origin)), np.nan)
        place = self._turned_back(C)
        parts = [(d, self.space_unit, part) for d, part in zip(self.space, place)]
        if self.time is not None:
            parts.append((self.time, self.time_unit, C[:, 2].numpy()))
        further = C[:, self.n_axes - len(self.other_units) :].numpy().T
        parts += list(zip(self.others, self.other_units, further))
        for d, unit, part in parts:
            out[:, d] = self.origin[d] + unit * part
        return out

    def as_given(self, C: Tensor) -> Tensor:
        """(N, n_axes) coordinates C but for the metric, numbers that differ by rounding alone made equal: the order of rows is that of
        their inputs, whatever was learned of them.

        Examples
        --------
        >>> X = torch.tensor([[7.0, 3.0], [7.0, 1.0], [0.0, 2.0]]).double()
        >>> turned = frame_of(X.numpy(), (0, 1), None, (1.2, 0.5, 0.5, 1.0416666666666667))
        >>> frame = frame_of(X.numpy(), (0, 1), None)
        >>> seen = turned.as_given(turned.coordinates(X)) * turned.space_unit
        >>> bool(seen[0, 0] == seen[1, 0]), torch.allclose(seen, frame.coordinates(X) * frame.space_unit)
        (True, True)
        """
        if self.metric == ISOTROPIC:
            return C
        out = C.clone()
        for axis, along in enumerate(self._turned_back(C)):
            order = np.argsort(along)
            new = np.diff(along[order], prepend=-np.inf) > ROUNDING * np.ptp(along)
            out[torch.from_numpy(order), axis] = torch.from_numpy(along[order][new][np.cumsum(new) - 1])
        return out

    def _turned_back(self, C: Tensor) -> np.ndarray:
        """(2, N) places of coordinates C but for the metric."""
        return np.asarray(np.linalg.solve(np.reshape(self.metric, (2, 2)), C[:, :2].numpy().T))

    def times(self, C: Tensor) -> Tensor | None:
        """The times (N,) of coordinates C (N, n_axes), None where they have none."""
        return None if self.time is None else C[:, 2]

    def season(self, raw: Season) -> Season:
        """The waves of raw inputs as those of coordinates."""
        assert self.time is not None and self.time_axis is not None
        return raw.measured_in(self.time_axis, self.origin[self.time], self.time_unit)

    def newest(self, C: Tensor) -> float:
        """The largest time among coordinates C (N, n_axes), 0 without a time."""
        return 0.0 if self.time is None else float(C[:, 2].max())

    def oldest(self, C: Tensor) -> float:
        """The smallest time among coordinates C (N, n_axes), 0 without a time."""
        return 0.0 if self.time is None else float(C[:, 2].min())

    def search_among(
        self, C: Tensor, order: Int[np.ndarray, " N"] | None = None
    ) -> neighbours.NeighbourSearch:
        """A neighbour search over coordinates, in whose units space and time compare; `order` as `neighbours.build` takes it."""
        P = self.near(C).numpy()
        return neighbours.build(P, scale=np.ones(P.shape[1]), time_axis=self.time_axis, order=order)

    def near(self, C: Tensor) -> Tensor:
        """The columns of coordinates that say who is near: space and time, (N, 2 or 3)."""
        return C[:, : 2 + (self.time is not None)]


def at_one_place(X: Tensor, space: tuple[int, ...]) -> Tensor:
    """Inputs (N, D) with places that almost coincide in one: what is measured within metres again and again is one place to
    a map, and neighbours that are all there would leave out what lies around.

    Examples
    --------
    >>> homes = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)).double().repeat(3, 1)
    >>> len(at_one_place(homes + 1e-7 * torch.rand(150, 2).double(), (0, 1)).unique(dim=0))
    50
    """
    P = X[:, list(space)].numpy()
    places, at = clusters(P)
    settled = places[at]
    if np.array_equal(settled, P):
        return X
    X = X.clone()
    X[:, list(space)] = torch.from_numpy(settled).to(X)
    return X


def frame_of(
    X: np.ndarray,
    space: tuple[int, ...],
    time: int | None,
    metric: tuple[float, float, float, float] = ISOTROPIC,
) -> Frame:
    """The frame of training inputs X (N, D); time that stands still in them is none, and so is such a covariate.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0, 2020.0], [7.0, 0.0, 2020.0], [14.0, 0.0, 2021.0]])
    >>> frame_of(X, (0, 1), 2).coordinates(torch.from_numpy(X))[:, 0].numpy().round(3)  # 7 apart is one spacing
    array([-0.286,  0.   ,  0.286])
    """
    span = 0.0 if time is None else float(np.ptp(X[:, time]))
    others = tuple(d for d in range(X.shape[1]) if d not in (*space, time) and np.ptp(X[:, d]) > 0)
    P = X[:, list(space)]
    h = spacing(P if len(space) == 1 else P @ np.reshape(metric, (2, 2)).T)
    return Frame(
        space=space,
        time=time if span > 0 else None,
        others=others,
        origin=tuple(float(v) for v in X.mean(axis=0)),
        space_unit=SPACINGS * h,
        time_unit=SPAN_SHARE * span if span > 0 else 1.0,
        metric=metric,
        other_units=tuple(_unit(X[:, d]) for d in others),
    )


def _unit(values: np.ndarray) -> float:
    """Of a covariate: its standard deviation, or where a few far values make most of that half of what the middle 68% spans."""
    sd, (low, high) = float(values.std()), np.quantile(values, MIDDLE)
    half = 0.5 * float(high - low)
    return half if 0.0 < FAR_OUT * half < sd else sd

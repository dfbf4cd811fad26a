"""Every kind of missing data played through on the training rows: what it looks like to predict an unseen row."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from geogp.field import neighbours
from geogp.field.frame import Frame
from geogp.field.options import FieldOptions
from geogp.field.stages import Stages
from geogp.holdout import HeldOut, each_left_out, left_out_again
from geogp.linalg.distinct import order_of
from geogp.linalg.threads import side_by_side

Index = NDArray[np.int64]

#: Below this many rows nothing is left out here: each row in turn is where a kernel is fitted, given the nearest others.
HOLD_OUT_FROM = 400
#: Rows of all sets that are looked at together.
ROWS_AT_ONCE = 3_000_000
#: Rows at the sides count so much of what those of another kind do: they are many rows, but only a few gaps, and few
#: predictions lie beyond the data.
SIDES = 0.3
#: Kinds of missing data that take away what places around would say.
GAPS = ("blocks", "sides")


@dataclass(frozen=True)
class LeftOut:
    """Rows (m,) to predict from the rows `reference` alone, and the neighbours (m, k) they have there, -1 for none.

    kind is "rows", "blocks", "sides" or "future"; known (N,) whether a row is among the reference: an eighth of the memory
    that the rows' numbers take, of which a fit keeps some twenty.
    """

    kind: str
    known: Tensor
    rows: Tensor
    neighbours: Tensor

    @property
    def reference(self) -> Tensor:
        """Numbers of rows, in order."""
        return self.known.nonzero()[:, 0]


def leave_out(C: Tensor, frame: Frame, options: FieldOptions, stages: Stages | None = None) -> list[LeftOut]:
    """Single rows, blocks, sides and the future left out of coordinates C (N, D); none of few rows. Before each set there is a
    moment to stop.

    Examples
    --------
    >>> from geogp.field.frame import frame_of
    >>> X = torch.rand(1000, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> frame = frame_of(X.numpy(), (0, 1), None)
    >>> sorted({out.kind for out in leave_out(frame.coordinates(X), frame, FieldOptions())})
    ['blocks', 'rows', 'sides']
    """
    if len(C) < HOLD_OUT_FROM:
        return []
    time = frame.times(C)
    held = each_left_out(
        C[:, :2].numpy(),
        None if time is None else time.numpy(),
        n_targets=min(options.n_targets, len(C)),
        block_sizes=options.block_sizes,
        sides=True,
        seed=options.seed,
    )
    return _looked_at(C, frame, held, options, stages)


def leave_out_again(
    C: Tensor, frame: Frame, options: FieldOptions, stages: Stages | None = None
) -> list[LeftOut]:
    """The rows of a small table once more, in other company: what networks need beside `leave_out`, and kernels do not; see
    `geogp.holdout.left_out_again`. None of many rows.

    Examples
    --------
    >>> from geogp.field.frame import frame_of
    >>> X = torch.rand(1000, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> frame = frame_of(X.numpy(), (0, 1), None)
    >>> options = FieldOptions(n_targets=2000)
    >>> sum(len(out.rows) for out in leave_out_again(frame.coordinates(X), frame, options) if out.kind == "rows")
    805
    """
    space = C[:, :2].numpy()
    held = list(
        left_out_again(space, n_targets=options.n_targets, block_sizes=options.block_sizes, seed=options.seed)
    )
    # Of many rows not even their order is asked for.
    return _looked_at(C, frame, held, options, stages) if held else []


def _looked_at(
    C: Tensor, frame: Frame, held: Iterable[HeldOut], options: FieldOptions, stages: Stages | None
) -> list[LeftOut]:
    """Sets side by side, with the neighbours of their rows."""
    order = order_of(list(frame.near(C).numpy().T))
    found = side_by_side(
        lambda one: _left_out(C, frame, one, options, order),
        (stages or Stages()).between(held),
        most=most_at_once(len(C)),
    )
    return list(found)


def most_at_once(n: int) -> int:
    """How many sets of n rows, less those left out, are looked at together: each takes some hundred bytes a row."""
    return max(1, ROWS_AT_ONCE // n)


def nearest_others(P: Tensor, k: int) -> Tensor:
    """The k rows nearest to each row of P (n, d), itself not among them: (n, k), -1 where there are fewer.

    Examples
    --------
    >>> nearest_others(torch.tensor([[0.0], [1.0], [3.0]]), 1).tolist()
    [[1], [0], [1]]
    """
    n = len(P)
    found = cKDTree(P.cpu().numpy()).query(P.cpu().numpy(), k=np.arange(1, k + 2))[1]
    # Where more lie at one place than are asked for, it may not have been found itself: then the last goes.
    other = found != np.arange(n)[:, None]
    first = np.argsort(~other, axis=1, kind="stable")[:, :k]
    nearest = np.take_along_axis(found, first, axis=1)
    return torch.from_numpy(np.where(nearest < n, nearest, neighbours.MISSING))


def horizon_of(left_out: list[LeftOut], C: Tensor, frame: Frame) -> float:
    """How far ahead of the newest known row predictions were played through, in time units of C."""
    future = [out for out in left_out if out.kind == "future"]
    return max((frame.newest(C[f.rows]) - frame.newest(C[f.reference]) for f in future), default=0.0)


def _left_out(C: Tensor, frame: Frame, held: HeldOut, options: FieldOptions, order: Index | None) -> LeftOut:
    """With the neighbours that the rows have in the reference; `order` is that of all rows, None where they stand in it."""
    reference, rows = held.reference, held.target
    known = np.zeros(len(C), dtype=bool)
    known[reference] = True
    if order is not None:
        order = (np.cumsum(known) - 1)[order[known[order]]]
    search, P = frame.search_among(C[reference], order), frame.near(C[rows]).numpy()
    found = neighbours.query(search, P, options.neighbours)
    index = np.where(found >= 0, reference[found], neighbours.MISSING)[:, : len(reference)]
    return LeftOut(held.kind, *(torch.from_numpy(part) for part in (known, rows, index)))

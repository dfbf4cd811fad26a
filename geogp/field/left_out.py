"""Every kind of missing data played through on the training rows: what it looks like to predict an unseen row."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.field import neighbours
from geogp.field.frame import newest, search_among, times
from geogp.field.options import FieldOptions
from geogp.holdout import left_out_kinds

Index = NDArray[np.int64]

#: Below this many rows each row in turn is left out.
HOLD_OUT_FROM = 400


@dataclass(frozen=True)
class LeftOut:
    """Rows (m,) to predict from the rows `reference` alone, and the neighbours (m, k) they have there, -1 for none.

    kind is "rows", "blocks" or "future".
    """

    kind: str
    reference: Tensor
    rows: Tensor
    neighbours: Tensor


def leave_out(C: Tensor, options: FieldOptions) -> list[LeftOut]:
    """Single rows, blocks and the future left out of coordinates C (N, 2 or 3); of few rows each in turn.

    Examples
    --------
    >>> C = torch.rand(1000, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> sorted({out.kind for out in leave_out(C, FieldOptions())})
    ['blocks', 'rows']
    """
    if len(C) < HOLD_OUT_FROM:
        every = np.arange(len(C))
        return [_left_out(C, "rows", every, every, options, own_row=every)]
    time = times(C)
    held = left_out_kinds(
        C[:, :2].numpy(),
        None if time is None else time.numpy(),
        n_targets=min(options.n_targets, len(C)),
        block_sizes=options.block_sizes,
        seed=options.seed,
    )
    return [_left_out(C, h.kind, h.reference, h.target, options) for h in held]


def horizon_of(left_out: list[LeftOut], C: Tensor) -> float:
    """How far ahead of the newest known row predictions were played through, in time units of C."""
    future = [out for out in left_out if out.kind == "future"]
    return max((newest(C[f.rows]) - newest(C[f.reference]) for f in future), default=0.0)


def _left_out(
    C: Tensor, kind: str, reference: Index, rows: Index, options: FieldOptions, own_row: Index | None = None
) -> LeftOut:
    """With the neighbours that the rows have in the reference, in which `own_row` (m,) are not their own."""
    found = neighbours.query(search_among(C[reference]), C[rows].numpy(), options.neighbours, own_row=own_row)
    index = np.where(found >= 0, reference[found], neighbours.MISSING)[:, : len(reference)]
    return LeftOut(kind, *(torch.from_numpy(a) for a in (reference, rows, index)))

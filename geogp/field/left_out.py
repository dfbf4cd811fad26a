"""Every kind of missing data played through on the training rows: what it looks like to predict an unseen row."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geogp.field import neighbours
from geogp.field.options import FieldOptions
from geogp.holdout import HeldOut, left_out_kinds

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


def leave_out(C: Tensor, time_axis: int | None, options: FieldOptions) -> list[LeftOut]:
    """Single rows, blocks and the future left out of coordinates C (N, D); of few rows each in turn.

    Examples
    --------
    >>> C = torch.rand(1000, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> sorted({out.kind for out in leave_out(C, None, FieldOptions())})
    ['blocks', 'rows']
    """
    if len(C) < HOLD_OUT_FROM:
        return [_each_in_turn(C, time_axis, options.neighbours)]
    held = left_out_kinds(
        C[:, :2].numpy(),
        None if time_axis is None else C[:, time_axis].numpy(),
        n_targets=min(options.n_targets, len(C)),
        block_sizes=options.block_sizes,
        seed=options.seed,
    )
    return [_with_neighbours(C, h, time_axis, options.neighbours) for h in held]


def horizon_of(left_out: list[LeftOut], C: Tensor) -> float:
    """How far ahead of the newest known row predictions were played through, in time units of C (N, D)."""
    future = [out for out in left_out if out.kind == "future"]
    return max((float(C[f.rows, 2].max() - C[f.reference, 2].max()) for f in future), default=0.0)


def _with_neighbours(C: Tensor, held: HeldOut, time_axis: int | None, k: int) -> LeftOut:
    known = held.reference
    search = neighbours.build(C[known].numpy(), scale=np.ones(C.shape[1]), time_axis=time_axis)
    index = neighbours.query(search, C[held.target].numpy(), k)
    index = np.where(index >= 0, known[index], neighbours.MISSING)[:, : len(known)]
    return LeftOut(held.kind, *(torch.from_numpy(a) for a in (known, held.target, index)))


def _each_in_turn(C: Tensor, time_axis: int | None, k: int) -> LeftOut:
    rows = np.arange(len(C))
    search = neighbours.build(C.numpy(), scale=np.ones(C.shape[1]), time_axis=time_axis)
    index = neighbours.query(search, C.numpy(), k, own_row=rows)[:, : len(C)]
    return LeftOut("rows", *(torch.from_numpy(a) for a in (rows, rows, index)))

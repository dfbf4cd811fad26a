"""Tables of tensors that share their rows."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Columns:
    """Base of dataclasses all of whose fields are tensors (n, ...) with the same n.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Places(Columns):
    ...     x: Tensor
    ...     y: Tensor
    >>> here = Places(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    >>> Places.together([here, here.at(torch.tensor([1]))]).y
    tensor([3., 4., 4.])
    """

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def at(self, rows: Tensor | NDArray | slice) -> Self:
        """Some of the rows: numbers of rows, a mask or a slice."""
        return replace(self, **{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def with_rows(self, rows: Tensor, other: Self) -> Self:
        """The same whose rows of these numbers (m,) are those of another table of m rows."""
        changed = {
            f.name: getattr(self, f.name).index_copy(0, rows, getattr(other, f.name)) for f in fields(self)
        }
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> Self:
        """The same on a device."""
        return replace(self, **{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """One table of several, in their order."""
        columns = {f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(cls)}
        return replace(parts[0], **columns)

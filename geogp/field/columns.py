"""Tables of tensors that share their rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Columns:
    """Base of dataclasses all of whose fields are tensors (n, ...) with the same n, or tables like it, or None.

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
        return self._each(lambda column: column.at(rows) if isinstance(column, Columns) else column[rows])

    def with_rows(self, rows: Tensor, other: Self) -> Self:
        """The same whose rows of these numbers (m,) are those of another table of m rows, with the same columns."""
        changed = {}
        for f in fields(self):
            own, new = getattr(self, f.name), getattr(other, f.name)
            if isinstance(own, Columns):
                changed[f.name] = own.with_rows(rows, new)
            elif own is not None:
                changed[f.name] = own.index_copy(0, rows, new)
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> Self:
        """The same on a device."""
        return self._each(lambda column: column.to(device))

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """One table of several with the same columns, in their order."""
        columns: dict[str, Any] = {}
        for f in fields(cls):
            found = [getattr(p, f.name) for p in parts]
            if isinstance(found[0], Columns):
                columns[f.name] = type(found[0]).together(found)
            elif found[0] is not None:
                columns[f.name] = torch.cat(found)
        return replace(parts[0], **columns)

    def _each(self, change: Callable[[Any], Any]) -> Self:
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: change(v) for name, v in columns.items() if v is not None})

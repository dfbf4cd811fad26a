"""Fields of many rows: overlapping regions, each a local field of its own, merged without seams."""

from typing import Any

from torch import Tensor

from geogp.field.local_field import LocalField
from geogp.field.options import FieldOptions
from geogp.field.regions.merged_field import MergedField
from geogp.field.regions.rows import Rows

Field = LocalField | MergedField


def fit_field(X: Tensor, y: Tensor, counts: Tensor | None, *, options: FieldOptions, **beside: Any) -> Field:
    """`LocalField.fit`, or `MergedField.fit` where options ask for regions of fewer rows than there are."""
    kind = MergedField if options.n_regions(len(y)) > 1 else LocalField
    return kind.fit(X, y, counts, options=options, **beside)


def restored_field(tensors: dict[str, Tensor], facts: dict[str, Any], *, device: str = "cpu") -> Field:
    """The field that its `state` described."""
    kind = MergedField if "regions" in facts else LocalField
    return kind.from_state(tensors, facts, device=device)


__all__ = ["Field", "MergedField", "Rows", "fit_field", "restored_field"]

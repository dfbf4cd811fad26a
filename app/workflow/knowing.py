"""What a run knows: how many rows of which quarter, where they lie, and the statistics an update merges."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from app.errors import InvalidInput
from app.workflow.rows import Flags, Rows
from data_pipelines import quarters
from geogp.errors import InvalidInput as NotUpdatable
from geogp.estimator import GPRegressor
from geogp.linalg.distinct import distinct
from geogp.run import Run
from geogp.update import STATISTICS, summarise, way


@dataclass(frozen=True, eq=False)
class Known:
    """The rows a model is conditioned on, by label (quarter).

    rows : label -> number of rows, labels sorted
    positions_m : (n, 2) their distinct places, sorted; here : (n, labels) which label has been measured where
    """

    rows: dict[str, int]
    positions_m: NDArray[np.float64]
    here: NDArray[np.bool_]

    @classmethod
    def of(cls, X: NDArray[np.float64], labels: NDArray[np.str_]) -> "Known":
        """Of rows at X (n, 2 or more), easting and northing first, with labels (n,)."""
        names, code, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        places, at = distinct(X[:, :2])
        here = np.zeros((len(places), len(names)), dtype=bool)
        here[at, code.ravel()] = True
        return cls({str(k): int(n) for k, n in zip(names, sizes)}, places, here)

    @classmethod
    def nothing(cls) -> "Known":
        """Of no rows."""
        return cls({}, np.empty((0, 2)), np.zeros((0, 0), dtype=bool))

    @classmethod
    def of_run(cls, run: Run) -> "Known":
        """Of a finished run.

        Raises
        ------
        InvalidInput
            a run of an earlier version, which did not keep this.
        """
        rows, tensors = run.facts["rows"].get("known"), run.tensors("support")
        if rows is None or "here" not in tensors:
            raise InvalidInput(
                f"{run.path} does not say which quarters it knows (an earlier version made it); fit it again."
            )
        return cls(dict(rows), tensors["positions_m"].numpy(), tensors["here"].numpy())

    def without(self, labels: list[str]) -> "Known":
        """The rest, after forgetting some labels."""
        kept = [i for i, name in enumerate(self.rows) if name not in labels]
        left = self.here[:, kept].any(axis=1)
        rows = {name: n for name, n in self.rows.items() if name not in labels}
        return Known(rows, self.positions_m[left], self.here[left][:, kept])

    def with_(self, other: "Known") -> "Known":
        """Both, whose labels differ."""
        names = sorted({**self.rows, **other.rows})
        both = np.concatenate([self.positions_m, other.positions_m])
        places, at = distinct(both)
        here = np.zeros((len(places), len(names)), dtype=bool)
        first = len(self.positions_m)
        for known, rows in ((self, at[:first]), (other, at[first:])):
            columns = np.array([names.index(label) for label in known.rows], dtype=np.intp)
            here[np.ix_(rows, columns)] |= known.here
        return Known({name: (self.rows | other.rows)[name] for name in names}, places, here)

    def to_tensors(self) -> dict[str, Tensor]:
        """What `support.safetensors` holds."""
        return {"positions_m": from_numpy(self.positions_m), "here": from_numpy(self.here)}


def span(labels: Collection[str]) -> str:
    """Labels in few words: a run of quarters by its ends."""
    names = sorted(labels)
    ends = f"{names[0]}..{names[-1]}" if len(names) > 2 else ", ".join(names)
    try:
        return ends if len(names) <= 2 or quarters.parse(ends) == names else ", ".join(names)
    except ValueError:
        return ", ".join(names)


def what_is_known(
    model: GPRegressor, rows: Rows, fitted: Flags
) -> tuple[Known, dict[str, dict[str, Tensor]]]:
    """What a fit knows of its rows: places by quarter and, where the method has them, statistics by quarter."""
    try:
        kind = way(model)
    except NotUpdatable:
        kind = ""
    statistics: dict[str, dict[str, Tensor]] = {}
    if kind == STATISTICS:
        parts = summarise(model, *rows.select(fitted), groups=rows.labels[fitted])
        statistics = {f"statistics/{label}": part.to_tensors() for label, part in parts.items()}
    return Known.of(rows.X[fitted], rows.labels[fitted]), statistics

"""Which rows an update adds to a run: quarters of its own file, or of another one that fits it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS

from app.errors import InvalidInput
from app.workflow.knowing import Known, span
from app.workflow.rows import ALL, Flags, Rows, observations_of, rows_for
from data_pipelines import former, quarters
from geogp.run import Run


@dataclass(frozen=True, eq=False)
class News:
    """Rows to add.

    rows : their file, None for no news; mask : (N,) which of its rows; labels : (N,) quarters
    known : their places by quarter
    own : the file is the one that the run was fitted from
    """

    rows: Rows | None
    mask: Flags
    labels: NDArray[np.str_]
    own: bool = False
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> Known:
        if self.rows is None:
            return Known.nothing()
        return Known.of(self.rows.X[self.mask], self.labels[self.mask])


NO_NEWS = News(None, np.zeros(0, dtype=bool), np.zeros(0, dtype="U6"))


def news_of(run: Run, known: Known, add: str | Path, data: str | Path | None) -> News:
    """The rows that `add` names and a run does not know.

    Parameters
    ----------
    known : what the run knew before this update: a quarter that the update forgets is not added by it
    add : an observations file, or quarters of the run's own
    data : the run's own file, if it was moved

    Raises
    ------
    InvalidInput
        neither a file nor quarters; nothing new; a file of another target, CRS, kind or shape.
    """
    if Path(add).is_file():
        rows = rows_for(run, add)
        if rows.sha256 == run.data["sha256"]:
            return _of_own(run, known, rows, None)
        return _of_other(run, known, rows)
    try:
        wanted = quarters.parse(str(add))
    except ValueError:
        raise InvalidInput(
            f"--add {add} is neither a file nor quarters; give a table of `geogp ingest`, or 2023Q4 of the run's own."
        ) from None
    return _of_own(run, known, observations_of(run, data), wanted)


def _of_own(run: Run, known: Known, rows: Rows, wanted: list[str] | None) -> News:
    """The rows of a quarter that were fitted once; where none were (a forward split), all of it."""
    labels = rows.labels
    there = set(np.unique(labels[rows.usable]).tolist())
    for label in wanted or ():
        if label not in there:
            raise InvalidInput(f"{rows.path} has no usable row of {label}; it has {span(there)}.")
        if label in known.rows:
            raise InvalidInput(
                f"The run knows {label} already; what it knows can be forgotten and, in another command, added again."
            )
    chosen = sorted(there - set(known.rows) if wanted is None else wanted)
    if not chosen:
        raise InvalidInput(f"The run knows all quarters of {rows.path} already; there is nothing to add.")
    fitted = run.tensors("split")["fitted"].numpy()
    mask = np.zeros(len(labels), dtype=bool)
    held = []
    for label in chosen:
        inside = rows.usable & (labels == label)
        if (inside & fitted).any():
            inside &= fitted
        else:
            held.append(label)
        mask |= inside
    notes = [f"{span(held)}, held out so far, is learned now: evaluations leave it out"] if held else []
    return News(rows, mask, labels, own=True, notes=tuple(notes))


def _of_other(run: Run, known: Known, rows: Rows) -> News:
    """The quarters of another file that the run does not know."""
    _check(run, rows)
    labels = rows.labels
    if (labels == ALL).all():  # no time: the file as a whole is what can be forgotten again
        labels = np.full(len(labels), f"added-{rows.sha256[:8]}")
    there = set(np.unique(labels[rows.usable]).tolist())
    old = there & set(known.rows)
    if old == there:
        raise InvalidInput(
            f"The run knows all quarters of {rows.path} already ({span(old)}); to take them from this file, forget "
            "them first, in a command of its own."
        )
    notes = [f"of {span(there)} in {rows.path} only what the run did not know was added"] if old else []
    if names := former.changed(rows.metadata, run.data):
        notes.append(former.sentence(names, str(run.path)))
    return News(rows, rows.usable & ~np.isin(labels, sorted(old)), labels, notes=tuple(notes))


def _check(run: Run, rows: Rows) -> None:
    """Another file must measure the same thing in the same plane."""
    other = rows.metadata
    if run.crs != CRS.from_user_input(other["crs"]):
        raise InvalidInput(
            f"{rows.path} is in another plane (CRS) than the run's observations; ingest it for the same region as them."
        )
    for name in ("type", "value_unit"):
        if run.data.get(name) != other.get(name):
            raise InvalidInput(
                f"{rows.path} has {name} {other.get(name)!r}, the run was fitted to {run.data.get(name)!r}."
            )
    if rows.has_time != run.has_time:
        has, had = ("no time", "one") if not rows.has_time else ("times", "none")
        raise InvalidInput(
            f"{rows.path} has {has} and the run was fitted to {had}; fit again on both together."
        )
    if run.model.has_counts and rows.counts is None:
        raise InvalidInput(f"{rows.path} has no counts of measurements, which the run was fitted with.")

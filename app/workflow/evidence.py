"""How much of an area was measured, and how much the model fills in."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from app.errors import InvalidInput
from app.workflow.grids import of_tiled_source
from app.workflow.polygons import Inside, points_in_each
from app.workflow.rows import observations_of
from app.workflow.weighing import Places, places_in
from data_pipelines.arrow import numbers
from geogp.linalg.distinct import distinct
from geogp.run import FAR_M, Run
from maps.words import number

Array = NDArray[np.float64]

#: Shares of an area's ground with data near from which on it is "measured", and "partly"; below it is "filled".
MEASURED, PARTLY = 0.5, 0.1
#: Points of an area that are asked for their nearest data.
LOOKED_AT = 400
#: Rows of which a fit says nothing that anybody should trust are fewer.
FEWEST = 10


@dataclass(frozen=True, eq=False)
class Evidence:
    """What areas rest on.

    tiles : the distinct training places in each area, alike
    n_tests : (A,) measurements behind the rows learned from there; None where nothing counts them
    share_near : (A,) of the ground, NaN outside the region; near_m : how near that is
    """

    tiles: Places
    n_tests: Array | None
    share_near: Array
    near_m: float

    def columns(self) -> dict[str, Any]:
        """Of the table of areas."""
        n = len(self.share_near)
        words = np.select(
            [np.isnan(self.share_near), self.share_near >= MEASURED, self.share_near >= PARTLY],
            ["", "measured", "partly"],
            "filled",
        )
        tests = {} if self.n_tests is None else {"n_tests": self.n_tests}
        return {
            "n_tiles": self.tiles.total(n).astype(np.int64),
            **tests,
            "share_near": self.share_near,
            "evidence": words.astype(object),
        }


def near_m_of(run: Run) -> float:
    """How near data are near: the gap that holds nine in ten of the places; of tiles at least 1 km."""
    gap = run.support.usual_gap_m
    least = FAR_M if of_tiled_source(run) or gap is None else 0.0
    return max(least, gap or 0.0)


def evidence_of(run: Run, inside: Inside, data: str | Path | None) -> tuple[Evidence, list[str]]:
    """What each polygon's part rests on, and what could not be told.

    Parameters
    ----------
    data : the run's observations, if they were moved; None: where the run was fitted from

    Raises
    ------
    InvalidInput
        `data` that are not the run's.
    """
    parts, places, near_m, notes = inside.parts, run.support.positions_m, near_m_of(run), list[str]()
    owner, row = places_in(parts, places)
    P, at = points_in_each(parts, [LOOKED_AT] * len(parts))
    reached = inside.ground.reached(P)
    P, at = P[reached], at[reached]
    near = np.isfinite(run.support.distances_m(P, near_m))
    n = np.bincount(at, minlength=len(parts))
    share = np.where(n > 0, np.bincount(at, near, minlength=len(parts)) / np.maximum(n, 1), np.nan)
    tests = None
    try:
        tests = _tests(run, parts, data)
    except InvalidInput as error:
        if data is not None:
            raise
        notes.append(f"n_tests is left out: {str(error).rstrip('.')}")
    return Evidence(Places(places[row], owner, np.ones(len(row))), tests, share, near_m), notes


def _tests(run: Run, parts: Sequence[BaseGeometry | None], data: str | Path | None) -> Array | None:
    """Measurements (A,) behind the rows of the run's own file that it learned from, None where nothing counts them."""
    rows = observations_of(run, data)
    name = "tests" if "tests" in rows.table.column_names else None
    if name is None or rows.table.column(name).null_count == rows.table.num_rows:
        return None
    fitted = run.tensors("split")["fitted"].numpy()
    xy, at = distinct(rows.X[fitted, :2])
    count = np.bincount(at, np.nan_to_num(numbers(rows.table.column(name))[fitted]))
    owner, row = places_in(parts, xy)
    return np.bincount(owner, count[row], minlength=len(parts)).astype(np.float64)


def doubts_of(run: Run) -> list[str]:
    """Sentences to those who would trust a run that nobody should: of too few rows, or of rows that are all alike."""
    n = int((run.facts.get("rows") or {}).get("fitted") or 0)
    out = []
    if 0 < n < FEWEST:
        out.append(
            f"Only {n} row{' was' if n == 1 else 's were'} learned from, too few to say anything of a map or of its intervals; take "
            "tens at least."
        )
    if n > 1 and alike(run):
        value = run.target.from_score(np.array(run.model.target_range_[0])).item()
        out.append(
            f"All {n:,} rows learned from have the value {number(value, 6)}: no map follows from them, and shares beyond a threshold near it "
            "mean nothing."
        )
    return out


def alike(run: Run) -> bool:
    """Whether all rows learned from have one value."""
    low, high = run.model.target_range_
    return bool(low == high)

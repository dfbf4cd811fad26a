"""What a run says of places in a table: value, interval, exceedance and the nearest data, row by row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from app.console import Report
from app.errors import InvalidInput
from app.workflow.grids import length_words, usual_reach_m
from app.workflow.outputs import attribution, file_entry
from app.workflow.places import parts_of, plain_numbers, pointed
from app.workflow.polygons import Ground, about
from app.workflow.rasters.covariates import opened
from app.workflow.tables import inert, kind_of, write_table
from data_pipelines.atomic import atomic_path, refuse_existing, refuse_input
from data_pipelines.words import many
from geogp.errors import check_level, check_threshold
from geogp.prediction import values_at
from geogp.run import Run
from geogp.targets import digits

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

#: What a row is told beside its own columns.
NAMES = (
    "median", "lower", "upper", "latent_median", "latent_lower", "latent_upper", "explained",
)  # fmt: skip


@dataclass(frozen=True)
class At:
    """What `at` wrote.

    n : rows; n_known : with values; facts : of which run and quarter
    """

    path: Path
    n: int
    n_known: int
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """What `geogp at --json` prints."""
        entry = file_entry(self.path.parent, self.path, kind_of(self.path))
        entry.pop("layers")
        counts = {"rows": self.n, "rows_with_values": self.n_known}
        return {"schema": 1, **self.facts, **counts, "files": [entry], "notes": list(self.notes)}

    def summary(self) -> str:
        """One line for people."""
        return f"{self.path}: {self.n_known:,} of {many(self.n, 'place')} with values"


def at(
    run: str | Path | Run,
    places: str | Path,
    output: str | Path,
    *,
    x: str | None = None,
    y: str | None = None,
    crs: str | None = None,
    quarter: str | None = None,
    tests: float | None = None,
    level: float = 0.95,
    thresholds: Sequence[float] | None = None,
    overwrite: bool = False,
    progress: Report | None = None,
) -> At:
    """Write a table's rows with what the run's maps say at each; decimal commas of a table become points.

    Columns beside the table's own (of the same name get `_given`): `median`, `lower`, `upper` of a new tile average
    there; `latent_median`, `latent_lower`, `latent_upper` of the surface; `exceedance_25`, P(> 25) of a new tile
    average; `explained`, 1 where the map is data and 0 where it is prior; `distance_m` to the nearest place the run
    learned from; `inside` the run's region. A row without a place, or outside the region and beyond the reach of the
    data, has no values.

    Parameters
    ----------
    places, x, y, crs : see `app.workflow.places.parts_of`
    output : .csv, .gpkg or .parquet; the last two with points in degrees
    quarter, tests, level, thresholds : as for `export`

    Raises
    ------
    InvalidInput
        a table without places, an output that exists, a malformed option.

    Notes
    -----
    One prediction a row, 20,000 rows at once; from CSV to CSV memory does not grow with the table.
    """
    run, path = opened(run), Path(output)
    kind = kind_of(path)
    refuse_existing(path, overwrite)
    refuse_input(path, places)
    check_level(level, "--level")
    limits = run.thresholds if thresholds is None else tuple(float(c) for c in thresholds)
    for c in limits:
        check_threshold(c, "--thresholds")
    facts = {
        **about(run, run.quarter(quarter)), "unit": run.unit, "level": level, "thresholds": list(limits),
        "tests": run.model.typical_count_ if tests is None else tests, **attribution(run),
    }  # fmt: skip
    names = [str(name) for name in run.facts.get("covariates") or ()]
    asked = {"quarter": quarter, "tests": tests, "level": level, "thresholds": limits}
    reach, ground = usual_reach_m(run), Ground.of(run)
    tables, n, known, lost, bare = [], 0, 0, 0, 0

    def told(frame: "pd.DataFrame", lonlat: Array) -> "pd.DataFrame":
        nonlocal n, known, lost, bare
        covariates = _covariates(run, frame, lonlat, names, places) if names else None
        columns = _columns(run, lonlat, ground, reach, asked, covariates)
        if covariates is not None:
            bare += int((np.isfinite(lonlat).all(axis=1) & ~np.isfinite(covariates).all(axis=1)).sum())
        n, known = n + len(frame), known + int(np.isfinite(columns["median"]).sum())
        lost += int(np.isnan(lonlat).any(axis=1).sum())
        if progress is not None:
            progress(n, 0, "")
        given = {name: f"{name}_given" for name in columns if name in frame.columns}
        return pointed(frame).rename(columns=given).assign(**columns)

    parts = parts_of(places, x=x, y=y, crs=crs, numbers=names)
    if kind == "csv":
        with atomic_path(path, overwrite=overwrite) as temporary:
            for i, (frame, lonlat) in enumerate(parts):
                inert(told(frame, lonlat)).to_csv(temporary, mode="a", header=not i, index=False)
    else:
        import geopandas
        import pandas as pd

        for frame, lonlat in parts:
            points = geopandas.points_from_xy(lonlat[:, 0], lonlat[:, 1], crs=4326)
            points[np.isnan(lonlat).any(axis=1)] = None
            own = frame.rename(columns={"geometry": "geometry_given"} if "geometry" in frame else {})
            tables.append(geopandas.GeoDataFrame(told(own, lonlat), geometry=points))
        write_table(pd.concat(tables, ignore_index=True), path, facts, overwrite=overwrite, layer="places")
    notes = []
    if lost:
        notes.append(f"{lost:,} of {n:,} rows {'has' if lost == 1 else 'have'} no place")
    if bare:
        have = "lacks" if bare == 1 else "lack"
        notes.append(
            f"{bare:,} of {n:,} rows {have} {' or '.join(names)}, and {'has' if bare == 1 else 'have'} no values"
        )
    elif away := n - known - lost:
        lie, have = ("lies", "has") if away == 1 else ("lie", "have")
        notes.append(
            f"{away:,} of {n:,} places {lie} outside the region, farther than {length_words(reach)} from any data, "
            f"and {have} no values"
        )
    return At(path, n, known, facts, tuple(notes))


def _covariates(
    run: Run, frame: "pd.DataFrame", lonlat: Array, names: Sequence[str], places: str | Path
) -> Array:
    """What the run has learned by, of rows at longitudes and latitudes (n, 2): the table's columns, else rasters: (n, k)."""
    out = np.full((len(lonlat), len(names)), np.nan)
    lacking = [name for name in names if name not in frame.columns]
    if not lacking:
        return np.column_stack([plain_numbers(frame[name]) for name in names])
    if run.covariates is None:
        raise InvalidInput(
            f"{places} has no column {lacking[0]}, by which {run.path} has learned; add it, or give rasters: --covariates "
            f"{','.join(f'{name}=FILE.tif' for name in names)}."
        )
    placed = np.isfinite(lonlat).all(axis=1)
    out[placed] = run.covariates(run.from_degrees(*lonlat[placed].T))
    return out


def _columns(
    run: Run, lonlat: Array, ground: Ground, reach: float, asked: dict[str, Any], covariates: Array | None
) -> dict[str, Any]:
    """Our columns (n,) at longitudes and latitudes (n, 2)."""
    import shapely

    placed = np.isfinite(lonlat).all(axis=1)
    xy = np.full(lonlat.shape, np.nan)
    if placed.any():
        xy[placed] = run.from_degrees(*lonlat[placed].T)
    distance = run.support.distances_m(xy)
    inside = placed & shapely.contains_xy(ground.outline, xy[:, 0], xy[:, 1])
    if ground.support is not None:
        inside &= distance <= ground.reach_m
    # A coast is drawn roughly: what lies just off it is still in reach.
    wanted = inside | (distance <= reach)
    if covariates is not None:
        wanted &= np.isfinite(covariates).all(axis=1)
        given = covariates[wanted]
        run = replace(run, covariates=lambda _: given)
    names = [*NAMES, *(f"exceedance_{digits(c)}" for c in asked["thresholds"])]
    out: dict[str, Any] = {name: np.full(len(lonlat), np.nan) for name in names}
    if wanted.any():
        for name, values in values_at(run, xy[wanted], names=NAMES, **asked).items():
            out[name][wanted] = values
    out["distance_m"] = np.where(np.isfinite(distance), distance, np.nan)
    out["inside"] = inside
    return out

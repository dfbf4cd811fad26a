"""What a run says of areas: the average of its surface over polygons, with how sure it is, and how areas go together."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
import xarray as xr
from numpy.typing import NDArray

from app.errors import InvalidInput
from app.workflow.grids import check_resolution
from app.workflow.means import AreaPoints, points_of, summaries
from app.workflow.outputs import file_entry, now
from app.workflow.polygons import Ground, about, in_plane, read_polygons
from data_pipelines.atomic import refuse_existing
from data_pipelines.staging import publish_files, room_for, staged
from geogp.areas import surface
from geogp.errors import check_level, check_threshold
from geogp.run import Run, opened
from geogp.targets import Target, target

if TYPE_CHECKING:
    import geopandas

Array = NDArray[np.float64]

DRAWS = 500
#: More would fill the memory and say nothing more.
MOST_DRAWS = 1_000_000
#: Rows of a table for people.
SHOWN = 40


@dataclass(frozen=True, eq=False)
class Areas:
    """What `areas` found and wrote.

    table : the input's rows and columns with ours beside them; covariance : latent_covariance and covariance (A, A)
    files : areas.parquet and areas_covariance.nc; facts : what was averaged, when, of which run
    """

    table: "geopandas.GeoDataFrame"
    covariance: xr.Dataset
    files: tuple[Path, Path]
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """What `geogp areas --json` prints."""
        entries = [
            file_entry(path.parent, path, kind) for path, kind in zip(self.files, ("geoparquet", "netcdf"))
        ]
        for entry in entries:
            entry.pop("layers")
        rows = self.table.drop(columns=self.table.geometry.name).to_dict("records")
        return {
            "schema": 1,
            **self.facts,
            "areas": [{name: _plain(value) for name, value in row.items()} for row in rows],
            "files": entries,
            "notes": list(self.notes),
        }

    @property
    def title(self) -> str:
        """What the table shows."""
        when = "".join(f", {v}" for v in (self.facts["quarter"],) if v)
        return f"Mean of the {target(self.facts['target']).words} over areas{when}"

    def summary(self) -> str:
        """One line for people."""
        return (
            f"{self.files[0]}: {len(self.table)} areas by {self.facts['n_points']:,} points; "
            f"covariances in {self.files[1].name}"
        )

    @property
    def header(self) -> list[str]:
        level, unit = 100 * self.facts["level"], self.facts["unit"]
        below = [f"below {c:g}" for c in self.facts["thresholds"]]
        return ["area", "km2", f"mean, {unit}", f"{level:g}% interval", *below]

    def rows(self) -> list[list[str]]:
        """A table for people, its first rows."""
        names = self.covariance["name"].values
        out = []
        for i, row in enumerate(self.table.head(SHOWN).to_dict("records")):
            cells = [str(names[i]), f"{row['area_km2']:,.4g}"]
            if not row["n_points"]:
                out.append([*cells, *["outside"], *[""] * (len(self.header) - 3)])
                continue
            cells += [f"{row['mean']:.4g}", f"{row['lower']:.4g} - {row['upper']:.4g}"]
            for c in self.facts["thresholds"]:
                low, high = row[f"share_below_{c:g}_lower"], row[f"share_below_{c:g}_upper"]
                cells.append(f"{100 * row[f'share_below_{c:g}']:.1f}% ({100 * low:.1f} - {100 * high:.1f})")
            out.append(cells)
        return out


def areas(
    run: str | Path | Run,
    polygons: str | Path,
    output: str | Path,
    *,
    quarter: str | None = None,
    level: float = 0.95,
    thresholds: Sequence[float] | None = None,
    resolution_m: float | None = None,
    n_samples: int = DRAWS,
    seed: int = 0,
    overwrite: bool = False,
) -> Areas:
    """Average a run's surface over the polygons of a file; write the table and, beside it, the covariances.

    The surface is what a tile average of the run's reference count of measurements is about, without its noise. Averaged is over ground:
    over the part of a polygon where the run's maps have values, each square metre alike.

    Columns: `mean`, `sd`, `median`, `lower`, `upper` of the area's mean speed (the target's unit), from joint draws;
    `latent_mean`, `latent_sd` of the area's mean on the model's scale (log10 of kbit/s, of ms), exact, as are
    `latent_covariance` between areas; `share_below_25` (posterior mean), `.._sd`, `.._lower`, `.._upper` of the share
    of the area whose surface lies below a threshold, from the same draws; `area_km2` averaged over, `share_inside` of
    the polygon, `n_points` used.

    Parameters
    ----------
    polygons : GeoJSON, GeoPackage, GeoParquet or shapefile in any CRS
    output : .parquet; the covariances go to <name>_covariance.nc beside it
    quarter, level, thresholds : as for `export`; level of the credible intervals
    resolution_m : metres between the points an area is averaged by; default 500, closer in small areas (100 points)
        and wider in large ones (2,000), 10,000 points in all
    n_samples : joint draws

    Raises
    ------
    InvalidInput
        a file without valid polygons, none inside the region, an output that exists, a malformed option.

    Notes
    -----
    Cost: `geogp.areas.area_moments` at the points, and one draw of the surface at them per sample. Draws leave a
    Monte Carlo error of 1/sqrt(2 n_samples) of every sd.
    """
    run, output = opened(run), Path(output)
    files = _files(output, overwrite)
    _check(level, n_samples, resolution_m)
    goal = run.target
    limits = run.thresholds if thresholds is None else tuple(float(c) for c in thresholds)
    for c in limits:
        check_threshold(c, "--thresholds")
    scores = {c: float(goal.to_score(c)) for c in limits}
    frame = read_polygons(polygons)
    points = points_of(in_plane(frame, run), Ground.of(run), resolution_m, run.model.most_places)
    if not len(points.xy):
        raise InvalidInput(f"No polygon of {polygons} meets the region of the run.")
    found = surface(run.model, run.inputs(points.xy, quarter))
    columns, matrices = summaries(
        found, points.weights(), goal, scores, level=level, n_samples=n_samples, seed=seed
    )
    table = _table(frame, points, columns)
    facts = {
        **about(run, run.quarter(quarter)), "unit": run.unit, "level": level, "thresholds": list(limits),
        "n_samples": n_samples, "n_points": len(points.xy),
    }  # fmt: skip
    covariance = _covariances(matrices, points, names_of(frame), facts, goal)
    _write(table, covariance, files, facts, overwrite)
    notes = []
    if outside := len(frame) - len(points.inside):
        notes.append(
            f"{outside} of {len(frame)} polygons lie outside the region of the run and have no numbers"
        )
    return Areas(table, covariance, files, facts, tuple(notes))


def _files(output: Path, overwrite: bool) -> tuple[Path, Path]:
    """The table and the covariances beside it."""
    if output.suffix != ".parquet":
        raise InvalidInput(f"The areas are written as GeoParquet; name the output .parquet, not {output}.")
    files = output, output.with_name(f"{output.stem}_covariance.nc")
    for path in files:
        refuse_existing(path, overwrite)
    return files


def _check(level: float, n_samples: int, resolution_m: float | None) -> None:
    """Refuse numbers that are none."""
    check_level(level, "--level")
    if n_samples < 2:
        raise InvalidInput(f"--samples must be 2 or more; got {n_samples}.")
    if n_samples > MOST_DRAWS:
        raise InvalidInput(
            f"--samples must be at most {MOST_DRAWS:,}, whose Monte Carlo error is .1% of an sd; got {n_samples:,}."
        )
    check_resolution(resolution_m)


def _table(
    frame: "geopandas.GeoDataFrame", points: AreaPoints, columns: Mapping[str, Array]
) -> "geopandas.GeoDataFrame":
    """The rows and columns of a file with ours beside them; theirs of the same name get `_given`."""
    own: dict[str, Any] = {
        "area_km2": points.area_m2 / 1e6,
        "share_inside": points.share_inside,
        "n_points": points.numbers,
        **{name: points.of_all(values) for name, values in columns.items()},
    }
    table = frame.rename(columns={name: f"{name}_given" for name in own if name in frame.columns})
    return table.assign(**own)


def names_of(frame: "geopandas.GeoDataFrame") -> list[str]:
    """What to call the rows: a column `name` or else the first of distinct texts, else their numbers."""
    columns = frame.columns.drop(frame.geometry.name)
    for column in sorted(columns, key=lambda c: str(c).lower() != "name"):
        values = frame[column]
        if values.map(lambda v: isinstance(v, str) and bool(v)).all() and values.is_unique:
            return [str(v) for v in values]
    return [str(i) for i in range(len(frame))]


def _covariances(
    matrices: Mapping[str, Array],
    points: AreaPoints,
    names: list[str],
    facts: dict[str, Any],
    goal: Target,
) -> xr.Dataset:
    """Both covariances of all rows, NaN where an area has no numbers."""
    words = {
        "latent_covariance": ("covariance of the areas' means on the model's scale, exact", "1"),
        "covariance": ("covariance of the areas' means, from joint draws", f"({facts['unit']})2"),
    }
    n = len(names)
    variables = {}
    for name, matrix in matrices.items():
        full = np.full((n, n), np.nan)
        full[np.ix_(points.inside, points.inside)] = matrix
        variables[name] = (("area", "other"), full, {"long_name": words[name][0], "units": words[name][1]})
    coords = {
        "area": ("area", np.arange(n), {"long_name": "row of the table of areas"}),
        "other": ("other", np.arange(n), {"long_name": "row of the table of areas"}),
        "name": ("area", np.array(names, dtype=object), {"long_name": "name of the area"}),
    }
    ds = xr.Dataset(variables, coords=coords)
    attrs = {k: v for k, v in facts.items() if v is not None}
    ds.attrs = {"Conventions": "CF-1.8", "title": f"Areas: covariance of mean {goal.words}", **attrs}
    return ds


def _write(
    table: "geopandas.GeoDataFrame",
    covariance: xr.Dataset,
    files: tuple[Path, Path],
    facts: dict[str, Any],
    overwrite: bool,
) -> None:
    """Both files, read back and then given their names together; each says what the pair is of."""
    import geopandas
    import pyarrow.parquet as pq

    output, beside = files
    folder = output.parent.resolve()
    with staged(folder, inside=True) as work, room_for(output, _bytes(table, covariance)):
        work.mkdir()
        first, second = work / output.name, work / beside.name
        table.to_parquet(first, index=False)
        whole = pq.read_table(first)
        pair = {**facts, "pair": hashlib.sha256(first.read_bytes()).hexdigest()}
        about_it = {b"geogp": json.dumps({"schema": 1, **pair, "created": now()}).encode()}
        pq.write_table(whole.replace_schema_metadata({**whole.schema.metadata, **about_it}), first)
        if len(geopandas.read_parquet(first)) != len(table):
            raise OSError(f"{output.name} could not be read back after writing; check the disk.")
        # By way of memory: HDF5 crashes the process where a disk is full.
        second.write_bytes(covariance.assign_attrs(pair=pair["pair"]).to_netcdf(engine="h5netcdf"))
        with xr.open_dataset(second, engine="h5netcdf") as again:
            if not again["latent_covariance"].identical(covariance["latent_covariance"]):
                raise OSError(f"{beside.name} could not be read back after writing; check the disk.")
        for path in files:
            refuse_existing(path, overwrite)
        publish_files(work, folder)


def _bytes(table: "geopandas.GeoDataFrame", covariance: xr.Dataset) -> int:
    return int(table.memory_usage(deep=True).sum()) + covariance.nbytes


def _plain(value: Any) -> Any:
    """A cell as JSON has it."""
    if isinstance(value, shapely.Geometry):
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)

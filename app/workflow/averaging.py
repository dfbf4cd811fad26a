"""What a run says of areas: the average of its surface over polygons, with how sure it is, and how areas go together."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
import xarray as xr
from numpy.typing import NDArray
from scipy import sparse

from app.errors import InvalidInput
from app.workflow.exporting import file_entry, now, usual_thresholds
from app.workflow.grids import check_tests
from app.workflow.polygons import Ground, about, in_plane, inputs_at, points_in, read_polygons
from data_pipelines.atomic import atomic_path, refuse_existing
from geogp.areas import Surface, surface
from geogp.run import Run, load
from geogp.targets import Target, target
from geogp.transforms import Identity

if TYPE_CHECKING:
    import geopandas

Array = NDArray[np.float64]

#: Metres between the points of an area where nothing is said, and how many points one area and all may have.
RESOLUTION_M, LEAST, MOST, POINTS = 500.0, 100, 2000, 10_000
#: What was asked for has a bound, too.
MOST_POINTS = 100_000
DRAWS = 500
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
    tests: float | None = None,
    level: float = 0.95,
    thresholds: Sequence[float] | None = None,
    resolution_m: float | None = None,
    n_samples: int = DRAWS,
    seed: int = 0,
    overwrite: bool = False,
) -> Areas:
    """Average a run's surface over the polygons of a file; write the table and, beside it, the covariances.

    The surface is what a tile average of `tests` measurements is about, without its noise. Averaged is over ground:
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
    quarter, tests, level, thresholds : as for `export`; level of the credible intervals
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
    run = load(run) if not isinstance(run, Run) else run
    output = Path(output)
    if output.suffix != ".parquet":
        raise InvalidInput(f"The areas are written as GeoParquet; name the output .parquet, not {output}.")
    beside = output.with_name(f"{output.stem}_covariance.nc")
    for path in (output, beside):
        refuse_existing(path, overwrite)
    if not 0.0 < level < 1.0:
        raise InvalidInput(f"--level must lie between 0 and 1; got {level:g}: use 0.95 for a 95% interval.")
    if n_samples < 2:
        raise InvalidInput(f"--samples must be 2 or more; got {n_samples}.")
    check_tests(tests)
    goal = target(run.facts["target"])
    limits = usual_thresholds(run) if thresholds is None else tuple(float(c) for c in thresholds)
    scores = [float(goal.to_score(c)) for c in limits]
    frame = read_polygons(polygons)
    given = in_plane(frame, run)
    ground = Ground.of(run)
    whole = [ground.part(shape) for shape in given]
    budget = run.model.most_places
    P, owner, reached = _points(whole, ground, resolution_m, budget)
    if not len(P):
        raise InvalidInput(f"No polygon of {polygons} meets the region of the run.")
    X, quarter = inputs_at(run, P, quarter)
    inside = np.unique(owner)
    W = _weights(owner, inside)
    found = surface(run.model, X, counts=tests)
    columns, matrices = _summaries(found, W, goal, limits, scores, level, n_samples, seed)
    area = np.array([0.0 if s is None else s.area for s in whole]) * reached
    full = np.array([shape.area for shape in given])
    own: dict[str, Any] = {
        "area_km2": area / 1e6,
        "share_inside": np.minimum(area / full, 1.0),
        "n_points": np.bincount(owner, minlength=len(frame)),
        **{name: _spread(values, inside, len(frame)) for name, values in columns.items()},
    }
    table = frame.rename(columns={name: f"{name}_given" for name in own if name in frame.columns})
    table = table.assign(**own)
    unit = run.facts["data"].get("value_unit") or goal.unit if goal.name == "value" else goal.unit
    facts = {
        **about(run, quarter, tests), "unit": unit, "level": level, "thresholds": list(limits),
        "n_samples": n_samples, "n_points": len(P),
    }  # fmt: skip
    covariance = _covariances(matrices, inside, names_of(frame), facts, goal)
    _write(table, covariance, output, beside, facts, overwrite)
    notes = []
    if outside := len(frame) - len(inside):
        notes.append(
            f"{outside} of {len(frame)} polygons lie outside the region of the run and have no numbers"
        )
    return Areas(table, covariance, (output, beside), facts, tuple(notes))


def _points(
    whole: list[Any], ground: Ground, resolution_m: float | None, budget: int | None
) -> tuple[Array, NDArray[np.int64], Array]:
    """Points (n, 2) to average by, the area each belongs to (n,), and the share of each area that has values (A,)."""
    area = np.array([0.0 if shape is None else shape.area for shape in whole])
    if resolution_m is not None and not (np.isfinite(resolution_m) and resolution_m > 0):
        raise InvalidInput(f"--resolution must be a positive number of metres; got {resolution_m:g}.")
    wanted = area / (resolution_m or RESOLUTION_M) ** 2
    limit = MOST_POINTS if budget is None else budget
    if resolution_m is None:
        wanted = np.clip(wanted, LEAST, MOST) * (area > 0)
        limit = min(limit, max(POINTS, int((area > 0).sum())))
        wanted *= min(1.0, 0.8 * limit / max(wanted.sum(), 1.0))
    elif wanted.sum() > limit:
        raise InvalidInput(
            f"--resolution {resolution_m:g} takes {wanted.sum():,.0f} points, and at most {limit:,} are possible; take a "
            "coarser one."
        )
    points, owner = [], []
    reached = np.zeros(len(whole))
    for i, shape in enumerate(whole):
        if shape is None:
            continue
        P = points_in(shape, max(1, round(float(wanted[i]))))
        kept = P[ground.reached(P)]
        reached[i] = len(kept) / len(P)
        points.append(kept)
        owner.append(np.full(len(kept), i))
    if not points:
        return np.empty((0, 2)), np.empty(0, dtype=np.int64), reached
    return np.concatenate(points), np.concatenate(owner), reached


def _weights(owner: NDArray[np.int64], inside: NDArray[np.int64]) -> sparse.csr_array:
    """(areas inside, points): equal shares of the points of each area."""
    row = np.searchsorted(inside, owner)
    share = 1.0 / np.bincount(row)[row]
    return sparse.csr_array((share, (row, np.arange(len(owner)))), shape=(len(inside), len(owner)))


def _summaries(
    found: Surface,
    W: sparse.csr_array,
    goal: Target,
    thresholds: Sequence[float],
    scores: Sequence[float],
    level: float,
    n_samples: int,
    seed: int,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Columns (A,) by name, and covariances (A, A) by name."""
    below = [_below(score) for score in scores]
    draws = found.draws(W, (lambda t: t, goal.from_score, *below), n_samples=n_samples, random_state=seed)
    if isinstance(found.transform, Identity):
        exact = found.moments(W)
        latent_mean, latent = exact.mean, exact.covariance
    else:
        latent_mean, latent = draws[0].mean(axis=1), np.atleast_2d(np.cov(draws[0]))
    tails = np.array([0.5 * (1 - level), 0.5 * (1 + level)])
    lower, upper = np.quantile(draws[1], tails, axis=1)
    columns = {
        "mean": draws[1].mean(axis=1),
        "sd": draws[1].std(axis=1, ddof=1),
        "median": np.median(draws[1], axis=1),
        "lower": lower,
        "upper": upper,
        "latent_mean": latent_mean,
        "latent_sd": np.sqrt(np.maximum(latent.diagonal(), 0.0)),
    }
    for c, share in zip(thresholds, draws[2:]):
        low, high = np.quantile(share, tails, axis=1)
        name = f"share_below_{c:g}"
        columns |= {
            name: share.mean(axis=1),
            f"{name}_sd": share.std(axis=1, ddof=1),
            f"{name}_lower": low,
            f"{name}_upper": high,
        }
    return columns, {"latent_covariance": latent, "covariance": np.atleast_2d(np.cov(draws[1]))}


def _below(score: float) -> Any:
    return lambda t: t < score


def _spread(values: Array, inside: NDArray[np.int64], n: int) -> Array:
    """Values of the areas inside as (n,), NaN for the others."""
    out = np.full(n, np.nan)
    out[inside] = values
    return out


def names_of(frame: "geopandas.GeoDataFrame") -> list[str]:
    """What to call the rows: a column `name` or else the first of distinct texts, else their numbers."""
    columns = frame.columns.drop(frame.geometry.name)
    for column in sorted(columns, key=lambda c: str(c).lower() != "name"):
        values = frame[column]
        if values.map(lambda v: isinstance(v, str) and bool(v)).all() and values.is_unique:
            return [str(v) for v in values]
    return [str(i) for i in range(len(frame))]


def _covariances(
    matrices: dict[str, Array],
    inside: NDArray[np.int64],
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
        full[np.ix_(inside, inside)] = matrix
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
    output: Path,
    beside: Path,
    facts: dict[str, Any],
    overwrite: bool,
) -> None:
    """Both files, read back before they get their names, the table last."""
    import geopandas
    import pyarrow.parquet as pq

    with atomic_path(output, overwrite=overwrite) as temporary:
        table.to_parquet(temporary, index=False)
        whole = pq.read_table(temporary)
        about_it = {b"geogp": json.dumps({"schema": 1, **facts, "created": now()}).encode()}
        pq.write_table(whole.replace_schema_metadata({**whole.schema.metadata, **about_it}), temporary)
        if len(geopandas.read_parquet(temporary)) != len(table):
            raise OSError(f"{output.name} could not be read back after writing; check the disk.")
        with atomic_path(beside, overwrite=overwrite) as second:
            covariance.to_netcdf(second, engine="h5netcdf")
            with xr.open_dataset(second, engine="h5netcdf") as again:
                if not again["latent_covariance"].identical(covariance["latent_covariance"]):
                    raise OSError(f"{beside.name} could not be read back after writing; check the disk.")


def _plain(value: Any) -> Any:
    """A cell as JSON has it."""
    if isinstance(value, shapely.Geometry):
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)

"""What a run says of areas: averages of its surface over polygons, how sure they are, and which areas are worst."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from app.cluster import workers
from app.console import Report
from app.errors import InvalidInput
from app.workflow.evidence import MEASURED, PARTLY, Evidence, evidence_of
from app.workflow.grids import check_resolution, ground_words
from app.workflow.means import (
    Drawn,
    check_draws,
    covariance_of,
    drawn,
    exactly,
    latent_moments,
    of_draws,
    people_below,
    ranks,
    summaries,
)
from app.workflow.outputs import attribution, file_entry, shares_words
from app.workflow.people import covered_words, people_of
from app.workflow.polygons import Inside, about, keys_of, passed_over, read_polygons, unit_words
from app.workflow.rasters.covariates import opened
from app.workflow.tables import kind_of, plain, write_table
from app.workflow.together import columns_of, together
from app.workflow.weighing import GROUND, PEOPLE, TILES, AreaPoints, points_of
from data_pipelines.atomic import refuse_existing, refuse_input
from data_pipelines.staging import publish_files, room_for, staged
from data_pipelines.words import many
from geogp.areas import p_below, surface
from geogp.errors import check_level, check_threshold
from geogp.run import Run
from geogp.targets import Target, digits
from maps.words import padded

if TYPE_CHECKING:
    import geopandas

Array = NDArray[np.float64]

DRAWS = 500
#: Rows of a table for people.
SHOWN = 40
#: How many worst areas where nothing is said: of few areas the very worst.
WORST, MANY = 10, 20
_ENDS = (("", "mean"), ("_lower", "lower"), ("_upper", "upper"))
#: Areas whose covariances are written: two matrices of 200 MB.
MOST_COVARIANCES = 5000
#: Bytes of a file that are compared at once.
READ_BACK = 2**24


@dataclass(frozen=True, eq=False)
class Areas:
    """What `areas` found and wrote.

    table : the input's rows and columns with ours beside them; names : of the rows
    covariance : latent_covariance and covariance of the areas inside the region; None of too many
    files : the table and areas_covariance.nc; facts : what was averaged, when, of which run
    """

    table: "geopandas.GeoDataFrame"
    names: list[str]
    covariance: xr.Dataset | None
    files: tuple[Path, ...]
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """What `geogp areas --json` prints."""
        kinds = (kind_of(self.files[0]), "netcdf")
        entries = [file_entry(path.parent, path, kind) for path, kind in zip(self.files, kinds)]
        for entry in entries:
            entry.pop("layers")
        rows = self.table.drop(columns=self.table.geometry.name).to_dict("records")
        return {
            "schema": 1,
            **self.facts,
            "areas": [{name: plain(value) for name, value in row.items()} for row in rows],
            "files": entries,
            "notes": list(self.notes),
        }

    @property
    def title(self) -> str:
        """What the table shows."""
        when = "".join(f", {v}" for v in (self.facts["quarter"],) if v)
        known = int((self.table["n_points"] > 0).sum())
        word = self.facts["rank_1"]
        order = f", the {word} first" if len(self.table) > SHOWN else ""
        order = f", the {SHOWN} {word} of {known:,}" if known > SHOWN else order
        over = "the people of areas" if self.facts["ranked_by"] == PEOPLE else "areas"
        return f"Mean level of {self.facts['target_title']} over {over}{when}{order}"

    def summary(self) -> str:
        """One line for people."""
        beside = f"; covariances in {self.files[1].name}" if len(self.files) > 1 else ""
        n, known = len(self.table), int((self.table["n_points"] > 0).sum())
        areas = many(n, "area") if n == known else f"{known:,} of {many(n, 'area')}"
        return f"{self.files[0]}: {areas} by {many(self.facts['n_points'], 'point')}{beside}"

    @property
    def header(self) -> list[str]:
        level = 100 * self.facts["level"]
        mean = ", ".join(filter(None, ("mean", unit_words(self.facts))))
        return [
            "area", "km2", mean, f"{level:g}% interval", *shares_words(self.facts), "rank", "evidence",
        ]  # fmt: skip

    def rows(self) -> list[list[str]]:
        """A table for people: all rows, or the first by rank of many."""
        start = "" if (kind := self.facts["ranked_by"]) == GROUND else f"{kind}_"
        shown = self.table.assign(_name=self.names)
        if len(shown) > SHOWN:
            shown = shown[shown["n_points"] > 0].sort_values("rank", kind="stable").head(SHOWN)
        out = []
        for row in shown.to_dict("records"):
            cells = [str(row["_name"]), ground_words(row["area_km2"])]
            if not row["n_points"]:
                out.append([*cells, *["outside"], *[""] * (len(self.header) - 3)])
                continue
            if not np.isfinite(row[f"{start}mean"]):
                out.append([*cells, "no people known", *[""] * (len(self.header) - 3)])
                continue
            mean, low, high = (padded(row[f"{start}{name}"]) for name in ("mean", "lower", "upper"))
            cells += [mean, f"{low} to {high}"]
            shares = [f"share_below_{digits(c)}" for c in self.facts["thresholds"]]
            shares += ["share_either_missed"] if "with" in self.facts else []
            for share in (f"{start}{name}" for name in shares):
                low, high = row[f"{share}_lower"], row[f"{share}_upper"]
                cells.append(f"{100 * row[share]:.1f}% ({100 * low:.1f} to {100 * high:.1f})")
            cells.append(f"{row['rank']:.0f} ({row['rank_lower']:.0f} to {row['rank_upper']:.0f})")
            out.append([*cells, str(row["evidence"])])
        return out


def areas(
    run: str | Path | Run,
    polygons: str | Path,
    output: str | Path,
    *,
    key: str | None = None,
    weights: str | Path | None = None,
    weight_column: str | None = None,
    worst: int | None = None,
    pairs: Sequence[tuple[str, str]] = (),
    data: str | Path | None = None,
    quarter: str | None = None,
    level: float = 0.95,
    thresholds: Sequence[float] | None = None,
    resolution_m: float | None = None,
    n_samples: int = DRAWS,
    beside: str | Path | Run | None = None,
    either: tuple[float | None, float | None] = (None, None),
    seed: int = 0,
    scheduler: str | None = None,
    overwrite: bool = False,
    progress: Report | None = None,
) -> Areas:
    """Average a run's surface over the polygons of a file; write the table and, beside it, the covariances.

    The surface is what a tile average of the run's reference count of measurements is about, without its noise. It is
    averaged over the part of a polygon where the run's maps have values: over its ground, each square metre alike, over
    the tiles that were measured there (`tiles_..`) and, where they are given, over its people (`people_..`).

    Columns of each kind: `mean`, `sd`, `median`, `lower`, `upper` of the area's mean speed (the target's unit), from
    joint draws; `p10` .. `p90`, below which the surface is expected to lie on 10% .. 90% of the area (of its people);
    `share_below_25` (posterior mean), `.._sd`, `.._lower`, `.._upper` of the share whose surface lies below a threshold.
    With people: `people`, `people_below_25` and its ends. Of all: `rank` (1 is worst: lowest, or highest where lower is
    better), `rank_lower`, `rank_upper` and `p_worst_10` (`p_lowest_10` where nobody said which is better), by people where
    they are given, else by ground;
    `latent_mean`, `latent_sd` of the area's mean on the model's scale (log10 of kbit/s, of ms);
    `n_tiles`, `n_tests` that the run learned from inside, without what was held out; `share_near` of the ground with data near; `evidence`:
    measured, partly, filled (see `app.workflow.evidence`); `area_km2` averaged over, `share_inside` of the polygon,
    `n_points` of its ground.

    Parameters
    ----------
    polygons : GeoJSON, GeoPackage, GeoParquet or zipped shapefile in any CRS
    output : .parquet, .gpkg or .csv; the covariances go to <name>_covariance.nc beside it
    key : the column that names each row once; default GEOID, LAU_ID, .., see `app.workflow.polygons.KEYS`
    weights : raster of people per pixel
    weight_column : column of the polygons with the people of each area, spread as the raster lies, or evenly
    worst : k of `p_worst_k`, or `p_lowest_k`; default 10, of at most 20 areas 1
    pairs : (a, b) of keys whose P(a's mean lies below b's) is wanted: in `facts["pairs"]`
    data : the run's observations, if they were moved; only for `n_tests`
    quarter, level, thresholds : as for `export`; level of the credible intervals, which hold their mean (`means.of_draws`)
    resolution_m : metres between the points an area is averaged by; default 500, closer in small areas (100 points)
        and wider in large ones (2,000), 10,000 points in all and of all kinds
    n_samples : joint draws
    beside : a run of another target of the same tiles: `share_either_missed`, its sd and ends, of what misses the limit
        of either target (below it; above where lower is better), and `people_either_missed`
    either : the limits of this run and of `beside`, in their units
    scheduler : whose workers predict the places and draw, see `app.cluster.workers`; the files are the same to the byte
    progress : called with (draws done, draws, words)

    Raises
    ------
    InvalidInput
        a file without valid polygons, none inside the region, an output that exists, a malformed option, a key or a
        column that is none.

    Notes
    -----
    Cost: `geogp.areas.area_moments` at the points, and one draw of the surface at them per sample. Draws leave a
    Monte Carlo error of 1/sqrt(2 n_samples) of every sd. `latent_..` and their covariance are exact where the model's
    target is not transformed and the points are some thousand, else of the same draws; of more than 5,000 areas no
    covariances are written. Memory grows with areas x draws and points x 64.
    """
    run, output = opened(run), Path(output)
    files = _files(output, overwrite)
    refuse_input(output, polygons, weights, data)
    _check(level, n_samples, resolution_m, worst)
    goal = run.target
    limits = run.thresholds if thresholds is None else tuple(float(c) for c in thresholds)
    for c in limits:
        check_threshold(c, "--thresholds")
    scores = {c: float(goal.to_score(c)) for c in limits}
    if progress is not None and beside is not None:
        progress(0, n_samples, "learning how the runs go together")
    pair = None if beside is None else together(run, beside, either, data=data)
    frame = read_polygons(polygons)
    column, keys = keys_of(frame, key)
    wanted = [(_row_of(a, keys, column), _row_of(b, keys, column)) for a, b in pairs]
    given = _people_given(frame, weight_column)
    inside = Inside.of(polygons, frame, run)
    evidence, notes = evidence_of(run, inside, data)
    notes += passed_over(frame, column) if key is None else ()
    others = {TILES: evidence.tiles}
    if weights is not None:
        others[PEOPLE] = people_of(weights, inside.parts, run)
        covered = others[PEOPLE].covered
        if covered is not None and (words := covered_words(covered, weights)):
            notes.append(words)
    points = points_of(inside, resolution_m, run.model.most_places, others)
    if progress is not None:
        progress(0, n_samples, f"predicting {many(len(points.xy), 'place')}")
    with workers(scheduler) as cluster:
        found = surface(run.model, run.inputs(points.xy, quarter), workers=cluster)
        asked: dict[str, Any] = {
            "n_samples": n_samples,
            "seed": seed,
            "workers": cluster,
            "progress": progress,
        }
        draws = drawn(found, points, goal, scores, exact=exactly(found), **asked)
        shares = {} if pair is None else pair.shares(found, points, quarter, **asked)
    columns = summaries(found, points, goal, draws, level=level)
    by = PEOPLE if PEOPLE in others else GROUND
    facts: dict[str, Any] = {
        **about(run, run.quarter(quarter)), "unit": run.unit, "level": level, "thresholds": list(limits),
        "n_samples": n_samples, "n_points": len(points.xy), "key": column, "ranked_by": by, "rank_1": goal.worst,
        "near_m": evidence.near_m, **attribution(run),
    }  # fmt: skip
    people = others[PEOPLE].total(len(frame)) if PEOPLE in others else None
    people = given if given is not None else people
    if people is not None:
        counts, facts["whole"] = people_below(draws, by, people[points.inside], level)
        columns |= {PEOPLE: people[points.inside], **counts}
    if pair is not None:
        columns |= columns_of(shares, GROUND, level)
        facts |= pair.facts()
        notes.append(pair.note())
        if people is not None:
            count = np.nan_to_num(people[points.inside])[:, None] * np.nan_to_num(shares[by])
            said, total = of_draws(count, level), of_draws(count.sum(axis=0)[None, :], level)
            columns |= {f"people_either_missed{end}": said[k] for end, k in _ENDS}
            facts["whole"]["people_either_missed"] = {k: float(total[k][0]) for _, k in _ENDS}
    k = worst or (WORST if len(points.inside) > MANY else 1)
    rank = ranks(draws, by, goal, k, level)
    columns |= {
        "rank": rank.rank, "rank_lower": rank.lower, "rank_upper": rank.upper, f"p_{goal.worst}_{k}": rank.p_worst,
    }  # fmt: skip
    facts["pairs"] = [
        {"a": keys[a], "b": keys[b], "p_a_below_b": _p_below(draws, by, points, a, b)} for a, b in wanted
    ]
    mean, latent = latent_moments(found, points, draws)
    columns |= {"latent_mean": mean, "latent_sd": np.sqrt(np.maximum(latent.diagonal(), 0.0))}
    table = _table(frame, points, columns, evidence)
    covariance = None
    names = names_of(frame, points.inside)
    if len(points.inside) <= MOST_COVARIANCES:
        matrices = {
            "latent_covariance": latent,
            "covariance": covariance_of(draws.means[GROUND]),
        }
        exact = "exact" if draws.latent is None else "from joint draws"
        covariance = _covariances(matrices, points, (keys, names), facts, goal, exact)
    else:
        files = files[:1]
        notes.append(f"covariances of more than {MOST_COVARIANCES:,} areas are not written")
    _write(table, covariance, files, facts, overwrite)
    notes += inside.notes(names_of(frame, inside.slivers), points.inside)
    return Areas(table, names, covariance, files, facts, tuple(notes))


def _files(output: Path, overwrite: bool) -> tuple[Path, ...]:
    """The table and the covariances beside it."""
    kind_of(output)
    files = output, output.with_name(f"{output.stem}_covariance.nc")
    for path in files:
        refuse_existing(path, overwrite)
    return files


def _check(level: float, n_samples: int, resolution_m: float | None, worst: int | None) -> None:
    """Refuse numbers that are none."""
    check_level(level, "--level")
    check_draws(n_samples)
    if worst is not None and worst < 1:
        raise InvalidInput(f"--worst must be 1 or more; got {worst}.")
    check_resolution(resolution_m)


def _row_of(key: str, keys: list[str], column: str | None) -> int:
    """The row that a key names."""
    if key not in keys:
        where = f"column {column}" if column else "the rows' numbers"
        raise InvalidInput(f"--pairs names {key!r}, which is not in {where}; such as {keys[0]} is.")
    return keys.index(key)


def _people_given(frame: "geopandas.GeoDataFrame", column: str | None) -> Array | None:
    """A column of the file as people of each area."""
    import pandas as pd

    if column is None:
        return None
    own = [str(c) for c in frame.columns if c != frame.geometry.name]
    if column not in own:
        raise InvalidInput(
            f"The areas have no column {column!r} for --weight-column; they have {', '.join(own)}."
        )
    values = pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=np.float64)
    if not np.isfinite(values).all() or (values < 0).any():
        row = int(np.flatnonzero(~(values >= 0) | ~np.isfinite(values))[0])
        raise InvalidInput(
            f"--weight-column {column} is {str(frame[column].iloc[row])!r} in row {row}; give numbers of people, 0 or more."
        )
    return values


def _p_below(draws: Drawn, kind: str, points: AreaPoints, a: int, b: int) -> float | None:
    """P(row a's mean lies below row b's), None where one has no numbers."""
    if not np.isin([a, b], points.inside).all():
        return None
    found = p_below(draws.means[kind], *(int(v) for v in np.searchsorted(points.inside, [a, b])))
    return found if np.isfinite(found) else None


def _table(
    frame: "geopandas.GeoDataFrame", points: AreaPoints, columns: Mapping[str, Array], evidence: Evidence
) -> "geopandas.GeoDataFrame":
    """The rows and columns of a file with ours beside them; theirs of the same name get `_given`."""
    own: dict[str, Any] = {
        "area_km2": points.area_m2 / 1e6,
        "share_inside": points.share_inside,
        "n_points": points.numbers,
        **evidence.columns(),
        **{name: points.of_all(values) for name, values in columns.items()},
    }
    table = frame.rename(columns={name: f"{name}_given" for name in own if name in frame.columns})
    return table.assign(**own)


def names_of(frame: "geopandas.GeoDataFrame", among: NDArray[np.int64]) -> list[str]:
    """What to call the rows: a column `name` or else the first of texts that are distinct among some, else their
    numbers."""
    columns = frame.columns.drop(frame.geometry.name)
    for column in sorted(columns, key=lambda c: str(c).lower() != "name"):
        values = frame[column].iloc[among]
        if values.map(lambda v: isinstance(v, str) and bool(v)).all() and values.is_unique:
            return [str(v) for v in frame[column]]
    return [str(i) for i in range(len(frame))]


def _covariances(
    matrices: Mapping[str, Array],
    points: AreaPoints,
    labels: tuple[list[str], list[str]],
    facts: dict[str, Any],
    goal: Target,
    exact: str,
) -> xr.Dataset:
    """Both covariances of the areas that have numbers, by their rows in the table; labels: keys and names of the rows."""
    words = {
        "latent_covariance": (
            f"covariance of the areas' mean {goal.words} on the model's scale, {exact}",
            "1",
        ),
        "covariance": (
            f"covariance of the areas' mean {goal.words}, from joint draws",
            f"({facts['unit']})2",
        ),
    }
    rows = points.inside
    variables = {
        name: (("area", "other"), matrix, {"long_name": words[name][0], "units": words[name][1]})
        for name, matrix in matrices.items()
    }
    keys, names = (np.array(v, dtype=object)[rows] for v in labels)
    coords = {
        "area": ("area", rows, {"long_name": "row of the table of areas"}),
        "other": ("other", rows, {"long_name": "row of the table of areas"}),
        "key": ("area", keys, {"long_name": "key of the area"}),
        "name": ("area", names, {"long_name": "name of the area"}),
    }
    ds = xr.Dataset(variables, coords=coords)
    attrs = {k: v for k, v in facts.items() if v is not None and k not in ("pairs", "whole", "with")}
    ds.attrs = {"Conventions": "CF-1.8", "title": f"Areas: covariance of mean {goal.words}", **attrs}
    return ds


def _write(
    table: "geopandas.GeoDataFrame",
    covariance: xr.Dataset | None,
    files: tuple[Path, ...],
    facts: dict[str, Any],
    overwrite: bool,
) -> None:
    """Both files, read back and then given their names together; each says what the pair is of."""
    output, folder = files[0], files[0].parent.resolve()
    pair = {} if covariance is None else {"pair": _sum(covariance)}
    with staged(folder, inside=True) as work, room_for(output, _bytes(table, covariance)):
        work.mkdir()
        about_it = {**facts, **_kinds(), **pair}
        write_table(table, work / output.name, about_it, overwrite=False, layer="areas")
        if covariance is not None:
            beside = work / files[1].name
            # By way of memory: HDF5 crashes the process where a disk is full.
            written = memoryview(covariance.assign_attrs(pair).to_netcdf(engine="h5netcdf"))
            beside.write_bytes(written)
            if not _holds(beside, written):
                raise OSError(f"{beside.name} could not be read back after writing; check the disk.")
        for path in files:
            refuse_existing(path, overwrite)
        publish_files(work, folder)


def _sum(covariance: xr.Dataset) -> str:
    return hashlib.sha256(np.ascontiguousarray(covariance["latent_covariance"].to_numpy()).data).hexdigest()


def _holds(path: Path, written: memoryview) -> bool:
    """Whether a file holds these bytes, a few of them at a time."""
    with path.open("rb") as file:
        # As bytes: a memoryview compares number by number.
        parts = (bytes(written[start : start + READ_BACK]) for start in range(0, len(written), READ_BACK))
        return all(file.read(READ_BACK) == part for part in parts) and not file.read(1)


def _bytes(table: "geopandas.GeoDataFrame", covariance: xr.Dataset | None) -> int:
    """About so many are to be written."""
    return int(table.memory_usage(deep=True).sum()) + (0 if covariance is None else covariance.nbytes)


def _kinds() -> dict[str, str]:
    """What `evidence` means, for the file."""
    return {
        "evidence": f"measured: data near on {MEASURED:.0%} of the ground or more; partly: on {PARTLY:.0%} or more; "
        "filled: on less"
    }

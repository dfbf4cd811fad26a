"""What changed between two quarters, or differs between two runs: maps of the difference and, per area, a table of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from app.cluster import workers
from app.console import Report
from app.errors import InvalidInput
from app.workflow.grids import Box, Grid, check_resolution, grid_of
from app.workflow.means import check_draws, of_draws
from app.workflow.outputs import attribution, now, refuse_taken, titled
from app.workflow.polygons import Inside, about, keys_of, passed_over, read_polygons, unit_words
from app.workflow.rasters.covariates import opened
from app.workflow.rasters.elsewhere import Place, on
from app.workflow.steps.areas import names_of
from app.workflow.tables import plain, write_table
from app.workflow.together import learned_together
from app.workflow.weighing import AreaPoints, points_of
from data_pipelines.words import many
from geogp.areas import Surface, batches_of, change_map, difference_map, draw_together, surface
from geogp.areas.change import carried, check_one_target, check_times
from geogp.errors import check_level
from geogp.linalg.workers import Workers, by
from geogp.run import Run
from geogp.targets import digits, target
from maps.raster import export as write_rasters
from maps.sinks.base import Output
from maps.words import exact, padded, signed

if TYPE_CHECKING:
    import geopandas

Array = NDArray[np.float64]

DRAWS = 500
#: Rows of a table for people.
SHOWN = 40
#: The table of areas beside the maps.
TABLE = "areas.gpkg"


@dataclass(frozen=True, eq=False)
class Change:
    """What `change` found and wrote.

    manifest : what is in the folder; table : of the areas, or None; facts : of which run, from when to when
    """

    folder: Path
    manifest: dict[str, Any]
    facts: dict[str, Any]
    names: list[str]
    table: "geopandas.GeoDataFrame | None"
    seconds: float
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """What `geogp change --json` prints."""
        rows = []
        if self.table is not None:
            rows = self.table.drop(columns=self.table.geometry.name).to_dict("records")
        return {
            **self.manifest,
            **self.facts,
            "areas": [{name: plain(value) for name, value in row.items()} for row in rows],
            "notes": list(self.notes),
        }

    @property
    def title(self) -> str:
        """What the table shows."""
        known = 0 if self.table is None else int((self.table["n_points"] > 0).sum())
        first = f", the {SHOWN} least {self.facts['improved']} of {known:,}" if known > SHOWN else ""
        return f"{self.facts['title']}: mean level over areas{first}"

    @property
    def header(self) -> list[str]:
        level = 100 * self.facts["level"]
        word = self.facts["improved"]
        improved = [f"P({word} by {exact(x)})" if x else f"P({word})" for x in self.facts["at_least"]]
        return [
            "area",
            self.facts["from"],
            self.facts["to"],
            ", ".join(filter(None, ("change", unit_words(self.facts)))),
            f"{level:g}% interval",
            *improved,
        ]

    def rows(self) -> list[list[str]]:
        """A table for people, of many areas those that improved least."""
        out: list[list[str]] = []
        if self.table is None:
            return out
        rows = list(zip(self.names, self.table.to_dict("records")))
        if len(rows) > SHOWN:  # a whole country's areas for a run of one state
            rows = [(name, row) for name, row in rows if row["n_points"]]
            sign = 1 if target(self.facts["target"]).lowest_first else -1
            rows = sorted(rows, key=lambda one: sign * one[1]["change"])[:SHOWN]
        for name, row in rows:
            if not row["n_points"]:
                out.append([name, "outside", *[""] * (len(self.header) - 2)])
                continue
            word = self.facts["improved"]
            cells = [name, *(padded(row[f"mean_{end}"]) for end in ("from", "to"))]
            change, low, high = (signed(row[f"change{end}"]) for end in ("", "_lower", "_upper"))
            cells += [change, f"{low} to {high}"]
            out.append([*cells, *(f"{row[f'p_{word}_{digits(x)}']:.3f}" for x in self.facts["at_least"])])
        return out

    def summary(self) -> str:
        """One line for people."""
        return f"{self.folder}: {many(len(self.manifest['files']), 'file')}, {self.seconds:.1f} s"


def change(
    run: str | Path | Run,
    start: str | None,
    end: str | None,
    folder: str | Path,
    *,
    beside: str | Path | Run | None = None,
    quarter: str | None = None,
    at_least: Sequence[float] = (0.0,),
    polygons: str | Path | None = None,
    key: str | None = None,
    formats: Sequence[str] = ("cog",),
    level: float = 0.95,
    resolution_m: float | None = None,
    bounds: Box | None = None,
    crs: str | None = None,
    max_distance_m: float | None = None,
    n_samples: int = DRAWS,
    seed: int = 0,
    scheduler: str | None = None,
    overwrite: bool = False,
    progress: Report | None = None,
) -> Change:
    """Map what changed between two quarters, from the joint posterior of both, or what differs between two runs.

    Of the surface: the level of tile averages of the run's reference count, without their noise; in the target's unit,
    the later quarter less the earlier. Files: `change.tif` (median), `change_lower.tif`, `change_upper.tif` and
    `improved_10.tif`, P(improved by at least 10): fallen if lower is better, risen if higher is or nobody said. With
    polygons also `areas.gpkg`: `mean_from`, `mean_to`, `change`, `change_sd`, `change_lower`, `change_upper`,
    `p_improved_10` (`p_risen_10` where nobody said which is better) of the
    mean over the ground of each area; `latent_change`, `latent_change_sd` on the model's scale.

    Parameters
    ----------
    start, end : quarters such as "2019Q4"; None with `beside`
    beside : another run of the same target (mobile beside fixed): the difference is that run less the first, both in
        `quarter`; what their errors share is learned from rows of one tile and quarter, else taken for nothing
    folder : made if missing
    at_least : x of P(improved by at least x)
    polygons, key : as for `areas`
    formats : of maps' raster and table formats; none for the areas alone
    level, resolution_m, bounds, crs, max_distance_m : as for `export`; resolution_m of the maps
    n_samples : joint draws, for areas
    scheduler : whose workers compute the maps and draw, see `app.cluster.workers`; the files are the same to the byte

    Raises
    ------
    InvalidInput
        a run without time, one quarter twice, an output that exists, nothing to write, a malformed option.

    Notes
    -----
    A pixel costs about three predictions at each quarter.
    """
    started = time.perf_counter()
    run, folder = opened(run), Path(folder)
    if not formats and polygons is None:
        raise InvalidInput("There is nothing to write; name a --format or polygons with --areas.")
    what = _between(run, start, end, beside, quarter)
    check_level(level, "--level")
    check_resolution(resolution_m)
    if not len(at_least) or not np.isfinite(at_least).all():
        raise InvalidInput("--at-least takes numbers in the target's unit, such as 0,10.")
    check_draws(n_samples)
    for name in ("manifest.json", *([TABLE] if polygons is not None else [])):
        refuse_taken(folder / name, overwrite)
    facts: dict[str, Any] = {
        **about(run, what.quarter), "title": what.title, "from": what.names[0], "to": what.names[1], "unit": run.unit, "level": level, "at_least": [float(x) for x in at_least],
        "improved": run.target.improved,
        **attribution(run),
    }  # fmt: skip
    facts = (
        facts if what.other is not None else {k: v for k, v in facts.items() if k != "quarter"}
    ) | what.facts
    names, table, notes = list[str](), None, list(what.notes)
    asked: dict[str, Any] = {"level": level, "at_least": tuple(float(x) for x in at_least)}

    def further(work: Path) -> list[Output]:
        if table is None:
            return []
        write_table(table, work / TABLE, facts, overwrite=False, layer="areas")
        return [Output(work / TABLE, "gpkg", TABLE, ("areas",))]

    with workers(scheduler) as cluster:
        if polygons is not None:
            names, table, said = _areas(run, what, polygons, key, facts, n_samples, seed, cluster)
            notes += said
        grid = grid_of(run, resolution_m=resolution_m, bounds=bounds, crs=crs, max_distance_m=max_distance_m)
        notes += [grid.note] if grid.note and formats else []
        manifest = write_rasters(
            _drawn(what, grid, asked).assign_attrs({**attribution(run), "title": what.long_title}),
            folder,
            list(formats),
            geometry=grid.boundary,
            overwrite=overwrite,
            progress=None if progress is None else (lambda done, total: progress(done, total, "")),
            extra={"created": now(), **facts},
            beside=further,
            elsewhere=None
            if cluster is None
            else on(cluster, _drawn_there, what.told(), replace(grid), asked),
        )
    return Change(folder, manifest, facts, names, table, time.perf_counter() - started, tuple(notes))


@dataclass(frozen=True, eq=False)
class Between:
    """Between what a difference is: two quarters of a run, or two runs in one quarter.

    names : of both; correlation : of the surfaces' errors of two runs; facts, notes : what is said of it
    """

    run: Run
    names: tuple[str, str]
    quarter: str | None
    other: Run | None = None
    correlation: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        words = self.run.target.words
        if self.other is None:
            return f"Change of {words} from {self.names[0]} to {self.names[1]}"
        return f"{self.run.target.heading}, {self.names[1]} less {self.names[0]}"

    @property
    def long_title(self) -> str:
        """With the place."""
        if self.other is None:
            return f"{titled(self.run)}: change from {self.names[0]} to {self.names[1]}"
        return f"{titled(self.run)}: {self.names[1]} less {self.names[0]}"

    def map(self, geobox: Any, **options: Any) -> Any:
        """The lazy Dataset of the difference."""
        if self.other is None:
            return change_map(self.run, geobox, *self.names, **options)
        return difference_map(
            self.run,
            self.other,
            geobox,
            correlation=self.correlation,
            names=self.names,
            quarter=self.quarter,
            **options,
        )

    def told(self) -> tuple[Any, ...]:
        """What a worker makes the same of, see `_drawn_there`."""
        beside = None if self.other is None else Place.of(self.other)
        return Place.of(self.run), self.names, self.quarter, beside, self.correlation

    def surfaces(self, xy: Array, workers: Workers | None) -> "Surfaces":
        """The surfaces before and after at places (n, 2)."""
        if self.other is None:
            X = np.concatenate([self.run.inputs(xy, name) for name in self.names])
            return Surfaces(surface(self.run.model, X, workers=workers), None, 0.0)
        beside = self.other.inputs(carried(self.run, self.other, xy), self.quarter)
        a = surface(self.run.model, self.run.inputs(xy, self.quarter), workers=workers)
        return Surfaces(a, surface(self.other.model, beside, workers=workers), self.correlation)


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Both surfaces at places, for whoever draws a batch of them.

    a : of one run at both times, one after the other, where there is no b; correlation : of the errors of two runs
    """

    a: Surface
    b: Surface | None
    correlation: float

    def batch(self, number: int, n_samples: int, seed: int) -> tuple[Array, Array]:
        """Joint draws (n, n_samples) before and after."""
        if self.b is not None:
            return draw_together(self.a, self.b, self.correlation, number, n_samples, seed)
        before, after = np.split(self.a.batch(number, n_samples, seed), 2)
        return before, after


def _drawn(what: Between, grid: Grid, asked: dict[str, Any]) -> Any:
    """The lazy Dataset of the difference on a grid."""
    where = grid.where if grid.boundary else None
    return what.map(grid.geobox, where=where, max_distance_m=grid.max_distance_m, **asked)


def _drawn_there(told: tuple[Any, ...], grid: Grid, asked: dict[str, Any]) -> Any:
    """In a worker: the same."""
    place, names, quarter, beside, correlation = told
    other = None if beside is None else beside.run()
    return _drawn(Between(place.run(), names, quarter, other, correlation), grid, asked)


def _between(
    run: Run, start: str | None, end: str | None, beside: str | Path | Run | None, quarter: str | None
) -> Between:
    """What was asked for, refused where it is not one thing."""
    if beside is None:
        if start is None or end is None:
            raise InvalidInput("A change is --from one quarter --to another, or of two runs: --with RUN.")
        if quarter is not None:
            raise InvalidInput("--quarter belongs to --with; a change has --from and --to.")
        check_times(run, start, end)
        run.quarter(start)
        return Between(run, (start, end), run.quarter(end))
    if start is not None or end is not None:
        raise InvalidInput("--with compares two runs in one --quarter; leave --from and --to out.")
    when, other = run.quarter(quarter), opened(beside)
    check_one_target(run, other)
    kinds = tuple(str(r.data.get("type") or "") for r in (run, other))
    named = kinds if all(kinds) and kinds[0] != kinds[1] else (run.path.name, other.path.name)
    try:
        learned, rows = learned_together(run, other)
        r, said = learned.surface, f"learned from {many(learned.n, f'{rows} row')} of both"
    except InvalidInput as error:
        r, said = 0.0, f"taken for independent: {str(error).rstrip('.')}"
    facts = {
        "with": {
            "run": other.path.name,
            "weights_sha256": other.weights_sha256,
            "correlation": r,
            "how": said,
        }
    }
    note = f"errors of the two surfaces go together with correlation {r:.2f}, {said}"
    return Between(run, (named[0], named[1]), when, other, r, facts, (note,))


def _areas(
    run: Run,
    what: Between,
    polygons: str | Path,
    key: str | None,
    facts: dict[str, Any],
    n_samples: int,
    seed: int,
    workers: Workers | None,
) -> tuple[list[str], "geopandas.GeoDataFrame", list[str]]:
    """Names, the rows of a file with the change of each, and what was left out."""
    frame = read_polygons(polygons)
    facts["key"], _ = keys_of(frame, key)
    most = run.model.most_places
    inside = Inside.of(polygons, frame, run)
    points = points_of(inside, None, None if most is None else most // 2)
    columns = _columns(what, points, facts, n_samples, seed, workers)
    own = {"area_km2": points.area_m2 / 1e6, "n_points": points.numbers}
    own |= {name: points.of_all(values) for name, values in columns.items()}
    table = frame.rename(columns={name: f"{name}_given" for name in own if name in frame.columns})
    notes = passed_over(frame, facts["key"]) if key is None else ()
    names = names_of(frame, points.inside)
    return names, table.assign(**own), [*notes, *inside.notes(names_of(frame, inside.slivers), points.inside)]


def _columns(
    what: Between,
    points: AreaPoints,
    facts: dict[str, Any],
    n_samples: int,
    seed: int,
    workers: Workers | None = None,
) -> dict[str, Any]:
    """Columns (areas inside,) of the change, from joint draws of both sides at all points."""
    goal, W = what.run.target, points.weights()
    shared = what.surfaces(points.xy, workers), W, goal.name, seed
    parts = list(by(workers, _averaged, shared, batches_of(n_samples)))
    *means, latent = (np.concatenate(of, axis=1) for of in zip(*parts))
    difference = means[1] - means[0]
    better = difference if goal.lowest_first else -difference
    said = of_draws(difference, facts["level"])
    return {
        "mean_from": means[0].mean(axis=1),
        "mean_to": means[1].mean(axis=1),
        "change": said["mean"],
        **{f"change_{name}": said[name] for name in ("sd", "lower", "upper")},
        **{f"p_{goal.improved}_{digits(x)}": (better >= x).mean(axis=1) for x in facts["at_least"]},
        "latent_change": latent.mean(axis=1),
        "latent_change_sd": latent.std(axis=1, ddof=1),
    }


def _averaged(
    shared: tuple[Surfaces, sparse.csr_array, str, int], number: int, n_samples: int
) -> tuple[Array, Array, Array]:
    """Of a batch of draws, the means over areas (A, n_samples) before and after, and of the change on the model's scale."""
    surfaces, W, name, seed = shared
    before, after = surfaces.batch(number, n_samples, seed)
    goal = target(name)
    return W @ goal.from_score(before), W @ goal.from_score(after), W @ after - W @ before

"""Where to measure next: tiles of the region whose measurement narrows a run's map most."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from shapely.geometry.base import BaseGeometry

from app.errors import InvalidInput
from app.workflow.grids import of_tiled_source, usual_side_m
from app.workflow.places import parts_of
from app.workflow.polygons import Ground, about, in_plane, mesh, nothing_inside, read_polygons
from app.workflow.rasters.covariates import opened
from app.workflow.rows import observations_of
from data_pipelines import quadkey, zorder
from data_pipelines.atomic import atomic_path, refuse_existing
from data_pipelines.sources import SOURCES
from data_pipelines.words import many
from geogp.errors import check_count, check_metres, check_threshold
from geogp.estimator import GPRegressor
from geogp.prediction import model_scale
from geogp.run import Run
from geogp.suggest import Suggestions, suggest_places, try_suggestions
from geogp.update import updatable
from maps.words import exact, number

Array = NDArray[np.float64]

#: Side of a cell at least, about that of a tile (of other data the usual distance between places); how many at most.
TILE_M, CELLS = 600.0, 1500
#: Places to suggest where nobody says how many.
USUAL = 50


@dataclass(frozen=True, eq=False)
class Suggested:
    """Places to measure, in order, as GeoJSON and in numbers.

    lon, lat : (n,); quadkeys : (n,) of tiles, or None for other measurements
    facts : of which run, and how wide the cells were among which they were chosen
    """

    path: Path
    found: Suggestions
    lon: Array
    lat: Array
    quadkeys: NDArray[np.str_] | None
    facts: dict[str, Any]

    def points(self) -> list[dict[str, Any]]:
        """Properties of each place; variances and sds on the model's scale (`unit` says which)."""
        f = self.found
        first = float(f.average_before[0])
        out = []
        for i in range(len(f)):
            before, after = float(f.average_before[i]), float(f.average_after[i])
            row: dict[str, Any] = {"rank": i + 1, "lon": round(self.lon[i], 6), "lat": round(self.lat[i], 6)}
            if self.quadkeys is not None:
                row["quadkey"] = str(self.quadkeys[i])
            row |= {
                "latent_sd_before": math.sqrt(f.variance_before[i]),
                "latent_sd_after": math.sqrt(f.variance_after[i]),
                "noise_sd": math.sqrt(f.noise_variance[i]),
                "map_variance_before": before,
                "map_variance_after": after,
                "map_variance_reduction": (before - after) / first,
            }
            out.append(row)
        return out

    def geojson(self) -> dict[str, Any]:
        """A FeatureCollection of points in WGS84; the run under the foreign member `geogp`."""
        features = [
            {
                "type": "Feature",
                "geometry": {"type": "Point", "coordinates": [row["lon"], row["lat"]]},
                "properties": row,
            }
            for row in self.points()
        ]
        return {"type": "FeatureCollection", "geogp": self.facts, "features": features}

    def document(self) -> dict[str, Any]:
        """What `geogp suggest --json` prints."""
        return {"schema": 1, **self.facts, "points": self.points(), "file": self.path.name}

    @property
    def title(self) -> str:
        """What the table shows."""
        return f"Where to measure {self.facts['target_title']} next"

    header = ("rank", "lon", "lat", "sd before", "sd after", "map's variance down by")

    def rows(self) -> list[list[str]]:
        """A table for people."""
        return [
            [
                str(row["rank"]),
                f"{row['lon']:.5f}",
                f"{row['lat']:.5f}",
                f"{row['latent_sd_before']:.3f}",
                f"{row['latent_sd_after']:.3f}",
                f"{100 * row['map_variance_reduction']:.2f}%",
            ]
            for row in self.points()
        ]

    def summary(self) -> str:
        """One line for people."""
        before, after = self.found.average_before[0], self.found.average_after[-1]
        said = (
            f"{self.path}: {many(len(self.found), 'place')} for {self.facts['goal']} among {self.facts['n_candidates']:,}, cells of "
            f"{self.facts['cell_m']:.0f} m; mean variance of the surface {number(before, 4)} -> {number(after, 4)} "
            f"({100 * (after / before - 1):+.1f}%)"
        )
        return said if "check" not in self.facts else f"{said}\n{_checked_words(self.facts['check'])}"


def suggest(
    run: str | Path | Run,
    n: int | None,
    path: str | Path,
    *,
    quarter: str | None = None,
    tests: float | None = None,
    within: str | Path | None = None,
    area: str | Path | None = None,
    boundary: float | None = None,
    candidates_file: str | Path | None = None,
    budget_km: float | None = None,
    check: bool = False,
    data: str | Path | None = None,
    overwrite: bool = False,
) -> Suggested:
    """Choose n places to measure and write them as GeoJSON, the most useful first.

    Parameters
    ----------
    n : None for `USUAL`, or all places that there are to choose from
    path : .geojson
    quarter : when; default the run's last quarter
    tests : measurements behind each new tile average; default the training median
    within : polygons (GeoJSON, GeoPackage, GeoParquet) to stay in; the map is then that part of it
    area : polygons whose mean is to be known better, wherever one measures
    boundary : a threshold in the target's unit: places count by p (1 - p) with p the chance that the surface lies below it
    candidates_file : table of places (as for `geogp at`) among which to choose; of many the one nearest each cell's centre
    budget_km : the path through all places is no longer; n is then a bound
    check : hide rows that the run knows, choose among their places towards the same goal, and tell under "check" what that
        promised and what it brought; see `geogp.suggest.try_suggestions`
    data : for `check`, the run's observations, if they were moved

    Raises
    ------
    InvalidInput
        n below 1 or above the number of cells, polygons outside the region, an output that exists; a check of a method
        that cannot forget rows.

    Notes
    -----
    The map (the region, else the reach of the data) is cut into at most 1,500 square cells, none smaller than a
    tile. A cell's candidate is the tile at its centre, its place in the average a random point of it, so that one
    tile does not pass for a wide cell. `geogp.suggest.suggest_places` says how they are chosen and what it costs.
    """
    run, path = opened(run), Path(path)
    if path.suffix not in (".geojson", ".json"):
        raise InvalidInput(f"The places are written as GeoJSON; name the output .geojson, not {path}.")
    refuse_existing(path, overwrite)
    if n is not None and n < 1:
        raise InvalidInput(f"-n is the number of places to suggest, 1 or more; got {n}.")
    check_count(tests, "--tests")
    check_metres(None if budget_km is None else 1000 * budget_km, "--budget-km")
    if boundary is not None:
        check_threshold(boundary, "--boundary")
    if check:
        _can_be_checked(run)
    ground = Ground.of(run)
    shape = ground.outline if within is None else _within(within, run, ground)
    least = TILE_M if of_tiled_source(run) else 2 * usual_side_m(run)
    centres, side = _cells(shape, ground, least)
    if not len(centres):
        centres = shapely.get_coordinates(shape.representative_point())
    if candidates_file is None:
        candidates, keys = _tiles(run, centres, shape)
    else:
        candidates, keys = _of_file(run, candidates_file, centres, shape), None
    if n is None or budget_km is not None:  # no more than a bound
        n = min(n or USUAL, len(candidates))
    if n > len(candidates):
        there = many(len(candidates), "tile" if keys is not None else "place")
        raise InvalidInput(
            f"There {'is' if len(candidates) == 1 else 'are'} {there} to choose from, and -n {n} asks for more: take fewer, or leave -n out."
        )
    xy, goal = None, None
    if area is not None:
        goal = _within(area, run, ground)
        middles, width = _cells(goal, ground, least)
        middles = middles if len(middles) else shapely.get_coordinates(goal.representative_point())
        xy = _scattered(middles, width, goal, ground)
    elif side > least or boundary is not None or candidates_file is not None:
        xy = _scattered(centres, side, shape, ground)
    places = None if xy is None else run.inputs(xy, quarter)
    weights = None
    if boundary is not None and places is not None:
        weights = _undecided(run, run.model, places, boundary)
        if not weights.sum() > 1e-6 * len(weights):
            raise InvalidInput(
                f"The map lies on one side of {run.target.with_unit(exact(boundary), run.unit)} everywhere; name a "
                "--boundary between its values."
            )
    found = suggest_places(
        run.model,
        run.inputs(candidates, quarter),
        n,
        places=places,
        weights=weights,
        counts=tests,
        budget=None if budget_km is None else 1000 * budget_km,
    )
    lon, lat = run.to_degrees(candidates[found.chosen])
    scale = model_scale(run)
    scale = "the value" if scale == "the value itself" else f"the model's scale ({scale})"
    facts = {
        **about(run, run.quarter(quarter)), "tests": run.model.typical_count_ if tests is None else tests,
        "unit": f"squared units of {scale}",
        "cell_m": side, "n_candidates": len(candidates),
        "goal": "the mean over an area" if area is not None else "the map" if boundary is None else "the boundary",
        **({} if boundary is None else {"boundary": boundary}), **({} if budget_km is None else {"budget_km": budget_km}),
    }  # fmt: skip
    if check:
        inside = None if within is None else shape
        facts["check"] = _checked(run, n, quarter, tests, inside, goal, boundary, budget_km, data)
    out = Suggested(path, found, lon, lat, None if keys is None else keys[found.chosen], facts)
    with atomic_path(path, overwrite=overwrite) as temporary:
        temporary.write_text(json.dumps(out.geojson(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        if len(json.loads(temporary.read_text(encoding="utf-8"))["features"]) != len(found):
            raise OSError(f"{path.name} could not be read back after writing; check the disk.")
    return out


def _within(polygons: str | Path, run: Run, ground: Ground) -> BaseGeometry:
    """What of a file's polygons lies in the region."""
    shape = ground.part(shapely.union_all(in_plane(read_polygons(polygons), run)))
    if shape is None:
        raise nothing_inside(polygons)
    return shape


def _can_be_checked(run: Run) -> None:
    """Refuse a check before anything is computed."""
    if run.model.method not in updatable():
        raise InvalidInput(
            f"--check hides rows from the run, and method {run.model.method!r} cannot forget any without being fitted again; "
            "leave --check out."
        )
    if run.facts.get("updates"):
        raise InvalidInput(
            f"{run.path} was updated and does not know where all of its rows are; --check needs a run as `geogp fit` left it."
        )


def _checked(
    run: Run,
    n: int,
    quarter: str | None,
    tests: float | None,
    within: BaseGeometry | None,
    goal: BaseGeometry | None,
    boundary: float | None,
    budget_km: float | None,
    data: str | Path | None,
) -> dict[str, Any]:
    """What the same choice promised and brought at places that were hidden from the run."""
    rows = observations_of(run, data)
    fitted = run.tensors("split")["fitted"].numpy()
    X, t, counts = rows.select(fitted)
    asked = np.ones(len(X), dtype=bool)
    when = run.quarter(quarter)
    if when is not None:
        known = rows.labels[fitted]
        # Of a quarter that nobody measured nothing can be judged.
        asked = known == (when if when in known else known.max())
    if within is not None:
        asked &= shapely.contains_xy(within, X[:, 0], X[:, 1])
    kept = try_suggestions(
        run.model,
        X,
        t,
        counts,
        n,
        asked=asked,
        judged=None if goal is None else shapely.contains_xy(goal, X[:, 0], X[:, 1]),
        weigh=None if boundary is None else lambda model, P: _undecided(run, model, P, boundary),
        new_counts=tests,
        budget=None if budget_km is None else 1000 * budget_km,
    )
    return asdict(kept)


def _checked_words(check: dict[str, Any]) -> str:
    """What the check found, in sentences."""
    error = check["error_before"]

    def percent(name: str) -> str:
        return f"{100 * check[name] / error:.1f}%"

    words = (
        f"Checked in {check['n_parts']} parts, each with a part of the measured places hidden and {check['n_chosen']} of them chosen: the "
        f"squared error of {many(check['n_judged'], 'row')} at other hidden places was promised to fall by {percent('promised')} and fell by "
        f"{percent('achieved')} (standard error {percent('achieved_se')}); of as many places at random {percent('random')} "
        f"(standard error {percent('random_se')})."
    )
    off = check["promised"] - check["achieved"]
    if off > 2 * check["achieved_se"]:
        words += " Expect less than the table promises."
    return words


def _undecided(run: Run, model: GPRegressor, places: Array, threshold: float) -> Array:
    """How much each place counts (n,) where it matters on which side of a threshold it lies: p (1 - p)."""
    law = model.distribution(model.moments(places, model.reference_count_), latent=True)
    p = law.cdf(np.full(len(places), float(run.target.to_score(threshold))))
    return p * (1 - p)


def _of_file(run: Run, path: str | Path, centres: Array, shape: BaseGeometry) -> Array:
    """Places (n, 2) of a table that lie inside, each once; where more than CELLS, the one nearest each cell's centre."""
    lonlat = np.concatenate([part for _, part in parts_of(path)])
    lonlat = lonlat[np.isfinite(lonlat).all(axis=1)]
    xy = np.unique(run.from_degrees(lonlat[:, 0], lonlat[:, 1]), axis=0)
    xy = xy[np.isfinite(xy).all(axis=1)]
    xy = xy[shapely.contains_xy(shape, *xy.T)]
    if not len(xy):
        raise InvalidInput(f"No place of {path} lies in the region of the run.")
    return xy if len(xy) <= CELLS else xy[np.unique(cKDTree(xy).query(centres)[1])]


def _cells(shape: BaseGeometry, ground: Ground, least: float) -> tuple[Array, float]:
    """Centres (n, 2) of at most CELLS square cells inside, none smaller than `least`, and their side in metres."""
    shapely.prepare(shape)
    side = max(least, math.sqrt(shape.area / CELLS) if ground.support is None else 0.0)
    left, bottom, right, top = shape.bounds
    side = max(side, math.sqrt((right - left) * (top - bottom) / 2e6))
    while True:
        P = mesh(shape.bounds, side)
        P = P[shapely.contains_xy(shape, P[:, 0], P[:, 1])]
        P = P[ground.reached(P)]
        if len(P) <= CELLS:
            return P, side
        side *= max(1.02, 0.98 * math.sqrt(len(P) / CELLS))


def _tiles(run: Run, P: Array, shape: BaseGeometry) -> tuple[Array, NDArray[np.str_] | None]:
    """Where in each cell to measure: the centre of the tile that holds its centre, and that tile's key.

    Tiles whose own centre lies outside are left out, unless all do; measurements that are not of tiles are
    suggested at the cells' centres.
    """
    source = SOURCES.get(run.data.get("source") or "")
    if source is None or not source.tiled:
        return P, None
    lon, lat = run.to_degrees(P)
    tiles = np.unique(np.column_stack(quadkey.tile_of(lon, lat)), axis=0)
    centres = run.from_degrees(*quadkey.centre(tiles[:, 0], tiles[:, 1]))
    inside = shapely.contains_xy(shape, *centres.T)
    if not inside.any():
        inside[:] = True
    return centres[inside], zorder.quadkeys(tiles[inside, 0], tiles[inside, 1])


def _scattered(centres: Array, side: float, shape: BaseGeometry, ground: Ground) -> Array:
    """A random place of each cell that lies inside; the same each time."""
    rng = np.random.default_rng(0)
    out = centres.copy()
    left = np.ones(len(out), dtype=bool)
    for _ in range(20):  # cells at the edge are partly outside
        P = centres[left] + side * (rng.random((int(left.sum()), 2)) - 0.5)
        good = shapely.contains_xy(shape, P[:, 0], P[:, 1]) & ground.reached(P)
        rows = np.flatnonzero(left)[good]
        out[rows], left[rows] = P[good], False
        if not left.any():
            break
    return out

"""Where to measure next: tiles of the region whose measurement narrows a run's map most."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from app.errors import InvalidInput
from app.workflow.polygons import Ground, about, in_plane, mesh, read_polygons
from data_pipelines import quadkey
from data_pipelines.atomic import atomic_path, refuse_existing
from data_pipelines.sources import SOURCES
from geogp.errors import check_count
from geogp.run import Run, opened
from geogp.suggest import Suggestions, suggest_places
from geogp.targets import target

Array = NDArray[np.float64]

#: Side of a cell at least, about that of a tile; and how many cells at most.
TILE_M, CELLS = 600.0, 1500


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
        """Properties of each place; variances and sds on the model's scale (of log10 of the speed)."""
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
        return f"Where to measure {target(self.facts['target']).words} next"

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
        return (
            f"{self.path}: {len(self.found)} places among {self.facts['n_candidates']:,}, cells of "
            f"{self.facts['cell_m']:.0f} m; mean variance of the surface {before:.4g} -> {after:.4g} "
            f"({100 * (after / before - 1):+.1f}%)"
        )


def suggest(
    run: str | Path | Run,
    n: int,
    path: str | Path,
    *,
    quarter: str | None = None,
    tests: float | None = None,
    within: str | Path | None = None,
    overwrite: bool = False,
) -> Suggested:
    """Choose n places to measure and write them as GeoJSON, the most useful first.

    Parameters
    ----------
    path : .geojson
    quarter : when; default the run's last quarter
    tests : measurements behind each new tile average; default the training median
    within : polygons (GeoJSON, GeoPackage, GeoParquet) to stay in; the map is then that part of it

    Raises
    ------
    InvalidInput
        n below 1 or above the number of cells, polygons outside the region, an output that exists.

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
    if n < 1:
        raise InvalidInput(f"-n is the number of places to suggest, 1 or more; got {n}.")
    check_count(tests, "--tests")
    ground = Ground.of(run)
    shape = ground.outline if within is None else _within(within, run, ground)
    centres, side = _cells(shape, ground)
    if not len(centres):
        centres = shapely.get_coordinates(shape.representative_point())
    candidates, keys = _tiles(run, centres, shape)
    if n > len(candidates):
        raise InvalidInput(
            f"The map has {len(candidates):,} tiles to choose from; -n {n} asks for more: take fewer."
        )
    places = None
    if side > TILE_M:
        places = run.inputs(_scattered(centres, side, shape, ground), quarter)
    found = suggest_places(run.model, run.inputs(candidates, quarter), n, places=places, counts=tests)
    lon, lat = run.to_degrees(candidates[found.chosen])
    scale = "the model's scale (log10 of the value)" if run.target.log10 else "the value"
    facts = {
        **about(run, run.quarter(quarter)), "tests": run.model.typical_count_ if tests is None else tests,
        "unit": f"squared units of {scale}",
        "cell_m": side, "n_candidates": len(candidates),
    }  # fmt: skip
    out = Suggested(path, found, lon, lat, None if keys is None else keys[found.chosen], facts)
    with atomic_path(path, overwrite=overwrite) as temporary:
        temporary.write_text(json.dumps(out.geojson(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        if len(json.loads(temporary.read_text(encoding="utf-8"))["features"]) != n:
            raise OSError(f"{path.name} could not be read back after writing; check the disk.")
    return out


def _within(polygons: str | Path, run: Run, ground: Ground) -> BaseGeometry:
    """What of a file's polygons lies in the region."""
    shape = ground.part(shapely.union_all(in_plane(read_polygons(polygons), run)))
    if shape is None:
        raise InvalidInput(f"No polygon of {polygons} meets the region of the run.")
    return shape


def _cells(shape: BaseGeometry, ground: Ground) -> tuple[Array, float]:
    """Centres (n, 2) of at most CELLS square cells inside, and their side in metres."""
    shapely.prepare(shape)
    side = max(TILE_M, math.sqrt(shape.area / CELLS) if ground.support is None else 0.0)
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
    return centres[inside], quadkey.encode(tiles[inside, 0], tiles[inside, 1])


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

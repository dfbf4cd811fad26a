"""Tables of areas that a page asks for: computed by `geogp areas` and `geogp change` in a job, shown and put on the map."""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import shapely

from app.dashboard.atlas import Atlas
from app.dashboard.jobs import OUT, Job, jobs
from app.errors import InvalidInput
from app.workflow.polygons import Ground, keys_of, read_polygons
from app.workflow.steps.areas import names_of
from geogp.targets import digits
from maps.grid import continuous
from maps.region import around
from maps.words import padded, signed

#: Kinds of files that people may bring.
KINDS = (".geojson", ".json", ".gpkg", ".parquet", ".zip")
#: Hexagons on a map at most, and the resolutions of H3 to choose from: about 35 to 1 km across.
MOST_HEXAGONS, RESOLUTIONS = 3000, (4, 5, 6, 7)
#: Outlines are no finer than this share of the region's width.
FINE = 1 / 2000


def brought(name: str, data: bytes) -> Path:
    """A file of polygons that somebody uploaded, kept while this server runs.

    Raises
    ------
    InvalidInput
        a kind of file that holds no polygons.
    """
    suffix = Path(name).suffix.lower()
    if suffix not in KINDS:
        raise InvalidInput(f"Areas come as {', '.join(KINDS)}; got {name[:60]!r}.")
    return kept(data, suffix)


def kept(data: bytes, suffix: str) -> Path:
    """A file of what was uploaded, named by its content."""
    path = jobs().folder / "uploads" / (hashlib.blake2b(data, digest_size=8).hexdigest() + suffix)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def hexagons(atlas: Atlas, resolution: int) -> Path:
    """A file of the H3 cells that touch the region.

    Raises
    ------
    InvalidInput
        more than a page shows.
    """
    import geopandas
    import h3

    path = jobs().folder / "uploads" / f"{atlas.id}_{resolution}.geojson"
    if path.exists():
        return path
    run = atlas.run
    if run.boundary is not None:
        shape = shapely.geometry.shape(run.boundary)
    else:
        edge = shapely.segmentize(Ground.of(run).outline.exterior, 5000)
        shape = shapely.Polygon(np.column_stack(run.to_degrees(shapely.get_coordinates(edge))))
    if shape.area / (h3.average_hexagon_area(resolution, "km^2") / 111.0**2) > 2 * MOST_HEXAGONS:
        raise InvalidInput(f"These would be more than {MOST_HEXAGONS:,} hexagons; choose larger ones.")
    found = h3.polygon_to_cells_experimental(h3.geo_to_h3shape(shape), resolution, contain="overlap")
    cells = sorted(found)
    if len(cells) > MOST_HEXAGONS:
        raise InvalidInput(
            f"These would be {len(cells):,} hexagons; choose larger ones, {MOST_HEXAGONS:,} at most."
        )
    rings = []
    for cell in cells:
        edge = np.array(h3.cell_to_boundary(cell))[:, ::-1]
        edge[:, 0] = continuous(edge[:, 0], edge[0, 0])  # a cell across 180 degrees stays in one piece
        rings.append(shapely.Polygon(edge))
    path.parent.mkdir(exist_ok=True)
    geopandas.GeoDataFrame({"id": cells, "name": cells}, geometry=rings, crs=4326).to_file(path)
    return path


@dataclass(frozen=True)
class Asked:
    """What a table is of.

    file, words : of polygons, and what they are called; key : column that names them
    quarter : of the table; since : the earlier quarter of a change, or None
    thresholds : in the target's unit; beside : another run, and the limits of both
    """

    file: Path
    words: str
    quarter: str | None = None
    since: str | None = None
    thresholds: tuple[float, ...] = ()
    beside: tuple[Path, float, float] | None = None

    def arguments(self, run: Path, file: str, out: str) -> list[str]:
        """Of the command."""
        if self.since is not None:
            start = ["change", str(run), "--from", self.since, "--to", str(self.quarter), "--areas", file]
            return [*start, "--format", "none", "-o", out]
        line = ["areas", str(run), "--areas", file, "-o", out]
        line += ["--quarter", self.quarter] if self.quarter else []
        line += ["--thresholds", ",".join(digits(c) for c in self.thresholds)] if self.thresholds else []
        if self.beside is not None:
            other, below, with_below = self.beside
            line += ["--with", str(other), "--below", digits(below), "--with-below", digits(with_below)]
        return line


def start(atlas: Atlas, asked: Asked) -> Job:
    """The job that computes a table of areas.

    Raises
    ------
    InvalidInput
        too many jobs wait.
    """
    run = atlas.run.path.resolve()
    name = "change" if asked.since else "areas.gpkg"
    shown = asked.arguments(atlas.run.path, asked.words, name)
    title = f"{Path(asked.words).name}: {'change' if asked.since else 'areas'}"
    return jobs().start(
        title,
        [*asked.arguments(run, str(asked.file), OUT), "--json"],
        name=name,
        shown=shlex.join(["geogp", *shown]),
        of=atlas.id,
    )


@dataclass(frozen=True)
class Row:
    """An area: what names it, its numbers by column, its outline in degrees."""

    key: str
    name: str
    values: Mapping[str, Any]
    shape: Any

    @property
    def inside(self) -> bool:
        return bool(self.values.get("n_points"))


@dataclass(frozen=True)
class Found:
    """A table of areas: the facts it was computed by, and its rows."""

    facts: Mapping[str, Any]
    rows: Sequence[Row]

    @property
    def is_change(self) -> bool:
        return "from" in self.facts

    @property
    def limits(self) -> list[str]:
        """Columns of shares below thresholds."""
        return [f"share_below_{digits(c)}" for c in self.facts.get("thresholds", ())]

    @property
    def p_better(self) -> str:
        """Column of the probability that an area became better; higher where nobody said which is better."""
        return f"p_{self.facts.get('improved', 'improved')}_0"

    def row(self, key: str) -> Row | None:
        return next((row for row in self.rows if row.key == key), None)


@lru_cache(8)
def found_of(job: Job) -> Found:
    """The table of a job that is done."""
    document = json.loads(job.said)
    path = job.result / "areas.gpkg" if job.result.is_dir() else job.result
    frame = read_polygons(path).to_crs(4326)
    values = document.pop("areas")
    _, keys = keys_of(frame, document.get("key"))
    inside = np.array([k for k, row in enumerate(values) if row["n_points"]], np.int64)
    names = _names(frame, inside)
    shapes = frame.geometry.to_numpy()
    return Found(document, [Row(*row) for row in zip(keys, names, values, shapes, strict=True)])


def _names(frame: Any, inside: Any) -> list[str]:
    """A column of names, as people write it in their files, else what the table takes."""
    named = [c for c in frame.columns if str(c).lower() in ("namelsad", "name")]
    for column in sorted(named, key=lambda c: str(c).lower() != "namelsad"):
        values = frame[column]
        if values.map(lambda v: isinstance(v, str) and bool(v)).all():
            return [str(v) for v in values]
    return names_of(frame, inside)


def outlines(found: Found, middle: float) -> dict[str, Any]:
    """GeoJSON of the areas inside the region, with the key, the name and what is said of each, around a longitude."""
    rows = [row for row in found.rows if row.inside]
    if not rows:
        return {"type": "FeatureCollection", "features": []}
    bounds = shapely.total_bounds([row.shape for row in rows])
    fine = FINE * max(bounds[2] - bounds[0], bounds[3] - bounds[1])
    features = []
    for row in rows:
        simple = shapely.simplify(row.shape, fine)
        shape = around(simple if not simple.is_empty else row.shape, middle)
        geometry = json.loads(shapely.to_geojson(shapely.set_precision(shape, 1e-5)))
        about = {"key": row.key, "name": row.name, "said": sentence(found, row)}
        features.append({"type": "Feature", "properties": about, "geometry": geometry})
    return {"type": "FeatureCollection", "features": features}


def sentence(found: Found, row: Row) -> str:
    """What an area comes to, in words."""
    unit, v, facts = found.facts["unit"], row.values, found.facts
    unit = "" if unit == "1" else f" {unit}"
    if found.is_change:
        p, word = v.get(found.p_better), "better" if found.p_better == "p_improved_0" else "higher"
        better = "" if p is None else f"; {word} at {100 * p:.0f}%"
        return (
            f"{facts['from']} to {facts['to']}: mean level {signed(v['change'], 3)}{unit} "
            f"({signed(v['change_lower'], 3)} to {signed(v['change_upper'], 3)}){better}"
        )
    n = sum(other.inside for other in found.rows)
    text = f"mean level {padded(v['mean'], 3)}{unit} ({padded(v['lower'], 3)} to {padded(v['upper'], 3)})"
    text += f"; rank {v['rank']:.0f} of {n}" if n > 1 else ""
    return f"{text}; {v['evidence']}" if v.get("evidence") else text

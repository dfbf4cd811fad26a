"""Counties and islands of the United States: their shapes, and the lines between counties, from us-atlas' TopoJSON."""

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from app.workflow.naming.brought import area
from app.workflow.naming.titles import states, titles
from app.workflow.naming.towns import people_of
from maps.grid import continuous
from maps.region import polygons_of

Floats = NDArray[np.float64]
Box = tuple[float, float, float, float]

HERE = Path(__file__).parent
ATLAS, ISLANDS = HERE / "us-atlas-3.0.1-counties-10m.json.gz", HERE / "islands.csv"


#: Of more the lines between them are a net in which nothing is seen: those between states are drawn, as `closer` has theirs.
MOST_COUNTIES = 1000


@dataclass(frozen=True, eq=False)
class County:
    """key : its GEOID, five digits; rings : arcs of each ring of each part, ~i for one that runs backwards"""

    key: str
    name: str
    rings: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def arcs(self) -> list[int]:
        return [i if i >= 0 else ~i for part in self.rings for ring in part for i in ring]

    @property
    def shape(self) -> BaseGeometry:
        """In degrees."""
        arcs, _, _ = _topology()

        def closed(ring: Sequence[int]) -> Floats:
            pieces = [arcs[i] if i >= 0 else arcs[~i][::-1] for i in ring]
            return np.concatenate([pieces[0], *(piece[1:] for piece in pieces[1:])])

        rings = [[closed(ring) for ring in part] for part in self.rings]
        rings = [
            [ring for ring in part if len(ring) > 3] for part in rings if len(part[0]) > 3
        ]  # specks have less
        parts = [shapely.Polygon(first, holes) for first, *holes in rings]
        whole = shapely.MultiPolygon(parts)
        return whole if whole.is_valid else shapely.MultiPolygon(polygons_of(shapely.make_valid(whole)))


@cache
def _topology() -> tuple[list[Floats], Floats, list[County]]:
    """Every arc in degrees, its box (n, 4), and the counties."""
    document = json.loads(gzip.decompress(ATLAS.read_bytes()))
    scale, shift = (np.array(document["transform"][k]) for k in ("scale", "translate"))
    arcs = [np.cumsum(np.array(arc, np.float64), axis=0) * scale + shift for arc in document["arcs"]]
    boxes = np.array([[*arc.min(axis=0), *arc.max(axis=0)] for arc in arcs])
    known = []
    for entry in document["objects"]["counties"]["geometries"]:
        parts = [entry["arcs"]] if entry["type"] == "Polygon" else entry["arcs"]
        rings = tuple(tuple(tuple(ring) for ring in part) for part in parts)
        known.append(County(str(entry["id"]), str(entry["properties"]["name"]), rings))
    return arcs, boxes, known


def counties(box: Box) -> list[County]:
    """Those whose own box meets a box of degrees, W, S, E, N."""
    _, boxes, known = _topology()
    west, south, east, north = box
    middle = (west + east) / 2
    found = []
    for county in known:
        own = boxes[county.arcs]
        w, s, e, n = own[:, 0].min(), own[:, 1].min(), own[:, 2].max(), own[:, 3].max()
        turn = float(continuous(np.array([(w + e) / 2]), middle)[0] - (w + e) / 2)
        if w + turn <= east and e + turn >= west and s <= north and n >= south:
            found.append(county)
    return found


def between(found: Sequence[County]) -> list[Floats]:
    """The arcs with a county on either side, no coasts; of more than `MOST_COUNTIES` those with a state on either side."""
    arcs, _, known = _topology()
    sides = np.bincount(np.concatenate([county.arcs for county in known]), minlength=len(arcs))
    own = sorted({i for county in found for i in county.arcs})
    if len(found) > MOST_COUNTIES:
        of = defaultdict[int, set[str]](set)
        for county in known:
            for i in county.arcs:
                of[i].add(county.key[:2])
        own = [i for i in own if len(of[i]) > 1]
    return [arcs[i] for i in own if sides[i] > 1]


def county_names(found: Sequence[County]) -> list[dict[str, Any]]:
    """Counties as places, those of most people first."""
    known, of, shapes = titles(), states(), [county.shape for county in found]
    people = people_of(shapes).tolist()
    return [
        area(known.get(c.key, c.name), shape, "county", [c.name, c.key])
        | {"of": of.get(c.key[:2], ""), "people": n}
        for n, c, shape in sorted(zip(people, found, shapes), key=lambda row: -row[0])
    ]


def islands(box: Box) -> list[dict[str, Any]]:
    """Islands whose point lies in a box of degrees, as places; in the extent that the counties' shapes give them."""
    middle = (box[0] + box[2]) / 2
    shapes = [part for county in counties(box) for part in shapely.get_parts(county.shape)]
    parts = shapely.get_parts(shapely.union_all(shapes))  # an island may have several counties
    tree = shapely.STRtree(parts)
    out = []
    with ISLANDS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            lon, lat = float(row["lon"]), float(row["lat"])
            turned = float(continuous(np.array([lon]), middle)[0])
            if not (box[0] <= turned <= box[2] and box[1] <= lat <= box[3]):
                continue
            also = [name for name in row["also"].split("|") if name]
            for k in tree.query(shapely.Point(lon, lat), "within"):
                out.append(area(row["name"], parts[k], "island", also))
    return out

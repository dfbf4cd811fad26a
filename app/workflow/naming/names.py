"""What a page is given of names and lines: those in its region, no finer than its pixels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from pyproj.exceptions import ProjError
from shapely.geometry.base import BaseGeometry

from app.workflow.naming.brought import Brought
from app.workflow.naming.counties import County, between, counties, county_names, islands
from app.workflow.naming.towns import box_of, holds, towns
from app.workflow.page import PageGrid
from maps.grid import continuous
from maps.region import lines_of, places_of

Floats = NDArray[np.float64]
Box = tuple[float, float, float, float]

#: Vertices of all lines of a page.
MOST_VERTICES = 12_000
#: Towns of a part of a page, and lengths in its height that its lines do not tell apart.
MOST_CLOSER, CLOSER = 60, 1000
CREDIT, ATLAS_CREDIT = "GeoNames, CC BY 4.0", "U.S. Census Bureau, 2017"


@dataclass(frozen=True, eq=False)
class Names:
    """places : name, lon, lat, kind (town or area), `about` in words, `also` other spellings, `bounds` of an area;
    lines : of counties, [[lon, lat], ..] each; credit : whose they are"""

    places: list[dict[str, Any]]
    lines: list[list[list[float]]]
    credit: str = ""

    def document(self) -> dict[str, Any]:
        """JSON-able; `from_document` reads it."""
        return {"places": self.places, "lines": self.lines, "credit": self.credit}

    @classmethod
    def from_document(cls, document: Any) -> "Names":
        """What `document` made; KeyError, TypeError or ValueError of anything else."""
        places_of(document["places"])
        kinds = {place["kind"] for place in document["places"]}
        if not kinds <= {"town", "area"}:
            raise ValueError(f"places are towns or areas; got {kinds}")
        return cls(document["places"], lines_of(document["lines"]), str(document["credit"]))

    def figure(self, most: int) -> list[dict[str, Any]]:
        """For a picture that nobody can zoom: so many towns, the largest, and the areas."""
        known = [place for place in self.places if place["kind"] != "area"][:most]
        return [*known, *(place for place in self.places if place["kind"] == "area")]


def named(
    page: PageGrid, brought: Sequence[Brought] = (), towns_of: list[dict[str, Any]] | None = None
) -> Names:
    """What people bring, and islands, counties and towns of the region; without the counties where polygons are brought.
    The lines of counties that are brought are the atlas', which run along no coast.

    towns_of : the page's towns, where they are known already
    """
    try:
        box = box_of(page)
    except ProjError:
        return Names([place for part in brought for place in part.places], [])
    inside = [place for part in brought for place in part.places if _meets(place, box)]
    own = towns(page) if towns_of is None else towns_of
    shapes = [shape for part in brought for shape in part.shapes if _meets({"bounds": shape.bounds}, box)]
    around = _with_values(page, counties(box))
    isles = _on(page, islands(box)) if around else []
    if any(part.shapes for part in brought):
        county = all(place.get("about") == "county" for place in inside if place["kind"] == "area")
        places, borders = [*isles, *own], between(around) if county else _edges(shapes)
    else:
        places, borders = [*isles, *county_names(around), *own], between(around)
    credit = "; ".join([*([CREDIT] if own else []), *([f"counties: {ATLAS_CREDIT}"] if around else [])])
    known = {(place["name"], place["kind"]) for place in inside}  # a town and its county have one name
    pixel = (box[3] - box[1]) / page.geobox.height
    return Names(
        [*inside, *(p for p in places if (p["name"], p["kind"]) not in known)],
        _drawn(borders, box, pixel),
        credit,
    )


def closer(page: PageGrid, box: Box, brought: Sequence[Brought] = ()) -> Names:
    """Names and lines of a part of a page, W, S, E, N in degrees: more towns, and lines no coarser than the part."""
    around = _with_values(page, counties(box))
    shapes = [shape for part in brought for shape in part.shapes if _meets({"bounds": shape.bounds}, box)]
    county = all(
        place.get("about") == "county" for part in brought for place in part.places if place["kind"] == "area"
    )
    borders = between(around) if county or not shapes else _edges(shapes)
    return Names(towns(page, MOST_CLOSER, box), _drawn(borders, box, (box[3] - box[1]) / CLOSER))


def area_at(brought: Sequence[Brought], lat: float, lon: float) -> tuple[str, BaseGeometry] | None:
    """Name and polygon around a place: of those that were brought, else its county."""
    at = shapely.Point(lon, lat)
    for part in brought:
        for place, shape in zip(part.places, part.shapes):
            if shape.contains(at):
                return str(place["name"]), shape
    for county in counties((lon, lat, lon, lat)):
        if county.shape.contains(at):
            return county_names([county])[0]["name"], county.shape
    return None


def _meets(place: dict[str, Any], box: Box) -> bool:
    """Whether a place, or the box of an area, lies in a box of degrees or reaches into it."""
    w, s, e, n = place.get("bounds") or (place["lon"], place["lat"], place["lon"], place["lat"])
    turn = float(continuous(np.array([(w + e) / 2]), (box[0] + box[2]) / 2)[0] - (w + e) / 2)
    return bool(w + turn <= box[2] and e + turn >= box[0] and s <= box[3] and n >= box[1])


def _on(page: PageGrid, places: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those whose label lies on a pixel with a value."""
    at = np.array([(place["lon"], place["lat"]) for place in places]).reshape(-1, 2)
    return [place for place, held in zip(places, holds(page, at[:, 0], at[:, 1])) if held]


def _with_values(page: PageGrid, found: Sequence[County]) -> list[County]:
    """Counties in which a value of the page lies: the middle of a pixel, all of them asked at once; else, as in one that is
    smaller than pixels, see `_lies_in`."""
    shapes = [county.shape for county in found]
    rows, columns = np.nonzero(page.places[0])
    a = page.geobox.affine
    middles = np.column_stack([a.c + a.a * (columns + 0.5), a.f + a.e * (rows + 0.5)])
    lon, lat = page.run.to_degrees(middles)
    held = np.zeros(len(shapes), bool)
    held[shapely.STRtree(shapes).query(shapely.points(lon, lat), "within")[1]] = True
    return [c for c, shape, sure in zip(found, shapes, held) if sure or _lies_in(page, shape)]


def _lies_in(page: PageGrid, shape: BaseGeometry) -> bool:
    """Whether a value of the page lies in a polygon of degrees: of the pixels under a mesh of points, one has."""
    w, s, e, n = shape.bounds
    u, v = np.meshgrid(np.linspace(w, e, 40), np.linspace(s, n, 40))
    inside = shapely.contains_xy(shape, u.ravel(), v.ravel())
    return bool(holds(page, u.ravel()[inside], v.ravel()[inside]).any())


def _edges(shapes: Sequence[BaseGeometry]) -> list[Floats]:
    """The outlines of polygons, what two of them share once, cut where three meet."""
    rings = [
        shapely.get_coordinates(ring)
        for shape in shapes
        for ring in shapely.get_rings(shapely.get_parts(shape))
    ]
    if not rings:
        return []
    ends = np.concatenate([np.stack([ring[:-1], ring[1:]], axis=1) for ring in rings]).round(7)
    swapped = (ends[:, 0] > ends[:, 1])[:, 0] | (
        (ends[:, 0, 0] == ends[:, 1, 0]) & (ends[:, 0, 1] > ends[:, 1, 1])
    )
    ends[swapped] = ends[swapped, ::-1]
    segments = np.unique(ends.reshape(-1, 4), axis=0).reshape(-1, 2, 2)
    merged = shapely.line_merge(shapely.MultiLineString(list(segments)))
    return [shapely.get_coordinates(line) for line in shapely.get_parts(merged)]


def _drawn(lines: Sequence[Floats], box: Box, pixel: float) -> list[list[list[float]]]:
    """Lines as a page draws them: within its box, around its middle, no finer than half a pixel, of `MOST_VERTICES`."""
    middle, kept = (box[0] + box[2]) / 2, []
    for line in lines:
        own = (line[:, 0].min() + line[:, 0].max()) / 2
        kept.append(shapely.LineString(line + [continuous(np.array([own]), middle)[0] - own, 0.0]))
    cut = shapely.clip_by_rect(np.array(kept, object), *box)
    parts = shapely.get_parts(cut)
    parts = parts[shapely.length(parts) > pixel]
    fine = pixel / 2
    simple = shapely.simplify(parts, fine)
    while shapely.get_num_coordinates(simple).sum() > MOST_VERTICES and len(simple):
        fine *= 2
        simple = shapely.simplify(parts[shapely.length(parts) > fine], fine)
    return [shapely.get_coordinates(line).round(4).tolist() for line in simple]

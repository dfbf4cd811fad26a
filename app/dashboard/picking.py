"""One area that somebody draws on the map, or the county or hexagon around a place: its mean and shares, from joint draws.

The numbers, the words and the file are those of `geogp areas`; only that this run is open already.
"""

import hashlib
import json
import shlex
import shutil
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import h3
import numpy as np
import shapely
from shapely.geometry.base import BaseGeometry

from app.dashboard.areas import Found, Row, sentence
from app.dashboard.atlas import Atlas
from app.dashboard.holding import held
from app.dashboard.jobs import jobs
from app.dashboard.setting import Setting, place
from app.dashboard.words import plain
from app.errors import InvalidInput
from app.workflow.naming import area_at
from app.workflow.outputs import level_note, place_noun, shares_words
from app.workflow.polygons import Ground, in_plane, read_polygons
from app.workflow.steps.areas import areas
from geogp.targets import digits, target
from maps.grid import continuous

#: Corners of an area that is drawn.
FEWEST, MOST = 3, 200
#: Of H3: hexagons some 6.5 km across.
HEXAGON, ACROSS = 6, "6.5 km"
COUNTY, HEX = "county", "hexagon"
FILE = "area.geojson"
_one = threading.Lock()  # a joint posterior takes all cores


def told(atlas: Atlas, params: Mapping[str, str]) -> dict[str, Any]:
    """What the card of an area says.

    Parameters
    ----------
    params : `ring`, "lon,lat;lon,lat;..", or `pick` (county, hexagon) with lat and lon; of the setting q, level, t;
        with `other` and `ot` another run and its limit, either of which may be missed

    Returns
    -------
    name, said, facts [[name, words], ..], note, geometry (GeoJSON), file (its text), command

    Raises
    ------
    InvalidInput
        no area, none inside the region, a setting that is none.

    Notes
    -----
    The joint posterior of at most 2,000 points and 500 draws; the same question again is answered from memory.
    """
    name, shape = _asked(atlas, params)
    other = params.get("other", "")
    setting = atlas.choices.read(params)
    limit = None if not other else held(other).atlas().choices.read({"t": params.get("ot", "")}).threshold
    geometry = json.loads(shapely.to_geojson(shapely.set_precision(shape, 1e-6)))
    text = json.dumps(
        {
            "type": "FeatureCollection",
            "features": [{"type": "Feature", "properties": {"name": name}, "geometry": geometry}],
        }
    )
    with _one:
        found = _found(atlas, text, setting, other, limit)
    return {
        "name": name,
        "said": sentence(found, found.rows[0]),
        "facts": _facts(found, found.rows[0], setting, limit),
        "note": level_note(found.facts),
        "geometry": geometry,
        "file": text,
        "command": shlex.join(["geogp", *_line(atlas, setting, other, limit)]),
    }


def _asked(atlas: Atlas, params: Mapping[str, str]) -> tuple[str, BaseGeometry]:
    """The name and the polygon in degrees."""
    if params.get("ring"):
        return "Drawn area", _drawn(params["ring"])
    lat, lon = place(params)
    if params.get("pick") == HEX:
        edge = np.array(h3.cell_to_boundary(h3.latlng_to_cell(lat, lon, HEXAGON)))[:, ::-1]
        edge[:, 0] = continuous(edge[:, 0], lon)
        return f"Hexagon, {ACROSS} across", shapely.Polygon(edge)
    if params.get("pick") != COUNTY:
        raise InvalidInput(f"An area is a ring, a {COUNTY} or a {HEX}; got {params.get('pick', '')[:20]!r}.")
    found = area_at(atlas.brought, lat, lon)
    if found is None:
        raise InvalidInput(f"No county is known at {lat:.4f}, {lon:.4f}; draw the area, or pick a hexagon.")
    return found


def _drawn(text: str) -> BaseGeometry:
    """The polygon of a ring in an address."""
    corners = text.split(";")
    if not FEWEST <= len(corners) <= MOST:
        raise InvalidInput(f"An area has {FEWEST} to {MOST} corners; got {len(corners)}.")
    ring = [
        place(dict(zip(("lon", "lat"), (*corner.split(","), "", ""), strict=False))) for corner in corners
    ]
    xy = np.array([(lon, lat) for lat, lon in ring])
    xy[:, 0] = continuous(xy[:, 0], xy[0, 0])
    shape = shapely.Polygon(xy)
    if not shape.is_valid or not shape.area > 0:
        raise InvalidInput("The sides of the area cross each other; draw it without a crossing.")
    return shape


def _line(atlas: Atlas, setting: Setting, other: str, limit: float | None) -> list[str]:
    """The command that says the same of the file."""
    line = ["areas", str(atlas.run.path), "--areas", FILE, "-o", "area.gpkg"]
    line += ["--quarter", setting.quarter] if setting.quarter else []
    line += ["--level", digits(setting.level), "--thresholds", digits(setting.threshold)]
    if limit is not None:
        line += ["--with", str(held(other).path), "--below", digits(setting.threshold)]
        line += ["--with-below", digits(limit)]
    return line


@lru_cache(64)
def _found(atlas: Atlas, text: str, setting: Setting, other: str, limit: float | None) -> Found:
    """The table of one row."""
    work = jobs().folder / "areas" / hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    work.mkdir(parents=True, exist_ok=True)
    try:
        file = work / FILE
        file.write_text(text, "utf-8")
        (shape,) = in_plane(read_polygons(file), atlas.run)
        if Ground.of(atlas.run).part(shape) is None:
            raise InvalidInput("The area lies outside the mapped region.")
        result = areas(
            atlas.run,
            file,
            work / "area.gpkg",
            quarter=setting.quarter,
            level=setting.level,
            thresholds=[setting.threshold],
            beside=None if limit is None else held(other).atlas().run,
            either=(None, None) if limit is None else (setting.threshold, limit),
            overwrite=True,
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    row = result.table.drop(columns=result.table.geometry.name).to_dict("records")[0]
    return Found(result.facts, [Row("0", str(row["name"]), row, result.table.geometry.iloc[0])])


def _facts(found: Found, row: Row, setting: Setting, limit: float | None) -> Sequence[tuple[str, str]]:
    """Shares with their intervals, and what they rest on."""
    v, unit = row.values, "" if found.facts["unit"] == "1" else f" {found.facts['unit']}"

    def share(name: str) -> str:
        low, middle, high = (100 * v[f"{name}{end}"] for end in ("_lower", "", "_upper"))
        return f"{middle:.1f}% ({low:.1f} to {high:.1f})"

    noun = place_noun(target(found.facts["target"]))
    below, limited = f"below_{digits(setting.threshold)}", f"{shares_words(found.facts)[0]}{unit}"
    facts = [(f"Ground with a {limited}", share(f"share_{below}"))]
    if limit is not None:
        facts.append(("Ground where either limit is missed", share("share_either_missed")))
    if v.get("n_tiles"):
        facts.append((f"Measured {noun}s with a {limited}", share(f"tiles_share_{below}")))
        facts.append((f"Measured {noun}s", f"{v['n_tiles']:,.0f}"))
    facts.append(("Ground with data near", f"{100 * v['share_near']:.0f}%"))
    facts.append(("Ground averaged", f"{plain(v['area_km2'])} km²"))
    return facts

"""What a page is made of: layers with legends and words, region and names as JSON, and planes as `maps.packing` packs them.

A page shows a Dataset's own planes (`of_values`), or computes every layer, level, threshold and number of tests itself
from the distributions of a quarter (`of_distributions`, with `maps.packing.packs_of`); its script is the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import shapely
import xarray as xr
from jaxtyping import Bool
from odc.geo.geobox import GeoBox

from maps.bands import Band, bands, colours_of, count_open, list_order, subject, templates
from maps.colours import Scale, Suppressing, scales, suppressing, table
from maps.grid import geobox_of
from maps.layers import GROUPS, LAYERS, MEASURED, WITHIN, Layer
from maps.mercator import MercatorGrid, mercator_grid
from maps.packing import STEPS, base64_of, pack, short
from maps.region import Lines, around, lines_of, places_of, polygon
from maps.render import frame
from maps.words import (
    heading_text,
    level_text,
    new_text,
    place_text,
    quarter_of,
    subtitle,
    surface_text,
    target_text,
    target_unit,
)

#: Layers that the page's script computes from distributions, as `maps/page/planes.js` has them.
COMPUTED = (
    "median",
    "within",
    "exceedance",
    "measured",
    "lower",
    "upper",
    "pi_width",
    "explained",
    "latent_median",
    "latent_lower",
    "latent_upper",
    "latent_sd",
    "noise_sd",
)
LEVELS = (0.5, 0.8, 0.95)
#: The largest threshold that anybody may ask for, as large as values may be, and the least of a target that is positive.
MOST, LEAST = 1e100, 1e-100
#: Of a slice, in the dashboard: its legend comes with it.
SIMILAR = {
    "id": "similar",
    "title": "Correlation with the marked place",
    "short": "Similar to here",
    "plain": "Similar to here",
    "about": "how closely the model thinks the surface goes with the surface at the marked place, before data",
    "unit": "",
    "group": "",
    "palette": "vik",
    "scale": {"low": 0.0, "high": 1.0, "kind": "linear"},
    "ticks": [],
}
#: Of two runs, in the dashboard: their words come with the second.
EITHER = {
    "id": "either",
    "title": "Chance that either limit is missed",
    "short": "Chance that either limit is missed",
    "plain": "Chance that either limit is missed",
    "about": "the surface of one run or of the other misses its limit",
    "unit": "",
    "group": "",
    "palette": LAYERS["either_missed"].colours,
    "scale": {"low": 0.0, "high": 1.0, "kind": "linear"},
    "ticks": [(k / 4, f"{25 * k}%") for k in range(5)],
}


def of_values(
    ds: xr.Dataset,
    inside: Bool[np.ndarray, "H W"],
    *,
    geometry: Mapping[str, Any] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
    lines: Lines = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
    note: str = "",
    credit: str = "",
) -> tuple[dict[str, Any], list[bytes]]:
    """The page of a Dataset in memory: what its script needs, as JSON-able values, and its planes."""
    planes = bands(ds, derive=False)
    known = np.any([np.isfinite(b.of(ds).values) for b in planes], axis=0)
    legend = scales(ds, planes, limits)
    layers, readout, seen = [], {}, set()
    for band in sorted(planes, key=list_order):
        if band.key in seen:
            continue
        seen.add(band.key)
        own = [b for b in planes if b.key == band.key]
        entry = _entry(ds, band.key, legend[band.layer.quantity], band.unit_text)
        if band.threshold is None:
            entry["plane"] = band.name
        else:
            entry["planes"] = {short(b.threshold or 0.0): b.name for b in own}
        layers.append(entry)
        if band.key in ("median", "lower", "upper", "exceedance"):
            readout[band.key] = entry
    thresholds = [float(b.threshold) for b in planes if b.threshold is not None]
    level = float(ds.attrs.get("level", 0.95))
    tests = ds.attrs.get("tests")
    faded = suppressing(ds, legend["level"]) if "median" in readout else None
    spec = {
        **_about(
            ds, geobox_of(ds), known if geometry is None else inside, geometry, places, lines, note, credit
        ),
        "title": str(ds.attrs.get("title") or planes[0].title),
        "layers": _in_order(ds, layers),
        "hidden": readout,
        "ends": {key: readout[key] for key in ("lower", "upper") if key in readout},
        "fade": None if faded is None else _fade(faded),
        "palettes": _palettes(layers),
        "settings": {
            "quarters": [],
            "counts": [] if tests is None else [float(tests)],
            "levels": [level] if any(b.layer.by_level for b in planes) else [],
            "thresholds": list(dict.fromkeys(thresholds)),
            "free": False,
            **_bounds(ds),
        },
        "start": {
            "q": quarter_of(ds) or None,
            "n": None if tests is None else float(tests),
            "level": level,
            "t": thresholds[-1] if thresholds else 0.0,
        },
        "subtitle": subtitle(ds, **subject(planes)),
        "hatched": geometry is not None and bool((inside & ~known).any()),
    }
    packed = {b.name: _plane(b.of(ds).values[known], b.layer) for b in planes}
    return spec, [pack(known, packed, {})]


def of_distributions(
    ds: xr.Dataset,
    geobox: GeoBox,
    known: Bool[np.ndarray, "H W"],
    *,
    legend: Mapping[str, Scale],
    faded: Suppressing | None,
    quarters: Sequence[str],
    counts: Sequence[float],
    thresholds: Sequence[float],
    geometry: Mapping[str, Any] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
    lines: Lines = (),
    note: str = "",
    credit: str = "",
    added: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """The page of distributions, but for their planes: see `maps.packing.packs_of`.

    Parameters
    ----------
    ds : whose attributes say what is mapped (`app.workflow.distributions`)
    geobox, known : the grid of the planes, and where it has values
    legend : quantity -> scale, for every quarter, level and threshold
    faded : the value-suppressing palette of the median, or None
    quarters, counts, thresholds : to choose from; `ds.attrs` says which quarter, count and level it starts with
    credit : whose `places` and `lines` are
    added : further layers, see `as_it_is`
    """
    unit, layers = target_unit(ds), []
    level = float(ds.attrs.get("level", 0.95))
    for key in COMPUTED:
        layer = _layer_of(key)
        if layer.quantity in legend:
            of_target = layer.quantity in ("level", "ends", "width")
            own = unit if of_target else layer.unit if key == "measured" else ""
            scale = legend[layer.quantity]
            if key == "within":  # the page's factor reaches both ends of skewed intervals
                scale = replace(scale, above=True)
            layers.append({**_entry(ds, key, scale, own), "formula": key})
    known_ids = {layer["id"]: layer for layer in layers}
    tests = ds.attrs.get("tests")
    return {
        **_about(ds, geobox, known, geometry, places, lines, note, credit),
        "title": str(ds.attrs.get("title") or target_text(ds)),
        "layers": _in_order(ds, [*layers, *added]),
        "hidden": {},
        "ends": {
            key: known_ids.get(key, {"id": key, "formula": key, "scale": None}) for key in ("lower", "upper")
        },
        "fade": None if faded is None else _fade(faded),
        "palettes": _palettes([*layers, *added]),
        "settings": {
            "quarters": list(quarters),
            "counts": [float(n) for n in counts],
            "levels": sorted({*LEVELS, level}),
            "thresholds": [float(t) for t in thresholds],
            "free": True,
            **_bounds(ds),
        },
        "start": {
            "q": quarter_of(ds) or None,
            "n": None if tests is None or not len(counts) else float(tests),
            "level": level,
            "t": float(thresholds[-1]),
        },
        "subtitle": subtitle(ds),
        "hatched": False,
    }


# -- layers ------------------------------------------------------------------------------------------------


def _layer_of(key: str) -> Layer:
    return {"within": WITHIN, "measured": MEASURED}.get(key) or LAYERS[key]


def _entry(ds: xr.Dataset, key: str, scale: Scale, unit: str) -> dict[str, Any]:
    """A layer of the list with its legend; its words have places for level, tail, threshold and tests."""
    layer = _layer_of(key)
    title, short, about = templates(ds, layer)
    new = f"new {count_open(ds)}" if ds.attrs.get("tests") is not None else ""
    of = f"the level of {surface_text(ds)}" if layer.of_surface else new
    plain = {
        "median": heading_text(ds),
        "within": "How sure",
        "exceedance": "Chance above {threshold}" + (f" {target_unit(ds)}" if target_unit(ds) else ""),
        "measured": short,
    }.get(key)
    return {
        "id": key,
        "title": title,
        "short": short,
        "plain": plain,
        "about": about,
        "of": "" if key == "measured" else of,
        "unit": unit,
        "group": layer.group,
        "by_level": layer.by_level,
        "fades": key == "median",
        "factor": key == "within",
        "timeless": key == "measured",
        "palette": colours_of(ds, key) if key in LAYERS else layer.colours,
        "scale": {"low": scale.low, "high": scale.high, "kind": scale.kind},
        "ticks": _ticks(scale, factor=key == "within"),
    }


def _ticks(scale: Scale, *, factor: bool = False) -> list[tuple[float, str]]:
    """Marks of a legend as the page says values: a share in percent, a factor as ×3, its ends `≤×2` and `≥×10`.

    >>> _ticks(Scale(0.0, 1.0))[:2], _ticks(Scale(2.0, 10.0, "log", above=True), factor=True)[-1]
    ([(0.0, '0%'), (0.2, '20%')], (1.0, '≥×10'))
    """
    if (scale.low, scale.high) == (0.0, 1.0):
        return [(round(at, 4), f"{100 * at:.4g}%") for at, _ in scale.labels(7)]
    mark = "×" if factor else ""
    return [
        (round(at, 4), text[:1] + mark + text[1:] if text[:1] in "≤≥" else mark + text)
        for at, text in scale.labels(7)
    ]


def as_it_is(band: Band, scale: Scale, of: str) -> dict[str, Any]:
    """A layer of a page of distributions that its script does not compute: its plane as it is, whatever is chosen."""
    return {
        "id": band.key,
        "plane": band.key,
        "title": band.title,
        "short": band.short,
        "plain": None,
        "about": band.about,
        "of": of,
        "unit": band.unit_text,
        "group": band.layer.group,
        "by_level": False,
        "fades": False,
        "factor": False,
        "timeless": False,
        "palette": band.colours,
        "scale": {"low": scale.low, "high": scale.high, "kind": scale.kind},
        "ticks": _ticks(scale),
    }


def _in_order(ds: xr.Dataset, layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those in plain words first; without a factor the width says how sure."""
    known = {layer["id"]: layer for layer in layers}
    if "within" not in known and "pi_width" in known:
        known["pi_width"]["plain"] = "How sure"
    first = [known[k] for k in ("median", "within", "pi_width", "exceedance", "measured") if k in known]
    first = [layer for layer in first if layer["plain"]]
    groups = [*GROUPS, *{layer["group"] for layer in layers} - set(GROUPS)]
    rest = [layer for layer in layers if layer not in first]
    return first + sorted(rest, key=lambda layer: groups.index(layer["group"]))


def _fade(faded: Suppressing) -> dict[str, Any]:
    texts = faded.edge_texts()
    how = " (×3: a factor of 3 either way)" if faded.ratio else " (upper less lower end)"
    return {
        "ratio": faded.ratio,
        "edges": faded.edges,
        "words": [f"< {texts[0]}", f"< {texts[1]}", f"< {texts[2]}", f"≥ {texts[2]}"],
        "palette": faded.palette(),
        "about": f"paler, in fewer colours, where the {{level}} prediction interval is wide{how}",
    }


def _palettes(layers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    names = dict.fromkeys([*(layer["palette"] for layer in layers), SIMILAR["palette"], EITHER["palette"]])
    return {str(name): base64_of(table(str(name)).tobytes()) for name in names}


def _plane(values: Any, layer: Layer) -> Any:
    ends = layer.limits if layer.steps and layer.limits else None
    return (values, layer.scale, layer.steps or STEPS, ends)


def _bounds(ds: xr.Dataset) -> dict[str, Any]:
    """What a threshold may be: said once, for the page's field and its address."""
    positive = not str(ds.attrs.get("target_scale", "")).startswith("the value itself")
    return {"positive": positive and "target_scale" in ds.attrs, "least": LEAST, "most": MOST}


# -- around them -------------------------------------------------------------------------------------------


def _about(
    ds: xr.Dataset,
    box: GeoBox,
    shown: Bool[np.ndarray, "H W"],
    geometry: Mapping[str, Any] | None,
    places: Sequence[Mapping[str, Any]],
    lines: Lines,
    note: str,
    credit: str = "",
) -> dict[str, Any]:
    """Grid, region, names and words that every page has."""
    grid = _mercator(box)
    places_of(places)  # refuses what is none
    return {
        "note": note[:1].upper() + note[1:],
        "facts": _facts(ds, credit),
        "grid": {"width": box.shape[1], "height": box.shape[0]},
        "mesh": _mesh(grid),
        "focus": _focus(grid, shown),
        "region": _region(geometry, grid.bounds_lonlat, grid.pixel_m),
        "places": [dict(place) for place in places],
        "lines": lines_of(lines),
        "unit": target_unit(ds),
        "log": str(ds.attrs.get("target_scale", "")).startswith("log"),
        "averages": "{tests}" in count_open(ds),
        "counted": "test" if place_text(ds) == "tile" else "measurement",
        "place": place_text(ds),
        "far_km": None,
        "coverage": None,
        "pages": [],
        "server": None,
        "data": [],
    }


def _mercator(box: GeoBox) -> MercatorGrid:
    """The picture's own grid, finer than the values, so that coasts stay lines: 1.5 to 6 times along a side."""
    finer = float(np.clip(np.sqrt(1_200_000 / (box.shape[0] * box.shape[1])), 1.5, 6))
    return mercator_grid(box, oversample=finer, max_pixels=3_000_000)


def region_of(geometry: Mapping[str, Any] | None, box: GeoBox) -> dict[str, Any] | None:
    """The region as a picture of a grid shows it, GeoJSON."""
    grid = _mercator(box)
    return _region(geometry, grid.bounds_lonlat, grid.pixel_m)


def picture_grid(box: GeoBox) -> dict[str, Any]:
    """What the page's script needs to paint planes on other pixels than its own."""
    return {"grid": {"width": box.shape[1], "height": box.shape[0]}, "mesh": _mesh(_mercator(box))}


def _mesh(grid: MercatorGrid) -> dict[str, Any]:
    """The picture's rectangle in Mercator metres, its size, and the way from it to the pixels of the planes."""
    col, row = grid.mesh()
    right = grid.left + grid.pixel_m * grid.shape[1]
    bottom = grid.top - grid.pixel_m * grid.shape[0]
    return {
        "n": col.shape[0],
        "bounds": [grid.left, grid.top, right, bottom],
        "width": grid.shape[1],
        "height": grid.shape[0],
        "col": base64_of(np.nan_to_num(col, nan=-1e9).astype("<f4").tobytes()),
        "row": base64_of(np.nan_to_num(row, nan=-1e9).astype("<f4").tobytes()),
    }


def _facts(ds: xr.Dataset, credit: str = "") -> list[tuple[str, str]]:
    """Lines of `About this map`."""
    facts = [("What", target_text(ds))]
    for name, key in (("Method", "method"), ("Source", "source"), ("Licence", "license")):
        if ds.attrs.get(key) not in (None, ""):
            facts.append((name, str(ds.attrs[key])))
    if ds.attrs.get("tests") is not None:
        facts.append(("Describes", f"new {new_text(ds)}, {level_text(ds)} intervals at first"))
    if ds.attrs.get("calibration"):
        facts.append(("Calibration", str(ds.attrs["calibration"])))
    if credit:
        facts.append(("Names and lines", credit))
    return [*facts, ("Made with", "GeoGP, Leaflet 1.9.4")]


def _region(
    geometry: Mapping[str, Any] | None, bounds: tuple[float, float, float, float], pixel_m: float
) -> dict[str, Any] | None:
    """The region for drawing: in one piece across the antimeridian, no finer than half a pixel."""
    if geometry is None:
        return None
    shape = around(polygon(geometry), (bounds[0] + bounds[2]) / 2)
    simple = shapely.simplify(shape, 0.5 * pixel_m / 111_320)
    region: dict[str, Any] = json.loads(
        shapely.to_geojson(shapely.set_precision(simple if not simple.is_empty else shape, 1e-5))
    )
    return region


def _focus(grid: MercatorGrid, shown: Bool[np.ndarray, "H W"]) -> list[list[float]]:
    """[[south, west], [north, east]] of the window the map opens on."""
    w, _ = frame(shown)
    west, south, east, north = mercator_grid(grid.source[w.y0 : w.y1, w.x0 : w.x1]).bounds_lonlat
    turn = 360 * round(((grid.bounds_lonlat[0] + grid.bounds_lonlat[2]) / 2 - (west + east) / 2) / 360)
    return [[south, west + turn], [north, east + turn]]


def safe_json(value: Any) -> str:
    """JSON that nothing around it can take for markup, a template or the end of a script.

    >>> safe_json("</script>${x}`{{y}}")
    '"\\\\u003c/script\\\\u003e\\\\u0024\\\\u007bx}\\\\u0060\\\\u007b\\\\u007by}}"'
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for plain in "<>&`":
        text = text.replace(plain, f"\\u{ord(plain):04x}")
    return text.replace("${", "\\u0024\\u007b").replace("{{", "\\u007b\\u007b").replace("{%", "\\u007b%")

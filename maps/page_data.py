"""What a page of one file holds: layers as quantised planes, legends, region and words, as JSON."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import shapely
import xarray as xr
from jaxtyping import Bool, Num
from numpy.typing import NDArray

from maps.bands import Band, bands, list_order, subject
from maps.colours import FADED, Scale, scales, suppressing, table
from maps.grid import geobox_of
from maps.layers import Layer
from maps.mercator import MercatorGrid, mercator_grid
from maps.region import around, places_of, polygon
from maps.render import frame
from maps.words import level_text, number, subtitle, target_text

STEPS = 4094  # codes of a plane: 0.2% of a value over three decades


def page_data(
    ds: xr.Dataset,
    inside: Bool[np.ndarray, "H W"],
    *,
    geometry: Mapping[str, Any] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
    note: str = "",
) -> dict[str, Any]:
    """Everything the page's script needs, as JSON-able values, from a Dataset in memory."""
    planes = bands(ds, derive=False)
    box = geobox_of(ds)
    # The picture is finer than the values, so that coasts stay lines: 1.5 to 6 times along a side.
    finer = float(np.clip(np.sqrt(1_200_000 / (box.shape[0] * box.shape[1])), 1.5, 6))
    grid = mercator_grid(box, oversample=finer, max_pixels=3_000_000)
    known = np.any([np.isfinite(b.of(ds).values) for b in planes], axis=0)
    hatched = geometry is not None and bool((inside & ~known).any())
    return {
        "title": str(ds.attrs.get("title") or planes[0].title),
        "subtitle": subtitle(ds, **subject(planes)),
        "note": note[:1].upper() + note[1:],
        "facts": _facts(ds),
        "grid": {"width": box.shape[1], "height": box.shape[0]},
        "mesh": _mesh(grid),
        "planes": {b.name: quantise(b.of(ds).values, b.layer) for b in planes},
        "palettes": {
            name: base64_of(table(name).tobytes()) for name in dict.fromkeys(b.colours for b in planes)
        },
        "layers": _layers(ds, planes, scales(ds, planes, limits)),
        "readout": _readout(ds, planes),
        "focus": _focus(grid, known if geometry is None else inside),
        "region": _region(geometry, grid.bounds_lonlat, grid.pixel_m),
        "inside": base64_of(zlib.compress(inside.astype(np.uint8).tobytes(), 9)) if hatched else None,
        "hatched": hatched,
        "places": [{"name": name, "lon": lon, "lat": lat} for name, lon, lat in places_of(places)],
    }


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


def _layers(ds: xr.Dataset, planes: Sequence[Band], legend: Mapping[str, Scale]) -> list[dict[str, Any]]:
    """The list of layers with their legends, the faded median after the median."""
    layers: list[dict[str, Any]] = []
    for band in sorted(planes, key=list_order):
        scale = legend[band.layer.quantity]
        layers.append(_layer(band, scale))
        if band.name == "median" and (faded := _faded(ds, band, scale)):
            layers.append(faded)
    return layers


def _readout(ds: xr.Dataset, planes: Sequence[Band]) -> dict[str, Any]:
    """What the value at a place is told with."""
    names = {b.name for b in planes}
    return {
        "median": "median" in names,
        "interval": {"lower", "upper"} <= names,
        "exceedance": [
            (number(b.threshold), b.name) for b in planes if b.key == "exceedance" and b.threshold is not None
        ],
        "unit": next((b.unit_text for b in planes if b.key == "median"), ""),
        "level": level_text(ds),
    }


def quantise(values: Num[np.ndarray, "H W"], layer: Layer) -> dict[str, Any]:
    """A plane as integer codes: 0 no value, 1..steps evenly (on a log or linear scale) between low and high.

    The codes' row differences are stored as a plane of high bytes and one of low bytes, deflated, in base64.
    With 4,094 steps over three decades a value comes back within 0.1%.
    """
    v = np.asarray(values, dtype=np.float64)
    finite = v[np.isfinite(v)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    steps = layer.steps or STEPS
    if layer.steps and layer.limits:
        low, high = min(low, layer.limits[0]), max(high, layer.limits[1])
    kind = "log" if layer.scale == "log" and low > 0 else "linear"
    if high <= low:
        high = low * 1.001 if low > 0 else low + 1.0
    t = Scale(low, high, kind).fraction(v).astype(np.float64)
    codes = np.where(np.isnan(v), 0, 1 + np.rint(np.nan_to_num(t) * (steps - 1))).astype(np.uint16)
    deltas = np.diff(codes, axis=1, prepend=np.uint16(0)).astype(np.uint16)
    packed = (deltas >> 8).astype(np.uint8).tobytes() + (deltas & 255).astype(np.uint8).tobytes()
    return {
        "low": low,
        "high": high,
        "kind": kind,
        "steps": steps,
        "data": base64_of(zlib.compress(packed, 9)),
    }


def _layer(band: Band, scale: Scale) -> dict[str, Any]:
    return {
        "id": band.name,
        "plane": band.name,
        "title": band.title,
        "short": band.short,
        "about": band.about,
        "unit": band.unit_text,
        "group": band.layer.group,
        "palette": band.colours,
        "scale": {"low": scale.low, "high": scale.high, "kind": scale.kind},
        "ticks": [(round(where, 4), text) for where, text in scale.labels(8)],
    }


def _faded(ds: xr.Dataset, band: Band, scale: Scale) -> dict[str, Any] | None:
    """The median under a value-suppressing palette, as a layer of its own."""
    palette = suppressing(ds, scale)
    if palette is None:
        return None
    texts = palette.edge_texts()
    how = "upper end / lower end" if palette.ratio else "upper end - lower end"
    words = [f"< {texts[0]}", f"< {texts[1]}", f"< {texts[2]}", f"≥ {texts[2]}"]
    return _layer(band, scale) | {
        "id": FADED,
        "title": f"{band.title}, fading as its interval widens",
        "short": "Median, faded by its interval",
        "about": f"fewer, paler colours where the {level_text(ds)} prediction interval ({how}) is wide",
        "suppress": {
            "ratio": palette.ratio,
            "edges": palette.edges,
            "words": words,
            "palette": palette.palette(),
        },
    }


def _facts(ds: xr.Dataset) -> list[tuple[str, str]]:
    """Lines of `About this map`."""
    facts = [("What", target_text(ds))]
    for name, key in (("Quarter", "quarter"), ("Tests", "tests"), ("Method", "method"), ("Source", "source")):
        if ds.attrs.get(key) not in (None, ""):
            facts.append((name, str(ds.attrs[key])))
    facts.append(("Interval", level_text(ds)))
    if ds.attrs.get("calibration"):
        facts.append(("Calibration", str(ds.attrs["calibration"])))
    return [*facts, ("Made with", "GeoGP, Leaflet 1.9.4")]


def _region(
    geometry: Mapping[str, Any] | None, bounds: tuple[float, float, float, float], pixel_m: float
) -> dict[str, Any] | None:
    """The region for drawing: in one piece across the antimeridian, no finer than half a pixel."""
    if geometry is None:
        return None
    shape = around(polygon(geometry), (bounds[0] + bounds[2]) / 2)
    simple = shapely.simplify(shape, 0.5 * pixel_m / 111_320)
    return json.loads(
        shapely.to_geojson(shapely.set_precision(simple if not simple.is_empty else shape, 1e-5))
    )


def _focus(grid: MercatorGrid, shown: NDArray[np.bool_]) -> list[list[float]]:
    """[[south, west], [north, east]] of the window the map opens on."""
    w, _ = frame(shown)
    west, south, east, north = mercator_grid(grid.source[w.y0 : w.y1, w.x0 : w.x1]).bounds_lonlat
    turn = 360 * round(((grid.bounds_lonlat[0] + grid.bounds_lonlat[2]) / 2 - (west + east) / 2) / 360)
    return [[south, west + turn], [north, east + turn]]


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def safe_json(value: Any) -> str:
    """JSON that nothing around it can take for markup, a template or the end of a script.

    >>> safe_json("</script>${x}`{{y}}")
    '"\\\\u003c/script\\\\u003e\\\\u0024\\\\u007bx}\\\\u0060\\\\u007b\\\\u007by}}"'
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for plain in "<>&`":
        text = text.replace(plain, f"\\u{ord(plain):04x}")
    return text.replace("${", "\\u0024\\u007b").replace("{{", "\\u007b\\u007b").replace("{%", "\\u007b%")

"""One HTML file that is a map: layers, legend and read-out, with no request to anywhere.

folium builds the page around a vendored Leaflet; the values travel inside it, quantised and deflated on the
prediction's own grid, and the browser warps them to Web Mercator through a mesh. So a read-out tells the value of
the model's own pixel, and a layer switch is a repaint.

Strings from the data reach the page as JSON only, with every character that HTML, JavaScript or a template could
take for its own escaped, and are set as text; a Content-Security-Policy lets only this page's own scripts run.
"""

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import folium
import numpy as np
import shapely
import xarray as xr
from branca.element import Element, Figure, MacroElement
from jinja2 import Template
from numpy.typing import NDArray

from maps.atomic import refuse_existing, replacing
from maps.colours import Scale, scales, suppressing, table
from maps.grid import geobox_of
from maps.layers import Band, bands, level_text, number, subtitle, target_text
from maps.mercator import MercatorGrid, mercator_grid
from maps.region import around, places_of, polygon
from maps.render import bleed, frame, in_memory

HERE = Path(__file__).parent
LEAFLET_JS = HERE / "vendor" / "leaflet-1.9.4.js"
LEAFLET_CSS = HERE / "vendor" / "leaflet-1.9.4.css"

FIRST = ("median", "exceedance", "pi_width", "lower", "upper", "explained", "noise_sd", "latent_sd")
GROUPS = ("What to expect", "How likely", "How sure", "The surface itself", "Kernel slice")
STEPS = {
    "probability": 1001,
    "share": 1001,
}  # codes per plane; others 4094, 0.2% of a value over three decades
HATCH = (
    '<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>'
    '<pattern id="gg-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#f7f8fa"/><rect width="1.6" height="6" fill="#b4bdc8"/></pattern></defs></svg>'
)


def html_map(
    ds: xr.Dataset,
    *,
    geometry: Mapping[str, Any] | None = None,
    layers: Iterable[str] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
    max_pixels: int = 300_000,
    title: str | None = None,
) -> str:
    """A self-contained page: map, layer switch, legend, read-out in words.

    Parameters
    ----------
    ds : prediction Dataset, lazy or in memory; only the pixels drawn are computed
    geometry : GeoJSON polygon in EPSG:4326: the region, drawn as outline; None for no outline
    layers : names; None for the layers most people ask for
    places : {"name", "lon", "lat"} labels, for example towns
    limits : quantity -> (low, high) to hold a legend fixed between maps
    max_pixels : pixels embedded; more are thinned by taking every k-th (never averaged)
    title : None for the Dataset's own

    Returns
    -------
    HTML; about 0.2 MB and 1 byte per pixel and layer

    Raises
    ------
    InvalidInput : unknown layer, or a region that is not a polygon in degrees

    Examples
    --------
    >>> Path("map.html").write_text(html_map(ds))       # doctest: +SKIP
    """
    page = folium_map(
        ds, geometry=geometry, layers=layers, places=places, limits=limits, max_pixels=max_pixels, title=title
    )
    return str(page.get_root().render())


def write_html(ds: xr.Dataset, path: str | Path, *, overwrite: bool = False, **options: Any) -> Path:
    """`html_map` into a file, atomically. InvalidInput if it exists and `overwrite` is not set."""
    path = Path(path)
    refuse_existing(path, overwrite)
    text = html_map(ds, **options)
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
    return path


def folium_map(
    ds: xr.Dataset,
    *,
    geometry: Mapping[str, Any] | None = None,
    layers: Iterable[str] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
    max_pixels: int = 300_000,
    title: str | None = None,
) -> folium.Map:
    """The same map as a `folium.Map`, for a notebook. Parameters as `html_map`.

    Whatever else is added to it obeys the page's policy: nothing may be fetched from outside.
    """
    if layers is None:
        present = [b.name for key in FIRST for b in bands(ds) if b.key == key]
        layers = present or None
    small, inside = in_memory(ds, geometry=geometry, layers=layers, max_pixels=max_pixels)
    if geometry is not None:
        small = bleed(small, inside)
    spec = page_data(small, inside, geometry=geometry, places=places, limits=limits)
    spec["title"] = title or spec["title"]
    west, south, east, north = mercator_grid(geobox_of(small)).bounds_lonlat
    page = folium.Map(
        location=[(south + north) / 2, (west + east) / 2],
        tiles=None,
        zoom_start=7,
        control_scale=True,
        min_zoom=1,
        max_zoom=16,
        zoom_snap=0.25,
        zoom_delta=0.5,
    )
    page._id = "geogp"  # the same bytes for the same data
    page.default_js, page.default_css = [], []
    page.add_child(_Page(spec), name="geogp_page")
    root = SafeFigure(height="600px", title=html.escape(str(spec["title"])))
    root.add_child(page, name="geogp_map")
    return page


def page_data(
    ds: xr.Dataset,
    inside: NDArray[np.bool_],
    *,
    geometry: Mapping[str, Any] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, Any]:
    """Everything the page's script needs, as JSON-able values, from a Dataset in memory."""
    planes = bands(ds)
    box = geobox_of(ds)
    # The picture is finer than the values, so that coasts stay lines: 1.5 to 6 times along a side.
    finer = float(np.clip(np.sqrt(1_200_000 / (box.shape[0] * box.shape[1])), 1.5, 6))
    grid = mercator_grid(box, oversample=finer, max_pixels=3_000_000)
    col, row = grid.mesh()
    right = grid.left + grid.pixel_m * grid.shape[1]
    bottom = grid.top - grid.pixel_m * grid.shape[0]
    legend = scales(ds, planes, limits)
    names = {b.name for b in planes}
    exceed = [(number(b.threshold), b.name) for b in planes if b.threshold is not None]
    first = planes[0]
    unit = next((b.unit_text for b in planes if b.key == "median"), "")
    layers: list[dict[str, Any]] = []
    for band in sorted(
        planes, key=lambda b: (GROUPS.index(b.layer.group), FIRST.index(b.key) if b.key in FIRST else 99)
    ):
        layers.append(_layer(band, legend[band.layer.quantity]))
        if band.name == "median" and (faded := _faded(ds, band, legend[band.layer.quantity])):
            layers.append(faded)
    known = np.any([np.isfinite(b.of(ds).values) for b in planes], axis=0)
    hatched = geometry is not None and bool((inside & ~known).any())
    return {
        "title": str(ds.attrs.get("title") or first.title),
        "subtitle": subtitle(ds),
        "facts": _facts(ds),
        "grid": {"width": box.shape[1], "height": box.shape[0]},
        "mesh": {
            "n": col.shape[0],
            "bounds": [grid.left, grid.top, right, bottom],
            "width": grid.shape[1],
            "height": grid.shape[0],
            "col": _base64(np.nan_to_num(col, nan=-1e9).astype("<f4").tobytes()),
            "row": _base64(np.nan_to_num(row, nan=-1e9).astype("<f4").tobytes()),
        },
        "planes": {b.name: quantise(b.of(ds).values, b.layer.scale, b.layer.quantity) for b in planes},
        "palettes": {name: _base64(table(name).tobytes()) for name in {b.layer.colours for b in planes}},
        "layers": layers,
        "readout": {
            "median": "median" in names,
            "interval": {"lower", "upper"} <= names,
            "exceedance": exceed,
            "unit": unit,
            "level": level_text(ds),
        },
        "focus": _focus(grid, known if geometry is None else inside),
        "region": _outline(geometry, grid.bounds_lonlat, grid.pixel_m),
        "inside": _base64(zlib.compress(inside.astype(np.uint8).tobytes(), 9)) if hatched else None,
        "hatched": hatched,
        "places": [{"name": name, "lon": lon, "lat": lat} for name, lon, lat in places_of(places)],
    }


def quantise(values: NDArray[Any], kind: str, quantity: str = "") -> dict[str, Any]:
    """A plane as integer codes: 0 no value, 1..steps evenly (on a log or linear scale) between low and high.

    The codes' row differences are stored as a plane of high bytes and one of low bytes, deflated, in base64.
    With 4,094 steps over three decades a value comes back within 0.1%.
    """
    v = np.asarray(values, dtype=np.float64)
    finite = v[np.isfinite(v)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    steps = STEPS.get(quantity, 4094)
    if quantity in STEPS:
        low, high = min(low, 0.0), max(high, 1.0)
    kind = "log" if kind == "log" and low > 0 else "linear"
    if high <= low:
        high = low * 1.001 if low > 0 else low + 1.0
    t = Scale(low, high, kind).fraction(v).astype(np.float64)
    codes = np.where(np.isnan(v), 0, 1 + np.rint(np.nan_to_num(t) * (steps - 1))).astype(np.uint16)
    deltas = np.diff(codes, axis=1, prepend=np.uint16(0)).astype(np.uint16)
    packed = (deltas >> 8).astype(np.uint8).tobytes() + (deltas & 255).astype(np.uint8).tobytes()
    return {"low": low, "high": high, "kind": kind, "steps": steps, "data": _base64(zlib.compress(packed, 9))}


def _layer(band: Band, scale: Scale) -> dict[str, Any]:
    return {
        "id": band.name,
        "plane": band.name,
        "title": band.title,
        "short": band.short,
        "about": band.about,
        "unit": band.unit_text,
        "group": band.layer.group,
        "palette": band.layer.colours,
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
        "id": "faded",
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


def _outline(
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


def _base64(data: bytes) -> str:
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


class _Page(MacroElement):
    """Our style, data and script inside a folium map."""

    _template = Template(
        """
        {% macro header(this, kwargs) %}
        <style>{{ this.css }}</style>
        {% endmacro %}
        {% macro html(this, kwargs) %}
        {{ this.hatch }}
        <noscript>This map needs JavaScript; it asks for nothing outside this file.</noscript>
        <script type="application/json" id="geogp-data">{{ this.data }}</script>
        {% endmacro %}
        {% macro script(this, kwargs) %}
        {{ this.source }}
        geogpMap({{ this._parent.get_name() }}, JSON.parse(document.getElementById("geogp-data").textContent))
            .catch((error) => {
                const card = document.createElement("p");
                card.className = "gg-card gg-fail";
                card.textContent = "This browser cannot draw the map (" + error.message + ").";
                document.body.append(card);
            });
        {% endmacro %}
        """
    )

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__()
        self._name = "geogp"
        # Leaflet's style names images by path; none is used, and a path would be a request.
        self.css = re.sub(r"url\([^)]*\)", "none", LEAFLET_CSS.read_text("utf-8"))
        self.css += (HERE / "page" / "map.css").read_text("utf-8")
        self.hatch, self.data = HATCH, safe_json(spec)
        self.source = (HERE / "page" / "map.js").read_text("utf-8")


class _Script(Element):
    """Inline script; an Element's own text would be read as a template."""

    _template = Template("<script>{{ this.source }}</script>")

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source


class SafeFigure(Figure):
    """A page that may run its own scripts, by their hashes, and fetch nothing."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        leaflet = re.sub(r"//# sourceMappingURL=.*", "", LEAFLET_JS.read_text("utf-8"))
        self.header.add_child(_Script(leaflet), name="leaflet")

    def render(self, **kwargs: Any) -> str:
        text = super().render(**kwargs)
        text = text.replace("maximum-scale=1.0, user-scalable=no", "viewport-fit=cover")  # let people zoom
        text = text.replace("<html>", '<html lang="en">', 1)
        hashes = " ".join(
            f"'sha256-{_base64(hashlib.sha256(body.encode()).digest())}'"
            for attributes, body in re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
            if "application/json" not in attributes
        )
        policy = (
            f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
            "base-uri 'none'; form-action 'none'"
        )
        return text.replace(
            "<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{policy}">', 1
        )

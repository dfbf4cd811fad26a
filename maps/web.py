"""The map page: layers, legend and read-out in one file, with no request to anywhere; or the dashboard's, whose planes
its server sends.

folium builds the page around a vendored Leaflet; the values travel inside it, quantised and deflated on the
prediction's own grid, and the browser warps them to Web Mercator through a mesh. So a read-out tells the value of
the model's own pixel, and a layer switch is a repaint. Script, style and legend of `maps/page` are the only ones.

Strings from the data reach the page as JSON only, with every character that HTML, JavaScript or a template could
take for its own escaped, and are set as text; a Content-Security-Policy lets only this page's own scripts run.
"""

import hashlib
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import folium
import xarray as xr
from branca.element import Element, Figure, MacroElement
from jinja2 import Template

from maps.atomic import refuse_existing, replacing
from maps.bands import bands
from maps.packing import base64_of
from maps.page_data import of_values, safe_json
from maps.region import Lines
from maps.render import in_memory

HERE = Path(__file__).parent
LEAFLET_JS = HERE / "vendor" / "leaflet-1.9.4.js"
LEAFLET_CSS = HERE / "vendor" / "leaflet-1.9.4.css"

#: Parts of the page's script, in this order.
SCRIPTS = (
    "words",
    "predictive",
    "planes",
    "picture",
    "legend",
    "source",
    "card",
    "areas",
    "beside",
    "detail",
    "sheets",
    "drawing",
    "page",
)


def html_map(ds: xr.Dataset, **options: Any) -> str:
    """A self-contained page: map, layer switch, legend, read-out in words. Options as `folium_map`.

    Returns
    -------
    HTML; about 0.2 MB and 1 byte per pixel and layer

    Examples
    --------
    >>> html_map(ds, layers=["median"], max_pixels=900)[:15]
    '<!DOCTYPE html>'
    """
    return str(folium_map(ds, **options).get_root().render())


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
    lines: Lines = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
    note: str = "",
    credit: str = "",
    max_pixels: int = 300_000,
    title: str | None = None,
) -> folium.Map:
    """The map as a `folium.Map`, for a notebook.

    Whatever else is added to it obeys the page's policy: nothing may be fetched from outside.

    Parameters
    ----------
    ds : prediction Dataset, lazy or in memory; only the pixels drawn are computed
    geometry : GeoJSON polygon in EPSG:4326: the region, drawn as outline; None for no outline
    layers : names; None for the layers most people ask for
    places : {"name", "lon", "lat"} labels, for example towns
    lines : [(lon, lat), ..] each, for example of counties
    limits : quantity -> (low, high) to hold a legend fixed between maps
    note : what is left out of the map, in words for people
    credit : whose `places` and `lines` are, said about the map and under pictures of it
    max_pixels : pixels embedded; more are thinned by taking every k-th (never averaged)
    title : None for the Dataset's own

    Raises
    ------
    InvalidInput : unknown layer, or a region that is not a polygon in degrees
    """
    if layers is None:
        embedded = [b.name for b in bands(ds) if b.layer.listed is not None and b.layer.embedded]
        layers = embedded or None
    small, inside = in_memory(ds, geometry=geometry, layers=layers, max_pixels=max_pixels)
    spec, packs = of_values(
        small,
        inside,
        geometry=geometry,
        places=places,
        lines=lines,
        limits=limits,
        note=note,
        credit=credit if places or lines else "",
    )
    spec["title"] = title or spec["title"]
    return page_of(spec, packs)


def page_of(spec: Mapping[str, Any], packs: Sequence[bytes] = ()) -> folium.Map:
    """The page of `maps.page_data` as a `folium.Map`; without packs its planes come from the server that `spec` names."""
    (south, west), (north, east) = spec["focus"]
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
    page.add_child(_Page({**spec, "data": [base64_of(pack) for pack in packs]}), name="geogp_page")
    root = SafeFigure(height="600px", title=html.escape(str(spec["title"])), served=bool(spec["server"]))
    root.add_child(page, name="geogp_map")
    return page


class _Page(MacroElement):
    """Our style, data and script inside a folium map."""

    _template = Template(
        """
        {% macro header(this, kwargs) %}
        <style>{{ this.css }}</style>
        {% endmacro %}
        {% macro html(this, kwargs) %}
        {{ this.body }}
        <noscript>This map needs JavaScript; it asks for nothing outside this file.</noscript>
        <script type="application/json" id="geogp-data">{{ this.data }}</script>
        {% endmacro %}
        {% macro script(this, kwargs) %}
        {{ this.source }}
        geogpPage(JSON.parse(document.getElementById("geogp-data").textContent), {{ this._parent.get_name() }})
            .catch((error) => {
                document.getElementById("failed-text").textContent = "This browser cannot draw the map (" + error.message + ").";
                document.getElementById("failed").hidden = false;
            });
        {% endmacro %}
        """
    )

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__()
        self._name = "geogp"
        # Leaflet's style names images by path; none is used, and a path would be a request.
        self.css = re.sub(r"url\([^)]*\)", "none", LEAFLET_CSS.read_text("utf-8"))
        self.css += (HERE / "page" / "page.css").read_text("utf-8")
        self.body, self.data = (HERE / "page" / "page.html").read_text("utf-8"), safe_json(spec)
        self.source = "".join((HERE / "page" / f"{name}.js").read_text("utf-8") for name in SCRIPTS)


class _Script(Element):
    """Inline script; an Element's own text would be read as a template."""

    _template = Template("<script>{{ this.source }}</script>")

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source


class SafeFigure(Figure):
    """A page that may run its own scripts, by their hashes, and fetch nothing, or from its own server alone."""

    def __init__(self, *, served: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.served = served
        leaflet = re.sub(r"//# sourceMappingURL=.*", "", LEAFLET_JS.read_text("utf-8"))
        self.header.add_child(_Script(leaflet), name="leaflet")

    def render(self, **kwargs: Any) -> str:
        text = super().render(**kwargs)
        text = text.replace("maximum-scale=1.0, user-scalable=no", "viewport-fit=cover")  # let people zoom
        text = text.replace("<html>", '<html lang="en">', 1)
        hashes = " ".join(
            f"'sha256-{base64_of(hashlib.sha256(body.encode()).digest())}'"
            for attributes, body in re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
            if "application/json" not in attributes
        )
        own = "'self'" if self.served else "'none'"
        policy = (
            f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
            f"connect-src {own}; base-uri 'none'; form-action 'none'"
        )
        return text.replace(
            "<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{policy}">', 1
        )

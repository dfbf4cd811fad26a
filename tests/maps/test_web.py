"""The self-contained page: what is in it, and that nothing in it can get out or break in."""

import base64
import hashlib
import html.parser
import json
import re

import numpy as np
import pytest

from maps.bands import bands
from maps.errors import InvalidInput
from maps.packing import FINE, STEPS, pack, unpack
from maps.page_data import safe_json
from maps.web import folium_map, html_map, write_html

HOSTILE = "</script><img src=x onerror=alert(1)>${alert(1)}`{{7*7}}{% raw %}\u2028<!--"


class Page(html.parser.HTMLParser):
    """Tags and attributes, and the text of scripts by type."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.scripts: list[tuple[dict, str]] = []
        self._open: dict | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._open = dict(attrs)
            self.scripts.append((self._open, ""))

    def handle_data(self, data):
        if self._open is not None:
            self.scripts[-1] = (self._open, self.scripts[-1][1] + data)

    def handle_endtag(self, tag):
        if tag == "script":
            self._open = None


def spec_of(text: str) -> dict:
    return json.loads(
        next(body for attrs, body in Page(text).scripts if attrs.get("type") == "application/json")
    )


@pytest.fixture(scope="module")
def page(make, islands) -> str:
    ds = make()
    return html_map(ds, geometry=islands(ds), max_pixels=8_000)


def test_nothing_points_outside(page: str) -> None:
    for tag, attrs in Page(page).tags:
        assert tag not in ("link", "iframe", "object", "embed", "base"), tag
        for name in ("src", "href", "srcset", "action", "data"):
            assert name not in attrs or attrs[name].startswith("data:"), (tag, attrs)
        assert not [name for name in attrs if name.startswith("on")]
    assert not re.search(r"@import|url\((?!#)", page.split("<script>")[0])
    assert "sourceMappingURL" not in page


def test_policy_allows_these_scripts_and_no_other(page: str) -> None:
    parsed = Page(page)
    first = next(attrs for tag, attrs in parsed.tags if tag == "meta" and "http-equiv" in attrs)
    assert first["http-equiv"] == "Content-Security-Policy"  # before anything it should govern
    policy = first["content"]
    assert policy.startswith("default-src 'none'") and "unsafe-eval" not in policy
    scripts = re.search(r"script-src ([^;]*)", policy)[1]
    assert "unsafe-inline" not in scripts and "data:" not in scripts and "*" not in scripts
    hashes = {
        "'sha256-" + base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() + "'"
        for attrs, body in parsed.scripts
        if attrs.get("type") != "application/json"
    }
    assert hashes == set(scripts.split())


def test_the_page_is_the_same_for_the_same_data(make, islands, page: str) -> None:
    ds = make()
    assert html_map(ds, geometry=islands(ds), max_pixels=8_000) == page


def test_hostile_words_stay_words(make, islands) -> None:
    ds = make(
        title=HOSTILE,
        target=HOSTILE,
        target_title=HOSTILE,
        target_noun=HOSTILE,
        method=HOSTILE,
        source=HOSTILE,
        quarter=HOSTILE,
    )
    for name in ds.data_vars:
        ds[name].attrs["units"] = HOSTILE
    places = [{"name": HOSTILE, "lon": -157.0, "lat": 20.5}]
    text = html_map(ds, geometry=islands(ds), places=places, max_pixels=4_000)
    parsed = Page(text)
    assert not [1 for tag, _ in parsed.tags if tag == "img"]
    assert len(parsed.scripts) == len(Page(html_map(make(), max_pixels=4_000)).scripts)
    spec = spec_of(text)
    assert spec["title"] == spec["places"][0]["name"] == HOSTILE  # whole, as JSON text
    raw = text[text.index('id="geogp-data"') :]
    raw = raw[raw.index(">") + 1 : raw.index("</script>")]
    assert (
        not re.search("[<>&`\u2028\u2029]", raw) and "${" not in raw and "{{" not in raw and "{%" not in raw
    )
    assert "49" not in spec["title"]


@pytest.mark.parametrize("text", [HOSTILE, "]]>", "<!--<script>", "\u2029", "é\U0001f600"])
def test_safe_json_round_trips(text: str) -> None:
    encoded = safe_json({"a": text})
    assert json.loads(encoded) == {"a": text}
    assert encoded.isascii() and not re.search("[<>&`]", encoded)


def planes_of(text: str) -> dict[str, np.ndarray]:
    return unpack(base64.b64decode(spec_of(text)["data"][0]))[1]


def test_packed_values_come_back(ds) -> None:
    rng = np.random.default_rng(0)
    known = rng.random((40, 60)) < 0.6
    for band in bands(ds):
        values = band.of(ds).values[:40, :60][known].astype(float)
        values[3:9] = np.nan
        for steps in (STEPS, FINE):
            back = unpack(pack(known, {"v": (values, band.layer.scale, steps, None)}, {}))
            plane = back[0]["planes"]["v"]
            np.testing.assert_array_equal(back[1]["known"], known)
            np.testing.assert_array_equal(np.isnan(back[1]["v"]), np.isnan(values))
            if plane["kind"] == "log":
                factor = (plane["high"] / plane["low"]) ** (0.51 / (steps - 1)) - 1
                assert np.nanmax(np.abs(back[1]["v"] / values - 1)) < factor + 1e-6
            else:
                bound = 0.51 * (plane["high"] - plane["low"]) / (steps - 1)
                assert np.nanmax(np.abs(back[1]["v"] - values)) <= bound + 1e-6


@pytest.mark.parametrize("value", [np.nan, 0.0, 7.0, -3.0, np.inf])
def test_packing_odd_planes(value: float) -> None:
    known = np.ones((3, 4), bool)
    header, back = unpack(pack(known, {"v": (np.full(12, value), "log", STEPS, None)}, {}))
    if np.isfinite(value):
        np.testing.assert_allclose(back["v"], value, rtol=1e-3, atol=1e-9)
    else:
        assert np.isnan(back["v"]).all()
        assert header["planes"]["v"]["low"] < header["planes"]["v"]["high"]


def test_a_pack_without_any_pixel() -> None:
    header, back = unpack(pack(np.zeros((2, 3), bool), {"v": (np.zeros(0), "linear", STEPS, None)}, {"a": 1}))
    assert header["n"] == 0 and back["v"].shape == (0,) and header["a"] == 1


def test_the_planes_of_a_page_are_the_datasets_own(ds, region, page: str) -> None:
    spec, planes = spec_of(page), planes_of(page)
    assert planes["known"].shape == (spec["grid"]["height"], spec["grid"]["width"])
    step = ds.sizes["x"] / spec["grid"]["width"]
    rows = np.nonzero(planes["known"])[0]
    k = len(rows) // 2
    near = ds["median"].values[int(rows[k] * step) : int((rows[k] + 1) * step) + 1]
    assert np.abs(near / planes["median"][k] - 1).min() < 2e-3


def test_layers_and_words_of_the_page(page: str) -> None:
    spec = spec_of(page)
    ids = [layer["id"] for layer in spec["layers"]]
    assert ids[:3] == ["median", "pi_width", "exceedance"]  # those in plain words
    first = spec["layers"][0]
    assert (first["unit"], first["plain"], first["fades"]) == ("Mbit/s", "Download speed", True)
    assert spec["layers"][2]["planes"] == {"25": "exceedance_25", "100": "exceedance_100"}
    assert spec["settings"]["thresholds"] == [25.0, 100.0] and not spec["settings"]["free"]
    assert set(spec["hidden"]) == {"median", "lower", "upper", "exceedance"}
    assert len(spec["fade"]["palette"]) == 4
    assert spec["grid"]["width"] * spec["grid"]["height"] <= 8_000
    assert spec["region"]["type"] == "MultiPolygon"


def test_layers_can_be_chosen_and_regions_are_checked(ds) -> None:
    assert [x["id"] for x in spec_of(html_map(ds, layers=["explained"], max_pixels=900))["layers"]] == [
        "explained"
    ]
    with pytest.raises(InvalidInput, match="no layer"):
        html_map(ds, layers=["nothing"])
    with pytest.raises(InvalidInput, match="Polygon"):
        html_map(ds, geometry={"type": "LineString", "coordinates": [[0, 0], [1, 1]]})


def test_bad_options_are_one_sentence(ds) -> None:
    cases = [
        ({"places": [{"name": "x"}]}, "A place is"),
        ({"places": [{"name": "x", "lon": 1, "lat": 100}]}, "not degrees"),
        ({"max_pixels": 0}, "max_pixels"),
        ({"limits": {"speed": (1, 2)}}, "no quantity 'speed'"),
    ]
    for options, message in cases:
        with pytest.raises(InvalidInput, match=message):
            html_map(ds, **options)


def test_a_region_across_the_antimeridian_is_drawn_in_one_piece(make) -> None:
    ds = make((60, 100), 6000.0, (179.9, 52.0))
    halves = [
        [[[178, 51], [180, 51], [180, 53], [178, 53], [178, 51]]],
        [[[-180, 51], [-178, 51], [-178, 53], [-180, 53], [-180, 51]]],
    ]
    spec = spec_of(html_map(ds, geometry={"type": "MultiPolygon", "coordinates": halves}))
    lon = [p[0] for polygon in spec["region"]["coordinates"] for ring in polygon for p in ring]
    assert max(lon) - min(lon) == pytest.approx(4, abs=0.01)
    (south, west), (north, east) = spec["focus"]
    assert 177.5 < west < 178.1 and 181.9 < east < 182.5 and south < 51.1 and north > 52.9


def test_odd_predictions_make_pages(make) -> None:
    ds = make()
    html_map(ds.isel(y=slice(3, 4), x=slice(5, 6)))
    empty = ds.copy(deep=True)
    for name in empty.data_vars:
        empty[name].values[...] = np.nan
    html_map(empty)
    kernel = ds[["median"]].rename(median="covariance").assign(correlation=ds["explained"])
    assert not spec_of(html_map(kernel))["hidden"]


def test_explore_is_a_folium_map(ds, region) -> None:
    import folium

    page = folium_map(ds, geometry=region, max_pixels=2_000)
    assert isinstance(page, folium.Map)
    assert "Content-Security-Policy" in page.get_root().render() and "srcdoc" in page._repr_html_()


def test_write_html_is_atomic(ds, tmp_path) -> None:
    path = write_html(ds, tmp_path / "m" / "map.html", max_pixels=900)
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(InvalidInput, match="exists"):
        write_html(ds, path)
    assert [p.name for p in path.parent.iterdir()] == ["map.html"]

"""The page in Chromium with every outside road closed: painted, switchable, and its words true."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pyproj import Transformer

import maps
from maps.web import write_html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]  # playwright's own pipes

PAGE = Path(maps.__file__).parent / "page"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def world(make, islands, tmp_path_factory) -> SimpleNamespace:
    ds = make()
    for name in ds.data_vars:
        ds[name].values[..., 60:75, 110:140] = np.nan  # inside the region, without support
    places = [
        {"name": "<b>Kailani</b>${1}", "lon": -156.75, "lat": 20.5},
        {
            "name": "Kailani Isle",
            "lon": -156.9,
            "lat": 20.62,
            "kind": "area",
            "bounds": (-157.1, 20.4, -156.7, 20.8),
        },
    ]
    lines = [[(-157.0, 20.3), (-156.9, 20.4), (-156.8, 20.9)]]
    path = write_html(
        ds, tmp_path_factory.mktemp("web") / "map.html", geometry=islands(ds), places=places, lines=lines
    )
    return SimpleNamespace(ds=ds, path=path)


def open_page(browser, path, width=1280, height=800, **options):
    context = browser.new_context(viewport={"width": width, "height": height}, offline=True, **options)
    page = context.new_page()
    page.requests, page.problems = [], []
    page.on("request", lambda r: page.requests.append(r.url))
    page.on("pageerror", lambda e: page.problems.append(str(e)))
    page.on("console", lambda m: page.problems.append(m.text) if m.type in ("error", "warning") else None)
    page.goto(f"file://{path}")
    page.wait_for_selector("[data-ready]", timeout=20_000)
    return page


@pytest.fixture
def page(browser, world):
    page = open_page(browser, world.path)
    yield page
    page.context.close()


def lonlat(ds, row: int, col: int) -> tuple[float, float]:
    back = Transformer.from_crs(ds["spatial_ref"].attrs["crs_wkt"], "EPSG:4326", always_xy=True)
    return back.transform(ds["x"].values[col], ds["y"].values[row])


def screen(page, lon: float, lat: float) -> tuple[float, float]:
    return tuple(
        page.evaluate(
            f"(() => {{ const p = map_geogp.latLngToContainerPoint([{lat}, {lon}]); const r = map_geogp.getContainer().getBoundingClientRect(); return [p.x + r.x, p.y + r.y]; }})()"
        )
    )


def point_at(page, ds, row: int, col: int) -> str:
    return say(page, *lonlat(ds, row, col))


def say(page, lon: float, lat: float) -> str:
    """The read-out with the pointer at a place."""
    page.mouse.move(5, 5)
    page.wait_for_timeout(60)
    page.evaluate("document.querySelector('#said').textContent = ''")
    page.mouse.move(*screen(page, lon, lat))
    for _ in range(200):  # wait_for_function would need eval, which the page's policy forbids
        if text := page.inner_text("#said"):
            return text
        page.wait_for_timeout(25)
    raise AssertionError("the read-out stayed empty")


def picture(page) -> dict:
    """Of the canvas as painted: share of opaque pixels, number of colours, a hash."""
    return page.evaluate(
        """(() => {
            const c = document.querySelector('canvas.leaflet-image-layer');
            const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);
            const colours = new Set(); let opaque = 0, hash = 0;
            for (const v of d) { if (v >>> 24 === 255) { opaque++; colours.add(v); } hash = (Math.imul(hash, 31) + v) | 0; }
            return { opaque: opaque / d.length, colours: colours.size, hash };
        })()"""
    )


def rounded(v: float) -> str:
    return str(round(v)) if v >= 10 else f"{float(f'{v:.2g}'):g}"


def test_the_map_is_painted_and_asks_for_nothing(page) -> None:
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert len([url for url in page.requests if url.startswith("file:")]) == 1
    assert page.problems == []
    image = picture(page)
    assert 0.1 < image["opaque"] < 0.6 and image["colours"] >= 8  # few, for it fades where unsure
    page.uncheck("#fade")
    page.locator("#legend .ramp").wait_for()
    assert picture(page)["colours"] > 50
    box = page.locator("canvas.leaflet-image-layer").bounding_box()
    assert box["width"] > 300 and box["height"] > 300


@pytest.mark.parametrize(("row", "col"), [(85, 130), (90, 100), (50, 40), (110, 150)])
def test_the_readout_tells_the_models_values(page, world, row, col) -> None:
    ds = world.ds
    text = point_at(page, ds, row, col)
    median, lower, upper = (ds[name].values[row, col] for name in ("median", "lower", "upper"))
    chance = round(100 * float(ds["exceedance"].values[1, row, col]))
    match = re.fullmatch(
        r"([\d.]+) Mbit/s; 95% prediction interval ([\d.]+) to ([\d.]+); P\(> 100\) [=<>] (\d+)%", text
    )
    assert match, text
    for said, value in zip(match.groups()[:3], (median, lower, upper), strict=True):
        assert float(said) == pytest.approx(float(rounded(value)), rel=0.011), text  # one in the last digit
    assert abs(int(match[4]) - chance) <= 1, text
    assert re.search(r"[\d.]+° N, [\d.]+° W$", page.inner_text("#where-said"))


def test_no_prediction_and_outside_are_told_apart(page, world) -> None:
    assert point_at(page, world.ds, 67, 125) == "No prediction here"
    assert point_at(page, world.ds, 140, 20) == "Outside the mapped region"


def test_the_layer_switch_repaints_and_changes_the_legend(page) -> None:
    seen, texts = [picture(page)["hash"]], []  # first the median, paler where unsure
    page.uncheck("#fade")
    page.locator("#legend .ramp").wait_for()
    page.click(".more > summary")
    for layer in ("median", "pi_width", "exceedance", "lower", "upper"):
        page.check(f"input[value='{layer}']")
        page.wait_for_selector(f"[data-layer='{layer}']")
        seen.append(picture(page)["hash"])
        texts.append(page.inner_text("#legend"))
    page.check("input[value='exceedance']")
    page.wait_for_selector("[data-layer='exceedance']")
    page.click("#usual button[value='25']")
    page.wait_for_selector("[data-threshold='25']")
    seen.append(picture(page)["hash"])
    assert len(set(seen)) == len(seen)
    assert "Probability that download speed exceeds 100 Mbit/s" in texts[2]
    assert "Probability that download speed exceeds 25 Mbit/s" in page.inner_text("#legend")
    assert "Mbit/s" in texts[0] and "no prediction" in page.inner_text("#panel")
    ticks = [re.findall(r"^[≤≥]?[\d.]+$", text, re.M) for text in (texts[3], texts[4])]
    assert ticks[0] == ticks[1] != []  # one legend for one quantity


def test_layers_by_keyboard_and_a_value_under_the_cross(page) -> None:
    page.focus("input[value='median']")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("[data-layer='pi_width']")
    page.focus("#map_geogp")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(600)
    assert page.is_visible("#cross")
    assert page.inner_text("#where-said")
    page.keyboard.press("+")
    page.wait_for_timeout(400)
    assert page.evaluate("map_geogp.getZoom()") > 0


def test_a_click_pins_and_the_address_holds_the_view(browser, page, world) -> None:
    page.mouse.click(*screen(page, *lonlat(world.ds, 85, 130)))
    page.locator("#said").filter(has_text="prediction interval").wait_for()
    pinned = page.inner_text("#said")
    page.mouse.move(900, 200)
    page.wait_for_timeout(150)
    assert page.inner_text("#said") == pinned
    page.check("input[value='pi_width']")
    page.wait_for_selector("[data-layer='pi_width']")
    view = page.evaluate("location.hash")
    assert "layer=pi_width" in view and "at=" in view
    odd = open_page(browser, f"{world.path}#%E0%A4%A")  # not an address: the map as it opens
    assert odd.evaluate("document.querySelector('#frame').dataset.layer") == "median" and odd.problems == []
    odd.context.close()
    again = open_page(browser, f"{world.path}{view}")
    assert again.evaluate("document.querySelector('#frame').dataset.layer") == "pi_width"
    assert again.evaluate("map_geogp.getZoom()") == pytest.approx(page.evaluate("map_geogp.getZoom()"))
    again.locator("#said").filter(has_text="prediction interval").wait_for()
    assert again.inner_text("#said") == pinned and again.is_visible("#place")
    assert again.evaluate("location.hash") == view
    again.context.close()


def test_what_is_left_out_is_said(browser, ds, tmp_path) -> None:
    note = "pictures leave out 3 parts of the region beyond 50 km of any data"
    page = open_page(browser, write_html(ds, tmp_path / "m.html", max_pixels=900, note=note))
    assert f"P{note[1:]}" in page.inner_text("#panel")
    page.context.close()


def test_phone_width(browser, world) -> None:
    page = open_page(browser, world.path, 390, 844, has_touch=True, is_mobile=True, device_scale_factor=2)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    panel, zoom = (
        page.locator("#panel").bounding_box(),
        page.locator(".leaflet-control-zoom").bounding_box(),
    )
    readout = page.locator("#readout").bounding_box()
    assert panel["height"] < 300 and zoom["y"] > panel["y"] + panel["height"]
    scale = page.locator(".leaflet-control-scale").bounding_box()
    assert zoom["y"] + zoom["height"] <= scale["y"] and scale["y"] + scale["height"] <= readout["y"]
    page.tap("#layers > summary")
    page.tap("label:has(input[value='exceedance'])")
    page.wait_for_selector("[data-layer='exceedance']")
    assert not page.evaluate("document.querySelector('#layers').open")
    page.touchscreen.tap(*screen(page, *lonlat(world.ds, 85, 130)))
    page.wait_for_timeout(300)
    assert "95 times in 100 between" in page.inner_text("#place-said")
    card = page.locator("#place").bounding_box()
    assert card["x"] == 0 and card["width"] == 390 and card["y"] + card["height"] == pytest.approx(844, abs=1)
    assert page.problems == []
    page.context.close()


def test_dark_is_dark(browser, world) -> None:
    page = open_page(browser, world.path, color_scheme="dark")
    colour = "getComputedStyle(document.querySelector('#map_geogp')).backgroundColor"
    assert page.evaluate(colour) == "rgb(16, 22, 29)"
    page.emulate_media(color_scheme="light")
    assert page.evaluate(colour) == "rgb(233, 238, 243)"
    page.context.close()


#: as people write 20.55 N, 156.9 W -> found
WRITTEN = (
    "20.55, -156.9",
    "20,55 -156,9",
    "20,55; -156,9",
    "20,55, -156,9",
    "20.55 N 156.9 W",
    "N 20.55 W 156.9",
    "156.9° W, 20.55° N",
    "20 33 N, 156 54 W",
    "20°33'0\"N 156°54'0\"W",
    "20° 33′ 0″ N, 156° 54′ 0″ W",
    "20 33 0 -156 54 0",
    "lat: 20.55, lon: -156.9",
    "-156.9, 20.55",
)


def test_coordinates_in_every_usual_notation(page) -> None:
    for text in WRITTEN:
        found = page.evaluate(f"coordinates({json.dumps(text)})")
        assert found == pytest.approx([20.55, -156.9]), text
    for text in ("nowhere", "20.55", "20.55 N 156.9 N", "95, 200 N", "20 61 N, 156 54 W", "Hana 3", "1 2 3"):
        assert page.evaluate(f"coordinates({json.dumps(text)})") is None, text


def test_a_place_is_found_by_name_and_by_number(page, world) -> None:
    page.fill("#where", "<B>kailani")
    page.locator("#found li").wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator("#place-said").filter(has_text="times in 100").wait_for()
    assert page.inner_text("#place-said").startswith("Near <b>Kailani</b>")
    assert page.evaluate("map_geogp.getCenter().lat") == pytest.approx(20.5, abs=1e-3)
    page.fill("#where", "20,6 N 156,9 W")
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    assert "at=20.60000%2C-156.90000" in page.evaluate("location.hash")
    page.fill("#where", "Atlantis")
    page.keyboard.press("Enter")
    assert "Nothing of that name" in page.inner_text("#search-said")
    assert page.problems == []


def test_lines_and_areas_are_on_the_map(page) -> None:
    """A county's name where it has room, its line at its places; found by name, it fills the view and is not marked."""
    assert page.locator(".area").all_inner_texts() == ["Kailani Isle"]
    d = page.locator(".leaflet-borders-pane path").get_attribute("d")
    drawn = np.array(re.findall(r"(-?\d+) (-?\d+)", d.replace("M", "").replace("L", " ")), float)
    wanted = page.evaluate(
        "[[20.3, -157.0], [20.4, -156.9], [20.9, -156.8]].map((c) => { const p = map_geogp.latLngToLayerPoint(c); return [p.x, p.y]; })"
    )
    np.testing.assert_allclose(drawn, wanted, atol=1.0)
    page.fill("#where", "kailani i")
    page.keyboard.press("Enter")
    b = page.evaluate(
        "(() => { const b = map_geogp.getBounds(); return [b.getWest(), b.getSouth(), b.getEast(), b.getNorth()]; })()"
    )
    assert b[0] < -157.1 and b[1] < 20.4 and b[2] > -156.7 and b[3] > 20.8 and b[3] - b[1] < 0.9
    assert page.locator("#place").is_hidden()
    assert page.problems == []


def test_hostile_words_do_nothing(browser, make, islands, tmp_path) -> None:
    bad = "</script><img src=x onerror=\"document.title='owned'\">${document.title='owned'}`{{7*7}}"
    ds = make(title=bad, target=bad, target_title=bad, target_noun=bad, method=bad, source=bad)
    for name in ds.data_vars:
        ds[name].attrs["units"] = bad
    places = [{"name": bad, "lon": -157.0, "lat": 20.5}]
    path = write_html(ds, tmp_path / "bad.html", geometry=islands(ds), places=places, max_pixels=4_000)
    page = open_page(browser, path)
    point_at(page, ds, 85, 130)
    assert page.inner_text("h1") == bad and page.title() != "owned"
    assert page.inner_text(".town") == bad
    assert page.locator("img").count() == 0
    assert page.problems == []
    page.evaluate("document.body.insertAdjacentHTML('beforeend', \"<img src=x onerror='window.owned=1'>\")")
    page.wait_for_timeout(200)
    assert page.evaluate("window.owned") is None  # and the policy would have stopped it
    page.context.close()


def test_explore_in_a_notebook_frame(browser, make, tmp_path) -> None:
    """A notebook shows the map in an iframe without an address."""
    path = tmp_path / "notebook.html"
    path.write_text("<body>" + make().geogp.explore(max_pixels=4_000)._repr_html_(), "utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(f"file://{path}")
    frame = page.frame_locator("iframe")
    frame.locator("[data-ready]").wait_for(timeout=20_000)
    frame.locator("input[value='pi_width']").check()
    frame.locator("[data-layer='pi_width']").wait_for()
    context.close()


def test_across_the_antimeridian(browser, make, islands, tmp_path) -> None:
    ds = make((80, 120), 4000.0, (179.9, 52.0))
    page = open_page(browser, write_html(ds, tmp_path / "a.html", geometry=islands(ds)))
    lon, lat = lonlat(ds, 50, 85)
    assert lon < 0  # east of the line, drawn beyond 180 degrees
    assert "prediction interval" in say(page, lon + 360, lat)
    assert re.search(r"° [EW]$", page.inner_text("#where-said"))
    page.context.close()


@pytest.mark.parametrize(
    ("medians", "low"),
    [((20, 45), "0"), ((-12, 5), "-17"), ((-40, -35), "-45"), ((101300, 101400), "101,295")],
)
def test_the_chart_of_a_place_holds_values_of_any_sign(browser, medians, low):
    """Its dots and labels lie within it, and its least mark is 0 only where values come near it."""
    page = browser.new_context(offline=True).new_page()
    page.set_content("<style>text { font: 11px sans-serif }</style><div id=chart style='width: 288px'></div>")
    for name in ("words", "card"):
        page.add_script_tag(path=PAGE / f"{name}.js")
    rows = [
        {"quarter": f"2022Q{k}", "median": m, "lower": m - 5, "upper": m + 5}
        for k, m in enumerate(medians, 1)
    ]
    page.evaluate(
        "(rows) => document.querySelector('#chart').append(historyChart(rows, '2022Q1', 'K'))", rows
    )
    told = page.evaluate(
        "() => [...document.querySelectorAll('circle')].map((c) => [Number(c.getAttribute('cx')), Number(c.getAttribute('cy'))])"
    )
    assert all(34 <= x <= 288 and 12 <= y <= 104 for x, y in told) and told[0][1] > told[1][1]
    texts = page.evaluate(
        "() => [...document.querySelectorAll('text')].map((t) => [t.textContent, t.getBBox().x])"
    )
    assert texts[0][0] == low and all(x >= 0 for _, x in texts)

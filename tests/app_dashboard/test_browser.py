"""The dashboard in Chromium with every road to the outside closed: painted, switchable, true, and in the address."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from playwright.sync_api import Error

from app.dashboard.atlas import Atlas
from app.workflow.grids import grid_of
from app.workflow.page import page_grid, write_page
from geogp import load
from geogp.data import Moments
from geogp.predictive import Predictive
from maps.colours import table
from maps.mercator import mercator

from .conftest import LATITUDE, LEVEL, LONGITUDE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # playwright's own pipes
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAIT = 60_000  # ms: a busy machine
HUB = f"z=9&lat={LATITUDE:.5f}&lon={LONGITUDE:.5f}"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """One page, its map, and everything that went wrong or outside."""

    def __init__(
        self,
        chromium: Any,
        server: str,
        query: str = "",
        hold: tuple[str, list[Any]] | None = None,
        **options: Any,
    ) -> None:
        self.context = chromium.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT)
        self.server = server
        self.outside: list[str] = []
        self.problems: list[str] = []
        self.context.route("**/*", self._guard)
        if hold is not None:  # requests that are kept waiting
            self.page.route(hold[0], lambda route: hold[1].append(route))
        self.page.on("pageerror", lambda e: self.problems.append(str(e)))
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type == "error" else None)
        self.page.on("request", self._note)
        self.page.goto(f"{server}/?{query}")
        self.map = self.page.locator("#frame")
        self.wait("[data-ready]")

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.server, "data:", "blob:")):
            self.outside.append(request.url)

    def _guard(self, route: Any) -> None:
        url = route.request.url
        with suppress(Error):  # one that was held, whose holder lets it go just as the hold ends
            route.continue_() if url.startswith((self.server, "data:", "blob:")) else route.abort()

    def wait(self, condition: str) -> None:
        self.page.locator(f"#frame{condition}").wait_for(state="attached", timeout=WAIT)

    def click(self, x: float, y: float) -> None:
        """At a share of the map's width and height."""
        box = self.page.locator(".leaflet-container").bounding_box()
        self.page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])

    def glide(self, key: str) -> None:
        """Moves the map by a key, and waits until it has come to rest: on a busy machine that takes its time."""
        self.page.evaluate(
            "() => { window.rests = new Promise((rest) => map_geogp.once('moveend', () => rest(true))); }"
        )
        self.page.keyboard.press(key)
        assert self.page.evaluate("() => window.rests")

    def picture(self) -> int:
        """A hash of what is painted."""
        return int(self.page.evaluate(PICTURE))

    def address(self) -> dict[str, str]:
        return {k: v[0] for k, v in parse_qs(urlsplit(self.page.url).query).items()}

    def close(self) -> None:
        self.context.close()
        assert self.outside == []
        assert self.problems == []


PICTURE = """(() => {
    const c = document.querySelector('canvas.leaflet-image-layer');
    const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);
    let hash = 0; for (const v of d) hash = (Math.imul(hash, 31) + v) | 0;
    return hash;
})()"""


def test_a_visit(chromium: Any, server: str) -> None:
    """Paint, switch, mark, read, slice, and find it all again in the address."""
    visit = Visit(chromium, server, HUB)
    first = visit.picture()
    visit.map.get_by_role("radio", name="How sure").check()
    visit.wait('[data-layer="within"]')
    second = visit.picture()
    assert second != first
    assert "a factor either way" in visit.page.inner_text("#legend")
    assert "2023 Q4" in visit.page.inner_text("#legend")
    assert visit.address()["layer"] == "within"

    visit.click(0.5, 0.5)
    visit.wait("[data-history]")
    told = visit.page.inner_text("#said")
    assert re.fullmatch(
        r"[\d.,]+ Mbit/s; 95% prediction interval [\d.,]+ to [\d.,]+; P\(> 100\) [=<>] .+%", told
    )
    assert re.match(
        r"[\d.,]+ Mbit/s; 95 times in 100 between [\d.,]+ and [\d.,]+$", visit.page.inner_text("#place-said")
    )
    assert visit.page.locator("#place-history circle").count() == 2
    lat, lon = (float(v) for v in visit.address()["at"].split(","))
    assert abs(lat - LATITUDE) < 0.01 and abs(lon - LONGITUDE) < 0.01

    visit.map.get_by_role("radio", name="Similar to here").check()
    visit.wait('[data-layer="similar"]')
    assert visit.picture() not in (first, second)
    assert "correlation" in visit.page.inner_text("#legend")

    again = Visit(chromium, server, urlsplit(visit.page.url).query)
    again.wait('[data-layer="similar"]')
    again.wait("[data-said]")
    assert again.page.inner_text("#said") == told
    assert again.address() == visit.address()
    again.close()
    visit.close()


def test_every_readout_is_the_maps_value(chromium: Any, server: str, run_path: Path) -> None:
    """At any level, threshold and number of tests, and in each quarter: what `geogp export` would write there."""
    run = load(run_path)
    page = page_grid(run, grid_of(run))
    known = np.argwhere(page.places[0])
    visit = Visit(chromium, server)
    for k, quarter, n, level, threshold in (
        (400, "2023Q4", None, 0.95, 100.0),
        (1900, "2023Q3", 1.0, 0.8, 31.5),
        (2600, "2023Q4", 100.0, 0.5, 60.0),
        (3900, "2023Q3", 10.0, 0.95, 25.0),
    ):
        row, column = known[k]
        (lon,), (lat,) = run.to_degrees([page.geobox.affine * (column + 0.5, row + 0.5)])
        visit.page.select_option("#quarter", quarter)
        visit.wait(f'[data-quarter="{quarter}"]')
        n = n or run.model.typical_count_
        visit.page.select_option("#tests", f"{n:g}")
        visit.page.select_option("#level", f"{100 * level:g}")
        visit.page.fill("#threshold", f"{threshold:g}")
        visit.wait(f'[data-tests="{n:g}"][data-level="{100 * level:g}"][data-threshold="{threshold:g}"]')
        visit.page.fill("#where", f"{lat:.6f}, {lon:.6f}")
        visit.page.keyboard.press("Enter")
        visit.wait(f'[data-said^="{lat:.4f}"]')
        ds = run.predict(
            page.geobox[row : row + 1, column : column + 1],
            quarter=quarter,
            tests=n,
            level=level,
            thresholds=[threshold],
        )
        value = {key: float(ds[key].values.ravel()[0]) for key in ("median", "lower", "upper", "exceedance")}
        told = visit.page.inner_text("#said")
        found = re.fullmatch(
            rf"([\d.,]+) Mbit/s; {100 * level:g}% prediction interval ([\d.,]+) to ([\d.,]+); "
            rf"P\(> {threshold:g}\) (.+)%",
            told,
        )
        assert found, told
        for said, key in zip(found.groups(), ("median", "lower", "upper"), strict=False):
            last = 1.0 if value[key] >= 10 else 10 ** (np.floor(np.log10(value[key])) - 1)
            assert abs(float(said.replace(",", "")) - value[key]) <= 0.51 * last + 2e-3 * value[key], told
        assert abs(float(found[4].strip("=<> ")) - 100 * value["exceedance"]) <= 0.6, told
        visit.page.click("#close")
    visit.close()


def test_each_painted_pixel_has_its_values_colour(chromium: Any, server: str, run_path: Path) -> None:
    """The legend's own colour at the middle of the map's pixels, after another layer too, and nothing beside the region."""
    run = load(run_path)
    page = page_grid(run, grid_of(run))
    visit = Visit(chromium, server, f"{HUB}&far=0&layer=exceedance")
    spec = json.loads(visit.page.inner_text("#geogp-data"))
    layer = next(layer for layer in spec["layers"] if layer["id"] == "exceedance")
    box, (left, top, right, bottom) = page.geobox, spec["mesh"]["bounds"]
    rows, columns = np.argwhere(page.places[0])[100::371].T
    lon, lat = run.to_degrees(
        np.column_stack(
            [box.affine.c + box.affine.a * (columns + 0.5), box.affine.f + box.affine.e * (rows + 0.5)]
        )
    )
    x, y = mercator(lon, lat)
    width, height = spec["mesh"]["width"], spec["mesh"]["height"]
    at = np.column_stack([(x - left) / (right - left) * width, (top - y) / (top - bottom) * height]).astype(
        int
    )
    at = np.vstack([at, [2, 2]])  # in the sea

    def painted() -> np.ndarray:
        read = "at => { const c = document.querySelector('canvas.leaflet-image-layer').getContext('2d'); return at.map(([x, y]) => [...c.getImageData(x, y, 1, 1).data]); }"
        return np.array(visit.page.evaluate(read, at.tolist()))

    ds = run.predict(box, quarter="2023Q4", thresholds=[100.0])
    chance = ds["exceedance"].values[0][rows, columns]
    first, colours = painted(), table(layer["palette"])
    steps = np.abs(first[:-1, None, :3] - colours[None]).sum(2).argmin(1) - 255 * chance
    assert np.abs(steps).max() < 1.0 and (first[:-1, 3] == 255).all()
    assert first[-1].tolist() == [0, 0, 0, 0]
    visit.map.get_by_role("radio", name="How sure").check()
    visit.wait('[data-layer="within"]')
    assert (painted()[:-1, 3] == 255).all() and (painted()[:-1, :3] != first[:-1, :3]).any(1).mean() > 0.9
    visit.close()


def test_layer_threshold_level_and_pointer_ask_nobody(chromium: Any, server: str) -> None:
    visit = Visit(chromium, server, HUB)
    visit.wait('[data-counts="true"]')  # all numbers of tests are here
    asked: list[str] = []
    visit.page.on("request", lambda r: asked.append(r.url))
    pictures = [visit.picture()]
    for choose in (
        lambda: visit.map.get_by_role("radio", name="How sure").check(),
        lambda: visit.page.select_option("#level", "80"),
        lambda: visit.map.get_by_role("radio", name="Chance above").check(),
        lambda: visit.page.fill("#threshold", "30"),
        lambda: visit.page.select_option("#tests", "1"),
        lambda: visit.map.get_by_role("radio", name="Measured tiles").check(),
    ):
        choose()
        visit.page.wait_for_timeout(700)
        pictures.append(visit.picture())
        assert int(visit.map.get_attribute("data-took")) < 1000  # one core may be another's
    box = visit.page.locator(".leaflet-container").bounding_box()
    visit.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    visit.wait("[data-said]")
    assert len(set(pictures)) == len(pictures)
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == []
    visit.close()


def test_quick_steps_end_in_one_state(chromium: Any, server: str) -> None:
    """While a quarter is on its way the old picture is grey; what was passed over is not waited for."""
    held: list[Any] = []
    visit = Visit(chromium, server, f"{HUB}&q=2023Q4", ("**/geogp/planes?**q=2023Q3**", held))
    visit.page.evaluate("window.seen = []")
    visit.page.evaluate(
        """new MutationObserver(() => {
            const f = document.querySelector('#frame');
            window.seen.push([f.dataset.quarter, document.querySelector('#legend .of').textContent.slice(0, 7)]);
        }).observe(document.querySelector('#frame'), {subtree: true, childList: true, attributes: true})"""
    )
    visit.page.select_option("#quarter", "2023Q3")
    visit.page.locator("#frame.old").wait_for()
    assert "2023 Q4" in visit.page.inner_text("#legend")  # of what is still shown, grey
    for _ in range(3):
        visit.page.click("#later")
        visit.page.click("#earlier")
    visit.page.wait_for_timeout(300)
    assert "2023 Q4" in visit.page.inner_text("#legend") and len(held) > 1
    visit.page.unroute("**/geogp/planes?**q=2023Q3**")
    for route in held:
        with suppress(Error):  # the page has aborted it
            route.continue_()
    visit.wait('[data-quarter="2023Q3"]')
    visit.page.locator("#frame:not(.old)").wait_for()
    assert "2023 Q3" in visit.page.inner_text("#legend") and visit.address()["q"] == "2023Q3"
    assert visit.page.input_value("#quarter") == "2023Q3"
    assert {tuple(pair) for pair in visit.page.evaluate("window.seen")} <= {
        ("2023Q4", "2023 Q4"),
        ("2023Q3", "2023 Q3"),
        ("2023Q4", "2023 Q3"),  # between the lines of one function
    }
    visit.context.close()
    assert visit.outside == []


def test_what_an_address_may_not_say_is_the_default(chromium: Any, server: str) -> None:
    visit = Visit(chromium, server, "n=200000&t=1e300&level=7&q=1999Q1&layer=nothing&at=x&z=nan&lat=99")
    assert (
        visit.address()["n"] == "100" and visit.address()["t"] == "100"
    )  # the nearest there is; the default
    assert visit.address()["level"] == "95" and visit.address()["q"] == "2023Q4"
    assert visit.address()["layer"] == "median" and "at" not in visit.address()
    visit.close()


def test_a_server_that_has_gone_is_said_and_comes_back(chromium: Any, server: str) -> None:
    visit = Visit(chromium, server, f"{HUB}&q=2023Q4")
    visit.page.route("**/geogp/**", lambda route: route.abort())
    visit.page.evaluate(f"location.search = '?{HUB}&q=2023Q3'")
    visit.page.get_by_text("is `geogp app` still running?").wait_for()
    visit.page.unroute("**/geogp/**")
    visit.wait("[data-ready]")
    assert not visit.page.is_visible("#failed")
    visit.context.close()
    assert visit.outside == []


def test_the_file_is_the_dashboard(chromium: Any, server: str, run_path: Path, tmp_path: Path) -> None:
    """The same pixels and the same words of the same view."""
    run = load(run_path)
    path = write_page(run, grid_of(run), tmp_path / "map.html", quarter="2023Q4")
    view = f"{HUB}&q=2023Q4&layer=exceedance&t=42&at={LATITUDE:.5f},{LONGITUDE:.5f}"
    visit = Visit(chromium, server, view)
    visit.wait("[data-card]")
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, offline=True)
    page = context.new_page()
    page.goto(f"file://{path}#{view}")
    page.locator("#frame[data-card]").wait_for(state="attached", timeout=WAIT)
    assert page.evaluate(PICTURE) == visit.picture()
    for part in ("#said", "#where-said", "#place-said", "#legend"):
        assert page.inner_text(part) == visit.page.inner_text(part)
    context.close()
    visit.close()


def test_the_card_says_where_values_are_of_two_kinds(
    chromium: Any, peaked: Atlas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the town, where the second peak is made narrow; not where there is one alone."""
    model = peaked.run.model
    wide = model.distribution

    def distribution(moments: Moments, *, latent: bool = False) -> Predictive:
        p = wide(moments, latent=latent)
        return p if p.peak is None else replace(p, peak=replace(p.peak, scale=0.1 * p.peak.scale))

    monkeypatch.setattr(model, "distribution", distribution)
    path = write_page(peaked.run, grid_of(peaked.run), tmp_path / "map.html", quarter="2023Q4")
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, offline=True)
    told = []
    for lon in (LONGITUDE, LONGITUDE - 0.12):
        page = context.new_page()
        page.goto(f"file://{path}#{HUB}&q=2023Q4&at={LATITUDE:.5f},{lon:.5f}")
        page.locator("#frame[data-card]").wait_for(state="attached", timeout=WAIT)
        facts = page.locator("#place-facts dt, #place-facts dd").all_inner_texts()
        told.append(dict(zip(facts[::2], facts[1::2], strict=True)).get("Two kinds of values"))
        page.close()
    context.close()
    assert told[0] is not None and told[1] is None
    there = float(peaked.run.target.from_score(model.transform_.inverse(np.array([5.8])))[0])
    shares = re.fullmatch(rf"(\d+)% around \d+, (\d+)% around {there:.0f} Mbit/s", told[0])
    assert shares is not None and sum(map(int, shares.groups())) in (99, 100, 101)


def test_the_map_takes_the_readers_colours(chromium: Any, server: str) -> None:
    visit = Visit(chromium, server, color_scheme="dark")
    assert visit.page.locator("iframe").count() == 0
    colour = "n => getComputedStyle(n).backgroundColor"
    assert visit.map.evaluate(colour) == "rgb(16, 22, 29)"
    visit.page.emulate_media(color_scheme="light")
    assert visit.map.evaluate(colour) == "rgb(233, 238, 243)"
    visit.close()


def test_an_area_is_drawn_with_mouse_and_keys(chromium: Any, server: str) -> None:
    """Corners by clicks, Escape leaves nothing; by keys the same card as its address gives; another threshold asks anew."""
    visit = Visit(chromium, server, HUB.replace("z=9", "z=11"))
    draw = visit.page.get_by_role("button", name="Draw an area")
    draw.click()
    done = visit.page.get_by_role("button", name="Done")
    assert done.is_disabled()
    for x, y in ((0.5, 0.4), (0.6, 0.5), (0.5, 0.6)):
        visit.click(x, y)
    assert visit.page.locator(".leaflet-mark-pane path").count() == 4  # the line and its corners
    visit.page.keyboard.press("Escape")
    assert visit.page.locator(".leaflet-mark-pane path").count() == 0
    assert visit.page.locator("#area").is_hidden() and "area_of" not in visit.address()

    draw.click()
    corners = []
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft"):
        visit.page.keyboard.press("Enter")
        corners.append(
            visit.page.evaluate("(() => { const c = map_geogp.getCenter(); return [c.lng, c.lat]; })()")
        )
        visit.glide(key)
    done.click()
    visit.wait('[data-area="Drawn area"]')
    ring = [tuple(map(float, c.split(","))) for c in visit.address()["area_of"].split(";")]
    np.testing.assert_allclose(ring, corners, atol=2e-5)
    said = visit.page.inner_text("#area")
    assert "mean" in said and "Ground with a level below 100 Mbit/s" in said and "geogp areas" in said
    assert LEVEL in said
    with visit.page.expect_download() as saved:
        visit.page.get_by_role("button", name="area.geojson").click()
    feature = json.loads(Path(saved.value.path()).read_text())["features"][0]
    assert sorted(map(tuple, feature["geometry"]["coordinates"][0][:3])) == sorted(ring)

    visit.page.fill("#threshold", "25")
    visit.page.locator("#area-facts", has_text="Ground with a level below 25 Mbit/s").wait_for()
    again = Visit(chromium, server, urlsplit(visit.page.url).query)
    again.wait('[data-area="Drawn area"]')
    assert again.page.inner_text("#area-facts") == visit.page.inner_text("#area-facts")
    again.click(0.5, 0.5)  # a place takes its place
    again.wait("[data-card]")
    again.page.get_by_role("button", name="The hexagon around it").click()
    again.wait('[data-area^="Hexagon"]')
    assert again.page.locator("#place").is_hidden()
    again.close()
    visit.close()


def test_a_phone(chromium: Any, server: str) -> None:
    visit = Visit(chromium, server, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not visit.map.locator("#list").is_visible() and not visit.map.locator("#pages").is_visible()
    visit.map.locator("#ways > summary").tap()
    assert visit.page.get_by_role("link", name="Areas").is_visible()
    visit.map.locator("#ways > summary").tap()
    visit.map.locator("#layers > summary").tap()
    visit.map.get_by_role("radio", name="How sure").tap()
    visit.wait('[data-layer="within"]')
    assert not visit.map.locator("#list").is_visible()
    visit.page.evaluate(f"map_geogp.setView([{LATITUDE}, {LONGITUDE}], 9, {{animate: false}})")
    box = visit.page.locator(".leaflet-container").bounding_box()
    visit.page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    visit.wait("[data-card]")
    card = visit.page.locator("#place").bounding_box()
    assert card["x"] >= 0 and card["x"] + card["width"] <= 390 and card["y"] + card["height"] <= 845
    visit.close()


UNDER = """() => {
    const boxes = s => [...document.querySelectorAll(s)].map(n => [n.outerHTML, n.getBoundingClientRect()]).filter(
        ([, r]) => r.width);
    const cards = boxes('#panel, #place, #readout');
    return boxes('.degree, .town, .leaflet-mark-pane path').filter(([, r]) => cards.some(
        ([, c]) => r.left < c.right && r.right > c.left && r.top < c.bottom && r.bottom > c.top)).map(([n]) => n);
}"""


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_stands_under_the_cards(chromium: Any, server: str, width: int) -> None:
    """A place marked where its card will be comes into view, and degrees and names keep clear."""
    visit = Visit(chromium, server, HUB, viewport={"width": width, "height": 800})
    visit.click(0.6 if width == 390 else 0.93, 0.93 if width == 390 else 0.12)
    visit.wait("[data-card]")
    assert visit.page.locator(".degree, .town").count() > 3 or width == 390
    until = time.monotonic() + WAIT / 1000  # the map glides for a moment, or longer where frames are late
    while visit.page.evaluate(UNDER) and time.monotonic() < until:
        visit.page.wait_for_timeout(100)
    assert visit.page.evaluate(UNDER) == []
    visit.close()


def test_the_page_of_a_place(chromium: Any, server: str) -> None:
    """What the panels say, by a link on the card; and back."""
    visit = Visit(chromium, server, f"{HUB}&at={LATITUDE},{LONGITUDE}")
    visit.page.locator("#place-more a").click()
    visit.page.get_by_text("Held-out rows inside such intervals").wait_for()
    visit.page.get_by_role("tab", name="Similar to here").click()
    visit.page.get_by_text("To the model, the tenth of the region").wait_for()
    visit.page.get_by_text("← Map").click()
    visit.wait("[data-card]")
    # Streamlit looks for its own addresses below the page's first.
    visit.problems = [said for said in visit.problems if "404 (Not Found)" not in said]
    visit.close()

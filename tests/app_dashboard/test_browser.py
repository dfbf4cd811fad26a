"""The dashboard in Chromium with every road to the outside closed: painted, switchable, true, and in the address."""

import re
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from .conftest import LATITUDE, LONGITUDE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # playwright's own pipes
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAIT = 150_000  # ms: a busy machine
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

    def __init__(self, chromium: Any, server: str, query: str = "", **options: Any) -> None:
        self.context = chromium.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT)
        self.server = server
        self.outside: list[str] = []
        self.problems: list[str] = []
        self.context.route("**/*", self._guard)
        self.page.on("pageerror", lambda e: self.problems.append(str(e)))
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type == "error" else None)
        self.page.on("request", self._note)
        self.page.goto(f"{server}/?{query}")
        self.map = self.page.locator("#frame")  # in a shadow root of the page
        self.wait("[data-ready]")

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.server, "data:", "blob:")):
            self.outside.append(request.url)

    def _guard(self, route: Any) -> None:
        url = route.request.url
        route.continue_() if url.startswith((self.server, "data:", "blob:")) else route.abort()

    def wait(self, condition: str) -> None:
        self.page.locator(f"#frame{condition}").wait_for(state="attached", timeout=WAIT)

    def click(self, x: float, y: float) -> None:
        """At a share of the map's width and height."""
        box = self.map.locator("#map").bounding_box()
        self.page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])

    def picture(self) -> bytes:
        return self.map.locator("#map").screenshot()

    def address(self) -> dict[str, str]:
        return {k: v[0] for k, v in parse_qs(urlsplit(self.page.url).query).items()}

    def close(self) -> None:
        self.context.close()
        assert self.outside == []
        assert self.problems == []


def test_a_visit(chromium: Any, server: str) -> None:
    """Paint, switch, mark, read, slice, and find it all again in the address."""
    visit = Visit(chromium, server, HUB)
    words = visit.map.locator("#said")

    first = visit.picture()
    visit.map.get_by_label("Interval width").check()
    visit.wait('[data-layer="pi_width"]')
    second = visit.picture()
    assert second != first
    assert "Width of the 95% prediction interval" in visit.map.locator("#legend").inner_text()
    assert "2023 Q4" in visit.map.locator("#legend").inner_text()
    assert visit.address()["layer"] == "pi_width"

    visit.click(0.5, 0.5)
    visit.wait("[data-said]")
    told = words.inner_text()
    assert re.fullmatch(
        r"[\d.,]+ Mbit/s; 95% prediction interval [\d.,]+ to [\d.,]+; P\(> 100\) [=<>] .+%", told
    )
    lat, lon = (float(v) for v in visit.address()["at"].split(","))
    assert abs(lat - LATITUDE) < 0.01 and abs(lon - LONGITUDE) < 0.01

    visit.page.get_by_text("Held-out rows inside such intervals").wait_for()
    visit.page.get_by_role("tab", name="Similar to here").click()
    visit.page.get_by_text("To the model, the tenth of the region").wait_for()

    visit.map.get_by_label("Similar to here").check()
    visit.wait('[data-layer="similar"]')
    assert visit.picture() not in (first, second)
    assert "correlation" in visit.map.locator("#legend").inner_text()

    again = Visit(chromium, server, urlsplit(visit.page.url).query)
    again.wait('[data-layer="similar"]')
    again.wait("[data-said]")
    assert again.map.locator("#said").inner_text() == told
    assert again.address() == visit.address()
    again.close()
    visit.close()


def test_settings_change_the_map_without_building_it_again(chromium: Any, server: str) -> None:
    visit = Visit(chromium, server, f"{HUB}&layer=exceedance&at={LATITUDE},{LONGITUDE}")
    visit.wait("[data-said]")
    before = visit.picture()
    visit.map.evaluate("node => { node.dataset.mine = 'same'; }")
    visit.page.locator(".st-key-preset").get_by_text("25", exact=True).click()
    visit.map.get_by_text("P(> 25 Mbit/s)").first.wait_for()
    visit.map.locator("#said").get_by_text("P(> 25)").wait_for()
    visit.wait('[data-mine="same"]')
    visit.page.wait_for_timeout(300)
    assert visit.picture() != before
    assert visit.address()["t"] == "25"
    visit.page.locator(".st-key-level").get_by_text("50%", exact=True).click()
    visit.map.locator("#said").get_by_text("50% prediction interval").wait_for()
    visit.close()


def test_coordinates_keyboard_and_detail(chromium: Any, server: str) -> None:
    visit = Visit(chromium, server)
    field = visit.map.get_by_label("Go to latitude, longitude")
    field.fill("nowhere")
    field.press("Enter")
    visit.map.get_by_text("in degrees").wait_for()
    for text in (
        f"{LATITUDE:.5f}, {LONGITUDE:.5f}",
        f"{LATITUDE:.5f} N {-LONGITUDE:.5f} W",
        f"{-LONGITUDE:.5f}° W, {LATITUDE:.5f}° N",
        "34 0 0 N, 142 56 6 W",
    ):
        field.fill(text)
        field.press("Enter")
        visit.page.wait_for_timeout(100)
        lat, lon = (float(v) for v in visit.address()["at"].split(","))
        assert abs(lat - LATITUDE) < 0.001 and abs(lon - LONGITUDE) < 0.001, text
    visit.map.locator("#map").focus()
    visit.page.keyboard.press("Escape")
    assert "at" not in visit.address()
    visit.page.keyboard.press("ArrowRight")
    visit.page.wait_for_timeout(600)
    visit.page.keyboard.press("Enter")
    assert float(visit.address()["at"].split(",")[1]) > LONGITUDE

    for _ in range(12):  # squares of detail appear when zoomed in
        if float(visit.address()["z"]) >= 14:
            break
        visit.page.keyboard.press("Shift++")
        visit.page.wait_for_timeout(600)
    visit.wait('[data-detail="median"]')
    visit.map.locator("img.leaflet-tile-loaded").nth(3).wait_for(state="attached")
    visit.close()


def test_the_map_is_part_of_the_page(chromium: Any, server: str) -> None:
    """No frame around it; it takes the page's colours and width."""
    visit = Visit(chromium, server, color_scheme="dark")
    assert visit.page.locator("iframe").count() == 0
    colour = "n => getComputedStyle(n).backgroundColor"
    assert visit.map.evaluate(colour) == "rgb(16, 22, 29)"
    visit.page.emulate_media(color_scheme="light")
    visit.page.wait_for_function(
        f"n => ({colour})(n) === 'rgb(233, 238, 243)'", arg=visit.map.element_handle()
    )

    before = visit.map.bounding_box()["width"]
    visit.page.get_by_test_id("stSidebarHeader").hover()
    visit.page.get_by_test_id("stSidebarCollapseButton").locator("button").click()
    visit.page.get_by_test_id("stExpandSidebarButton").wait_for()
    visit.page.wait_for_timeout(600)
    assert visit.map.bounding_box()["width"] > before + 200
    visit.click(0.5, 0.5)  # the middle, where the address says the map's centre is
    visit.wait("[data-said]")
    at = [float(v) for v in visit.address()["at"].split(",")]
    centre = [float(visit.address()[name]) for name in ("lat", "lon")]
    assert at == pytest.approx(centre, abs=0.005)
    visit.close()


def test_a_phone(chromium: Any, server: str) -> None:
    visit = Visit(chromium, server, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert visit.map.evaluate("n => n.scrollWidth") <= 390
    assert not visit.map.locator("#list").is_visible()
    visit.map.locator("#layers summary").tap()
    visit.map.get_by_label("Interval width").tap()
    visit.wait('[data-layer="pi_width"]')
    assert not visit.map.locator("#list").is_visible()
    box = visit.map.locator("#map").bounding_box()
    visit.page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 0.55 * box["height"])
    visit.wait("[data-said]")
    readout, frame = visit.map.locator("#readout").bounding_box(), visit.page.viewport_size
    assert readout["x"] >= 0 and readout["x"] + readout["width"] <= frame["width"]
    visit.page.get_by_test_id("stExpandSidebarButton").tap()
    visit.page.get_by_text("Is the interval honest?").wait_for()
    visit.close()

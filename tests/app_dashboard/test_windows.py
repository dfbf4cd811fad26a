"""A town in a large region: pixels of the model itself where the page's are large, first every few, then all."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Error
from starlette.testclient import TestClient

from app.caches import DiskCache
from app.dashboard import holding, windows
from app.dashboard.atlas import Atlas
from geogp import GPRegressor, load
from geogp.predictive import Predictive
from maps.packing import unpack

from .conftest import save, serving
from .test_browser import Visit, chromium  # noqa: F401 - a fixture
from .test_routes import application

#: Of the three towns of the region, metres.
TOWNS = np.array([[0.0, 0.0], [750_000.0, 300_000.0], [-600_000.0, -450_000.0]])


@pytest.fixture(scope="module")
def wide_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 1,350 x 750 km without a boundary, measured in three towns."""
    rng = np.random.default_rng(0)
    xy = TOWNS[rng.integers(0, 3, 500)] + rng.normal(0, 4000, (500, 2))
    years = rng.choice([2023.625, 2023.875], 500)
    y = 4.5 + 0.3 * np.sin(xy[:, 0] / 4000) + rng.normal(0, 0.2, 500)
    model = GPRegressor(
        method="dbk-rbf", spatial=(0, 1), time=2, steps=40, rank=32, hidden=16, random_state=0
    )
    model.fit(np.column_stack([xy, years]), y, rng.integers(1, 30, 500).astype(float))
    return save(tmp_path_factory.mktemp("wide") / "wide", model, xy, boundary=None)


@pytest.fixture(scope="module")
def wide(wide_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return Atlas(load(wide_run), DiskCache(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def address(wide_run: Path, cache_folder: Path) -> Iterator[str]:
    with serving(cache_folder, str(wide_run)) as found:
        yield found


def town(atlas: Atlas) -> tuple[float, float]:
    """Latitude and longitude in the second, on no edge of a pixel."""
    lon, lat = atlas.run.to_degrees(TOWNS[1:2] + [230.0, 170.0])
    return float(lat[0]), float(lon[0])


def box(atlas: Atlas, half: float = 0.05) -> str:
    lat, lon = town(atlas)
    return f"{lon - half},{lat - half},{lon + half},{lat + half}"


def made(atlas: Atlas, **asked: str) -> tuple[windows.View, dict[str, Any], dict[str, np.ndarray]]:
    view = atlas.windows.view({"box": box(atlas), **asked}, atlas.choices)
    assert view is not None
    packs = atlas.windows._made(view, lambda done, total: None)
    header, planes = unpack(packs.usual)
    return view, header, planes | (unpack(packs.others)[1] if packs.others else {})


def median(atlas: Atlas, planes: dict[str, np.ndarray], n: str) -> np.ndarray:
    a = planes[f"inverse_df_{n}"]
    names = (f"location_{n}", f"scale_{n}")
    tails = 1 / a if (a > 0).all() else None
    p = Predictive(
        *(planes[k] for k in names), tails, atlas.run.model.transform_, planes[f"log_skewness_{n}"]
    )
    return np.asarray(atlas.target.from_score(p.median()))


def test_a_window_is_what_an_export_would_hold(wide: Atlas) -> None:
    """Every pixel of the finest side; of the page only every k-th, which are none of them averaged."""
    view, header, planes = made(wide)
    side = wide.windows.grid.resolution
    assert side <= 500.0 < 0.2 * abs(wide.page.geobox.affine.a) and header["step"] == view.step == 1
    cut = wide.windows.grid.geobox[slice(*view.rows), slice(*view.columns)]
    ds = wide.run.predict(cut, tests=3.0, max_distance_m=wide.windows.grid.max_distance_m)
    known = planes["known"]
    np.testing.assert_array_equal(known, np.isfinite(ds["median"].values))
    np.testing.assert_allclose(median(wide, planes, "3"), ds["median"].values[known], rtol=1e-3)
    assert header["quarter"] == "2023Q4"
    only = {name.split("_")[-1] for name in header["planes"] if name.startswith("location")}
    assert only == {f"{wide.choices.tests:.10g}"}


def test_a_first_look_is_every_kth_pixel_and_places_are_told_there(
    wide: Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "LOOK", 60)
    view, header, planes = made(wide, look="1")
    assert view.step == header["step"] > 1 and 30 < planes["known"].sum() < 90
    lat, lon = town(wide)
    there = wide.of(f"~{view.step}")
    row, column = (
        int(v) for v in reversed(~wide.windows.grid.geobox.affine * tuple(wide.run.from_degrees(lon, lat)[0]))
    )
    at = (row - view.rows[0]) // view.step, (column - view.columns[0]) // view.step
    number = int(planes["known"][: at[0]].sum() + planes["known"][at[0], : at[1]].sum())
    usual = f"{wide.choices.tests:.10g}"
    told = there.values(lat, lon, wide.choices.default)["median"]
    assert median(wide, planes, usual)[number] == pytest.approx(told, rel=1e-3)
    assert wide.of("~0") is wide and wide.of("~no") is wide and wide.of("~999") is wide


def test_where_the_page_shows_as_much_there_is_no_window(
    wide: Atlas, atlas: Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = "-148,30,-138,38"
    view = wide.windows.view({"box": whole}, wide.choices)
    assert view is not None and view.step > 1  # few pixels have values, but the rectangle is large
    monkeypatch.setattr(windows, "MOST", 2000)
    assert wide.windows.view({"box": whole}, wide.choices) is None
    assert wide.windows.view({"box": "10,10,11,11"}, wide.choices) is None  # elsewhere
    assert atlas.windows.document() is None and atlas.spec()["window"] is None
    assert atlas.windows.view({"box": "-143.01,33.99,-142.99,34.01"}, atlas.choices) is None


def test_windows_that_are_remembered_are_bounded(wide: Atlas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "KEPT", 1)
    found = Atlas(wide.run, wide.disk).windows
    view = found.view({"box": box(wide)}, wide.choices)
    assert view is not None and found._made(view, lambda done, total: None).usual
    assert found.kept(view) is None and wide.windows.kept(made(wide)[0]) is not None


def test_a_window_across_the_coast_brings_its_own(wide_run: Path, tmp_path: Path, wide: Atlas) -> None:
    """The page's coast is as coarse as its pixels; beside it no pixel has a value."""
    lat, lon = town(wide)
    ring = [[lon, lat - 3.0], [lon, lat + 1.0], [lon - 8.0, lat + 1.0], [lon - 8.0, lat - 3.0]]
    run = load(wide_run)
    run.facts["data"]["boundary"] = {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
    found = Atlas(run, DiskCache(tmp_path))
    assert abs(found.page.geobox.affine.a) > 1000
    _, header, planes = made(found)
    east = np.array(header["region"]["coordinates"][0])[:, 0].max()
    assert east == pytest.approx(lon, abs=1e-4)
    assert 0.4 < planes["known"].mean() < 0.6
    beyond = f"{lon + 0.02},{lat - 0.01},{lon + 0.04},{lat + 0.01}"
    view = found.windows.view({"box": beyond}, found.choices)
    assert view is None or found.windows._made(view, lambda done, total: None).usual == b""


@pytest.fixture
def client(wide_run: Path) -> Iterator[TestClient]:
    holding.hold(wide_run)
    yield TestClient(application())
    holding.let_go()


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({}, 200),
        ({"counts": "all", "look": "1"}, 200),
        ({"box": "10,10,11,11"}, 204),
        ({"box": "3,2,1"}, 400),
        ({"q": "1999Q1"}, 400),
    ],
)
def test_the_route(client: TestClient, wide: Atlas, asked: dict[str, str], status: int) -> None:
    answer = client.get("/geogp/window", params={"box": box(wide, 0.02), **asked})
    assert answer.status_code == status
    assert (status == 200) == (answer.content[:4] == b"GGP1")
    assert (status == 400) == ("error" in answer.text)


#: Whether the ends that are read out are those, to what two digits tell; those of the page's pixel are further off.
SAID = """([low, high]) => {
    const said = document.getElementById('said').textContent.match(/[\\d.]+/g).map(Number);
    return Math.abs(said[2] / low - 1) < 0.01 && Math.abs(said[3] / high - 1) < 0.01;
}"""


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # playwright's own pipes
def test_zoomed_in_the_page_reads_out_at_once_and_then_shows_every_pixel(
    chromium: Any,  # noqa: F811
    address: str,
    wide: Atlas,
) -> None:
    lat, lon = town(wide)
    held: list[Any] = []
    visit = Visit(chromium, address, "", ("**/geogp/window?**", held))
    page = visit.page
    assert not held  # the whole region asks for none
    page.fill("#where", f"{lat:.6f}, {lon:.6f}")
    page.keyboard.press("Enter")
    visit.wait("[data-card]")
    coarse = page.inner_text("#said")
    assert coarse.startswith(tuple("123456789"))
    page.wait_for_function("() => document.getElementById('busy-text').textContent.startsWith('Working out')")
    page.unroute("**/geogp/window?**")
    for route in held:
        with suppress(Error):
            route.continue_()
    visit.wait('[data-detail="~1"][data-whole="true"]')
    assert page.locator("#busy").is_hidden()
    there = wide.of("~1").values(lat, lon, wide.choices.default)
    visit.wait('[data-history^="~1"]')  # the card's quarters are of the same pixel
    said = [float(v.replace(",", "")) for v in re.findall(r"[\d.,]*\d", page.inner_text("#said"))]
    assert abs(said[0] - there["median"]) <= 0.51 and abs(said[2] - there["lower"]) <= 0.51
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.fill("#threshold", "42")
    visit.wait('[data-threshold="42"][data-detail="~1"]')
    page.check("input[name=layer][value=exceedance]")
    visit.wait('[data-layer="exceedance"][data-detail="~1"]')
    assert not [url for url in asked if "/window" in url or "/planes" in url]
    visit.wait("[data-counts]")
    page.select_option("#tests", "100")
    visit.wait('[data-tests="100"][data-detail="~1"][data-whole="true"]')
    many = wide.of("~1").values(lat, lon, replace(wide.choices.default, tests=100.0, threshold=42.0))
    page.wait_for_function(SAID, arg=[many["lower"], many["upper"]])
    page.click("#home")
    visit.wait('[data-detail=""]')
    assert page.locator("canvas.leaflet-image-layer").count() == 1
    visit.close()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # playwright's own pipes
def test_a_link_that_is_pressed_while_the_card_is_drawn_again_leads_where_it_says(
    chromium: Any,  # noqa: F811
    address: str,
    wide: Atlas,
) -> None:
    """Finer pixels and the quarters' chart come between mouse down and mouse up, and move nothing."""
    lat, lon = town(wide)
    held: list[Any] = []
    view = f"z=12&lat={lat:.6f}&lon={lon:.6f}&at={lat:.6f},{lon:.6f}"
    visit = Visit(chromium, address, view, (re.compile("/geogp/(window|history)"), held))
    page = visit.page
    link = page.get_by_role("link", name="Chances, and what is similar to here")
    link.wait_for()
    place = link.bounding_box()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.mouse.down()
    assert held
    page.unroute(re.compile("/geogp/(window|history)"))
    for route in held:
        with suppress(Error):  # the page has asked again
            route.continue_()
    visit.wait('[data-detail="~1"][data-whole="true"][data-history^="~1"]')
    after = link.bounding_box()
    assert after["y"] == pytest.approx(place["y"], abs=3)
    page.mouse.up()
    page.get_by_text("Held-out rows inside such intervals").wait_for()
    assert visit.address()["finer"] == "~1"  # of the pixels that had come by then
    # Streamlit looks for its own addresses below the page's first.
    visit.problems = [said for said in visit.problems if "404 (Not Found)" not in said]
    visit.close()

"""Runs of other places and values in one dashboard: what the map offers, where it flies, what it no longer shows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pyproj import CRS
from starlette.testclient import TestClient

from app.caches import DiskCache
from app.dashboard import holding
from app.dashboard.atlas import Atlas
from app.dashboard.words import plain
from geogp import GPRegressor, load
from geogp import run as runs
from maps.colours import factor

from .conftest import LAT, LATITUDE, LONGITUDE, facts, fit, serving
from .test_browser import Visit, chromium  # noqa: F401 - a fixture
from .test_routes import application

browser = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::ResourceWarning")]
#: The other run lies here, and is of lead.
THERE = -105.0


@pytest.fixture(scope="module")
def lead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values without quarters, 38 degrees further east."""
    model, xy = fit(time=False, n=300)
    plane = CRS.from_proj4(f"+proj=laea +lat_0={LAT} +lon_0={THERE} +datum=WGS84 +units=m").to_wkt()
    known = facts(crs=plane, quarters=[], last_quarter=None, boundary=None, value_name="lead")
    path = tmp_path_factory.mktemp("elsewhere") / "lead"
    support = {"support": {"positions_m": torch.from_numpy(xy)}}
    runs.save(path, model, known | {"target": "value"}, extra=support)
    return path


@pytest.fixture(scope="module")
def address(run_path: Path, lead: Path, cache_folder: Path) -> Iterator[str]:
    with serving(cache_folder, str(run_path), str(lead)) as address:
        yield address


def radio(visit: Visit, layer: str) -> Any:
    return visit.page.locator(f"#list input[value={layer}]")


def choose(visit: Visit, layer: str) -> None:
    """And wait until it is drawn."""
    radio(visit, layer).check()
    visit.wait(f'[data-layer="{layer}"]')


def painted(visit: Visit) -> int:
    """Pixels of the map's own picture that are not empty."""
    script = """(() => { const c = document.querySelector('canvas.leaflet-image-layer');
        return new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer).filter((v) => v).length; })()"""
    return int(visit.page.evaluate(script))


def test_runs_of_other_places_are_told_apart(run_path: Path, lead: Path) -> None:
    holding.hold(run_path, lead)
    try:
        client = TestClient(application())
        assert client.get("/geogp/apart").json() == {"lead": "no place in common with lead"}
        assert client.get("/geogp/apart?run=lead").json() == {"island": "no place in common with island"}
        both = holding.held().atlas(), holding.held("lead").atlas()
        assert both[0].apart(both[0]) == "" and "problem" in both[0].pair(both[1])["pair"]
        assert [atlas.of_what for atlas in both] == ["download speed Mbit/s", "lead"]
    finally:
        holding.let_go()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_pair_that_cannot_be_is_not_offered(chromium: Any, address: str) -> None:  # noqa: F811
    visit = Visit(chromium, address)
    visit.page.get_by_text("Chance that either limit is missed (no place in common with lead)").wait_for()
    assert radio(visit, "either").is_disabled()

    # An address that asks for it: no former picture under its name, no limit without a name.
    visit.page.goto(f"{address}/?layer=either&other=lead")
    visit.page.locator("#legend p").wait_for()
    radio(visit, "either").and_(visit.page.locator(":disabled")).wait_for()
    assert painted(visit) == 0 and visit.page.locator("#limit-line").is_hidden()
    choose(visit, "measured")
    assert painted(visit) > 0
    visit.problems = [said for said in visit.problems if "favicon" not in said]
    visit.close()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_layer_that_fails_leaves_no_former_picture(chromium: Any, address: str) -> None:  # noqa: F811
    visit = Visit(chromium, address, f"at={LATITUDE:.5f},{LONGITUDE:.5f}")
    visit.page.route("**/geogp/slice?*", lambda route: route.fulfill(status=400, json={"error": "No such."}))
    before = painted(visit)
    radio(visit, "similar").check()
    visit.page.get_by_text("No such.").wait_for()
    assert before > 0 and painted(visit) == 0
    assert visit.page.locator("#frame[data-layer]").count() == 0
    choose(visit, "median")
    assert painted(visit) == before
    visit.problems = [said for said in visit.problems if "400" not in said]
    visit.close()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_nothing_is_similar_to_the_sea(chromium: Any, address: str) -> None:  # noqa: F811
    visit = Visit(chromium, address, f"at={LATITUDE + 0.5:.5f},{LONGITUDE:.5f}&layer=similar")
    visit.wait('[data-layer="median"]')
    radio(visit, "similar").and_(visit.page.locator(":disabled")).wait_for()
    visit.page.goto(f"{address}/?at={LATITUDE:.5f},{LONGITUDE:.5f}&layer=similar")
    visit.wait('[data-layer="similar"]')
    visit.click(0.9, 0.9)  # the mark moves to the sea
    visit.wait('[data-layer="median"]')
    assert radio(visit, "similar").is_disabled()
    visit.close()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_another_run_is_flown_to_and_has_limits_of_its_own(
    chromium: Any,  # noqa: F811
    address: str,
    lead: Path,
) -> None:
    at = f"{LATITUDE:.4f},{LONGITUDE:.4f}"
    visit = Visit(chromium, address, f"t=123&n=5&layer=exceedance&z=10&lat=34&lon=-143&at={at}&bl=median")
    visit.wait("[data-card]")
    visit.page.select_option("#run", "lead")
    visit.page.wait_for_url("**run=lead**")
    visit.wait('[data-layer="exceedance"]')
    found, own = visit.address(), load(lead)
    assert float(found["t"]) == own.thresholds[-1] and float(found["n"]) == own.model.typical_count_
    assert abs(float(found["lon"]) - THERE) < 1 and not {"at", "bl"} & set(found)
    assert visit.page.locator("#tests option:checked").inner_text().endswith(" measurements")
    visit.page.goto(f"{address}/?run=lead&t=200&n=3&of=lead")  # of its own values they are kept
    visit.wait('[data-threshold="200"]')
    visit.close()


def test_a_factor_reaches_both_ends() -> None:
    """Of 157 with an interval of 9.7 to 423 the lower end is 16 times away, not 6.6."""
    import numpy as np

    m, lower, upper = (np.array(v) for v in ([157.0, 5.0, 5.0, 10.0], [9.7, 0.0, -1.0, 5.0], [423.0, 9.0, 9.0, 20.0]))  # fmt: skip
    found = factor(m, lower, upper)
    assert found[0] == pytest.approx(157 / 9.7) and np.isinf(found[1:3]).all() and found[3] == 2.0
    assert (m[::3] / found[::3] <= lower[::3] + 1e-9).all() and (m[::3] * found[::3] >= upper[::3]).all()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_card_says_what_holds(chromium: Any, address: str, atlas: Atlas) -> None:  # noqa: F811
    fact = "#place-facts dt:text-is('How sure') + dd"
    visit = Visit(chromium, address, f"at={LATITUDE:.5f},{LONGITUDE:.5f}")
    visit.wait("[data-card]")
    v = atlas.values(LATITUDE, LONGITUDE, atlas.choices.default)
    factor_ = max(v["upper"] / v["median"], v["median"] / v["lower"])
    told = visit.page.locator(fact).inner_text()
    assert told.startswith("within ×") and float(told[8:]) == pytest.approx(factor_, rel=0.04)  # two digits
    said = visit.page.evaluate(
        "[[157, 9.8125, 423], [5, -1, 9], [5, 0, 9], [NaN, NaN, NaN]].map((v) => String(factorOf(...v)))"
    )
    assert said == ["16", "Infinity", "Infinity", "NaN"]
    visit.close()


def test_numbers_are_written_one_way() -> None:
    from maps.words import exact, number

    told = [4.207e-10, 4.2e13, 1e9, 5e-7, 1e-6, 123456.0, 0.0]
    assert [exact(v) for v in told] == ["4.207e-10", "4.2e+13", "1e+9", "5e-7", "0.000001", "123456", "0"]
    assert [number(v) for v in told[:4]] == ["4.21e-10", "4.2e+13", "1e+9", "5e-7"]
    assert [plain(v) for v in told] == ["4.2e-10", "4.2e+13", "1e+9", "5e-7", "0.000001", "123,456", "0"]


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_page_writes_numbers_like_python(chromium: Any, address: str) -> None:  # noqa: F811
    from maps.packing import short
    from maps.words import exact

    told = [4.207e-10, 4.2e13, 1e9, 5e-7, 1e-6, 0.000042, 123456.0, 25.0, 0.37, 0.0, -4e-8, -12.0]
    visit = Visit(chromium, address)
    for name, write in (("exact", exact), ("plain", plain), ("short", short)):
        assert visit.page.evaluate(f"(v) => v.map({name})", told) == [write(v) for v in told], name
    visit.close()


def test_a_quarter_that_was_held_out_is_told(
    fitted: tuple[GPRegressor, Any], atlas: Atlas, tmp_path: Path
) -> None:
    model, xy = fitted
    support = {"support": {"positions_m": torch.from_numpy(xy)}}
    runs.save(tmp_path / "forward", model, facts() | {"rows": {"known": {"2023Q3": 350}}}, extra=support)
    forward = Atlas(load(tmp_path / "forward"), DiskCache(tmp_path / "cache"))
    assert forward._unlearned() == {"quarters": ["2023Q4"], "rests": "2023 Q3"}
    assert atlas._unlearned() is None and atlas.spec()["unlearned"] is None


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_long_marks_stay_in_the_legend_and_names_off_the_degrees(chromium: Any, address: str) -> None:  # noqa: F811
    visit = Visit(chromium, address, f"at={LATITUDE:.5f},{LONGITUDE:.5f}")
    visit.wait("[data-card]")
    boxes = """(name) => [...document.querySelectorAll(name)].map((node) => { const r = node.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; })"""
    degrees = visit.page.evaluate(boxes, "#frame .degree")
    names = visit.page.evaluate(boxes, "#frame .town, #frame .area")
    assert len(degrees) > 3
    for a in degrees:
        for b in names:
            assert a[0] >= b[2] or a[2] <= b[0] or a[1] >= b[3] or a[3] <= b[1], (a, b)
    marks = [[0, "≤1.5e-10"], [0.4, "3e-10"], [0.93, "6e-10"], [1, "≥6.5e-10"]]
    visit.page.evaluate("(marks) => document.querySelector('#legend').replaceChildren(ticksOf(marks))", marks)
    (panel,), (first, *_, last) = (visit.page.evaluate(boxes, name) for name in ("#panel", "#legend span"))
    assert panel[0] + 10 < first[0] and last[2] < panel[2] - 10
    shown_ = visit.page.locator("#legend span").all_inner_texts()
    assert shown_[0] == "≤1.5e-10" and shown_[-1] == "≥6.5e-10" and "6e-10" not in shown_
    visit.close()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_where_ratios_mean_nothing_the_card_tells_the_width(chromium: Any, address: str, lead: Path) -> None:  # noqa: F811
    visit = Visit(chromium, address, f"run=lead&at={LAT},{THERE}")
    visit.wait("[data-card]")
    spec = Atlas(load(lead), DiskCache()).spec()
    told = visit.page.locator("#place-facts dt:text-is('How sure') + dd").inner_text()
    assert told.startswith("within ×") == spec["fade"]["ratio"]
    assert told.endswith("upper less lower end") != spec["fade"]["ratio"]
    visit.close()

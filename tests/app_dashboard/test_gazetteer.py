"""Names that a page does not bring: searched among all towns of a region, and shown where one looks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.dashboard import holding
from app.dashboard.atlas import Atlas
from app.dashboard.gazetteer import Gazetteer, folded
from app.workflow import naming

from .conftest import serving
from .test_browser import Visit, chromium  # noqa: F401 - a fixture
from .test_routes import application
from .test_windows import town, wide, wide_run  # noqa: F401 - fixtures

TOWNS = [
    ("Springfield", 155_000, ()), ("Springfield", 114_000, ()), ("West Springfield", 28_000, ()),
    ("Old Spring Field", 2_000, ()), ("Kāneʻohe", 34_000, ("Kaneohe Town",)), ("Spring", 62_000, ("Springfeld",)),
]  # fmt: skip


def place(name: str, people: int, also: tuple[str, ...], k: int = 0) -> dict[str, Any]:
    return {"name": name, "people": people, "also": list(also), "kind": "town", "about": "", "of": "",
            "lat": 34.0 + k / 50, "lon": -143.0}  # fmt: skip


@pytest.fixture
def some(atlas: Atlas, monkeypatch: pytest.MonkeyPatch) -> Gazetteer:
    known = sorted((place(*t, k) for k, t in enumerate(TOWNS)), key=lambda t: -t["people"])
    monkeypatch.setattr(naming, "towns", lambda page, most=None: known)
    return Gazetteer(atlas.page)


def test_the_name_itself_comes_first_then_what_begins_so_the_largest_first(some: Gazetteer) -> None:
    found = [(t["name"], t["people"]) for t in some.find("springfield")]
    assert found == [("Springfield", 155_000), ("Springfield", 114_000), ("West Springfield", 28_000)]
    assert some.find("spring")[0]["name"] == "Spring"
    assert [t["name"] for t in some.find("KANEOHE")] == ["Kāneʻohe"] and folded("Kāneʻohe") == "kaneohe"
    assert some.find("k") == [] and some.find("nowhere") == [] and len(some.find("spring" * 1000)) == 0


def test_a_region_of_few_towns_and_small_pixels_brings_all(atlas: Atlas, wide: Atlas) -> None:  # noqa: F811
    assert not atlas.spec()["closer"] and wide.spec()["closer"]
    assert atlas.gazetteer.has_more([place("x", 1, ())] * naming.MOST)


@pytest.fixture
def client(wide_run: Path) -> Iterator[TestClient]:  # noqa: F811
    holding.hold(wide_run)
    yield TestClient(application())
    holding.let_go()


def test_the_route(client: TestClient) -> None:
    assert client.get("/geogp/names", params={"name": "<b>'"}).json() == {"places": []}
    here = client.get("/geogp/names", params={"box": "-143.1,33.9,-142.9,34.1"})
    assert here.json() == {"places": [], "lines": []}  # the sea
    refused = client.get("/geogp/names", params={"box": "1,2"})
    assert refused.status_code == 400 and "window" in refused.json()["error"]


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # playwright's own pipes
def test_a_small_town_is_found_and_named_where_one_looks(
    chromium: Any,  # noqa: F811
    wide_run: Path,  # noqa: F811
    wide: Atlas,  # noqa: F811
    cache_folder: Path,
) -> None:
    lat, lon = town(wide)
    hamlet = place("Little <i>Hub</i>", 900, ()) | {
        "lat": lat,
        "lon": lon,
        "about": "900 people",
        "of": "Ohio",
    }
    line = [[lon - 0.1, lat - 0.1], [lon + 0.1, lat + 0.1]]

    def answer(route: Any) -> None:
        found = {"places": [hamlet]}
        route.fulfill(json=found if "name=" in route.request.url else found | {"lines": [line]})

    with serving(cache_folder, str(wide_run)) as address:
        visit = Visit(chromium, address)
        page = visit.page
        page.route("**/geogp/names?**", answer)
        page.fill("#where", "little hub")
        page.wait_for_selector("#found li")
        assert page.inner_text("#found li") == "Little <i>Hub</i> 900 people, Ohio"
        page.keyboard.press("Enter")
        visit.wait('[data-card][data-names="1"]')
        assert page.locator(".town", has_text="Little").count() == 1
        assert page.inner_text("#place-said").startswith("Near Little <i>Hub</i>: ")
        assert page.locator(".borders path, .leaflet-borders-pane path").count() == 1
        page.click("#home")
        visit.wait('[data-names=""]')
        assert page.inner_text("#place-said").startswith("Near Little <i>Hub</i>: ")
        visit.close()

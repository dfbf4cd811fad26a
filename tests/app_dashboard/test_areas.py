"""Tables of areas on the page and on the map: the command's own numbers, keys and outlines."""

import inspect
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import geopandas
import numpy as np
import pytest
import shapely
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest

from app.dashboard import areas
from app.dashboard.atlas import Atlas
from app.dashboard.jobs import Job
from app.dashboard.sheets import bar
from app.errors import InvalidInput
from app.workflow.steps.areas import areas as average

from .conftest import HOSTILE, LAT, LEVEL, LON
from .test_browser import Visit, chromium  # noqa: F401 - a fixture
from .test_routes import application


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two halves of the island, one of them named by somebody who means ill, and a place elsewhere."""
    boxes = [
        shapely.box(LON - 0.3, LAT - 0.3, LON, LAT + 0.3),
        shapely.box(LON, LAT - 0.3, LON + 0.3, LAT + 0.3),
    ]
    boxes.append(shapely.box(0, 0, 1, 1))
    frame = geopandas.GeoDataFrame(
        {"GEOID": ["1", "2", "3"], "NAME": ["West", HOSTILE, "Far"]}, geometry=boxes, crs=4326
    )
    path = tmp_path_factory.mktemp("areas") / "halves.geojson"
    frame.to_file(path)
    return path


@pytest.fixture(scope="module")
def job(atlas: Atlas, file: Path) -> Iterator[Job]:
    job = areas.start(atlas, areas.Asked(file, "halves.geojson", "2023Q3", thresholds=(42.0,)))
    while not job.over:
        time.sleep(0.1)
    assert job.state == "done", job.told
    yield job


def test_the_table_is_that_of_the_command(atlas: Atlas, job: Job, file: Path, tmp_path: Path) -> None:
    ours = average(atlas.run, file, tmp_path / "t.gpkg", quarter="2023Q3", thresholds=[42.0]).table
    found = areas.found_of(job)
    assert [row.key for row in found.rows] == ["1", "2", "3"] and [row.inside for row in found.rows] == [
        1,
        1,
        0,
    ]
    for name in ("mean", "lower", "upper", "share_below_42", "rank"):
        told = [row.values[name] for row in found.rows[:2]]
        np.testing.assert_allclose(told, ours[name].to_numpy()[:2], rtol=1e-9)
    assert job.shown.endswith("--areas halves.geojson -o areas.gpkg --quarter 2023Q3 --thresholds 42")
    assert job.share == 1.0 and job.total == 500  # draws


def test_its_outlines_are_the_files(atlas: Atlas, job: Job, file: Path) -> None:
    found = areas.outlines(areas.found_of(job), LON)
    assert [f["properties"]["key"] for f in found["features"]] == ["1", "2"]
    first = found["features"][0]
    assert first["properties"]["said"].startswith("mean level ") and "Mbit/s" in first["properties"]["said"]
    assert shapely.geometry.shape(first["geometry"]).equals(geopandas.read_file(file).geometry[0])


def test_the_map_asks_for_them_by_the_jobs_name(shown: object, job: Job) -> None:
    client = TestClient(application())
    assert len(client.get(f"/geogp/areas?job={job.id}").json()["features"]) == 2
    for name in ("", "x", "../run", "%00"):
        answer = client.get(f"/geogp/areas?job={name}")
        assert answer.status_code == 400 and "compute it again" in answer.json()["error"]


SHEET = """
from app.dashboard.page import sheet

sheet("areas")
"""


def opened(**query: str) -> AppTest:
    page = AppTest.from_string(SHEET, default_timeout=60)
    for name, value in query.items():
        page.query_params[name] = value
    return page.run()


def html(page: AppTest) -> str:
    return "\n".join(e.proto.body for e in page.get("html"))


def test_the_page_shows_the_worst_first_and_links_each_to_the_map(shown: object, job: Job) -> None:
    page = opened(areas=job.id, q="2023Q3", t="42")
    assert not page.exception
    said = html(page)
    rows = said.split("<tbody>")[1].split("</tr>")
    worst = min(areas.found_of(job).rows[:2], key=lambda row: row.values["rank"])
    assert f"area={worst.key}&amp;" in rows[0] and "q=2023Q3&amp;t=42" in rows[0]
    assert HOSTILE not in said and "&lt;b&gt;" in said
    captions = "".join(c.value for c in page.caption).replace("\\", "")
    assert "1 more lies outside" in captions and LEVEL in captions
    assert "<th>level below 42</th>" in said
    assert [h.value for h in page.subheader] == ["Mean level of download speed, 2023 Q3"]
    page.selectbox(key="order").set_value("the best first").run()
    assert html(page).split("<tbody>")[1].split("</tr>")[1] == rows[0]
    page.text_input(key="only").set_value("west").run()
    assert html(page).count("<tr") == 2


def test_an_area_of_the_map_has_its_row_first(shown: object, job: Job) -> None:
    best = max(areas.found_of(job).rows[:2], key=lambda row: row.values["rank"])
    page = opened(areas=job.id, area=best.key)
    first = html(page).split("<tbody>")[1].split("</tr>")[0]
    assert "chosen" in first and f"area={best.key}&amp;" in first
    assert not opened(areas=job.id, area="nothing").exception
    assert "not known any more" in opened(areas="gone").info[0].value


def test_hexagons_cover_the_region(atlas: Atlas) -> None:
    frame = geopandas.read_file(areas.hexagons(atlas, 6))
    region = shapely.geometry.shape(atlas.run.boundary)
    assert shapely.difference(region, frame.union_all()).area < 1e-9
    assert frame.intersects(region).all() and frame["id"].is_unique
    with pytest.raises(InvalidInput, match="choose larger ones"):
        areas.hexagons(atlas, 10)


def test_without_a_boundary_hexagons_cover_what_was_measured(atlas: Atlas) -> None:
    data = {**atlas.run.data, "boundary": None}
    run = replace(atlas.run, facts={**atlas.run.facts, "data": data})
    without: Any = SimpleNamespace(id="without-boundary", run=run)
    frame = geopandas.read_file(areas.hexagons(without, 5))
    lon, lat = run.to_degrees(run.support.positions_m)
    assert shapely.contains_xy(frame.union_all(), lon, lat).all() and len(frame) < 60


def test_what_is_no_file_of_polygons_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Areas come as"):
        areas.brought("../../x.py", b"")
    assert areas.brought("../../x.GPKG", b"1").parent.name == "uploads"


def test_values_without_a_unit_have_no_empty_brackets(
    shown: object, atlas: Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [box.label for box in opened().text_input] == ["Shares below (Mbit/s)"]
    monkeypatch.setattr(Atlas, "unit", "")
    assert [box.label for box in opened().text_input] == ["Shares below"]


def test_a_bar_is_not_full_before_the_job_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is written after all is drawn, and nothing tells of it."""
    told: list[tuple[float, str]] = []
    monkeypatch.setattr(bar.st, "progress", lambda share, text: told.append((share, text)))
    monkeypatch.setattr(bar.st, "button", lambda *_, **__: False)
    job = Job("0", "areas", "geogp areas", (), Path(), Path(), "running", "drawing", 250, 500)
    monkeypatch.setattr(bar, "jobs", lambda: {"0": job})
    for job.done in (250, 500):
        inspect.unwrap(bar.watch)("0")
    assert [share for share, _ in told] == [0.5, bar.NEARLY]
    said = [text.replace("\\", "") for _, text in told]
    assert said == ["areas: drawing, 0 s", "areas: drawing is done, finishing, 0 s"]


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_area_is_found_by_its_key(chromium: Any, server: str) -> None:  # noqa: F811
    ring = [[LON, LAT], [LON + 0.1, LAT], [LON + 0.1, LAT + 0.1], [LON, LAT + 0.1], [LON, LAT]]
    about = {"key": "15001", "name": "Hawaii County", "said": "mean 90 Mbit/s"}
    feature = {"type": "Feature", "properties": about, "geometry": {"type": "Polygon", "coordinates": [ring]}}
    visit = Visit(chromium, server)
    table = {"type": "FeatureCollection", "features": [feature]}
    visit.page.route("**/geogp/areas?*", lambda route: route.fulfill(json=table))
    visit.page.goto(f"{server}/?areas=x")
    visit.wait("[data-areas='1']")
    for text in ("15001", "hawaii co"):
        visit.page.fill("#where", text)
        visit.page.locator("#found li", has_text="Hawaii County").wait_for()
    visit.page.press("#where", "Enter")
    visit.page.locator("#area-said", has_text="Hawaii County: mean 90 Mbit/s").wait_for()
    assert visit.address()["area"] == "15001" and abs(float(visit.address()["lat"]) - LAT - 0.05) < 0.02
    visit.close()

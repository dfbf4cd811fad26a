"""Two runs of the same tiles in one dashboard: side by side, either limit missed, what is downloaded, what could also be."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rasterio
from starlette.testclient import TestClient

from app.dashboard import holding, taking
from app.dashboard.atlas import Atlas
from app.dashboard.words import plain
from app.errors import InvalidInput
from app.workflow.together import surface_moments, together
from geogp.areas import either_below, surface
from maps.packing import unpack

from .conftest import serving
from .test_browser import PICTURE, Visit, chromium  # noqa: F401 - a fixture
from .test_routes import application


@pytest.fixture
def both(two_runs: list[Path]) -> Iterator[SimpleNamespace]:
    holding.hold(*two_runs)
    yield SimpleNamespace(
        a=holding.held().atlas(), b=holding.held("upload").atlas(), client=TestClient(application())
    )
    holding.let_go()


def direct(a: Atlas, b: Atlas, quarter: str, limits: tuple[float, float]) -> tuple[np.ndarray, Any]:
    """P(either limit is missed) at the page's pixels, by the workflow's own functions; and the pair."""
    pair = together(a.run, b.run, limits)
    X = a.run.inputs(a.page.places[1][:, :2], quarter)
    found = surface_moments(a.run, X), surface_moments(b.run, pair.inputs(X[:, :2], quarter))
    h, k = ((d.transform.forward(np.array(s)) - d.location) / d.scale for s, d in zip(pair.scores, found))
    return either_below(h, k, pair.correlation.surface), pair


def test_a_page_is_told_how_two_runs_go_together(both: SimpleNamespace) -> None:
    told = both.client.get("/geogp/beside?other=upload").json()["pair"]
    pair = together(both.a.run, both.b.run, (100.0, 20.0))
    assert told["correlation"] == pair.correlation.surface and told["limits"] == [[25.0, 3.0], [100.0, 20.0]]
    assert both.client.get("/geogp/beside?other=upload&run=upload").json()["target"] == "upload"
    assert both.client.get("/geogp/beside?other=nothing").status_code == 400
    assert both.client.get("/geogp/planes?run=../x").status_code in (400, 409)


def test_the_other_runs_planes_lie_on_this_ones_pixels(both: SimpleNamespace) -> None:
    quarter = both.a.choices.quarters[0]
    header, planes = unpack(both.client.get(f"/geogp/planes?other=upload&q={quarter}").content)
    assert (planes["known"] == both.a.page.places[0]).all() and header["quarter"] == quarter
    X = both.b.run.inputs(both.a.page.places[1][:, :2], quarter)
    expected = surface_moments(both.b.run, X).location
    spread = expected.max() - expected.min()
    np.testing.assert_allclose(planes["surface"], expected, atol=spread / 4000)  # half a code of 4,094


def test_draws_are_joint_draws_of_the_surface(both: SimpleNamespace) -> None:
    header, planes = unpack(both.client.get("/geogp/planes?draws=1").content)
    assert header["grid"]["width"] * header["grid"]["height"] == planes["known"].size
    assert sorted(header["planes"]) == [f"draw_{k}" for k in range(1, 7)]
    draws = np.stack([planes[f"draw_{k}"] for k in range(1, 7)])
    known, X = both.a.page.places
    number = np.cumsum(known).reshape(known.shape) - 1
    step = int(np.ceil(np.sqrt(known.sum() / 12_000)))
    few = (slice(step // 2, None, step),) * 2
    X = both.a.run.inputs(X[number[few][known[few]], :2], both.a.choices.quarters[-1])
    expected = both.a.run.target.from_score(next(surface(both.a.run.model, X).batches(6, 0))).T
    assert 4000 < len(X) <= 12_000 and (planes["known"] == known[few]).all()
    np.testing.assert_allclose(draws, expected, atol=(expected.max() - expected.min()) / 4000)


def test_the_command_of_what_is_shown(both: SimpleNamespace) -> None:
    def line(**params: str) -> str:
        return " ".join(taking.arguments(both.a, params, "run", "maps"))

    assert line(layer="exceedance", q="2022Q1", n="3", level="80", t="40", box="-143,33,-142,34") == (
        "export run -o maps --format cog --quarter 2022Q1 --tests 3 --level 0.8 --thresholds 40 --layers exceedance "
        "--bounds -143.0000 33.0000 -142.0000 34.0000"
    )
    assert "--layers median,lower,upper" in line(layer="within", format="csv")
    assert line(layer="similar", lat="33.5", lon="-143").startswith("slice run --at -143.00000 33.50000")
    assert "--below 25 --with-below 3 --layers either_missed" in line(
        layer="either", other="upload", t="25", ot="3"
    )
    for wrong in (
        {"format": "exe"},
        {"layer": "nothing"},
        {"box": "1,2,x,4"},
        {"box": "2,2,1,4"},
        {"t": "-1"},
    ):
        with pytest.raises(InvalidInput):
            line(**wrong)


def test_another_site_may_not_begin_a_job(both: SimpleNamespace) -> None:
    answer = both.client.get("/geogp/download", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    assert both.client.get("/geogp/file?job=../../x").status_code == 400


@pytest.fixture(scope="module")
def address(two_runs: list[Path], cache_folder: Path) -> Iterator[str]:
    with serving(cache_folder, *map(str, two_runs)) as address:
        yield address


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_two_runs_on_one_map(chromium: Any, address: str, two_runs: list[Path], tmp_path: Path) -> None:  # noqa: F811
    holding.hold(*two_runs)
    a, b = holding.held().atlas(), holding.held("upload").atlas()
    holding.let_go()
    quarters = a.choices.quarters
    chance = direct(a, b, quarters[-1], (100.0, 20.0))[0]
    for k in np.abs(chance - 0.5).argsort():
        row, column = np.argwhere(a.page.places[0])[k]
        (lon,), (lat,) = a.run.to_degrees([a.page.geobox.affine * (column + 0.5, row + 0.5)])
        if abs(100 * lat % 1 - 0.5) > 0.25:  # half a pixel beside it the pointer reads the same hundredth
            break

    visit = Visit(chromium, address, f"layer=either&t=100&ot=20&at={lat:.5f},{lon:.5f}")
    visit.page.get_by_text("or upload speed below 20 Mbit/s").first.wait_for()
    told = visit.page.locator("#place-facts dt", has_text="below").locator("xpath=following-sibling::dd[1]")
    share = float(told.first.inner_text().strip("<>% "))
    assert abs(share - 100 * chance[k]) <= 0.51
    first = visit.picture()
    visit.page.get_by_role("button", name="25 / 3").click()
    visit.wait('[data-threshold="25"]')
    assert visit.picture() != first and visit.address()["ot"] == "3"

    # another run to the right of the line: its value at the pointer, none of ours
    q = f"z=9&lat={lat:.5f}&lon={lon:.5f}&bl=median&bq={quarters[0]}&br=upload&cut=30"
    visit.page.goto(f"{address}/?{q}")
    visit.wait("[data-ready]")
    box = visit.page.locator(".leaflet-container").bounding_box()
    visit.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    visit.wait(f'[data-said^="{lat:.2f}"]')
    theirs = b.run.predict(
        a.page.geobox[row : row + 1, column : column + 1], quarter=quarters[0], level=0.95
    )["median"].values.ravel()[0]
    said = visit.page.inner_text("#said")
    assert said.split(" ")[0] == plain(theirs)
    assert visit.page.inner_text("#where-said").startswith(f"upload, {quarters[0].replace('Q', ' Q')}")
    assert visit.address()["bl"] == "median" and visit.address()["cut"] == "30"

    # six different maps
    visit.page.click("#draws-open")
    visit.wait("[data-draws='6']")
    assert (
        len(
            set(
                visit.page.evaluate("[...document.querySelectorAll('#draws canvas')].map(c => c.toDataURL())")
            )
        )
        == 6
    )
    visit.page.click("#draws-close")

    # the window in view as files, and as a picture
    visit.page.locator("#take > summary").click()
    visit.page.select_option("#take-kind", "cog")
    with visit.page.expect_download(timeout=90_000) as caught:
        visit.page.click("#take-go")
    visit.wait("[data-taken]")
    assert "geogp export" in visit.page.inner_text("#take-said") and "--bounds" in visit.page.inner_text(
        "#take-said"
    )
    with zipfile.ZipFile(io.BytesIO(Path(caught.value.path()).read_bytes())) as archive:
        assert {"median.tif", "COMMAND.txt", "manifest.json"} <= set(archive.namelist())
        archive.extract("median.tif", tmp_path)
    with rasterio.open(tmp_path / "median.tif") as file:
        value = float(next(file.sample([a.page.geobox.affine * (column + 0.5, row + 0.5)]))[0])
    expected = a.run.predict(a.page.geobox[row : row + 1, column : column + 1])["median"].values.ravel()[0]
    assert value == pytest.approx(expected, rel=0.02)  # of a pixel of 500 m beside the middle of ours
    visit.page.select_option("#take-kind", "png")
    with visit.page.expect_download() as caught:
        visit.page.click("#take-go")
    from PIL import Image

    with Image.open(caught.value.path()) as picture:
        assert picture.size[0] == 1200 and len(picture.convert("RGB").getcolors(10**6) or []) > 50
    assert visit.page.evaluate(PICTURE)
    visit.close()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_browsers_chance_of_either_is_the_librarys(chromium: Any, address: str) -> None:  # noqa: F811
    visit = Visit(chromium, address)
    rng = np.random.default_rng(0)
    h, k = rng.normal(0, 2, (2, 200))
    for r in (-0.9, 0.0, 0.3, 0.79, 0.95):
        script = "([r, h, k]) => { const both = bothBelow(r); return h.map((v, i) => normal(v) + normal(k[i]) - both(v, k[i])); }"
        found = visit.page.evaluate(script, [r, h.tolist(), k.tolist()])
        np.testing.assert_allclose(found, either_below(h, k, r), atol=2e-6)
    visit.close()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_row_leads_to_the_map_and_an_area_to_its_row(chromium: Any, address: str) -> None:  # noqa: F811
    visit = Visit(chromium, address)
    visit.page.get_by_role("link", name="Areas").click()
    visit.page.get_by_label("Across").click()
    visit.page.get_by_role("option", name="45 km").click()
    visit.page.get_by_role("button", name="Compute").click()
    rows = visit.page.locator(".table tbody tr")
    rows.first.wait_for(timeout=120_000)
    name = rows.nth(1).locator("a").inner_text()
    rows.nth(1).locator("a").click()
    visit.wait("[data-areas]")
    assert visit.page.inner_text("#area-said").startswith(f"{name}: mean ")
    assert visit.page.locator(".leaflet-areas-pane path.chosen").count() == 1
    box = visit.page.locator(".leaflet-areas-pane path.chosen").bounding_box()
    assert box["x"] > 290 and box["x"] + box["width"] < 1280 and box["y"] > 48  # in view, beside the panel
    visit.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    visit.wait("[data-card]")
    assert name in visit.page.inner_text("#place-facts") and visit.address()["area"] == name
    visit.page.get_by_text("Its row in the table").click()
    chosen = visit.page.locator(".table tr.chosen")
    chosen.wait_for()
    assert chosen.locator("a").inner_text() == name and "mean " in visit.page.inner_text(
        "[data-testid=stAlert]"
    )
    # Streamlit looks for its own addresses below the page's first.
    visit.problems = [said for said in visit.problems if "404 (Not Found)" not in said]
    visit.close()

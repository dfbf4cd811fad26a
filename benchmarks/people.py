"""Three people at the dashboard of the demo, each with one question: `python -m benchmarks.people DEMO`, in Chromium.

An officer: which share of a county lies below 100/20, and how sure is that. A researcher: which of two methods is better far from
data, and what does the default think is similar to a place. A journalist: how fast is it in a named town, and how sure. Each
starts at the address that `geogp app` prints and clicks as somebody would who has never seen it; the seconds are from there to
the answer on the screen, the computer's part: reading and thinking come on top. DEMO is the folder that `geogp demo` wrote;
what else is needed (upload, another method, counties, names) is made beside it once, in DEMO/people.

With --pictures FOLDER the two screenshots of the README are written there.
"""

import argparse
import csv
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from PIL import Image

from app.cli import main as geogp
from benchmarks.app import chromium, served

#: Counties along each side of the made-up state.
ACROSS = (4, 3)
METHOD = "sgpr"


def prepare(demo: Path) -> tuple[Path, list[str]]:
    """What the three need beside the run: the folder, and the arguments of `geogp app`."""
    from data_pipelines.synthetic import write_world
    from geogp import load

    work = demo / "people"
    work.mkdir(exist_ok=True)
    table, runs = str(demo / "observations.parquet"), [work / "upload", work / METHOD]
    for path, more in zip(runs, (("--target", "upload"), ("--method", METHOD))):
        if not path.exists():
            _run("fit", table, "--split", "random", *more, "-o", str(path))
            _run("evaluate", str(path))
    region = shapely.geometry.shape(load(demo / "run").boundary or {})
    counties = work / "counties.geojson"
    if not counties.exists():
        _write_counties(region, counties)
    names = work / "towns.csv"
    if not names.exists():
        world = write_world(demo / "world", overwrite=True)
        with names.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["name", "lon", "lat"])
            rows.writerows([c.name, *map(float, world.to_degrees(c.x_km, c.y_km))] for c in world.cities)
    return work, [*map(str, runs), "--areas", str(counties), "--places", str(names)]


def _run(*line: str) -> None:
    if geogp(list(line)) != 0:
        raise SystemExit(f"geogp {' '.join(line)} failed")


def _write_counties(region: Any, path: Path) -> None:
    """A made-up state's counties: a grid, cut at its coast."""
    import geopandas

    (w, s, e, n), found = region.bounds, []
    x, y = np.linspace(w, e, ACROSS[0] + 1), np.linspace(s, n, ACROSS[1] + 1)
    for i in range(ACROSS[0]):
        for j in range(ACROSS[1]):
            part = shapely.intersection(region, shapely.box(x[i], y[j], x[i + 1], y[j + 1]))
            if part.area > 0.01:
                found.append({"GEOID": f"{i}{j}", "NAME": f"{'ABCDEFGH'[i]}{j + 1} County", "geometry": part})
    geopandas.GeoDataFrame(found, crs=4326).to_file(path)


def officer(page: Any) -> str:
    """The share of a county below 100/20, with its interval."""
    _to(page, "Areas")
    page.get_by_label("Or missed in").click()
    page.get_by_role("option", name="upload").click()
    page.get_by_label("Below in upload").wait_for()
    page.get_by_role("button", name="Compute").click()
    row = page.locator(".table tr", has_text="B2 County")
    row.wait_for()
    heads = page.locator(".table th").all_inner_texts()
    cells = row.locator("td").all_inner_texts()
    return f"B2 County: {cells[heads.index('either missed')]} either missed"


def researcher(page: Any) -> str:
    """Two methods by stratum, and what is similar to a place."""
    _to(page, "Compare")
    page.get_by_role("radio", name="far", exact=True).or_(
        page.get_by_role("button", name="far", exact=True)
    ).first.click()
    page.get_by_text("Are the intervals reliable").wait_for()
    page.wait_for_function("document.querySelectorAll('.table tbody tr').length > 1")
    rows = [r.split("\t") for r in page.locator(".table tbody tr").all_inner_texts()]
    page.get_by_role("link", name="Map").click()
    _ready(page)
    box = page.locator(".leaflet-container").bounding_box()
    page.mouse.click(box["x"] + 0.55 * box["width"], box["y"] + 0.5 * box["height"])
    page.locator("#frame[data-card]").wait_for(state="attached")
    page.get_by_role("radio", name="Similar to here").check()
    page.locator("#frame[data-layer=similar]").wait_for(state="attached")
    said = ", ".join(f"{cells[0]} NLL {cells[2]}" for cells in rows)
    return f"far from data: {said}; {page.locator('#legend p').last.inner_text()}"


def journalist(page: Any) -> str:
    """How fast it is in a town, and how sure."""
    page.get_by_placeholder("Find a place").fill("quill")
    page.keyboard.press("Enter")
    page.locator("#place-said", has_text="Quill Harbor").wait_for()
    return str(page.inner_text("#place-said"))


PEOPLE: dict[str, Callable[[Any], str]] = {
    "officer": officer,
    "researcher": researcher,
    "journalist": journalist,
}


def _ready(page: Any) -> None:
    page.locator("#frame[data-ready]").wait_for(state="attached")


def _to(page: Any, name: str) -> None:
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_role("heading", name=name, exact=True).first.wait_for()


def pictures(browser: Any, address: str, folder: Path) -> None:
    """`dashboard.png`, the map with a place's card, and `areas.png`, the table of counties."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.goto(address)
    _ready(page)
    journalist(page)
    page.locator("#frame[data-history]").wait_for(state="attached")
    page.get_by_role("button", name="Show the whole region").click()
    page.wait_for_timeout(1000)
    _picture(page, folder / "dashboard.png")
    officer(page)
    page.wait_for_timeout(1000)
    page.locator(".table").scroll_into_view_if_needed()
    _picture(page, folder / "areas.png")
    context.close()


def _picture(page: Any, path: Path) -> None:
    """What the window shows, as small as PNG can be."""
    with Image.open(io.BytesIO(page.screenshot())) as shot:
        shot.convert("RGB").save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("demo", type=Path, help="folder that `geogp demo` wrote")
    parser.add_argument(
        "--pictures", type=Path, metavar="FOLDER", help="write the README's screenshots there"
    )
    chosen = parser.parse_args()
    from playwright.sync_api import sync_playwright

    work, more = prepare(chosen.demo)
    with sync_playwright() as p, served(chosen.demo / "run", work / "cache", *more) as (address, _, _):
        browser = p.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        first = browser.new_page()
        first.set_default_timeout(300_000)
        first.goto(address)
        _ready(first)  # the planes of the first map are made once
        first.close()
        for name, answer in PEOPLE.items():
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            page = context.new_page()
            page.set_default_timeout(300_000)
            started = time.perf_counter()
            page.goto(address)
            _ready(page)
            said = answer(page)
            print(f"{name:<11} {time.perf_counter() - started:6.1f} s  {said}", flush=True)
            context.close()
        if chosen.pictures is not None:
            pictures(browser, address, chosen.pictures)
        browser.close()


if __name__ == "__main__":
    main()

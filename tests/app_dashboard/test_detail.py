"""Exports beside a run: found where they are of its very model, read by window, told pixel for pixel."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from playwright.sync_api import Error
from starlette.testclient import TestClient

from app.caches import DiskCache
from app.cli import main
from app.dashboard import detail, holding
from app.dashboard.atlas import Atlas
from geogp import GPRegressor, load
from maps.packing import unpack

from .conftest import LATITUDE, LONGITUDE, save, serving
from .test_browser import Visit, chromium  # noqa: F401 - a fixture
from .test_routes import application

BOX = (LONGITUDE - 0.05, LATITUDE - 0.04, LONGITUDE + 0.05, LATITUDE + 0.04)
ASKED = {"of": "fine", "q": "2023Q4", "level": "95", "t": "100", "box": ",".join(map(str, BOX))}


@pytest.fixture(scope="module")
def run_folder(
    fitted: tuple[GPRegressor, np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A run with an export of 150 m pixels beside it."""
    run = save(tmp_path_factory.mktemp("exported") / "island", *fitted)
    layers = "median,lower,upper,explained,exceedance_100"
    line = ["export", str(run), "-o", str(run.parent / "fine"), "--resolution", "150", "--layers", layers]
    assert main([*line, "--format", "cog", "-q"]) == 0
    yield run


@pytest.fixture
def exported(run_folder: Path, tmp_path: Path) -> Atlas:
    return Atlas(load(run_folder), DiskCache(tmp_path))


def raster_at(run_folder: Path, band: str, lon: float, lat: float) -> float:
    """What the file itself says at a place."""
    with rasterio.open(run_folder.parent / "fine" / f"{band}.tif") as src:
        (x, *_), (y, *_) = rasterio.warp.transform("EPSG:4326", src.crs, [lon], [lat])
        return float(next(src.sample([(x, y)]))[0])


def test_a_window_holds_the_files_own_values(exported: Atlas, run_folder: Path) -> None:
    (export,) = exported.details.found()
    assert export.document()["layers"] == ["exceedance", "explained", "lower", "median", "upper"]
    found = exported.details.read(ASKED, exported.choices.default)
    assert found is not None
    header, planes = unpack(found)
    assert header["step"] == 1 and planes["known"].all()
    with rasterio.open(run_folder.parent / "fine" / "median.tif") as src:
        whole = src.read(1)
    shape = planes["known"].shape
    windows = np.lib.stride_tricks.sliding_window_view(whole, shape)
    own = planes["median"].reshape(shape)
    alike = windows[
        np.abs(windows[:, :, 0, 0] / own[0, 0] - 1) < 2e-4
    ]  # all others fail at their first pixel
    off = np.abs(alike / own - 1).max((1, 2))
    assert (off < 2e-4).sum() == 1  # exactly one window of the file is this one


def test_a_large_window_is_every_kth_pixel_and_a_larger_one_none(
    exported: Atlas, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detail, "MOST_SHOWN", 500)
    found = exported.details.read(ASKED, exported.choices.default)
    assert found is not None
    header, planes = unpack(found)
    assert header["step"] > 1 and planes["known"].sum() < 600
    with rasterio.open(run_folder.parent / "fine" / "median.tif") as src:
        all_values = src.read(1)
    off = np.abs(planes["median"][:, None] / all_values[np.isfinite(all_values)] - 1).min(1)
    assert off.max() < 1e-4  # no averages
    monkeypatch.setattr(detail, "MOST_READ", 500)
    assert exported.details.read(ASKED, exported.choices.default) is None


def test_a_place_is_told_at_the_exports_pixel(exported: Atlas, run_folder: Path) -> None:
    """The card's quarters and its page follow what the map shows; without the name they are the page's own pixel's."""
    setting = exported.choices.default
    lat, lon = LATITUDE + 0.013, LONGITUDE - 0.017
    told = exported.of("fine").reading(lat, lon, setting)["values"]
    for band in ("median", "lower", "upper"):
        np.testing.assert_allclose(told[band], raster_at(run_folder, band, lon, lat), rtol=1e-5)
    coarse = exported.of("nothing").reading(lat, lon, setting)["values"]["median"]
    assert abs(coarse / told["median"] - 1) > 1e-4
    fine, page = (exported.of(name).history(lat, lon)[-1]["counts"] for name in ("fine", None))
    assert fine != page


@pytest.mark.parametrize("spoilt", ["weights_sha256", "observations_sha256", "target", "level", "files"])
def test_what_is_not_this_runs_is_not_shown(run_folder: Path, tmp_path: Path, spoilt: str) -> None:
    run = shutil.copytree(run_folder, tmp_path / "island")
    shutil.copytree(run_folder.parent / "fine", tmp_path / "fine")
    manifest = tmp_path / "fine" / "manifest.json"
    atlas = Atlas(load(run), DiskCache(tmp_path / "cache"))
    assert len(atlas.details.found()) == 1
    told: dict[str, Any] = json.loads(manifest.read_text())
    told[spoilt] = [] if spoilt == "files" else "another"
    manifest.write_text(json.dumps(told))
    assert atlas.details.found() == () and "zoomed in" not in atlas.html()


def test_an_altered_file_is_refused_in_one_sentence(run_folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(run_folder, tmp_path / "island")
    shutil.copytree(run_folder.parent / "fine", tmp_path / "fine")
    with (tmp_path / "fine" / "upper.tif").open("r+b") as file:
        file.seek(-3, 2)
        file.write(b"abc")
    holding.hold(run)
    try:
        answer = TestClient(application()).get("/geogp/detail", params=ASKED)
        assert answer.status_code == 400 and "is not what its manifest says" in answer.json()["error"]
    finally:
        holding.let_go()


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({}, 200),
        ({"of": "../fine"}, 204),
        ({"t": "42"}, 204),
        ({"q": "2023Q3"}, 204),
        ({"level": "80"}, 204),
        ({"box": "3,2,1"}, 400),
        ({"box": "0,0,1e9,1"}, 400),
    ],
)
def test_only_what_was_exported_is_answered(run_folder: Path, asked: dict[str, str], status: int) -> None:
    holding.hold(run_folder)
    try:
        assert TestClient(application()).get("/geogp/detail", params=ASKED | asked).status_code == status
    finally:
        holding.let_go()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # playwright's own pipes
def test_zoomed_in_the_page_shows_and_says_the_files_pixels(
    chromium: Any,  # noqa: F811
    run_folder: Path,
    cache_folder: Path,
) -> None:
    """Until they are here the planes are read out; what was not exported falls back to them."""
    held: list[Any] = []
    lat, lon = LATITUDE + 0.013, LONGITUDE - 0.017
    with serving(cache_folder, str(run_folder)) as address:
        view = f"z=13&lat={lat:.4f}&lon={lon:.4f}"
        visit = Visit(chromium, address, view, ("**/geogp/detail?**", held))
        page = visit.page
        page.fill("#where", f"{lat:.6f}, {lon:.6f}")
        page.keyboard.press("Enter")
        visit.wait("[data-card]")
        coarse = page.inner_text("#said")
        assert held and coarse.startswith(tuple("123456789"))
        page.unroute("**/geogp/detail?**")
        for route in held:
            with suppress(Error):  # the page has asked for another window
                route.continue_()
        visit.wait('[data-detail="fine"]')
        page.wait_for_function("told => document.getElementById('said').textContent !== told", arg=coarse)
        values = [float(v.replace(",", "")) for v in re.findall(r"[\d.,]*\d", page.inner_text("#said"))]
        said = dict(zip(("median", "level", "lower", "upper", "threshold", "chance"), values, strict=True))
        for band in ("median", "lower", "upper"):
            assert (
                abs(said[band] - raster_at(run_folder, band, lon, lat))
                <= (0.5 if said[band] >= 10 else 0.05) * 1.02
            )
        assert abs(said["chance"] - 100 * raster_at(run_folder, "exceedance_100", lon, lat)) <= 0.51
        assert page.locator("canvas.leaflet-image-layer").count() == 2
        page.fill("#threshold", "42")
        visit.wait('[data-threshold="42"][data-detail=""]')
        assert page.locator("canvas.leaflet-image-layer").count() == 1
        visit.close()

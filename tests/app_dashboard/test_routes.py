import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from app.dashboard import holding
from app.dashboard.routes import routes
from app.dashboard.security import Policy

from .conftest import LATITUDE, LONGITUDE, TINY

HERE = f"lat={LATITUDE}&lon={LONGITUDE}"


@pytest.fixture
def client(shown: holding.Holding) -> TestClient:
    return TestClient(
        Starlette(routes=routes(), middleware=[Middleware(Policy)]), raise_server_exceptions=True
    )


def test_the_map_and_its_parts_come_from_here(client: TestClient) -> None:
    script = client.get("/geogp/map/map.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "http://" not in script.text and "https://" not in script.text
    parts = re.findall(r'from "\./(.+)"', script.text)
    assert len(parts) > 2
    for name in (*parts, "leaflet.js", "leaflet.css"):
        assert client.get(f"/geogp/map/{name}").status_code == 200


def test_every_answer_carries_the_policy(client: TestClient) -> None:
    for path in ("/geogp/map/map.js", "/geogp/about", "/geogp/layer/nothing", "/geogp/nowhere"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    page = client.get("/").headers["content-security-policy"]
    assert (
        "default-src 'self'" in page and "http" not in page and "*" not in page and "frame-src 'none'" in page
    )
    (scripts,) = re.findall("script-src ([^;]+)", page)
    assert "'self'" in scripts and "unsafe" not in scripts


@pytest.mark.parametrize(
    "path",
    [
        "/geogp/map/",
        "/geogp/map/map.html",
        "/geogp/map/..%2f..%2fpyproject.toml",
        "/geogp/map/%2e%2e/%2e%2e/server.py",
        "/geogp/map//etc/passwd",
        "/geogp/map/..%5c..%5cserver.py",
        "/geogp/layer/..%2frun.json",
        "/geogp/layer/%00.png",
        "/geogp/layer/..%2f..%2frun.png",
        "/geogp/layer/median.exe",
        "/geogp/layer/<script>.png",
        "/geogp/tiles/..%2fmedian/3/1/1.png",
        "/geogp/tiles/median/99999999999999999999/1/1.png",
        "/geogp/tiles/median/16/65536/1.png",
        "/geogp/tiles/median/-1/0/0.png",
        "/geogp/tiles/median/nan/0/0.png",
        "/geogp/tiles/median/1e3/0/0.png",
        "/geogp/tiles/median/3/٣/0.png",
        "/geogp/value",
        "/geogp/value?lat=nan&lon=0",
        "/geogp/value?lat=0&lon=-inf",
        "/geogp/value?lat=90.001&lon=0",
        "/geogp/value?lat=0&lon=1e300",
        "/geogp/value?lat=__import__('os')&lon=0",
        f"/geogp/value?{HERE}&q=9999Q9",
        f"/geogp/value?{HERE}&n=-5",
        f"/geogp/value?{HERE}&n=NaN",
        f"/geogp/value?{HERE}&t=1e400",
        f"/geogp/value?{HERE}&level=100",
        "/geogp/slice?lat=0&lon=0",
        "/geogp/slice.png?lat=80&lon=0",
    ],
)
def test_hostile_requests_get_one_sentence(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (400, 404)
    assert b"Traceback" not in answer.content and b"def " not in answer.content
    if answer.status_code == 400:
        assert 10 < len(answer.json()["error"]) < 300


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_nothing_can_be_written(client: TestClient, method: str) -> None:
    assert getattr(client, method)("/geogp/value").status_code == 405


def test_a_value_in_words(client: TestClient) -> None:
    said = client.get(f"/geogp/value?{HERE}&t=25&level=80").json()
    assert "80% prediction interval" in said["words"] and "P(> 25) " in said["words"]
    assert client.get("/geogp/value?lat=-34&lon=10").json()["inside"] is False
    turned = client.get(f"/geogp/value?lat={LATITUDE}&lon={LONGITUDE + 360}&t=25&level=80").json()
    assert turned["words"] == said["words"]


def test_layers_pictures_and_squares(client: TestClient) -> None:
    listed = client.get("/geogp/layers?t=42").json()
    assert listed["setting"]["t"] == "42" and listed["setting"]["q"] == "2023Q4"
    assert listed["subtitle"].startswith("2023 Q4 · ") and "95% intervals" in listed["subtitle"]
    shapes = set()
    for layer in listed["layers"]:
        answer = client.get(f"/geogp/layer/{layer['id']}.png", params=listed["setting"])
        assert answer.headers["content-type"] == "image/png"
        assert "immutable" in answer.headers["cache-control"]
        shapes.add(Image.open(io.BytesIO(answer.content)).size)
    assert len(shapes) == 1
    assert client.get("/geogp/tiles/faded/9/54/204.png").status_code == 200
    about = client.get("/geogp/about").json()
    assert about["id"] == listed["id"] and about["outline"]["type"] == "Polygon"
    assert json.dumps(about, allow_nan=False)


def test_a_slice_by_address(client: TestClient) -> None:
    told = client.get(f"/geogp/slice?{HERE}").json()
    assert told["legend"]["ticks"][-1] == [1.0, "1"]
    painted = np.asarray(
        Image.open(io.BytesIO(client.get(f"/geogp/slice.png?{HERE}").content)).convert("RGBA")
    )
    assert (painted[..., 3] > 0).sum() > 1000


def test_progress_is_always_answered(client: TestClient) -> None:
    assert client.get("/geogp/progress").json() == {"what": "Opening the run", "done": 0, "total": 0}
    client.get("/geogp/about")
    assert client.get("/geogp/progress").json() == {"what": "", "done": 0, "total": 0}


@pytest.fixture
def copy(run_path: Path, tmp_path: Path) -> Iterator[Path]:
    path = Path(shutil.copytree(run_path, tmp_path / "run"))
    holding.hold(path, TINY)
    yield path
    holding._held = None


def test_a_run_that_is_gone_or_altered_is_said_and_comes_back(copy: Path) -> None:
    client = TestClient(Starlette(routes=routes()))
    assert client.get("/geogp/about").status_code == 200
    weights = (copy / "weights.safetensors").read_bytes()
    (copy / "weights.safetensors").write_bytes(weights[:-1] + b"x")
    answer = client.get(f"/geogp/value?{HERE}")
    assert answer.status_code == 409 and "has changed since it was written" in answer.json()["error"]
    (copy / "weights.safetensors").write_bytes(weights)
    assert client.get(f"/geogp/value?{HERE}").status_code == 200
    shutil.rmtree(copy)
    answer = client.get("/geogp/layers")
    assert answer.status_code == 409 and "not a run folder" in answer.json()["error"]


def test_a_run_of_another_making_is_one_sentence(copy: Path) -> None:
    from geogp import storage

    storage.write_text(copy / "run.json", json.dumps({"schema": 1, "target": "download"}))
    storage.write_sums(copy)
    answer = TestClient(Starlette(routes=routes())).get("/geogp/about")
    assert answer.status_code == 409 and "fit it again" in answer.json()["error"]


def test_no_run_at_all() -> None:
    assert TestClient(Starlette(routes=routes())).get("/geogp/about").status_code == 409

"""Our own addresses: the page, planes, places, slices; hostile requests get one sentence, and nothing else."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from app.dashboard import holding
from app.dashboard.routes import routes
from app.dashboard.security import Policy
from geogp import storage
from maps.packing import unpack

from .conftest import HOSTILE, LATITUDE, LONGITUDE

HERE = f"lat={LATITUDE}&lon={LONGITUDE}"


def application() -> Starlette:
    return Starlette(routes=routes(), middleware=[Middleware(Policy, names=("testserver",))])


@pytest.fixture
def client(shown: object) -> TestClient:
    return TestClient(application())


def spec_of(client: TestClient) -> dict:
    found = re.search(r'id="geogp-data">(.*?)</script>', client.get("/").text)
    assert found
    spec: dict = json.loads(found[1])
    return spec


def test_the_page_is_one_file_and_names_its_server(client: TestClient) -> None:
    page = client.get("/")
    spec = spec_of(client)
    assert spec["server"] == "/geogp/" and spec["data"] == [] and spec["settings"]["free"]
    assert not re.findall(r'(?:src|href)="(?!/|#|data:)', page.text.split("<script>")[0])
    assert HOSTILE not in page.text  # escaped in JSON, set as text
    assert (
        "connect-src 'self'" in page.text
        and "frame-ancestors 'none'" in page.headers["content-security-policy"]
    )


def test_every_answer_carries_the_policy(client: TestClient) -> None:
    for path in ("/geogp/history", "/geogp/planes", "/geogp/slice", "/geogp/nowhere", "/elsewhere"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    page = client.get("/pages/place").headers["content-security-policy"]
    assert (
        "default-src 'self'" in page and "http" not in page and "*" not in page and "frame-src 'none'" in page
    )
    (scripts,) = re.findall("script-src ([^;]+)", page)
    assert "'self'" in scripts and "unsafe" not in scripts and "blob:" not in scripts


@pytest.mark.parametrize(
    "path",
    [
        "/geogp/",
        "/geogp/map/map.js",
        "/geogp/..%2f..%2fpyproject.toml",
        "/geogp/%2e%2e/%2e%2e/server.py",
        "/geogp//etc/passwd",
        "/geogp/..%5c..%5cserver.py",
        "/geogp/planes/..%2frun.json",
        "/geogp/planes?q=..%2f..%2frun.json",
        "/geogp/planes?q=%00",
        "/geogp/planes?q=<script>",
        "/geogp/planes?q=2023Q4.pack",
        "/geogp/planes?q=9999Q9",
        "/geogp/history",
        "/geogp/history?lat=nan&lon=0",
        "/geogp/history?lat=0&lon=-inf",
        "/geogp/history?lat=90.001&lon=0",
        "/geogp/history?lat=0&lon=1e300",
        "/geogp/history?lat=__import__('os')&lon=0",
        "/geogp/history?lat=0&lon=0",
        "/geogp/slice?lat=0&lon=0",
        "/geogp/slice?lat=80&lon=0",
        f"/geogp/slice?{HERE}&q=9999Q9",
        "/geogp/progress?q=../x",
        "/pages/../geogp/planes?q=x",
    ],
)
def test_hostile_requests_get_one_sentence(client: TestClient, path: str) -> None:
    client.get("/")
    answer = client.get(path)
    assert answer.status_code in (400, 404)
    assert b"Traceback" not in answer.content and b"def " not in answer.content
    if answer.status_code == 400:
        assert 10 < len(answer.json()["error"]) < 300


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
@pytest.mark.parametrize("path", ["/", "/geogp/planes", "/geogp/history"])
def test_nothing_can_be_written(client: TestClient, method: str, path: str) -> None:
    assert getattr(client, method)(path).status_code == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8501", "", "localhost.evil.example"])
def test_another_name_is_turned_away(client: TestClient, host: str) -> None:
    assert client.get("/geogp/history", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8501", "localhost", "[::1]:8501", "192.168.1.7:80"])
def test_this_machine_by_number_is_not(client: TestClient, host: str) -> None:
    assert client.get("/geogp/progress", headers={"Host": host}).status_code == 200


def test_planes_of_a_quarter(client: TestClient) -> None:
    spec = spec_of(client)
    answer = client.get("/geogp/planes", params={"q": "2023Q3", "v": spec["id"]})
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "immutable" in answer.headers["cache-control"]
    header, values = unpack(answer.content)
    assert header["quarter"] == "2023Q3" and values["known"].shape[::-1] == tuple(
        spec["grid"][k] for k in ("width", "height")
    )
    others = unpack(client.get("/geogp/planes?q=2023Q3&counts=all").content)[0]["planes"]
    told = {name.split("_")[-1] for name in (*header["planes"], *others) if name.startswith("location")}
    assert told == {f"{n:.10g}" for n in spec["settings"]["counts"]}


def test_planes_of_another_run_are_refused(client: TestClient) -> None:
    answer = client.get("/geogp/planes?q=2023Q4&v=another")
    assert answer.status_code == 409 and answer.json()["changed"] is True


def test_the_quarters_of_a_place(client: TestClient) -> None:
    rows = client.get(f"/geogp/history?{HERE}").json()
    assert [row["quarter"] for row in rows] == ["2023Q3", "2023Q4"]
    turned = client.get(f"/geogp/history?lat={LATITUDE}&lon={LONGITUDE + 360}").json()
    assert turned == rows


def test_a_slice_by_address(client: TestClient) -> None:
    header, values = unpack(client.get(f"/geogp/slice?{HERE}").content)
    assert header["legend"]["ticks"][-1] == [1.0, "1"]
    assert "similar" in header["words"] and np.nanmax(values["correlation"]) > 0.95


def test_progress_is_always_answered(client: TestClient) -> None:
    assert client.get("/geogp/progress").json() == {"what": "Opening the run", "done": 0, "total": 0}
    client.get("/")
    assert client.get("/geogp/progress").json() == {"what": "", "done": 0, "total": 0}


@pytest.fixture
def copy(run_path: Path, tmp_path: Path) -> Iterator[Path]:
    path = Path(shutil.copytree(run_path, tmp_path / "run"))
    holding.hold(path)
    yield path
    holding.let_go()


def test_a_run_that_is_gone_or_altered_is_said_and_comes_back(copy: Path) -> None:
    client = TestClient(application())
    assert client.get("/").status_code == 200
    weights = (copy / "weights.safetensors").read_bytes()
    (copy / "weights.safetensors").write_bytes(weights[:-1] + b"x")
    for path in (f"/geogp/history?{HERE}", "/geogp/planes"):
        answer = client.get(path)
        assert answer.status_code == 409 and "has changed since it was written" in answer.json()["error"]
    (copy / "weights.safetensors").write_bytes(weights)
    assert client.get(f"/geogp/history?{HERE}").status_code == 200
    shutil.rmtree(copy)
    answer = client.get("/")
    assert answer.status_code == 409 and "not a run folder" in answer.json()["error"]


def test_a_run_of_another_making_is_one_sentence(copy: Path) -> None:
    storage.write_text(copy / "run.json", json.dumps({"schema": 1, "target": "download"}))
    storage.write_sums(copy)
    answer = TestClient(application()).get("/")
    assert answer.status_code == 409 and "fit it again" in answer.json()["error"]


def test_no_run_at_all() -> None:
    assert TestClient(application()).get("/").status_code == 409

"""`make setup` takes the small build of torch where that is possible, and waits for nobody."""

import importlib.util
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on a machine without a driver and without a proxy."""
    spec = importlib.util.spec_from_file_location("build", Path(__file__).parents[1] / ".ci/torch_build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "has_driver", lambda: False)
    monkeypatch.setenv("no_proxy", "*")
    return module


@pytest.fixture
def index() -> Iterator[str]:
    """An index that answers to its folder `torch/` and to nothing else."""

    class Listing(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200 if self.path == "/cpu/torch/" else 404)
            self.end_headers()

        def log_message(self, *said: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Listing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_no_driver_and_an_index_that_answers_take_the_cpu_build(build: ModuleType, index: str) -> None:
    option, why = build.choose(f"{index}/cpu")
    assert option == f"--index-url {index}/cpu" and "no NVIDIA driver" in why


def test_a_driver_takes_pips_own_build_without_asking(build: ModuleType, monkeypatch) -> None:
    monkeypatch.setattr(build, "has_driver", lambda: True)
    monkeypatch.setattr(build, "answers", lambda url: pytest.fail("asked"))
    option, why = build.choose("http://nowhere.invalid")
    assert option == "" and "has an NVIDIA driver" in why


def test_an_index_without_torch_takes_pips_own_build(build: ModuleType, index: str) -> None:
    option, why = build.choose(f"{index}/elsewhere")
    assert option == "" and f"{index}/elsewhere do not answer" in why


def test_an_index_that_never_replies_is_not_waited_for(build: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        assert not build.answers(f"http://127.0.0.1:{silent.getsockname()[1]}", seconds=0.2)
        assert time.monotonic() - begun < 2

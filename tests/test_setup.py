"""`make setup` takes the small build of torch where that is possible, waits for nobody, and installs by uv what pip would."""

import importlib.util
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / f".ci/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on a machine without a driver and without a proxy."""
    module = script("torch_build")
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


# -- installed by uv, or by pip -------------------------------------------------------------------------


class Programs:
    """Pip and uv that note how they are called, and end as they are told."""

    def __init__(self, settings: str, **ends: int) -> None:
        self.settings, self.ends, self.called = settings, ends, list[tuple[str, list[str]]]()

    def __call__(self, line: list[str], **how: object) -> SimpleNamespace:
        if line[-2:] == ["config", "list"]:
            return SimpleNamespace(stdout="" if "--quiet" in line else self.settings, returncode=0)
        name = "bootstrap" if line[-1] == "uv" else line[2]
        self.called.append((name, line))
        return SimpleNamespace(returncode=self.ends.get(name, 0))


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch):
    def stand_in(settings: str = "", **ends: int) -> tuple[ModuleType, Programs]:
        module, found = script("install"), Programs(settings, **ends)
        monkeypatch.setattr(module.subprocess, "run", found)
        monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
        return module, found

    return stand_in


def test_uv_is_told_of_the_indexes_of_pip(programs) -> None:
    """Those of its files and of the environment, which win; and an index that is asked for takes the place of the usual."""
    install, found = programs(
        ":env:.index-url='https://b.example/simple'\n"
        "global.index-url='https://a.example/simple'\n"
        "global.extra-index-url='https://c.example https://d.example'\n"
        "install.find-links='/wheels'\nglobal.timeout='9'\n"
    )
    assert install.with_uv(["-c", "constraints.txt", "-e", "."])
    (_, got), (name, line) = found.called
    assert name == "uv" and line[-4:] == ["-c", "constraints.txt", "-e", "."] and "-c" in got
    asked = set(pairwise(line))
    assert {("--default-index", "https://b.example/simple"), ("--find-links", "/wheels")} < asked
    assert {("--index", "https://c.example"), ("--index", "https://d.example")} < asked
    assert install.with_uv(["--index-url", "https://torch.example", "torch"])
    assert "--default-index" not in found.called[-1][1]


@pytest.mark.parametrize(
    ("settings", "ends", "called"),
    [("", {"uv": 2}, ["bootstrap", "uv"]), ("", {"bootstrap": 1}, ["bootstrap"]), ("global.proxy='http://p'", {}, [])],
    ids=["uv fails", "there is no uv", "a setting that uv has not"],
)  # fmt: skip
def test_where_uv_does_not_install_pip_is_left_to(programs, settings, ends, called) -> None:
    install, found = programs(settings, **ends)
    assert not install.with_uv(["torch"])
    assert [name for name, _ in found.called] == called

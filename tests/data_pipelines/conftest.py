"""A small synthetic world, written once, and a server of local files for the downloads."""

import functools
import http.server
import shutil
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings

from data_pipelines import synthetic
from data_pipelines.observations import ingest, read

# the same examples each run, and no clock: the machine may be busy
settings.register_profile("geogp", derandomize=True, deadline=None)
settings.load_profile("geogp")


@pytest.fixture(scope="session")
def world_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small world of seed 0; tests must not change it."""
    folder = tmp_path_factory.mktemp("world")
    synthetic.write_world(folder, seed=0, size="small")
    return folder


@pytest.fixture(scope="session")
def world(world_root: Path) -> synthetic.World:
    return synthetic.load_world(world_root)


@pytest.fixture
def world_copy(world_root: Path, tmp_path: Path) -> Path:
    """The same world in a folder of its own, to be spoilt."""
    return Path(shutil.copytree(world_root, tmp_path / "world"))


@pytest.fixture(scope="session")
def observations(world_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixed tiles of the world, ingested."""
    output = tmp_path_factory.mktemp("observations") / "obs.parquet"
    ingest(source="synthetic", root=world_root, output=output)
    return output


@pytest.fixture(scope="session")
def table(observations: Path) -> pa.Table:
    return read(observations)[0]


@dataclass
class Server:
    """A file server on 127.0.0.1 whose manners a test can change."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    break_after: int | None = None
    fail_with: int | None = None
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, state: Server, *args: object) -> None:
        self.state = state
        super().__init__(*args)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        state, path = self.state, urllib.parse.unquote(self.path.lstrip("/"))
        state.requests.append((self.command, path, self.headers.get("Range")))
        if state.fail_with:
            return self._plain(state.fail_with)
        if path not in state.files:
            return self._plain(404)
        content, etag = state.files[path], state.etags.get(path)
        if etag and self.headers.get("If-None-Match") == etag:
            return self._plain(304)
        start, stop, status = 0, len(content), 200
        asked = self.headers.get("Range")
        if asked and state.ranges and self.headers.get("If-Range", etag) == etag:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, len(content) - int(last))
            stop = min(len(content), int(last) + 1) if first and last else len(content)
            if start >= len(content):
                return self._plain(416)
            status = 206
        self.send_response(status)
        if etag:
            self.send_header("ETag", etag)
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if not body:
            return None
        if state.break_after is not None:
            stop, state.break_after = min(stop, start + state.break_after), None
        self.wfile.write(content[start:stop])
        self.close_connection = True
        return None

    def _plain(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Keep the test output clean."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A server of `server.files`; the download cache is a folder of the test's own."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    state = Server()
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, state))
    listener.handle_error = lambda *_: (
        None
    )  # a client that hangs up on purpose: no trace in another test's output
    state.url = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield state
    listener.shutdown()
    listener.server_close()
    thread.join()

"""A cache that is never poisoned: cut, damaged, changed, slow, and two at once."""

import http.server
import io
import multiprocessing
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_pipelines import download
from data_pipelines.errors import DataWarning, InvalidInput


def parquet(seed: int = 0) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"x": np.random.default_rng(seed).uniform(0, 1, 5_000)}), out)
    return out.getvalue()


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("a.txt", np.random.default_rng(0).bytes(20_000))
    return out.getvalue()


class Handler(http.server.BaseHTTPRequestHandler):
    """HTTP/1.0, so that an answer without a length ends where the connection does."""

    def do_GET(self) -> None:
        play = self.server.play  # type: ignore[attr-defined]
        play["asked"] += 1
        if self.headers.get("If-None-Match") == play["etag"]:
            self.send_response(304)
            self.end_headers()
            return
        body = play["bodies"].pop(0) if len(play["bodies"]) > 1 else play["bodies"][0]
        self.send_response(200)
        if play["length"]:
            self.send_header(
                "Content-Length", str(play["length"] if play["length"] is not True else len(body))
            )
        self.send_header("ETag", play["etag"])
        self.end_headers()
        for start in range(0, len(body), 1 << 14):
            self.wfile.write(body[start : start + (1 << 14)])
            time.sleep(play["pause"])

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def play(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: (
        None
    )  # a client that hangs up on purpose: no trace in another test's output
    server.play = {"bodies": [b""], "etag": '"one"', "length": False, "pause": 0.0, "asked": 0}
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server.play["url"] = f"http://127.0.0.1:{server.server_address[1]}/"
    yield server.play
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(("name", "body"), [("a.parquet", parquet()), ("a.zip", zipped())])
@pytest.mark.parametrize("cut", [0.0, 0.3, 0.99])
def test_a_body_cut_without_a_length_is_not_kept(play, name, body, cut) -> None:
    play["bodies"] = [body[: int(cut * len(body))]] * 2 + [body]
    assert download.fetch(play["url"] + name, pause_s=0).path.read_bytes() == body
    assert play["asked"] == 3


def test_what_nobody_can_vouch_for_is_not_asked_about_again(play) -> None:
    """A CSV without a length may be cut: the next fetch takes it whole instead of a 304."""
    play["bodies"] = [b"x,y\n1,2\n3", b"x,y\n1,2\n3,4\n"]
    download.fetch(play["url"] + "a.csv", pause_s=0)
    with pytest.warns(DataWarning, match="other content"):
        assert download.fetch(play["url"] + "a.csv", pause_s=0).path.read_bytes().endswith(b"3,4\n")


@pytest.mark.parametrize(
    "body", [b"<html>log in</html>", parquet()[:-1] + b"X", b"PAR1" + bytes(40) + b"PAR1"]
)
def test_what_is_never_whole_is_one_sentence(play, tmp_path, body) -> None:
    play["bodies"], play["length"] = [body], True
    with pytest.raises(InvalidInput, match="not whole") as caught:
        download.fetch(play["url"] + "a.parquet", attempts=2, pause_s=0)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").rglob("*.parquet*"))


@pytest.mark.parametrize("length", ["junk", "-5"])
def test_a_length_that_is_none_is_one_sentence(play, length) -> None:
    play["bodies"], play["length"] = [parquet()], length
    with pytest.raises(InvalidInput, match="could not be downloaded"):
        download.fetch(play["url"] + "a.parquet", attempts=1)


def test_a_cache_that_was_poisoned_before_is_fetched_again(play) -> None:
    """An older version kept a cut file as whole, with its hash and ETag."""
    whole = parquet()
    play["bodies"], play["length"] = [whole], True
    path = download.fetch(play["url"] + "a.parquet").path
    cut = whole[: len(whole) // 2]
    path.write_bytes(cut)
    manifest = path.parent / "manifest.json"
    manifest.write_text(
        manifest.read_text().replace(download._read_json(manifest)["sha256"], download.sha256(path))
    )
    with pytest.warns(DataWarning, match=r"a\.parquet .*not whole and is fetched again"):
        assert download.fetch(play["url"] + "a.parquet").path.read_bytes() == whole


def test_a_changed_etag_and_a_slow_server(play) -> None:
    play["bodies"], play["length"], play["pause"] = [parquet()], True, 0.02
    first = download.fetch(play["url"] + "a.parquet", timeout_s=2)
    play["bodies"], play["etag"] = [parquet(1)], '"two"'
    with pytest.warns(DataWarning, match="other content"):
        second = download.fetch(play["url"] + "a.parquet", timeout_s=2)
    assert first.sha256 != second.sha256 and second.etag == '"two"'
    play["etag"], play["pause"] = '"three"', 1.0
    with pytest.warns(DataWarning, match="cannot be reached"):  # the kept copy stands in
        assert download.fetch(play["url"] + "a.parquet", timeout_s=0.2, pause_s=0).sha256 == second.sha256


def _fetch(url: str, tell) -> None:
    tell.send(download.fetch(url, pause_s=0).sha256)


def test_two_processes_at_once(play, count) -> None:
    play["bodies"], play["length"], play["pause"] = [parquet()], True, 0.01
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(count(3, 12))]
    workers = [context.Process(target=_fetch, args=(play["url"] + "a.parquet", tell)) for _, tell in pipes]
    for worker in workers:
        worker.start()
    found = {told.recv() for told, _ in pipes if told.poll(30)}
    for worker in workers:
        worker.join()
    assert len(found) == 1 and [w.exitcode for w in workers] == [0] * len(workers)


def test_a_killed_download_goes_on(play, tmp_path) -> None:
    body = parquet()
    play["bodies"], play["length"], play["pause"] = [body], True, 0.3
    worker = multiprocessing.get_context("fork").Process(
        target=download.fetch, args=(play["url"] + "a.parquet",)
    )
    worker.start()
    time.sleep(0.5)
    worker.kill()
    worker.join()
    play["pause"] = 0.0
    assert Path(download.fetch(play["url"] + "a.parquet").path).read_bytes() == body

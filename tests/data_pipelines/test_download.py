"""Downloads resume, are checked, notice changed content, and never leave a wrong file behind."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from data_pipelines import download
from data_pipelines.errors import DataWarning, InvalidInput

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def url(server) -> str:
    server.files["a/data.bin"] = CONTENT
    server.etags["a/data.bin"] = '"one"'
    return f"{server.url}/a/data.bin"


def _gets(server) -> list[str | None]:
    return [asked for _, _, asked in server.requests]


def test_a_file_arrives_with_its_manifest(server, url):
    seen = []
    fetched = download.fetch(url, progress=lambda done, total, what: seen.append((done, total, what)))
    assert fetched.path.read_bytes() == CONTENT
    assert (fetched.sha256, fetched.etag) == (SHA256, '"one"')
    assert fetched.path.name == "data.bin"
    assert seen[-1] == (len(CONTENT), len(CONTENT), url)
    manifest = json.loads((fetched.path.parent / "manifest.json").read_text())
    assert (manifest["url"], manifest["sha256"], manifest["size"]) == (url, SHA256, len(CONTENT))


def test_the_second_time_nothing_travels(server, url):
    first = download.fetch(url)
    server.requests.clear()
    second = download.fetch(url)
    assert second == first
    assert len(server.requests) == 1  # answered 304


def test_an_interrupted_download_continues(server, url):
    server.break_after = 100_000
    fetched = download.fetch(url, pause_s=0)
    assert fetched.path.read_bytes() == CONTENT
    assert _gets(server) == [None, "bytes=100000-"]


def test_an_interrupted_run_is_continued_by_the_next(server, url):
    server.break_after = 100_000
    with pytest.raises(InvalidInput, match=r"in 1 attempts.*run again"):
        download.fetch(url, attempts=1)
    assert download.fetch(url).sha256 == SHA256
    assert _gets(server) == [None, "bytes=100000-"]


def test_a_server_without_ranges_starts_again(server, url):
    server.break_after, server.ranges = 100_000, False
    assert download.fetch(url, pause_s=0).sha256 == SHA256


def test_content_that_changes_in_the_middle_is_not_joined(server, url):
    server.break_after = 100_000
    with pytest.raises(InvalidInput):
        download.fetch(url, attempts=1)
    other = bytes(reversed(CONTENT))
    server.files["a/data.bin"], server.etags["a/data.bin"] = other, '"two"'
    assert download.fetch(url).path.read_bytes() == other


def test_a_weak_etag_does_not_join_two_halves(server, url):
    server.etags["a/data.bin"] = 'W/"one"'
    server.break_after = 100_000
    assert download.fetch(url, pause_s=0).sha256 == SHA256


def test_a_finished_part_that_was_never_renamed_is_fetched_anew(server, url):
    server.break_after = 100_000
    with pytest.raises(InvalidInput):
        download.fetch(url, attempts=1)
    (part,) = download.cache_folder().rglob("*.part")
    part.write_bytes(CONTENT)  # all of it: the next range is refused with 416
    assert download.fetch(url, pause_s=0).sha256 == SHA256


def test_changed_content_is_fetched_and_recorded(server, url):
    download.fetch(url)
    server.files["a/data.bin"], server.etags["a/data.bin"] = b"new", '"two"'
    with pytest.warns(DataWarning, match="other content"):
        fetched = download.fetch(url)
    assert fetched.path.read_bytes() == b"new"
    manifest = json.loads((fetched.path.parent / "manifest.json").read_text())
    assert [old["sha256"] for old in manifest["previous"]] == [SHA256]


def test_a_damaged_copy_is_not_believed(server, url):
    path = download.fetch(url).path
    path.write_bytes(CONTENT[:-1] + b"x")
    assert download.fetch(url).path.read_bytes() == CONTENT


def test_without_connection_the_kept_copy_serves(server, url):
    download.fetch(url)
    server.fail_with = 503
    with pytest.warns(DataWarning, match="cannot be reached"):
        assert download.fetch(url, pause_s=0).sha256 == SHA256


def test_without_connection_and_copy_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path))
    with pytest.raises(InvalidInput, match=r"http://127.0.0.1:9/x could not be downloaded in 2 attempts"):
        download.fetch("http://127.0.0.1:9/x", attempts=2, pause_s=0, timeout_s=2)


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_missing_file_is_told_apart(server, url, status):
    server.fail_with = status
    with pytest.raises(download.NotPublished, match=f"HTTP {status}"):
        download.fetch(url)


def test_no_url_leads_out_of_the_cache(server):
    for path in ("../../escape", "%2e%2e/%2e%2e/escape", "a/..", "q?x=/../.."):
        server.files[path] = b"data"
        fetched = download.fetch(f"{server.url}/{path}")
        assert download.cache_folder().resolve() in fetched.path.resolve().parents


def test_local_files_are_resolved_with_their_hash(tmp_path: Path):
    path = tmp_path / "file.bin"
    path.write_bytes(CONTENT)
    assert download.resolve(path).sha256 == SHA256
    with pytest.raises(InvalidInput, match="does not exist"):
        download.resolve(tmp_path / "absent")

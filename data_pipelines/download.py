"""Downloads that resume, are checked, and are kept.

Each URL has a folder in the cache with the file, a `manifest.json` (URL, size, SHA-256, ETag, Last-Modified,
date, and what the URL held before) and, while a download is unfinished, a `.part` that the next attempt
continues. A published URL can change its content: the server is asked each time whether it has, and a change
is fetched, recorded and warned about. Without a connection the kept copy is used, with a warning.
"""

import fcntl
import hashlib
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from data_pipelines.atomic import atomic_path
from data_pipelines.errors import DataWarning, InvalidInput
from data_pipelines.intact import Damaged, check_intact
from data_pipelines.staging import is_full, no_room

READ_BYTES = 1 << 20
#: progress(done, total, what): bytes or files; total is 0 when unknown.
Progress = Callable[[int, int, str], None]
#: What the server says of a file: its ETag and when it was last modified.
Answer = dict[str, str | None]


class NotPublished(InvalidInput):
    """The server has no such file (404, or 403 as S3 answers where listing is not allowed)."""


class _Unreachable(Exception):
    """Every attempt failed; the cause is the last failure."""


@dataclass(frozen=True)
class Fetched:
    """A file on this machine and where it came from."""

    path: Path
    url: str
    sha256: str | None
    etag: str | None = None
    last_modified: str | None = None

    @property
    def record(self) -> dict[str, Any]:
        """What the metadata of a table keeps of a source file."""
        return {name: getattr(self, name) for name in ("url", "sha256", "etag", "last_modified")}


def is_url(source: str | Path) -> bool:
    """True for http and https addresses.

    Examples
    --------
    >>> is_url("https://example.org/speeds.csv"), is_url("speeds.csv")
    (True, False)
    """
    return str(source).lower().startswith(("https://", "http://"))


def resolve(source: str | Path, *, progress: Progress | None = None) -> Fetched:
    """The local file behind a path or URL, with its SHA-256."""
    if is_url(source):
        return fetch(str(source), progress=progress)
    path = Path(source)
    if not path.exists():
        raise InvalidInput(f"The file {path} does not exist.")
    if path.is_dir():  # an unzipped shapefile folder, a file geodatabase
        return Fetched(path, str(path), None)
    return Fetched(path, str(path), sha256(path))


def cache_folder() -> Path:
    """Where downloads are kept: $GEOGP_CACHE, else the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("GEOGP_CACHE") or platformdirs.user_cache_dir("geogp")) / "downloads"


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex; about a second for a gigabyte."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def page(url: str, most_bytes: int, *, timeout_s: float = 60.0) -> str:
    """The first bytes of what a URL answers now, as text; nothing is kept.

    Raises
    ------
    OSError
    """
    request = urllib.request.Request(url, headers={"User-Agent": "geogp"})
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        return bytes(response.read(most_bytes)).decode("utf-8", "replace")


def fetch(
    url: str,
    *,
    attempts: int = 5,
    timeout_s: float = 60.0,
    pause_s: float = 1.0,
    progress: Progress | None = None,
) -> Fetched:
    """The file of a URL, from the cache when the server says it has not changed.

    Parameters
    ----------
    url : https (or http) address
    attempts : tries before giving up, two where a copy is kept; each continues where the last one stopped
    timeout_s, pause_s : seconds of silence to bear, and to wait after a first failure (doubling)
    progress : called with (bytes done, bytes in all or 0, url)

    Raises
    ------
    NotPublished
        The server has no such file.
    InvalidInput
        The server refuses, or cannot be reached and nothing is kept.
    """
    folder = _folder(cache_folder(), url)
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        target = folder / _file_name(url)
        kept = _kept(folder, target)
        attempts = min(attempts, 2) if kept else attempts
        try:
            answer = _ask(url, target, kept, attempts, timeout_s, pause_s, progress)
        except _Unreachable as error:
            failure = error.__cause__
            if not kept:
                raise InvalidInput(
                    f"{url} could not be downloaded in {attempts} attempts ({failure}); check the connection and "
                    "run again: what has arrived is kept and continued."
                ) from failure
            _warn(f"{url} cannot be reached ({failure}); using the copy of {kept['fetched_at']}.")
            answer = None
        manifest = kept if answer is None else _recorded(folder, url, target, kept, answer)
        return Fetched(target, url, manifest["sha256"], manifest.get("etag"), manifest.get("last_modified"))


def _kept(folder: Path, target: Path) -> dict[str, Any]:
    """The manifest of the copy that is kept; empty when there is none or it is not what was downloaded."""
    manifest = _read_json(folder / "manifest.json")
    if not target.exists() or manifest.get("sha256") != sha256(target):
        return {}
    try:
        check_intact(target)
    except Damaged as error:
        _warn(f"The copy of {manifest.get('url')} that was kept is not whole and is fetched again: {error}")
        target.unlink()
        return {}
    return manifest


def _ask(
    url: str,
    target: Path,
    kept: dict[str, Any],
    attempts: int,
    timeout_s: float,
    pause_s: float,
    progress: Progress | None,
) -> Answer | None:
    """Try until the file is there; None when the kept copy is still what the server has."""
    asked = {"If-None-Match": kept.get("etag"), "If-Modified-Since": kept.get("last_modified")}
    conditions = {name: str(value) for name, value in asked.items() if value}
    failure: Exception | None = None
    for attempt in range(attempts):
        if attempt:
            time.sleep(pause_s * 2 ** (attempt - 1))
        try:
            return _attempt(url, target, conditions, timeout_s, progress)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in (403, 404, 410):
                raise NotPublished(f"{url} is not published (HTTP {error.code}).") from None
            if error.code < 500 and error.code not in (408, 416, 429):
                raise InvalidInput(f"{url} was refused with HTTP {error.code} {error.reason}.") from error
            failure = error
        except (OSError, http.client.HTTPException) as error:
            if is_full(error):
                raise no_room(target, None) from error
            failure = error
    raise _Unreachable from failure


def _recorded(folder: Path, url: str, target: Path, kept: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """The manifest of a file that has arrived, written beside it; content that has changed is warned about."""
    manifest: dict[str, Any] = {
        "url": url,
        "size": target.stat().st_size,
        "sha256": sha256(target),
        **answer,
        "fetched_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "previous": kept.get("previous", []),
    }
    if kept and kept["sha256"] != manifest["sha256"]:
        _warn(f"{url} holds other content than on {kept['fetched_at']}; the new one is used and recorded.")
        old = {k: kept.get(k) for k in ("sha256", "size", "etag", "last_modified", "fetched_at")}
        manifest["previous"] = [*kept.get("previous", []), old]
    with atomic_path(folder / "manifest.json", overwrite=True) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return manifest


def _warn(words: str) -> None:
    warnings.warn(words, DataWarning, stacklevel=4)


def _attempt(
    url: str, target: Path, conditions: dict[str, str], timeout_s: float, progress: Progress | None
) -> Answer | None:
    """One request, continuing `target`.part when the server allows it; None when nothing has changed."""
    part, notes = target.with_name(f"{target.name}.part"), target.with_name(f"{target.name}.part.json")
    begun = part.stat().st_size if part.exists() else 0
    validator = _read_json(notes).get("validator")
    asked = {"Range": f"bytes={begun}-", "If-Range": str(validator)} if begun and validator else conditions
    headers = {"Accept-Encoding": "identity", "User-Agent": "geogp", **asked}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout_s)
    except urllib.error.HTTPError as error:
        if error.code == 304:
            error.close()
            return None
        if error.code == 416:  # the part is as long as the file, or longer: begin again
            part.unlink(missing_ok=True)
        raise
    with response:
        start = _start(response, begun, part)
        answer: Answer = {
            "etag": response.headers.get("ETag"),
            "last_modified": response.headers.get("Last-Modified"),
        }
        notes.write_text(json.dumps({"validator": _validator(answer)}), encoding="utf-8")
        told = _receive(response, part, start, url, progress)
    try:
        check_intact(part, url)
    except Damaged as error:
        part.unlink()
        notes.unlink(missing_ok=True)
        raise OSError(f"what arrived is not whole: {error}") from error
    if not told:  # nobody says whether it is whole: the next time it is fetched again, not asked about
        answer = {"etag": None, "last_modified": None}
    part.replace(target)
    notes.unlink(missing_ok=True)
    return answer


def _start(response: http.client.HTTPResponse, begun: int, part: Path) -> int:
    """Where in the file the answer starts: at 0, or where the part ends."""
    if response.status != 206:
        return 0
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if not match or int(match[1]) != begun:
        part.unlink(missing_ok=True)
        raise OSError("the server answered another range than was asked for")
    return begun


def _validator(answer: Answer) -> str | None:
    """What may join two halves: a strong ETag, else the date (RFC 9110, 13.1.5)."""
    etag = answer["etag"]
    return etag if etag and not etag.startswith("W/") else answer["last_modified"]


def _receive(
    response: http.client.HTTPResponse, part: Path, start: int, url: str, progress: Progress | None
) -> bool:
    """Append the answer's bytes to the part; fewer than announced are an OSError. Whether any number was announced."""
    length = response.headers.get("Content-Length")
    if length is not None and not length.isdigit():
        raise OSError(f"the server announced {length!r} bytes")
    whole = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("Content-Range", ""))
    done, total = start, int(whole[1]) if whole else start + int(length) if length else 0
    with part.open("ab" if start else "wb") as out:
        while read := response.read(READ_BYTES):
            out.write(read)
            done += len(read)
            if progress:
                progress(done, total, url)
        out.flush()
        os.fsync(out.fileno())
    if total and done != total:
        raise OSError(f"the connection ended after {done:,} of {total:,} bytes")
    return bool(length or whole or response.headers.get("Transfer-Encoding"))


def _folder(cache: Path, url: str) -> Path:
    """One folder a URL, named by its hash: nothing in a URL can lead out of the cache."""
    return cache / hashlib.sha256(url.encode()).hexdigest()[:24]


def _file_name(url: str) -> str:
    """The URL's own last name, for people and for readers that look at suffixes."""
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path).rsplit("/", 1)[-1]
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[-100:] or "file"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One process at a time writes into the folder of a URL."""
    with (folder / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield

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
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from data_pipelines.atomic import atomic_path
from data_pipelines.errors import DataWarning, InvalidInput

CHUNK_BYTES = 1 << 20
#: progress(done, total, what): bytes or files; total is 0 when unknown.
Progress = Callable[[int, int, str], None]


class NotPublished(InvalidInput):
    """The server has no such file (404, or 403 as S3 answers where listing is not allowed)."""


@dataclass(frozen=True)
class Fetched:
    """A file on this machine and where it came from."""

    path: Path
    url: str
    sha256: str | None
    size: int
    etag: str | None = None
    last_modified: str | None = None
    fetched_at: str | None = None


def is_url(source: str | Path) -> bool:
    """True for http and https addresses."""
    return str(source).lower().startswith(("https://", "http://"))


def resolve(source: str | Path, *, progress: Progress | None = None) -> Fetched:
    """The local file behind a path or URL, with its SHA-256."""
    if is_url(source):
        return fetch(str(source), progress=progress)
    path = Path(source)
    if not path.exists():
        raise InvalidInput(f"The file {path} does not exist.")
    if path.is_dir():  # an unzipped shapefile folder, a file geodatabase
        return Fetched(path, str(path), None, 0)
    return Fetched(path, str(path), sha256(path), path.stat().st_size)


def cache_folder() -> Path:
    """Where downloads are kept: $GEOGP_CACHE, else the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("GEOGP_CACHE") or platformdirs.user_cache_dir("geogp")) / "downloads"


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex; about a second for a gigabyte."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def fetch(
    url: str,
    *,
    cache: Path | None = None,
    expected_sha256: str | None = None,
    attempts: int = 5,
    timeout_s: float = 60.0,
    pause_s: float = 1.0,
    progress: Progress | None = None,
) -> Fetched:
    """The file of a URL, from the cache when the server says it has not changed.

    Parameters
    ----------
    url : https (or http) address
    cache : folder to keep it in; None is `cache_folder()`
    expected_sha256 : refuse any other content
    attempts : tries before giving up; each continues where the last one stopped
    timeout_s, pause_s : seconds of silence to bear, and to wait after a first failure (doubling)
    progress : called with (bytes done, bytes in all or 0, url)

    Raises
    ------
    NotPublished
        The server has no such file.
    InvalidInput
        The server cannot be reached and nothing is kept, or the content has another hash.
    """
    folder = _folder(cache or cache_folder(), url)
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        target = folder / _file_name(url)
        known = _read_json(folder / "manifest.json")
        if not (target.exists() and known.get("sha256") == sha256(target)):
            known = {}
        asked = {"If-None-Match": known.get("etag"), "If-Modified-Since": known.get("last_modified")}
        headers = {name: str(value) for name, value in asked.items() if value}
        attempts = min(attempts, 2) if known else attempts
        failure: Exception | None = None
        for attempt in range(attempts):
            if attempt:
                time.sleep(pause_s * 2 ** (attempt - 1))
            try:
                answer = _attempt(url, target, headers, timeout_s, progress)
                break
            except urllib.error.HTTPError as error:
                error.close()
                if error.code in (403, 404, 410):
                    raise NotPublished(f"{url} is not published (HTTP {error.code}).") from None
                if error.code < 500 and error.code not in (408, 416, 429):
                    raise InvalidInput(f"{url} was refused with HTTP {error.code} {error.reason}.") from error
                failure = error
            except (OSError, http.client.HTTPException) as error:
                failure = error
        else:
            if known:
                warnings.warn(
                    f"{url} cannot be reached ({failure}); using the copy of {known['fetched_at']}.",
                    DataWarning,
                    stacklevel=2,
                )
                answer = None
            else:
                raise InvalidInput(
                    f"{url} could not be downloaded in {attempts} attempts ({failure}); check the connection and "
                    "run again: what has arrived is kept and continued."
                ) from failure
        if answer is None:
            return _checked(target, known, expected_sha256)
        manifest: dict[str, Any] = {
            "url": url,
            "size": target.stat().st_size,
            "sha256": sha256(target),
            **answer,
            "fetched_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "previous": known.get("previous", []),
        }
        if known and known["sha256"] != manifest["sha256"]:
            warnings.warn(
                f"{url} holds other content than on {known['fetched_at']}; the new one is used and recorded.",
                DataWarning,
                stacklevel=2,
            )
            old = {k: known.get(k) for k in ("sha256", "size", "etag", "last_modified", "fetched_at")}
            manifest["previous"] = [*known.get("previous", []), old]
        with atomic_path(folder / "manifest.json", overwrite=True) as temporary:
            temporary.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        return _checked(target, manifest, expected_sha256)


def _attempt(
    url: str, target: Path, conditions: dict[str, str], timeout_s: float, progress: Progress | None
) -> dict[str, str | None] | None:
    """One request, continuing `target`.part when the server allows it; None when nothing has changed."""
    part = target.with_name(target.name + ".part")
    notes = target.with_name(target.name + ".part.json")
    headers = {"Accept-Encoding": "identity", "User-Agent": "geogp", **conditions}
    begun = part.stat().st_size if part.exists() else 0
    validator = _read_json(notes).get("validator")
    if begun and validator:
        headers = {k: v for k, v in headers.items() if k not in conditions}
        headers |= {"Range": f"bytes={begun}-", "If-Range": validator}
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        if error.code == 304:
            error.close()
            return None
        if error.code == 416:  # the part is as long as the file, or longer: begin again
            part.unlink(missing_ok=True)
        raise
    with response:
        start = 0
        if response.status == 206:
            match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
            if not match or int(match[1]) != begun:
                part.unlink(missing_ok=True)
                raise OSError("the server answered another range than was asked for")
            start = begun
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else 0
        etag, modified = response.headers.get("ETag"), response.headers.get("Last-Modified")
        # only a strong ETag or a date may join two halves (RFC 9110, 13.1.5)
        strong = etag if etag and not etag.startswith("W/") else modified
        notes.write_text(json.dumps({"validator": strong}), encoding="utf-8")
        done = start
        with part.open("ab" if start else "wb") as out:
            while chunk := response.read(CHUNK_BYTES):
                out.write(chunk)
                done += len(chunk)
                if progress:
                    progress(done, total, url)
            out.flush()
            os.fsync(out.fileno())
    if length and done != total:
        raise OSError(f"the connection ended after {done:,} of {total:,} bytes")
    part.replace(target)
    notes.unlink(missing_ok=True)
    return {"etag": etag, "last_modified": modified}


def _checked(target: Path, manifest: dict[str, Any], expected_sha256: str | None) -> Fetched:
    if expected_sha256 and manifest["sha256"] != expected_sha256.lower():
        raise InvalidInput(
            f"{manifest['url']} has SHA-256 {manifest['sha256']}, not the expected {expected_sha256}; "
            "its content has changed or the download is not what it should be."
        )
    fields = ("url", "sha256", "size", "etag", "last_modified", "fetched_at")
    return Fetched(target, **{name: manifest.get(name) for name in fields})  # type: ignore[arg-type]


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
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One process at a time writes into the folder of a URL."""
    with (folder / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def as_record(fetched: Fetched) -> dict[str, Any]:
    """What the metadata of a table keeps of a source file."""
    record = asdict(fetched)
    return {name: record[name] for name in ("url", "sha256", "etag", "last_modified")}

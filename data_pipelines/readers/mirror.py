"""Where a quarter's file lies: Ookla's bucket over https or S3, or a folder laid out like it.

{root}/parquet/performance/type={fixed|mobile}/year=Y/quarter=Q/Y-MM-01_performance_{type}_tiles.parquet
"""

import os
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs

from data_pipelines import arrow, download
from data_pipelines.errors import InvalidInput
from data_pipelines.readers.copied import Copied

BUCKET_URL = "https://ookla-open-data.s3.amazonaws.com"
S3, S3_REGION = "s3://", "us-west-2"


@dataclass(frozen=True)
class QuarterFile:
    """One published file: a path or open stream for Arrow, what the metadata keeps of it, and its account if it is a copy."""

    quarter: str
    source: Any
    record: dict[str, Any]
    copied: Copied | None = None

    @property
    def url(self) -> str:
        return str(self.record["url"])


def key(type: str, quarter: str) -> str:
    """The object key of a quarter in the bucket's layout.

    Examples
    --------
    >>> key("mobile", "2020Q3").rsplit("/", 1)[-1]
    '2020-07-01_performance_mobile_tiles.parquet'
    """
    year, q = quarter[:4], int(quarter[5])
    return (
        f"parquet/performance/type={type}/year={year}/quarter={q}/"
        f"{year}-{3 * q - 2:02d}-01_performance_{type}_tiles.parquet"
    )


def find(
    root: str | Path,
    type: str,
    quarter: str,
    progress: download.Progress | None = None,
    *,
    called: str | Path | None = None,
) -> QuarterFile | None:
    """The file of a quarter under a root (https URL, s3://bucket[/prefix] or folder); None when absent.

    called : what a folder is called in records and messages; default `root`
    """
    text = str(root).rstrip("/")
    path = key(type, quarter)
    if download.is_url(text):
        try:
            fetched = download.fetch(f"{text}/{path}", progress=progress)
        except download.NotPublished:
            return None
        return QuarterFile(quarter, fetched.path, fetched.record)
    if text.startswith(S3):
        return _find_s3(text.removeprefix(S3), path, quarter)
    local = folder(root) / path
    if not local.is_file():
        return None
    return QuarterFile(quarter, local, {"url": str(Path(called or root) / path)})


def record(file: QuarterFile) -> dict[str, Any]:
    """The whole record of a file: of the published one that it is a copy of, else its own, with its SHA-256."""
    if file.copied:
        return {**file.copied.origin, "sorted_copy": file.url}
    if isinstance(file.source, Path) and "sha256" not in file.record:
        return {**download.resolve(file.source).record, "url": file.url}
    return file.record


def size(file: QuarterFile) -> int:
    """Bytes of a file."""
    return file.source.stat().st_size if isinstance(file.source, Path) else int(file.source.size())


def folder(root: str | Path) -> Path:
    """A root on this machine.

    Raises
    ------
    InvalidInput
        There is no such folder.
    """
    if not Path(root).is_dir():
        raise InvalidInput(f"The root {root} is not a folder; give a folder, an https URL or s3://bucket.")
    return Path(root)


def remote(root: str | Path | None) -> bool:
    """Whether a root is no folder."""
    return root is None or str(root).startswith(S3) or download.is_url(root)


def bucket() -> pyarrow.fs.S3FileSystem:
    """Whose objects anybody may read. AWS_ENDPOINT_URL, when set, names another server that speaks S3."""
    endpoint = urllib.parse.urlsplit(os.environ.get("AWS_ENDPOINT_URL") or "https://")
    return pyarrow.fs.S3FileSystem(
        anonymous=True, region=S3_REGION, scheme=endpoint.scheme, endpoint_override=endpoint.netloc or None
    )


def objects(name: str, prefix: str) -> Iterator[tuple[str, int]]:
    """Keys and bytes of what a bucket has under a prefix.

    Raises
    ------
    InvalidInput
        It cannot be listed.
    """
    selector = pyarrow.fs.FileSelector(f"{name}/{prefix}", recursive=True, allow_not_found=True)
    try:
        for info in bucket().get_file_info(selector):
            yield info.path.removeprefix(f"{name}/"), info.size or 0
    except OSError as error:
        raise InvalidInput(f"{S3}{name} cannot be listed ({error}); check the connection.") from error


def _find_s3(name: str, path: str, quarter: str) -> QuarterFile | None:
    """An object of an anonymous bucket, read in place: only the columns asked for travel."""
    files, url = bucket(), f"{S3}{name}/{path}"
    try:
        info = files.get_file_info(f"{name}/{path}")
        if info.type != pyarrow.fs.FileType.File:
            return None
        handle = files.open_input_file(f"{name}/{path}")
        with files.open_input_stream(f"{name}/{path}") as stream:
            tags = {tag.lower(): arrow.text(value) for tag, value in stream.metadata().items()}
    except OSError as error:
        raise InvalidInput(f"{url} cannot be read ({error}); check the connection.") from error
    modified = tags.get("last-modified") or (info.mtime.isoformat() if info.mtime else None)
    record = {"url": url, "sha256": None, "etag": tags.get("etag"), "last_modified": modified}
    return QuarterFile(quarter, handle, record)

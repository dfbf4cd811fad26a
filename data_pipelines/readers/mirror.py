"""Where a quarter's file lies: Ookla's bucket over https or S3, or a folder laid out like it.

{root}/parquet/performance/type={fixed|mobile}/year=Y/quarter=Q/Y-MM-01_performance_{type}_tiles.parquet
"""

import os
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs

from data_pipelines import arrow, download
from data_pipelines.errors import InvalidInput

BUCKET_URL = "https://ookla-open-data.s3.amazonaws.com"
S3, S3_REGION = "s3://", "us-west-2"


@dataclass(frozen=True)
class QuarterFile:
    """One published file: a path or open stream for Arrow, and what the metadata keeps of it."""

    quarter: str
    source: Any
    record: dict[str, Any]

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
    root: str | Path, type: str, quarter: str, progress: download.Progress | None = None
) -> QuarterFile | None:
    """The file of a quarter under a root (https URL, s3://bucket[/prefix] or folder); None when absent."""
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
    folder = Path(root)
    if not folder.is_dir():
        raise InvalidInput(f"The root {folder} is not a folder; give a folder, an https URL or s3://bucket.")
    local = folder / path
    if not local.is_file():
        return None
    return QuarterFile(quarter, local, download.resolve(local).record)


def there(root: str | Path, type: str) -> list[str] | None:
    """The quarters of a type in a folder; None for a root that cannot be listed."""
    if str(root).startswith(S3) or download.is_url(root):
        return None
    files = Path(root).glob(f"parquet/performance/type={type}/year=*/quarter=*/*.parquet")
    return sorted(f"{path.parent.parent.name[5:]}Q{path.parent.name[8:]}" for path in files)


def _find_s3(bucket: str, path: str, quarter: str) -> QuarterFile | None:
    """An object of an anonymous bucket, read in place: only the columns asked for travel.

    AWS_ENDPOINT_URL, when set, names another server that speaks S3.
    """
    endpoint = urllib.parse.urlsplit(os.environ.get("AWS_ENDPOINT_URL") or "https://")
    files = pyarrow.fs.S3FileSystem(
        anonymous=True, region=S3_REGION, scheme=endpoint.scheme, endpoint_override=endpoint.netloc or None
    )
    url = f"{S3}{bucket}/{path}"
    try:
        info = files.get_file_info(f"{bucket}/{path}")
        if info.type != pyarrow.fs.FileType.File:
            return None
        handle = files.open_input_file(f"{bucket}/{path}")
        with files.open_input_stream(f"{bucket}/{path}") as stream:
            tags = {name.lower(): arrow.text(value) for name, value in stream.metadata().items()}
    except OSError as error:
        raise InvalidInput(f"{url} cannot be read ({error}); check the connection.") from error
    modified = tags.get("last-modified") or (info.mtime.isoformat() if info.mtime else None)
    record = {"url": url, "sha256": None, "etag": tags.get("etag"), "last_modified": modified}
    return QuarterFile(quarter, handle, record)

"""What a root of published tiles holds: kinds, quarters and bytes, without reading a file."""

import html
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from data_pipelines import download
from data_pipelines.errors import InvalidInput
from data_pipelines.readers import mirror

PREFIX = "parquet/performance/"
_KEY = re.compile(
    re.escape(PREFIX)
    + r"type=(?P<type>\w+)/year=(?P<year>\d{4})/quarter=(?P<quarter>[1-4])/(?P<name>[^/]+\.parquet)"
)
_ENTRY = re.compile(
    r"<Contents>.*?<Key>(?P<key>.*?)</Key>.*?<Size>(?P<size>\d+)</Size>.*?</Contents>", re.DOTALL
)
_NEXT = re.compile(r"<NextContinuationToken>(.*?)</NextContinuationToken>", re.DOTALL)
#: Pages of a bucket's list that are asked for, a thousand names each; bytes of one.
MOST_PAGES, MOST_BYTES = 100, 8 * 2**20


@dataclass(frozen=True, order=True)
class Published:
    """A quarter's file under a root: kind of connection, quarter, bytes, and where it is."""

    type: str
    quarter: str
    bytes: int
    url: str


def published(root: str | Path) -> list[Published]:
    """The files under a root (https URL of a bucket, s3://bucket[/prefix] or folder), by type and quarter.

    Raises
    ------
    InvalidInput
        The root is no folder, or a server that does not list its files.
    """
    text = str(root).rstrip("/")
    if download.is_url(text):
        found: Iterable[tuple[str, int]] = _over_https(text)
    elif text.startswith(mirror.S3):
        found = mirror.objects(text.removeprefix(mirror.S3), PREFIX)
    else:
        found = _in_folder(mirror.folder(root))
    named = ((match, size) for key, size in found if (match := _KEY.fullmatch(key)))
    return sorted(
        Published(m["type"], f"{m['year']}Q{m['quarter']}", size, f"{text}/{m[0]}")
        for m, size in named
        if m[0] == mirror.key(m["type"], f"{m['year']}Q{m['quarter']}")
    )


def _in_folder(folder: Path) -> Iterator[tuple[str, int]]:
    for path in (folder / PREFIX).glob("type=*/year=*/quarter=*/*.parquet"):
        yield path.relative_to(folder).as_posix(), path.stat().st_size


def _over_https(root: str) -> Iterator[tuple[str, int]]:
    """As S3 answers anybody over https, page by page."""
    token: str | None = None
    for _ in range(MOST_PAGES):
        asked = {"list-type": "2", "prefix": PREFIX} | ({"continuation-token": token} if token else {})
        page = _page(root, f"{root}/?{urllib.parse.urlencode(asked)}")
        for entry in _ENTRY.finditer(page):
            yield html.unescape(entry["key"]), int(entry["size"])
        further = _NEXT.search(page)
        if not further:
            return
        token = html.unescape(further[1])


def _page(root: str, url: str) -> str:
    try:
        page = download.page(url, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{root} does not list its files ({error}); name quarters instead.") from error
    if "<ListBucketResult" not in page:
        raise InvalidInput(f"{root} does not list its files; name quarters instead.")
    return page

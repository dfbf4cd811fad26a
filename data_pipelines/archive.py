"""Published quarters as a whole: which there are, what a table would take, and a sorted copy of them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_pipelines import download, quarters
from data_pipelines.errors import InvalidInput
from data_pipelines.places import check_quarters, place_of, type_of
from data_pipelines.readers import listing, mirror, sorting, tiles
from data_pipelines.sources import SOURCES
from data_pipelines.sources.contract import Request
from data_pipelines.words import many


@dataclass(frozen=True)
class Held:
    """A quarter's file under a root; rows and whether it is a sorted copy are None where it is not on this machine.

    problem : why it cannot be read
    """

    type: str
    quarter: str
    bytes: int
    url: str
    rows: int | None = None
    sorted: bool | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Plan:
    """What an ingest would read and give.

    quarters, missing : found and not found
    bytes : of the files; rows : in them; rows_read : of those, in row groups that can hold the place
    rows_expected, seconds : as the last quarter, which was tried, says of all
    """

    quarters: tuple[str, ...]
    missing: tuple[str, ...]
    bytes: int
    place: str
    rows: int | None = None
    rows_read: int | None = None
    rows_expected: int | None = None
    seconds: float | None = None

    def summary(self) -> str:
        """For people."""
        ends = f"{self.quarters[0]}..{self.quarters[-1]}" if len(self.quarters) > 1 else self.quarters[0]
        parts = [
            f"{many(len(self.quarters), 'file')} ({ends}), {self.bytes / 2**20:,.0f} MiB",
            f"{many(len(self.missing), 'quarter')} missing" if self.missing else "",
        ]
        if self.rows_expected is None:
            parts.append("to be downloaded first: rows and time are known then")
        else:
            parts += [
                f"{self.rows_read:,} of {many(self.rows or 0, 'row')} to read",
                f"some {many(self.rows_expected, 'row')} in {self.place}",
                f"about {self.seconds:.0f} s",
            ]
        return ", ".join(part for part in parts if part)


def holds(root: str | Path | None, type: str | None = None) -> list[Held]:
    """What a root holds, by type and quarter; None is the public bucket.

    Raises
    ------
    InvalidInput
        The root is no folder, or a server that does not list its files.
    """
    root = root or mirror.BUCKET_URL
    found = [one for one in listing.published(root) if type in (None, one.type)]
    return [
        _held(one) if not mirror.remote(root) else Held(one.type, one.quarter, one.bytes, one.url)
        for one in found
    ]


def _held(one: listing.Published) -> Held:
    held = Held(one.type, one.quarter, one.bytes, one.url)
    try:
        opened = tiles.opened(mirror.QuarterFile(one.quarter, Path(one.url), {"url": one.url}))
    except InvalidInput as error:
        return replace(held, problem=str(error))
    return replace(held, rows=opened.rows, sorted=opened.file.copied is not None)


def plan(**asked: Any) -> Plan:
    """What `observations.ingest` of the same arguments would read; nothing is downloaded or written.

    Raises
    ------
    InvalidInput
        As for `observations.ingest`.
    """
    with _ready(**asked) as request:
        place, _ = place_of(request, optional=False)
        assert place
        root, wanted = request.root or mirror.BUCKET_URL, quarters.parse(request.quarters or "")
        if download.is_url(root):
            there = {one.quarter: one for one in listing.published(root) if one.type == request.type}
            had = tuple(quarter for quarter in wanted if quarter in there)
            if not had:
                raise tiles.none_found(root, request.type or "", wanted)
            size = sum(there[quarter].bytes for quarter in had)
            return Plan(had, tuple(q for q in wanted if q not in there), size, str(place))
        files = list(tiles.found(request))
        to_read = [
            sum(one.metadata.row_group(g).num_rows for g in one.groups(place.covering)) for one in files
        ]
        started = time.perf_counter()
        last = tiles.read_quarter(files[-1], place, ())
        seconds = time.perf_counter() - started
        rows = sum(one.rows for one in files)
        had = tuple(one.file.quarter for one in files)
        return Plan(
            had,
            tuple(quarter for quarter in wanted if quarter not in had),
            sum(mirror.size(one.file) for one in files),
            str(place),
            rows,
            sum(to_read),
            round(len(last.at[0]) * rows / max(files[-1].rows, 1)),
            seconds * sum(to_read) / max(to_read[-1], 1),
        )


def sort_into(folder: str | Path, *, overwrite: bool = False, **asked: Any) -> Iterator[sorting.Sorted]:
    """Copies of the quarters asked for, sorted: `readers.sorting.sort_into`.

    Raises
    ------
    InvalidInput
        A place was asked for: copies are of the whole world; else as there.
    """
    for name in ("region", "bbox", "boundary"):
        if asked.get(name) is not None:
            raise InvalidInput(f"A sorted copy is of the whole world; leave out {name}.")
    with _ready(**asked) as request:
        yield from sorting.sort_into(Path(folder), request, overwrite=overwrite)


@contextmanager
def _ready(*, source: str = "ookla", type: str | None = None, **asked: Any) -> Iterator[Request]:
    """The request of a source of published tiles, complete."""
    if not (source in SOURCES and SOURCES[source].tiled):
        names = ", ".join(name for name, entry in SOURCES.items() if entry.tiled)
        raise InvalidInput(f"Source {source!r} publishes no quarters of tiles; those that do are {names}.")
    with SOURCES[source].ready(Request(type=type_of(source, type), **asked)) as request:
        check_quarters(request)
        yield request

"""Quarters of published tiles read by workers, each of which finds the files itself: one after the other come their rows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from data_pipelines import quarters
from data_pipelines.errors import InvalidInput
from data_pipelines.readers import mirror, tiles
from data_pipelines.regions import Region
from data_pipelines.sources.contract import Collected, Request, Workers


@dataclass(frozen=True)
class Where:
    """Where quarters lie for whoever reads them.

    root : a folder by its whole path; called : as it was named, for records and messages; type : of connection
    """

    root: str
    called: str
    type: str

    @classmethod
    def of(cls, request: Request) -> "Where":
        """What a request names.

        Raises
        ------
        InvalidInput
            No such folder.
        """
        called = str(request.root or mirror.BUCKET_URL)
        root = called if mirror.remote(called) else str(mirror.folder(called).absolute())
        return cls(root, called, request.type or "")

    def opened(self, quarter: str) -> tiles.Opened | None:
        """In a worker: the file of a quarter, None where there is none.

        Raises
        ------
        InvalidInput
            Not seen from there; as for `tiles.opened`.
        """
        if not (mirror.remote(self.root) or Path(self.root).is_dir()):
            raise InvalidInput(
                f"A worker does not see the root {self.root}; put it where all machines see it under this name."
            )
        file = mirror.find(self.root, self.type, quarter, called=self.called)
        return None if file is None else tiles.opened(file)


def collect(request: Request) -> Iterator[Collected]:
    """What `tiles.collect` gives.

    Raises
    ------
    InvalidInput
        As there; also a root that a worker does not see.
    """
    workers, place, where = request.workers, tiles.place_asked(request), Where.of(request)
    assert workers is not None
    there = {quarter: names for quarter, names in _columns(workers, where, request) if names is not None}
    if not there:
        raise tiles.none_found(where.called, where.type, quarters.parse(request.quarters or ""))
    # without what the place has worked out for itself
    shared = workers.share(replace(place))

    def read(pieces: list[tiles.Piece]) -> Iterator[Collected]:
        return workers.in_order(_rows, ((where, shared, *piece) for piece in pieces))

    return tiles.parts(there, request, read)


def _columns(workers: Workers, where: Where, request: Request) -> Iterator[tuple[str, set[str] | None]]:
    """The quarters asked for, fetched where they must be, and the columns of those that are there."""
    wanted = quarters.parse(request.quarters or "")
    known = workers.in_order(_names, ((where, quarter) for quarter in wanted))
    for number, quarter in enumerate(wanted):
        if request.progress:
            request.progress(number, len(wanted), f"finding {request.type} {quarter}")
        yield quarter, next(known)


def _names(where: Where, quarter: str) -> set[str] | None:
    """In a worker: the columns of a quarter, None where it is not there."""
    one = where.opened(quarter)
    return None if one is None else one.names


def _rows(where: Where, place: Region, quarter: str, names: list[str], missing: list[str]) -> Collected:
    """In a worker: the rows of a quarter."""
    one = where.opened(quarter)
    if one is None:
        raise InvalidInput(
            f"A worker does not see {quarter} under {where.called}; put it where all machines see it."
        )
    return tiles.read_quarter(one, place, names, missing)

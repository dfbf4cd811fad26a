"""What a source is, what it is asked, and what it gives back.

Light to import, as every file of this folder: the command line lists the sources before anything is read.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # these import numpy, pyproj and shapely
    from numpy.typing import NDArray

    from data_pipelines.download import Progress
    from data_pipelines.regions import Region


#: Which of a file's values may be better.
BETTER = ("higher", "lower")


class Workers(Protocol):
    """Who works in other processes, perhaps on other machines."""

    def share(self, value: Any) -> Any:
        """A value that many pieces take: each worker gets it once."""

    def in_order(self, work: Callable[..., Any], pieces: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """What `work(*piece)` gives of each piece, in their order; `work` is a function of a module."""


@dataclass(frozen=True)
class Request:
    """What was asked of `ingest`, word for word: which fields count depends on the source.

    workers : read quarters side by side; None for this process alone
    place : the region that region, bbox or boundary name, for `collect`; None for no place
    """

    root: str | Path | None = None
    file: str | Path | None = None
    type: str | None = None
    quarters: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    crs: Any = None
    value_unit: str | None = None
    value_name: str | None = None
    better: str | None = None
    covariates: tuple[str, ...] | None = None
    average: bool | None = None
    credit: str | None = None
    region: str | None = None
    states: str | Path | None = None
    bbox: tuple[float, float, float, float] | None = None
    boundary: str | Path | None = None
    urban: str | Path | None = None
    seed: int = 0
    size: str = "demo"
    progress: "Progress | None" = None
    workers: Workers | None = None
    place: "Region | None" = None


@dataclass(frozen=True)
class Collected:
    """Rows inside the region, as columns of equal length, and the account of those left out.

    columns : the measured columns of `schema`, and `quarter` (strings) where rows have one
    at : where each row lies: tile indices x, y of a tiled source, else longitude and latitude in WGS84
    dropped, flagged : counts by cause
    sources : a record for each file read
    about : entries of the metadata document that only this source has
    """

    columns: "dict[str, NDArray[Any]]"
    at: "tuple[NDArray[Any], NDArray[Any]]"
    rows_read: int
    dropped: dict[str, int]
    sources: list[dict[str, Any]]
    quarters: list[str] = field(default_factory=list)
    missing_quarters: list[str] = field(default_factory=list)
    flagged: dict[str, int] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Where measurements come from: all that the command line, exports and suggestions know of it.

    Parameters
    ----------
    words : what it is, for the help of the command line
    collect : from a request to the rows inside its place; of a tiled source with a place it may be an iterator of them, a
        quarter at a time, in order and all with the same columns: then no more than a quarter is held in memory
    tiled : whether a row is the average over a zoom-16 tile; else it is a measurement at a point
    takes_file : whether it reads a FILE of the user's, for which a place is optional; else a root, by quarters
    types : kinds of connection it publishes, the usual one first
    attribution, licence : how those who publish it want to be named on maps, and under which terms
    reference : URL of a page about it
    ready : completes a request before it is read, and cleans up after

    Examples
    --------
    >>> Source("tide gauges", collect=print, tiled=False, attribution="Harbour Office", licence="CC0").credit
    'Harbour Office (CC0)'
    """

    words: str
    collect: "Callable[[Request], Collected | Iterator[Collected]]"
    tiled: bool
    attribution: str
    licence: str | None = None
    reference: str | None = None
    takes_file: bool = False
    types: tuple[str, ...] = ()
    ready: Callable[[Request], AbstractContextManager[Request]] = nullcontext

    @property
    def credit(self) -> str:
        """Whom to name, and the licence."""
        return f"{self.attribution} ({self.licence})" if self.licence else self.attribution

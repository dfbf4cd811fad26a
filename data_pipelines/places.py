"""What is asked of a source, made whole: the place that a request names, and the kind of connection."""

from typing import Any

from data_pipelines.errors import InvalidInput
from data_pipelines.quarters import parse
from data_pipelines.regions import Region
from data_pipelines.sources import SOURCES
from data_pipelines.sources.contract import Request


def type_of(source: str, type: str | None) -> str | None:
    """The kind of connection to read of a source: the one asked for, or its first; None where it has no kinds.

    Raises
    ------
    InvalidInput
    """
    entry = SOURCES[source]
    if type is not None and entry.types and type not in entry.types:
        raise InvalidInput(f"Unknown type {type!r}; {source} publishes {' and '.join(entry.types)}.")
    return (type or entry.types[0]) if entry.types else None


def check_quarters(request: Request) -> None:
    """Refuse a request of published quarters that says none, or what is none, before anything is fetched.

    Raises
    ------
    InvalidInput
    """
    if not request.quarters:
        raise InvalidInput("Say which quarters: 2023Q4, 2019Q1..2023Q4 or a comma list.")
    parse(request.quarters)


def place_of(request: Request, optional: bool) -> tuple[Region | None, dict[str, Any] | None]:
    """The region asked for, and the record of the file it came from.

    Raises
    ------
    InvalidInput
        None is asked for, unless it is `optional`, or two; a file that has none.
    """
    given = [name for name in ("region", "bbox", "boundary") if getattr(request, name) is not None]
    if optional and not given:
        return None, None
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise InvalidInput(f"Give one of region, bbox and boundary; got {got}.")
    if request.bbox is not None:
        return Region.from_bbox(request.bbox), None
    from data_pipelines import census

    if request.region is not None:
        place, fetched = census.state(request.region, request.states)
    else:
        place, fetched = census.boundary(request.boundary or "")
    return place, fetched.record

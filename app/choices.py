"""The names that the command line shows and, like run.toml, holds people to.

What tells whether a name is one of them is here too, and imports no more than it needs: the commands ask before they
import what does the work, which takes seconds.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from app.errors import InvalidInput, Usage
from geogp.targets import TARGETS

if TYPE_CHECKING:
    from pyproj import CRS

    TargetName: TypeAlias = str
else:
    TargetName = Literal[tuple(TARGETS)]
#: Characters of a CRS that a sentence repeats.
SHOWN = 80
#: What may count the measurements behind a value: repeated tests of one device agree more than those of many.
CountedBy = Literal["tests", "devices", "both"]


def export_formats() -> tuple[str, ...]:
    """What an export can write."""
    from maps.sinks import SINKS

    return (*SINKS, "figures", "html")


def check_formats(names: Sequence[str]) -> list[str]:
    """Each once.

    Raises
    ------
    InvalidInput
        one that there is not, or none at all.
    """
    known = export_formats()
    for name in names:
        if name not in known:
            raise InvalidInput(f"There is no format {name!r}; choose from {', '.join(known)}.")
    if not names:
        raise InvalidInput(f"No format was named; choose from {', '.join(known)}.")
    return list(dict.fromkeys(names))


def check_methods(names: Sequence[str]) -> list[str]:
    """Of methods and peers to compare, each once.

    Raises
    ------
    Usage
        none at all.
    ImpossibleCombination
        one that is neither.
    MissingPackage
        a peer that cannot run here.
    """
    from app.peers import PEERS, MissingPackage
    from geogp.errors import ImpossibleCombination
    from geogp.methods import METHODS

    if not names:
        raise Usage("Name the methods to compare, as --methods A,B; `geogp methods` lists them.")
    for name in names:
        if name not in (*METHODS, *PEERS):
            raise ImpossibleCombination(
                f"there is no method {name!r}, nor a peer; methods are {', '.join(METHODS)}; peers are {', '.join(PEERS)}."
            )
        if name in PEERS and not PEERS[name].installed:
            raise MissingPackage.of(PEERS[name])
    return list(dict.fromkeys(names))


def map_crs(text: str, of: str = "") -> "CRS":
    """The CRS of a map of the Earth by its name or WKT.

    Parameters
    ----------
    of : whose it is, for the sentence; default its own name

    Raises
    ------
    InvalidInput
        unknown to PROJ, of another body, or of no map (heights, the Earth's centre, a site).
    """
    from pyproj import CRS, Transformer
    from pyproj.exceptions import CRSError, ProjError

    words = f"The CRS of {of}" if of else f"The CRS {text[:SHOWN]!r}"
    try:
        found = CRS.from_user_input(text)
        Transformer.from_crs(4326, found, always_xy=True)  # one of another body has no way from Earth
    except (CRSError, ProjError, RecursionError):
        raise InvalidInput(f"{words} is not known to PROJ; give one such as EPSG:32604.") from None
    if not (found.is_projected or found.is_geographic):
        raise InvalidInput(f"{words} ({found.name}) is not one of a map; give a projected or geographic one.")
    return found

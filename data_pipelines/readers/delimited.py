"""How a table of text is written: what separates its cells, in which letters, with which decimal sign."""

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

#: Signs between cells, the likeliest first; bytes of a file that tell them; bytes read at once after these.
SEPARATORS, HEAD, PART = (",", ";", "\t", "|"), 65_536, 1 << 22
#: Names of the columns of places, however written, the first that is there.
LONGITUDES = ("lon", "longitude", "lng", "long", "x", "intptlon")
LATITUDES = ("lat", "latitude", "y", "intptlat")
_QUOTED = re.compile(r'"[^"]*"')
#: A number with a comma for its decimal sign.
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")


@dataclass(frozen=True)
class Dialect:
    """separator : between cells; encoding : of the letters, as Python names it."""

    separator: str
    encoding: str


def dialect_of(path: Path) -> Dialect:
    """How a text table is written; may be compressed, as its name says. Read once, in parts, for its letters.

    The separator is the sign that its first line has most often, outside quotes. Spreadsheets write UTF-8 or UTF-16 with a
    mark at their head, or what Windows takes for Latin-1.

    Raises
    ------
    OSError
    """
    decoder, encoding = codecs.getincrementaldecoder("utf-8")(), "utf-8"
    with pa.input_stream(str(path), compression="detect") as stream:
        part = head = bytes(stream.read(HEAD))
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            encoding, part = "utf-16", b""
        try:
            while part:
                decoder.decode(part)
                part = bytes(stream.read(PART))
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            encoding = "cp1252"
    lines = head.decode(encoding, errors="replace").lstrip("\ufeff").splitlines()
    first = _QUOTED.sub("", lines[0]) if lines else ""
    return Dialect(max(SEPARATORS, key=first.count), encoding)


def places_among(names: list[str]) -> tuple[str | None, str | None]:
    """The columns of longitude and latitude, or of x and y, by their names; None where none is called so.

    Examples
    --------
    >>> places_among(["id", "Latitude", "Longitude"])
    ('Longitude', 'Latitude')
    """
    lower = {name.strip().lower(): name for name in reversed(names)}
    lon, lat = (next((lower[n] for n in known if n in lower), None) for known in (LONGITUDES, LATITUDES))
    return lon, lat

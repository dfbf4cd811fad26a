"""How a table of text is written: what separates its cells, in which letters, with which decimal sign."""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from data_pipelines.errors import InvalidInput

#: Signs between cells, the likeliest first; bytes of a file that tell them; bytes read at once after these.
SEPARATORS, HEAD, PART = (",", ";", "\t", "|"), 65_536, 1 << 22
#: Names of the columns of places, however written, the first that is there.
LONGITUDES = ("lon", "longitude", "lng", "long", "x", "intptlon")
LATITUDES = ("lat", "latitude", "y", "intptlat")
#: Names of a column of counts, however written, where no two are there.
COUNTS = ("count", "counts", "tests", "n_tests", "measurements", "n_measurements")
_QUOTED = re.compile(r'"[^"]*"')
#: A number with a comma for its decimal sign, and one with a point.
DECIMAL_COMMA, DECIMAL_POINT = (
    re.compile(rf"\s*[+-]?\d*{sign}\d+(?:[eE][+-]?\d+)?\s*") for sign in (",", "[.]")
)


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


def roles_among(names: list[str], named: Mapping[str, str]) -> dict[str, str]:
    """The columns of a table by role: those that are named, and x, y, value and count by their names where they are not.

    Examples
    --------
    >>> roles_among(["lon", "lat", "value"], {})
    {'x': 'lon', 'y': 'lat', 'value': 'value'}
    >>> roles_among(["lon", "lat", "value", "E", "N"], {"x": "E", "y": "N", "count": "value"})
    {'x': 'E', 'y': 'N', 'count': 'value'}
    >>> roles_among(["lon", "lat", "value", "Tests"], {})["count"]
    'Tests'
    """
    x, y = places_among(names)
    found = {} if {"x", "y"} & set(named) or x is None or y is None else {"x": x, "y": y}
    value = next((name for name in names if name.strip().lower() == "value"), None)
    if value is not None and "value" not in named and value not in named.values():
        found["value"] = value
    counts = [name for name in names if name.strip().lower() in COUNTS and name not in named.values()]
    if len(counts) == 1 and "count" not in named:
        found["count"] = counts[0]
    return {**found, **named}


def has_decimal_commas(columns: Mapping[str, pa.Array | pa.ChunkedArray], path: Path) -> bool:
    """Whether numbers in columns of text have commas for their decimal signs, where no comma separates cells.

    Raises
    ------
    InvalidInput
        Some have commas and some have points, so that one of the two stands between thousands.

    Examples
    --------
    >>> has_decimal_commas({"lon": pa.array(["10,5", "11"])}, Path("t.csv"))
    True
    >>> has_decimal_commas({"lon": pa.array(["10,5"]), "income": pa.array(["25.236"])}, Path("t.csv"))
    Traceback (most recent call last):
    ...
    data_pipelines.errors.InvalidInput: t.csv has the number 10,5 in column lon and 25.236 in column income; write all with one decimal sign, and nothing between thousands.
    """
    commas, points = (_first(columns, pattern) for pattern in (DECIMAL_COMMA, DECIMAL_POINT))
    if commas and points:
        raise InvalidInput(
            f"{path} has the number {commas[1]} in column {commas[0]} and {points[1]} in column {points[0]}; write all with one "
            "decimal sign, and nothing between thousands."
        )
    return commas is not None


def _first(
    columns: Mapping[str, pa.Array | pa.ChunkedArray], pattern: re.Pattern[str]
) -> tuple[str, str] | None:
    """The first column that has a cell of a pattern, and the cell; None where none has."""
    for name, column in columns.items():
        like = column.filter(pc.match_substring_regex(column, f"^(?:{pattern.pattern})$"))
        if len(like):
            return name, like[0].as_py().strip()
    return None

"""H3 cells: a place kept for the format; the h3 package is not part of an installation."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from maps.errors import InvalidInput
from maps.sinks.geoparquet import GeoparquetSink


class H3Sink(GeoparquetSink):
    """Would write means of the pixels per H3 cell; says plainly that it does not."""

    def __init__(self, folder: Path, **options: Any) -> None:
        have = (
            "is installed, but this version writes no H3 files yet" if find_spec("h3") else "is not installed"
        )
        raise InvalidInput(
            f"Format 'h3' is not available: the package h3 {have}. "
            "Export 'geoparquet' and index its lon and lat columns with the h3 package instead."
        )

"""Where rendered windows go: one file format each.

To add a format, write a `Sink` in its own file and add a line here.
"""

from importlib import import_module
from typing import Any

SINKS: dict[str, str] = {
    "cog": "maps.sinks.cog:CogSink",
    "netcdf": "maps.sinks.netcdf:NetcdfSink",
    "zarr": "maps.sinks.zarr:ZarrSink",
    "geoparquet": "maps.sinks.geoparquet:GeoparquetSink",
    "h3": "maps.sinks.cells:H3Sink",
    "gpkg": "maps.sinks.tables:GpkgSink",
    "csv": "maps.sinks.tables:CsvSink",
    "pmtiles": "maps.sinks.pmtiles:PmtilesSink",
}


def sink_class(name: str) -> Any:
    """The class behind a format name; InvalidInput names the formats there are."""
    from maps.errors import InvalidInput

    if name not in SINKS:
        raise InvalidInput(f"There is no format {name!r}; choose from {', '.join(SINKS)}.")
    module, _, attribute = SINKS[name].partition(":")
    return getattr(import_module(module), attribute)

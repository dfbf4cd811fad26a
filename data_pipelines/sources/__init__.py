"""Where observations come from. Adding a source is one file with a `contract.Source` and one line here.

These files import what reads data inside their functions: `geogp --help` imports them all.
"""

from data_pipelines.sources.contract import Source
from data_pipelines.sources.csv import CSV
from data_pipelines.sources.geoparquet import GEOPARQUET
from data_pipelines.sources.ookla import OOKLA
from data_pipelines.sources.synthetic import SYNTHETIC

#: name on the command line, in tables and in runs -> the source
SOURCES: dict[str, Source] = {
    "ookla": OOKLA,
    "synthetic": SYNTHETIC,
    "csv": CSV,
    "geoparquet": GEOPARQUET,
}

"""Where observations come from. Adding a source is one file and one line here."""

from data_pipelines.sources import csv, ookla, synthetic

#: name -> function from a `contract.Request` to a `contract.Collected`
SOURCES = {
    "ookla": ookla.collect,
    "csv": csv.collect,
    "geoparquet": csv.collect_geoparquet,
    "synthetic": synthetic.collect,
}

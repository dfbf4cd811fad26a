"""Wiring and words for people: the command line, the workflows behind it, and the dashboard."""

import os

import geogp  # noqa: F401 - light, and before torch: it says how OpenMP's threads shall wait

# GDAL fetches nothing by itself, whatever a file names: `data_pipelines.download` does, and says from where.
os.environ.setdefault("CPL_VSIL_CURL_ALLOWED_EXTENSIONS", "none")

"""Shared by every test. Importing geogp first sets OpenMP's waiting before torch is loaded."""

from tests.shapes import install

install("app", "geogp", "maps", "data_pipelines")  # before their first import

import geogp  # noqa: E402, F401

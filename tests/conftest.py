"""Shared by every test. Importing geogp first sets OpenMP's waiting before torch is loaded."""

import geogp  # noqa: F401

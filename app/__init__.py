"""Wiring and words for people: the command line, the workflows behind it, and the dashboard."""

import geogp  # noqa: F401 - light, and before torch: it says how OpenMP's threads shall wait

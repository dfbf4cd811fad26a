"""A model and rows that come in parts: what it knows renewed without retraining, and fits that read a table a group at a time."""

from geogp.update.renewed import (
    OBSERVATIONS,
    STATISTICS,
    knowing,
    observed_rows,
    observed_times,
    recondition,
    refresh,
    summarise,
    updatable,
    way,
)
from geogp.update.streaming import Groups, fit_streamed, row_groups, streamed_methods, summarise_streamed

__all__ = [
    "OBSERVATIONS",
    "STATISTICS",
    "Groups",
    "fit_streamed",
    "knowing",
    "observed_rows",
    "observed_times",
    "recondition",
    "refresh",
    "row_groups",
    "streamed_methods",
    "summarise",
    "summarise_streamed",
    "updatable",
    "way",
]

"""Runs on disk without pickle: JSON, safetensors and a list of hashes that is checked on load.

A run is built in a hidden folder beside its final place, which also holds the checkpoint of an unfinished
fit, and renamed when complete: `run/` is either whole or absent. What changes a run later builds the changed
one beside it and swaps the two: `run/` is the old one or the new one at any moment.
"""

from geogp.storage.checkpoints import read_checkpoint, write_checkpoint
from geogp.storage.files import read_sealed, read_tensors, sha256, write_sealed, write_tensors, write_text
from geogp.storage.folders import (
    SCHEMA,
    partial_folder,
    read_document,
    read_folder,
    update_facts,
    write_folder,
)
from geogp.storage.staging import NoRoom, swap
from geogp.storage.sums import SUMS, WEIGHTS, read_sums, verify, write_sums

__all__ = [
    "SCHEMA",
    "SUMS",
    "WEIGHTS",
    "NoRoom",
    "partial_folder",
    "read_checkpoint",
    "read_document",
    "read_folder",
    "read_sealed",
    "read_sums",
    "read_tensors",
    "sha256",
    "swap",
    "update_facts",
    "verify",
    "write_checkpoint",
    "write_folder",
    "write_sealed",
    "write_sums",
    "write_tensors",
    "write_text",
]

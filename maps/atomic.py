"""One file, whole or not at all: for figures and pages. (`maps.raster` does the same for a set of files.)"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from maps.errors import InvalidInput
from maps.staging import publish_file, refuse_within_run, room_for, staged


def refuse_existing(path: Path, overwrite: bool) -> None:
    """InvalidInput if `path` exists and `overwrite` is not set; WithinRun if it lies among the files of a run."""
    refuse_within_run(path)
    if path.exists() and not overwrite:
        raise InvalidInput(f"{path} exists; pass overwrite=True (--overwrite) or another name.")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write in `path`'s folder that takes its name once it is written and flushed to disk.

    An exception inside leaves `path` as it was and nothing else behind; a full disk is NoRoom.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with staged(path) as temporary, room_for(path):
        with temporary.open("wb") as file:
            yield file
        os.chmod(temporary, 0o644)
        publish_file(temporary, path)


def files_below(path: Path) -> list[Path]:
    """A file, or all files of a folder, sorted."""
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def sha256(path: Path) -> str:
    """Of a file; of a folder, that of its sorted `sha256  path` lines."""
    if path.is_dir():
        lines = "".join(f"{sha256(p)}  {p.relative_to(path).as_posix()}\n" for p in files_below(path))
        return hashlib.sha256(lines.encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

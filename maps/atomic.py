"""One file, whole or not at all: for figures and pages. (`maps.raster` does the same for a set of files.)"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from maps.errors import InvalidInput


def refuse_existing(path: Path, overwrite: bool) -> None:
    """InvalidInput if `path` exists and `overwrite` is not set."""
    if path.exists() and not overwrite:
        raise InvalidInput(f"{path} exists; pass overwrite=True (--overwrite) or another name.")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write in `path`'s folder that takes its name once it is written and flushed to disk.

    An exception inside leaves `path` as it was and nothing else behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".geogp-", suffix=path.suffix, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

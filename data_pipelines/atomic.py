"""Files that appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_pipelines.errors import InvalidInput


def refuse_existing(output: Path, overwrite: bool) -> None:
    """Raise InvalidInput when `output` may not be written: call it before the work, not after."""
    if not output.parent.is_dir():
        raise InvalidInput(f"The folder {output.parent} of the output does not exist; create it first.")
    if output.is_dir():
        raise InvalidInput(f"The output {output} is a folder; name a file in it.")
    if output.exists() and not overwrite:
        raise InvalidInput(
            f"The output {output} exists already; choose another name or overwrite it (--overwrite)."
        )


@contextmanager
def atomic_path(output: Path, *, overwrite: bool) -> Iterator[Path]:
    """A temporary path in the output's own folder, renamed to `output` when the block ends well.

    The block writes the file and checks it by reading it back. On any exception the temporary file is
    removed and `output` stays as it was.
    """
    refuse_existing(output, overwrite)
    temporary = output.parent / f".{output.name}.{secrets.token_hex(4)}.tmp"
    try:
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        refuse_existing(output, overwrite)
        temporary.replace(output)
        _fsync_folder(output.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

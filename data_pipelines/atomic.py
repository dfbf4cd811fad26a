"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_pipelines.errors import InvalidInput
from data_pipelines.staging import publish_file, refuse_within_run, room_for, staged


def refuse_existing(output: Path, overwrite: bool) -> None:
    """Raise InvalidInput, or WithinRun, when `output` may not be written: call it before the work, not after."""
    if not output.parent.is_dir():
        raise InvalidInput(f"The folder {output.parent} of the output does not exist; create it first.")
    refuse_within_run(output)
    if output.is_dir():
        raise InvalidInput(f"The output {output} is a folder; name a file in it.")
    if output.exists() and not overwrite:
        raise InvalidInput(
            f"The output {output} exists already; choose another name or overwrite it (--overwrite)."
        )


def refuse_input(output: Path, *inputs: object) -> None:
    """Raise InvalidInput when `output` is a file that is read: what it held would be lost.

    Parameters
    ----------
    inputs : paths, by whatever name; what is none, or no file here, as an address, is passed over
    """
    for path in inputs:
        if (
            isinstance(path, str | Path)
            and os.path.isfile(path)
            and output.exists()
            and output.samefile(path)
        ):
            raise InvalidInput(f"The output {output} is the file that is read, {path}; choose another name.")


@contextmanager
def atomic_path(output: Path, *, overwrite: bool, needed: int | None = None) -> Iterator[Path]:
    """A temporary path in the output's own folder, renamed to `output` when the block ends well.

    The block writes the file and checks it by reading it back. On any exception the temporary file is
    removed and `output` stays as it was; what a killed process left is swept by the next.

    Parameters
    ----------
    needed : bytes the file takes, about, for the sentence that says that a disk is full

    Raises
    ------
    NoRoom
        the disk is full.
    """
    refuse_existing(output, overwrite)
    with staged(output) as temporary, room_for(output, needed):
        yield temporary
        refuse_existing(output, overwrite)
        publish_file(temporary, output)

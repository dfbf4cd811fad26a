"""Windows that an interrupted export has rendered, so that the next attempt need not compute them again."""

import fcntl
import hashlib
import json
import logging
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maps.grid import Window
from maps.sinks.base import Job
from maps.staging import is_full

log = logging.getLogger(__name__)
#: Fewer windows are soon computed again.
FEWEST = 4
FACTS, LOCK = "export.json", ".lock"
#: The `exit_code` of an error after which the same command goes on.
PARTIAL = 4
Planes = Mapping[str, NDArray[np.float32]]


class Journal:
    """Rendered windows in a hidden folder beside the one to come, a file each.

    Parameters
    ----------
    folder : what holds them
    """

    def __init__(self, folder: Path):
        self.folder, self.open = folder, True

    def known(self, window: Window, job: Job) -> dict[str, NDArray[np.float32]] | None:
        """Planes of a window that an earlier attempt rendered; None where it did not, or the file is not whole."""
        shape = (len(job.bands), *window.shape)
        for path in self.folder.glob(f"{_stem(window)}-*.bin"):
            data = path.read_bytes()
            if path.stem.endswith(f"-{zlib.crc32(data):08x}") and len(data) == 4 * int(np.prod(shape)):
                planes = np.frombuffer(data, dtype="<f4").reshape(shape)
                return {band.name: plane for band, plane in zip(job.bands, planes)}
        return None

    def keep(self, window: Window, planes: Planes, job: Job) -> None:
        """One more; a disk that is full ends the journal, not the export."""
        if not self.open:
            return
        data = np.stack([planes[band.name] for band in job.bands]).astype("<f4").tobytes()
        path = self.folder / f"{_stem(window)}-{zlib.crc32(data):08x}.bin"
        part = path.with_suffix(".part")
        try:
            part.write_bytes(data)
            os.replace(part, path)
        except OSError as error:
            if not is_full(error):
                raise
            log.warning("no room to keep what is rendered: interrupted, this export would start again")
            self.open = False
            self.clear()

    def clear(self) -> None:
        """Nothing of it stays."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def journal(folder: Path, facts: Mapping[str, Any] | None, windows: int) -> Iterator[Journal | None]:
    """A journal of the export that will become `folder`; gone at the end unless the process is stopped or killed.

    Parameters
    ----------
    facts : all that decides the values, JSON-able; what was kept under others is thrown away; None for no journal
    windows : fewer than `FEWEST` have none; nor has a second process at the same export
    """
    folder = folder.absolute()
    place = folder.with_name(f".{folder.name}.windows")
    if facts is None or windows < FEWEST:
        if facts is not None and place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        yield None
        return
    place.mkdir(parents=True, exist_ok=True)
    with open(place / LOCK, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        _made_for(place, hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest())
        try:
            yield Journal(place)
        except Exception as error:  # what failed fails again; who was stopped goes on
            if getattr(error, "exit_code", None) == PARTIAL:
                raise
            shutil.rmtree(place, ignore_errors=True)
            raise
        shutil.rmtree(place, ignore_errors=True)


def _made_for(place: Path, digest: str) -> None:
    """Throw away what was kept for other values."""
    note = place / FACTS
    if not (note.is_file() and note.read_text("utf-8", errors="replace") == digest):
        for path in place.iterdir():
            if path.name != LOCK:
                path.unlink()
        note.write_text(digest, "utf-8")


def _stem(window: Window) -> str:
    return f"{window.y0}-{window.x0}-{window.shape[0]}x{window.shape[1]}"

"""What a long reproduction has measured so far, so that a stopped one goes on where it was."""

import json
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from geogp.basis.train import Hooks
from geogp.storage import read_checkpoint, read_sealed, write_checkpoint, write_sealed

#: Least seconds between checkpoints of a fit.
CHECKPOINT_SECONDS = 60.0

_file: ContextVar[Path | None] = ContextVar("journal", default=None)


@contextmanager
def keeping(path: Path | None) -> Iterator[None]:
    """Keep what is measured inside in a file of a line each, JSON and its sum; None keeps nothing."""
    token = _file.set(path)
    try:
        yield
    finally:
        _file.reset(token)


def once(key: dict[str, Any], measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """What `measure` gives, or gave earlier under an equal key.

    Parameters
    ----------
    key : everything the measurement depends on, as JSON has it

    Examples
    --------
    >>> once({"method": "sgpr"}, lambda: {"nll": 0.5})
    {'nll': 0.5}
    """
    path, name = _file.get(), json.dumps(key, sort_keys=True)
    if path is None:
        return measure()
    kept = _read(path)
    if name not in kept:
        kept[name] = measure()
        path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps([name, kept[name]]).encode()
        with path.open("ab") as file:
            file.write(b"\n" + line + b" " + _seal(line) + b"\n")  # a line that was cut stays alone
    return kept[name]


class Attempt:
    """A fit that goes on where an earlier process was stopped, where a journal is kept.

    Parameters
    ----------
    key : as in `once`

    Examples
    --------
    >>> Attempt({"method": "sgpr"}).hooks.resume is None  # nothing is kept: it begins
    True
    """

    def __init__(self, key: dict[str, Any]):
        self.key, self.started, self.before = key, time.perf_counter(), 0.0
        path = _file.get()
        self.folder = None if path is None else path.with_suffix(".fit")
        self.hooks = Hooks()
        if self.folder is None:
            return
        resume = read_checkpoint(self.folder, key)
        if resume is not None:
            self.before = float((read_sealed(self.folder / "seconds.json") or {}).get("seconds", 0.0))
        self.written = self.started
        self.hooks = Hooks(checkpoint=self._keep, resume=resume)

    @property
    def seconds(self) -> float:
        """Of the fit, earlier attempts included up to their last checkpoint."""
        return self.before + time.perf_counter() - self.started

    def done(self) -> None:
        """Forget the checkpoint."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _keep(self, state: dict[str, Any]) -> None:
        assert self.folder is not None
        if time.perf_counter() - self.written < CHECKPOINT_SECONDS:
            return
        write_checkpoint(self.folder, state, self.key)
        write_sealed(self.folder / "seconds.json", {"seconds": self.seconds})
        self.written = time.perf_counter()


def _read(path: Path) -> dict[str, dict[str, float]]:
    """What the file holds; a line that was cut when the process was killed, or altered, is none."""
    kept = {}
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        text, _, seal = line.rpartition(b" ")
        if seal == _seal(text):
            name, scores = json.loads(text)
            kept[name] = scores
    return kept


def _seal(text: bytes) -> bytes:
    """Eight digits by which a line that was cut or altered is known."""
    return b"%08x" % zlib.crc32(text)

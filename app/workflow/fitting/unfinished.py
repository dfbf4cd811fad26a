"""One fit's hidden folder: its lock, its checkpoints, and the clock over all its attempts."""

import fcntl
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from app.console import Report
from app.errors import Interrupted, InvalidInput, Unfinished
from geogp import storage
from geogp.engines import Hooks
from geogp.storage.files import finite
from geogp.storage.staging import room_for

#: Facts of an unfinished fit beside its checkpoint; gone from the finished run.
NOTES, LOCK = "unfinished.json", ".lock"


class UnfinishedFit:
    """An unfinished fit on disk.

    Parameters
    ----------
    output : the run that it will become; its folder lies beside, and is emptied when it belongs to other arguments
    arguments : JSON-able, all that decides the result
    progress : called with (epochs done, epochs, words)
    checkpoint_seconds : least time between checkpoints
    time_limit_seconds : stop after an epoch beyond this, with a checkpoint
    """

    def __init__(
        self,
        output: Path,
        arguments: dict[str, Any],
        progress: Report | None,
        checkpoint_seconds: float,
        time_limit_seconds: float | None,
    ):
        self.output, self.folder = output, storage.partial_folder(output)
        self.arguments, self.progress = arguments, progress
        self.every, self.limit = checkpoint_seconds, time_limit_seconds
        self.started = self.written = time.monotonic()
        self.resumed_from_epoch = 0
        self.epoch = 0
        self.notes: dict[str, Any] = {}
        self.before = 0.0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The folder for this process alone; left for the next attempt where it is interrupted past a checkpoint."""
        with ExitStack() as stack:
            with room_for(self.output):
                self.folder.mkdir(parents=True, exist_ok=True)
                handle = stack.enter_context(open(self.folder / LOCK, "w"))
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InvalidInput(
                    f"Another fit is writing {self.folder}; wait for it, or give another -o."
                ) from None
            try:
                self.notes = self._read_notes()
                self.before = float(self.notes.get("seconds", 0.0))
                yield
            except BaseException as stop:
                words = self._words()
                if not self._has_checkpoint:
                    shutil.rmtree(self.folder, ignore_errors=True)
                if not isinstance(stop, Interrupted):
                    raise
                if stop.terminated:
                    raise Unfinished(f"Terminated: {words}.") from None
                raise Interrupted(words) from None

    def hooks(self, phase: dict[str, Any]) -> Hooks:
        """Progress, checkpoints and the time limit for one of the fit's phases."""
        arguments = {**self.arguments, "phase": phase}
        resume = storage.read_checkpoint(self.folder, arguments)
        if resume is not None:
            self.epoch = self.resumed_from_epoch = int(resume["progress"].epoch)

        words = phase["words"]

        def on_epoch(epoch: int, epochs: int, score: float | None) -> None:
            if self.progress is not None:
                self.progress(epoch, epochs, words)

        def on_part(part: str) -> None:
            nonlocal words
            words = f"{phase['words']}, {part}" if part else phase["words"]

        def checkpoint(state: dict[str, Any]) -> None:
            if time.monotonic() - self.written >= self.every or self._is_over:
                self.epoch = int(state["progress"].epoch)
                storage.write_checkpoint(self.folder, state, arguments)
                self.note()
                self.written = time.monotonic()
            moment()

        def moment() -> None:
            if self._is_over:
                spent = time.monotonic() - self.started
                raise Unfinished(f"Stopped after {spent:.0f} s as asked: {self._words()}.")

        return Hooks(on_epoch=on_epoch, checkpoint=checkpoint, resume=resume, on_part=on_part, moment=moment)

    def note(self, **facts: Any) -> None:
        """Keep facts beside the checkpoint."""
        self.notes = {**self.notes, **facts, "seconds": self.seconds()}
        storage.write_sealed(self.folder / NOTES, {**self.notes, "arguments": self.arguments})

    def seconds(self) -> float:
        """Time spent fitting, earlier attempts included."""
        return self.before + time.monotonic() - self.started

    def clear(self) -> None:
        """Leave nothing that is not part of a finished run."""
        for name in (NOTES, LOCK):
            (self.folder / name).unlink(missing_ok=True)

    def _read_notes(self) -> dict[str, Any]:
        notes = storage.read_sealed(self.folder / NOTES) or {}
        if notes.pop("arguments", None) == json.loads(json.dumps(finite(self.arguments))):
            return notes
        for path in self.folder.iterdir():  # another fit's remains
            if path.name != LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return {}

    @property
    def _is_over(self) -> bool:
        return self.limit is not None and time.monotonic() - self.started > self.limit

    @property
    def _has_checkpoint(self) -> bool:
        return (self.folder / "checkpoint.json").exists()

    def _words(self) -> str:
        if not self._has_checkpoint:
            return "the same command starts again"
        return f"the same command goes on from epoch {self.epoch}"

"""Long work that a page asks for: `geogp` commands in processes of their own, one at a time, watched and cancelled."""

import atexit
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from app.console import LINES, MARK
from app.errors import InvalidInput

State = Literal["waiting", "running", "done", "failed", "cancelled"]
#: Jobs that may wait, and finished ones whose files are kept.
MOST_WAITING, MOST_KEPT = 8, 40
#: Seconds that a cancelled process has to clean up.
GRACE = 10.0
#: What a command is given in place of its output.
OUT = "{out}"


@dataclass(eq=False)
class Job:
    """One command: what it does, how far it is, what it said.

    id : of the command line; title : for people; shown : the command line for people
    folder : of this job: `said` is its stdout; `result` what it writes
    """

    id: str
    title: str
    shown: str
    arguments: tuple[str, ...]
    folder: Path
    result: Path
    state: State = "waiting"
    what: str = ""
    done: int = 0
    total: int = 0
    told: list[str] = field(default_factory=list)
    started: float = 0.0
    ended: float = 0.0

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    @property
    def seconds(self) -> float:
        """It has taken."""
        return 0.0 if not self.started else (self.ended or time.monotonic()) - self.started

    @property
    def share(self) -> float:
        """Of the work that is done, as far as it says."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    @property
    def said(self) -> str:
        """What it wrote to stdout."""
        return (self.folder / "stdout").read_text("utf-8")

    @property
    def problem(self) -> str:
        """The last sentence of a command that failed."""
        return self.told[-1].removeprefix("geogp: ") if self.told else "It ended without a word."


class Jobs:
    """Commands in the order they were asked for, one at a time.

    Parameters
    ----------
    folder : for their files; None for one that goes when this process ends
    """

    def __init__(self, folder: Path | None = None):
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="geogp-app-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.folder = folder
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        atexit.register(self.close)

    def start(
        self,
        title: str,
        arguments: Sequence[str],
        *,
        name: str,
        shown: str,
        of: str = "",
        at: Path | None = None,
    ) -> Job:
        """The job of a command line, begun unless it was before; `OUT` among the arguments is where it writes.

        Parameters
        ----------
        name : of the result, in the job's own folder
        shown : the command line for people
        of : what else decides the result, such as a run's content
        at : where the result goes instead

        Raises
        ------
        InvalidInput
            too many wait already.
        """
        key = hashlib.blake2b(repr((tuple(arguments), of, str(at))).encode(), digest_size=8).hexdigest()
        with self._lock:
            known = self._jobs.get(key)
            if known is not None and known.state in ("waiting", "running", "done"):
                return known
            if sum(job.state == "waiting" for job in self._jobs.values()) >= MOST_WAITING:
                raise InvalidInput(f"{MOST_WAITING} jobs wait already; try again when one has ended.")
            folder = self.folder / key
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            result = folder / name if at is None else at
            filled = tuple(argument.replace(OUT, str(result)) for argument in arguments)
            job = Job(key, title, shown, filled, folder, result)
            self._jobs.pop(key, None)
            self._jobs[key] = job
            self._forget()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="jobs", daemon=True)
                self._thread.start()
            self._lock.notify_all()
            return job

    def get(self, key: str) -> Job | None:
        """The job of that id, if it is known here."""
        return self._jobs.get(key)

    def all(self) -> list[Job]:
        """The latest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def cancel(self, job: Job) -> None:
        """End a job; what it has half written goes with it."""
        with self._lock:
            if job.over:
                return
            running = job.state == "running"
            job.state, job.ended = "cancelled", time.monotonic()
            process = self._process if running else None
        if process is not None:
            process.terminate()
            kill = threading.Timer(GRACE, process.kill)  # does nothing to one that has ended
            kill.daemon = True
            kill.start()

    def close(self) -> None:
        """End all jobs."""
        for job in self.all():
            self.cancel(job)
        process = self._process
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            process.kill()

    def _forget(self) -> None:
        """Files of the oldest finished jobs."""
        finished = [job for job in self._jobs.values() if job.over]
        for job in finished[: max(0, len(finished) - MOST_KEPT)]:
            del self._jobs[job.id]
            shutil.rmtree(job.folder, ignore_errors=True)

    def _next(self) -> Job | None:
        return next((job for job in self._jobs.values() if job.state == "waiting"), None)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._lock.wait_for(lambda: self._next() is not None, timeout=30):
                    self._thread = None
                    return
                job = self._next()
                assert job is not None
                job.state, job.started = "running", time.monotonic()
            try:
                code = self._run(job)
            except OSError as error:
                code = 1
                job.told.append(f"The command could not be started: {error.strerror or error}.")
            with self._lock:
                if job.state == "running":
                    job.state = "done" if code == 0 else "failed"
                job.ended = job.ended or time.monotonic()

    def _run(self, job: Job) -> int:
        """Its process, to the end; progress and sentences from its stderr."""
        command = [sys.executable, "-m", "app", *job.arguments]
        with (
            (job.folder / "stdout").open("wb") as out,
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                env=os.environ | {"GEOGP_PROGRESS": LINES, "NO_COLOR": "1"},
                start_new_session=True,  # Ctrl-C is for the server, which ends it
            ) as process,
        ):
            self._process = process
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, 5)  # pages come first
            if job.over:  # cancelled while it started
                process.terminate()
            assert process.stderr is not None
            for line in process.stderr:
                parts = line.rstrip("\n").split(" ", 3)
                if parts[0] == MARK and len(parts) == 4:
                    job.done, job.total, job.what = int(parts[1]), int(parts[2]), parts[3]
                elif line.strip():
                    job.told = [*job.told[-20:], line.strip()]
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
            self._process = None
            return process.wait()


@cache
def jobs() -> Jobs:
    """Of this server."""
    return Jobs()

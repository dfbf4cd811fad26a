"""Planes in the making: one quarter at a time in one thread, the latest asked for first, the abandoned one dropped."""

import functools
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")
#: Makes the answer for a key; what the function given raises must end the work.
Maker = Callable[[Any, Callable[[int, int], None]], T]


class Superseded(Exception):
    """Nobody waits for this any more."""


@dataclass(eq=False)
class Job(Generic[T]):
    """One answer in the making, and how many wait for it; `ahead` where nobody does who could be kept waiting."""

    key: Hashable
    ahead: bool
    waiting: int = 0
    done: int = 0
    total: int = 0
    made: T | None = None
    error: BaseException | None = None
    over: threading.Event = field(default_factory=threading.Event)


class Making(Generic[T]):
    """Answers worked out in the background.

    Parameters
    ----------
    make : called in the one thread

    Examples
    --------
    >>> making = Making(lambda key, step: f"made {key}")
    >>> job = making.want("2023Q4")
    >>> job.over.wait(5) and job.made
    'made 2023Q4'
    """

    def __init__(self, make: Maker[T]):
        self._make = make
        self._jobs: list[Job[T]] = []  # the last one asked for is the next one made
        self._now: Job[T] | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def want(self, key: Hashable, *, ahead: bool = False) -> Job[T]:
        """The job that makes an answer, perhaps begun already; say `leave` when it is no longer waited for."""
        with self._changed:
            found = next((job for job in self._all() if job.key == key), None)
            if found is None:
                found = Job(key, ahead)
                self._jobs.append(found)
            elif not ahead:
                found.ahead = False
                if found in self._jobs:
                    self._jobs.remove(found)
                    self._jobs.append(found)
            found.waiting += 1
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="planes", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return found

    def leave(self, job: Job[T]) -> None:
        """Whoever wanted it has gone, or has it."""
        with self._changed:
            job.waiting -= 1
            if job.waiting <= 0 and job in self._jobs:
                self._jobs.remove(job)
                job.error = Superseded()
                job.over.set()

    def progress(self, key: Hashable) -> tuple[str, int, int]:
        """What is being done for a key, and how far it is."""
        with self._changed:
            for job in self._all():
                if job.key == key:
                    return (
                        ("Computing the map" if job is self._now else "Waiting to compute the map"),
                        job.done,
                        job.total,
                    )
            return "", 0, 0

    def _all(self) -> list[Job[T]]:
        return [*self._jobs, *([self._now] if self._now is not None else [])]

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._jobs and not self._changed.wait_for(lambda: self._jobs, timeout=30):
                    self._thread = None
                    return
                asked = [job for job in self._jobs if not job.ahead]
                job = self._now = (asked or self._jobs)[-1]
                self._jobs.remove(job)
            try:
                job.made = self._make(job.key, functools.partial(self._step, job))
            except BaseException as error:  # told to whoever waits
                job.error = error
            with self._changed:
                self._now = None
                again = isinstance(job.error, Superseded) and job.waiting > 0
                if again:  # it stood in somebody's way, and is still wanted
                    job.error, job.done = None, 0
                    self._jobs.insert(0, job)
            if not again:
                job.over.set()

    def _step(self, job: Job[T], done: int, total: int) -> None:
        job.done, job.total = done, total
        with self._changed:
            behind = any(not other.ahead for other in self._jobs)
            if job.waiting <= 0 or (job.ahead and behind):
                raise Superseded


def answer(job: Job[T]) -> T:
    """What a finished job has made; raises what it raised."""
    if job.error is not None:
        raise job.error
    assert job.made is not None
    return job.made

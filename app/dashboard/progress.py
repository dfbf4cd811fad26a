"""How far the map in the making is, for whoever is waiting for it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Progress:
    """The task at hand: what, done, total. Written by the thread that computes, read by others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._what, self._done, self._total = "", 0, 0

    @contextmanager
    def task(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """Announce a task of `total` steps; the function given counts one."""
        with self._lock:
            self._what, self._done, self._total = what, 0, total

        def step() -> None:
            with self._lock:
                self._done += 1

        try:
            yield step
        finally:
            with self._lock:
                self._what, self._done, self._total = "", 0, 0

    def to_json(self) -> dict[str, str | int]:
        with self._lock:
            return {"what": self._what, "done": self._done, "total": self._total}

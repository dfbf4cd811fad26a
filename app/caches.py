"""What was worked out and is kept: in memory for this visit, on disk for the next start."""

import json
import os
import threading
import zlib
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from cachetools import LRUCache

from maps.atomic import replacing

T = TypeVar("T")


class MemoryCache:
    """The most recent answers, up to a number of bytes; one is worked out at a time, and whoever waits finds it.

    Answers are bytes, or say their size in `nbytes`.

    Examples
    --------
    >>> kept = MemoryCache(most_bytes=9)
    >>> kept.get("a", lambda: b"first"), kept.get("a", lambda: b"never asked for")
    (b'first', b'first')
    >>> kept.get("b", lambda: b"second"), kept.get("a", lambda: b"again")
    (b'second', b'again')
    """

    def __init__(self, most_bytes: int):
        self._kept: LRUCache[Hashable, Any] = LRUCache(most_bytes, getsizeof=_bytes)
        self._lock = threading.RLock()  # an answer may be made of others

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The answer kept under `key`, or a new one."""
        with self._lock:
            if key in self._kept:
                known: T = self._kept[key]
                return known
            value = make()
            if _bytes(value) <= self._kept.maxsize:
                self._kept[key] = value
            return value


class AnswerCache:
    """The most recent answers, up to a number of them, shared by all who ask, so that nobody may change one; several are
    worked out at a time, but none twice.

    Examples
    --------
    >>> kept = AnswerCache(most=1)
    >>> kept.get("a", lambda: 1), kept.get("a", lambda: 2), kept.get("b", lambda: 3), kept.get("a", lambda: 4)
    (1, 1, 3, 4)
    """

    def __init__(self, most: int):
        self._kept: LRUCache[Hashable, Future[Any]] = LRUCache(most)
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The answer kept under `key`, or a new one.

        Who asks while it is being made waits for it; an error is everybody's, and the next who asks tries again.
        """
        with self._lock:
            known: Future[T] | None = self._kept.get(key)
            answer = Future[T]() if known is None else known
            self._kept[key] = answer
        if known is None:
            try:
                answer.set_result(make())
            except BaseException as error:
                with self._lock:
                    self._kept.pop(key, None)
                answer.set_exception(error)
        return answer.result()


def _bytes(value: Any) -> int:
    return len(value) if isinstance(value, bytes) else int(value.nbytes)


class DiskCache:
    """Packed planes and notes in a folder for each run; losing one costs seconds, so every failure is ignored.

    Parameters
    ----------
    folder : None for the user's cache folder (or GEOGP_CACHE)
    most_bytes : of planes; the least recently used are removed beyond it
    """

    def __init__(self, folder: Path | None = None, most_bytes: int = 512 * 2**20):
        if folder is None:
            import platformdirs

            base = os.environ.get("GEOGP_CACHE") or platformdirs.user_cache_dir("geogp", appauthor=False)
            folder = Path(base) / "dashboard"
        self.folder, self.most_bytes = folder, most_bytes

    def read(self, run_id: str, name: str) -> bytes | None:
        """The bytes of that name, or None where there are none that are whole."""
        path = self.folder / run_id / name
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if len(data) < 4 or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
            return None
        with suppress(OSError):
            os.utime(path)  # the least recently used go first
        return data[:-4]

    def write(self, run_id: str, name: str, data: bytes) -> None:
        path = self.folder / run_id / name
        with suppress(OSError):  # a full or read-only disk: the map is shown all the same
            with replacing(path) as file:
                file.write(data + zlib.crc32(data).to_bytes(4, "little"))
            self._prune(keep=path)

    def note(self, run_id: str, name: str) -> Any:
        """The JSON document of that name, or None where there is none that is whole."""
        data = self.read(run_id, name)
        with suppress(ValueError, RecursionError):
            return None if data is None else json.loads(data)
        return None

    def write_note(self, run_id: str, name: str, document: Any) -> None:
        self.write(run_id, name, json.dumps(document, default=float).encode("utf-8"))

    def _prune(self, keep: Path) -> None:
        files = [(f.stat().st_mtime, f.stat().st_size, f) for f in self.folder.glob("*/*.pack")]
        held = 0
        for _, size, file in sorted(files, reverse=True):
            held += size
            if held > self.most_bytes and file != keep:
                file.unlink(missing_ok=True)

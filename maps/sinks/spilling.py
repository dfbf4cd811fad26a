"""A file that takes what it is given whatever the disk says: HDF5 crashes the process where a write fails."""

from pathlib import Path
from typing import Any


class Spilling:
    """A new file for `h5py`; from the first failed write on it keeps the bytes in memory, and `check` raises.

    Whoever writes checks often and closes, so that what memory holds stays a window and the library's cache.
    """

    def __init__(self, path: Path):
        self._file = path.open("w+b", buffering=0)
        self._at = 0
        self._size = 0
        self._kept: list[tuple[int, bytes]] = []
        self.error: OSError | None = None

    def check(self) -> None:
        """Raise what the disk said."""
        if self.error is not None:
            raise self.error

    def write(self, data: Any) -> int:
        block = bytes(data)
        if self.error is None:
            try:
                self._file.seek(self._at)
                rest = memoryview(block)
                while rest:
                    rest = rest[self._file.write(rest) :]
            except OSError as error:
                self.error = error
        if self.error is not None:
            self._kept.append((self._at, block))
        self._at += len(block)
        self._size = max(self._size, self._at)
        return len(block)

    def readinto(self, buffer: Any) -> int:
        out = memoryview(buffer).cast("B")
        out[:] = bytes(len(out))
        self._file.seek(self._at)
        self._file.readinto(out)
        for start, block in self._kept:  # later ones lie over earlier ones
            low, high = max(start, self._at), min(start + len(block), self._at + len(out))
            if low < high:
                out[low - self._at : high - self._at] = block[low - start : high - start]
        self._at += len(out)
        return len(out)

    def read(self, size: int = -1) -> bytes:
        out = bytearray(max(0, self._size - self._at) if size < 0 else size)
        self.readinto(out)
        return bytes(out)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self._size = self._at if size is None else size
        if self.error is None:
            try:
                self._file.truncate(self._size)
            except OSError as error:
                self.error = error
        return self._size

    def flush(self) -> None: ...

    def close(self) -> None:
        self._file.close()

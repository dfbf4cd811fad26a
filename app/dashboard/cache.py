"""Computed maps on disk, so that the next start paints at once: plain arrays, pruned, never trusted blindly."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MOST_BYTES = 512 * 2**20


class Cache:
    """A folder of arrays by run; losing it costs seconds, so every failure to use it is ignored.

    Parameters
    ----------
    folder : None for the user's cache folder (or GEOGP_CACHE)
    """

    def __init__(self, folder: Path | None = None, most_bytes: int = MOST_BYTES):
        if folder is None:
            import platformdirs

            base = os.environ.get("GEOGP_CACHE") or platformdirs.user_cache_dir("geogp", appauthor=False)
            folder = Path(base) / "dashboard"
        self.folder, self.most_bytes = folder, most_bytes

    def path(self, run_id: str, name: str) -> Path:
        return self.folder / run_id / name

    def read(self, path: Path, shape: tuple[int, int]) -> NDArray[np.float32] | None:
        """The array in a file, or None when there is none of this shape."""
        try:
            values = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        if not isinstance(values, np.ndarray) or values.shape != shape or values.dtype != np.float32:
            return None
        with suppress(OSError):
            os.utime(path)  # pruning takes the least recently used
        return values

    def write(self, path: Path, values: NDArray[np.float32]) -> None:
        """Keep an array: temporary name, then rename; then prune."""

        def save(file) -> None:  # type: ignore[no-untyped-def]
            np.save(file, values, allow_pickle=False)

        self._write(path, save)
        self._prune(keep=path)

    def write_text(self, path: Path, text: str) -> None:
        self._write(path, lambda file: file.write(text.encode("utf-8")))

    def _write(self, path: Path, save) -> None:  # type: ignore[no-untyped-def]
        name = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                save(file)
            os.replace(name, path)
        except OSError:  # a full or read-only disk: the map is shown all the same
            if name is not None:
                Path(name).unlink(missing_ok=True)

    def _prune(self, keep: Path) -> None:
        with suppress(OSError):
            files = sorted(
                ((f.stat().st_mtime, f.stat().st_size, f) for f in self.folder.glob("*/*.npy")), reverse=True
            )
            held = 0
            for _, size, file in files:
                held += size
                if held > self.most_bytes and file != keep:
                    file.unlink(missing_ok=True)

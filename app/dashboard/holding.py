"""Which run this server shows, opened on first use and again when the folder changes on disk."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.dashboard.atlas import Atlas
from app.dashboard.caches import DiskCache
from app.errors import InvalidInput
from geogp import load
from geogp.storage import SUMS


class Holding:
    """A run folder and, while it is whole, its atlas.

    Parameters
    ----------
    path : run folder
    places : names beside those of towns
    """

    def __init__(self, path: str | Path, places: Sequence[dict[str, Any]] = ()):
        self.path, self._places = Path(path), places
        self._lock = threading.Lock()
        self._atlas: Atlas | None = None
        self._mark: object = None

    def atlas(self) -> Atlas:
        """The atlas of the folder as it is now.

        Raises
        ------
        ValueError with an `exit_code`
            the folder is gone, unfinished or altered, in one sentence.
        """
        with self._lock:
            mark = self._now()
            if self._atlas is None or mark != self._mark:
                self._atlas = None
                try:
                    self._atlas = Atlas(load(self.path), DiskCache(), places=self._places)
                except (KeyError, TypeError, OSError, AttributeError) as error:
                    raise InvalidInput(
                        f"{self.path} cannot be read as a run ({type(error).__name__}: {error}); fit it again."
                    ) from error
                self._mark = mark
            return self._atlas

    @property
    def known(self) -> Atlas | None:
        """The atlas if it is open already; never waits."""
        return self._atlas

    def _now(self) -> object:
        """Changes when any file of the run is written or removed."""
        try:
            names = (SUMS, "run.json", "weights.safetensors")
            found = [(self.path / name).stat() for name in names]
        except OSError:
            return None
        return tuple((s.st_mtime_ns, s.st_size, s.st_ino) for s in found)


_held: Holding | None = None


def hold(path: str | Path, places: Sequence[dict[str, Any]] = ()) -> Holding:
    """Make a run folder the one this process shows."""
    global _held
    _held = Holding(path, places)
    return _held


def held() -> Holding:
    """The run folder this process shows."""
    if _held is None:
        raise InvalidInput("No run is being shown; start the dashboard with `geogp app run/`.")
    return _held

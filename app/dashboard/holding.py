"""Which runs this server shows, each opened on first use and again when its folder changes on disk."""

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path

from app.caches import DiskCache
from app.dashboard.atlas import Atlas
from app.errors import InvalidInput
from app.log import works_here_on
from app.workflow.naming import Brought
from app.workflow.rasters.covariates import opened
from geogp.storage import SUMS


class Holding:
    """A run folder and, while it is whole, its atlas.

    Parameters
    ----------
    path : run folder
    places : names and lines beside the region's own
    name : by which addresses ask for it
    """

    def __init__(self, path: str | Path, places: Sequence[Brought] = (), name: str = ""):
        self.path, self._places, self.name = Path(path), places, name
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
                    run = opened(self.path)
                    if run.facts.get("covariates"):  # refused now where no raster is known, not at each tile
                        run.inputs(run.support.positions_m[:1], gaps=True)
                    self._atlas = Atlas(run, DiskCache(), places=self._places, name=self.name)
                except (KeyError, TypeError, OSError, AttributeError) as error:
                    raise InvalidInput(
                        f"{self.path} cannot be read as a run ({type(error).__name__}: {error}); fit it again."
                    ) from error
                self._mark = mark
            works_here_on(f"run {self._atlas.run.id}")
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


_held: dict[str, Holding] = {}
_areas: Path | None = None


def hold(*paths: str | Path, places: Sequence[Brought] = (), areas: str | Path | None = None) -> Holding:
    """Make run folders those that this process shows, and give the first; each is called by its folder's name.

    areas : file of polygons that the page Areas offers
    """
    global _areas
    _held.clear()
    _areas = None if areas is None else Path(areas)
    for path in paths:
        add(path, places)
    return held()


def add(path: str | Path, places: Sequence[Brought] = ()) -> str:
    """One more run folder to show: the name it goes by, its folder's, with a number where that is taken."""
    base = name = Path(path).resolve().name or "run"
    for number in itertools.count(2):
        known = _held.get(name)
        if known is None or known.path.resolve() == Path(path).resolve():
            break
        name = f"{base}-{number}"
    _held[name] = Holding(path, places, name)
    return name


def let_go() -> None:
    """Show no run any more."""
    _held.clear()


def polygons() -> Path | None:
    """The file of areas that this server was given."""
    return _areas


def names() -> list[str]:
    """Of the runs, the first one first."""
    return list(_held)


def held(name: str | None = None) -> Holding:
    """The run of a name that an address gives, or the first.

    Raises
    ------
    InvalidInput
        there is none.
    """
    if not _held:
        raise InvalidInput("No run is being shown; start the dashboard with `geogp app run/`.")
    if not name:
        return next(iter(_held.values()))
    if name not in _held:
        raise InvalidInput(f"There is no run {name[:40]!r} here; choose from {', '.join(_held)}.")
    return _held[name]

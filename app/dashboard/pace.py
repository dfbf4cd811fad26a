"""How long people wait: how fine the maps of a run may be, and how far the one in the making is."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.dashboard.caches import DiskCache
from app.dashboard.canvas import support_of
from geogp.run import Run
from maps.region import polygon

PROBE = 900  # places timed: enough to share what a call costs


@dataclass(frozen=True)
class Pace:
    """Numbers of places to compute, for a model of some speed.

    inside : pixels inside the region of the whole picture; tile : places along a side of a square of detail;
    slice : pixels inside of a kernel slice; sample : places the legends are made from
    """

    inside: int
    tile: int
    slice: int
    sample: int


#: name -> (at most so many seconds a place, pace): the picture takes about 10 s, a square of detail half a second
PACES: dict[str, tuple[float, Pace]] = {
    "fast": (30e-6, Pace(400_000, 128, 60_000, 4000)),
    "medium": (100e-6, Pace(100_000, 64, 20_000, 2000)),
    "slow": (float("inf"), Pace(25_000, 32, 8_000, 1000)),
}


def pace_of(run: Run, disk: DiskCache, run_id: str) -> Pace:
    """The pace for a run: measured at its first opening, remembered beside its maps so that they stay valid."""
    noted = disk.note(run_id, "pace.json")
    known = noted.get("pace") if isinstance(noted, dict) else None
    if known in PACES:
        return PACES[known][1]
    seconds = seconds_a_place(run)
    name = next(name for name, (most, _) in PACES.items() if seconds <= most)
    disk.write_note(run_id, "pace.json", {"pace": name, "seconds_a_place": seconds})
    return PACES[name][1]


def seconds_a_place(run: Run) -> float:
    """Processor seconds of one place among many: not wall time, which a busy machine stretches."""
    X = _places(run, 2 * PROBE + 64)
    run.model.moments(X[:64])  # the first call pays for lazy set-up
    took = []
    for part in (X[64 : 64 + PROBE], X[64 + PROBE :]):
        started = time.thread_time()
        run.model.moments(part)
        took.append((time.thread_time() - started) / PROBE)
    return min(took)


def _places(run: Run, n: int) -> NDArray[np.float64]:
    """Inputs of the model near its training places, else anywhere in the region's box."""
    rng = np.random.default_rng(0)
    support = support_of(run)
    if support is not None:
        known = support.positions_m
        xy = known[rng.integers(0, len(known), n)] + rng.normal(0, 500.0, (n, 2))
    else:
        west, south, east, north = polygon(run.boundary or {}).bounds
        xy = run.from_degrees(rng.uniform(west, east, n), rng.uniform(south, north, n))
    return run.inputs(xy)


class Progress:
    """The task at hand: what, done, total. Written by the thread that computes, read by others.

    Examples
    --------
    >>> progress = Progress()
    >>> with progress.task("Computing the map", 16) as step:
    ...     step()
    ...     progress.to_json()
    {'what': 'Computing the map', 'done': 1, 'total': 16}
    """

    def __init__(self) -> None:
        self._now = ("", 0, 0)  # replaced as a whole, so that a reader never sees half of it

    @contextmanager
    def task(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """Announce a task of `total` steps; the function given counts one."""
        self._now = (what, 0, total)

        def step() -> None:
            self._now = (what, self._now[1] + 1, total)

        try:
            yield step
        finally:
            self._now = ("", 0, 0)

    def to_json(self) -> dict[str, str | int]:
        what, done, total = self._now
        return {"what": what, "done": done, "total": total}

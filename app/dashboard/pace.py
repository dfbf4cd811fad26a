"""How fine the maps of a run may be so that nobody waits long: decided once from the model's measured speed."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from pyproj import Transformer

from app.dashboard.cache import Cache
from geogp.run import Run, quarter_to_years
from maps.region import polygon

PROBE = 900  # places timed: too few to be remembered (`Remembering`), enough to share what a call costs


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


def pace_of(run: Run, cache: Cache, run_id: str) -> Pace:
    """The pace for a run: measured at its first opening, remembered beside its maps so that they stay valid."""
    path = cache.path(run_id, "pace.json")
    with suppress(OSError, ValueError, KeyError, TypeError):
        return PACES[json.loads(path.read_text("utf-8"))["pace"]][1]
    seconds = seconds_a_place(run)
    name = next(name for name, (most, _) in PACES.items() if seconds <= most)
    cache.write_text(path, json.dumps({"pace": name, "seconds_a_place": seconds}))
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


def _places(run: Run, n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    data = run.facts.get("data") or {}
    if (run.path / "support.safetensors").is_file():
        places = run.tensors("support")["positions_m"].numpy()
        xy = places[rng.integers(0, len(places), n)] + rng.normal(0, 500.0, (n, 2))
    else:
        west, south, east, north = polygon(data["boundary"]).bounds
        to = Transformer.from_crs("EPSG:4326", data["crs"], always_xy=True)
        xy = np.stack(to.transform(rng.uniform(west, east, n), rng.uniform(south, north, n)), axis=1)
    if run.model.engine_.plan.shape.time is None:
        return xy
    return np.column_stack([xy, np.full(n, quarter_to_years(data["last_quarter"]))])

"""Small versions of the faults of `make test-faults`, played on the user's own machine: kills, damage, odd data, order."""

import math
import multiprocessing
import os
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from app.errors import InvalidInput
from geogp.estimator import GPRegressor
from geogp.linalg.threads import deterministic
from geogp.methods import DEFAULT, METHODS
from geogp.run import load, save
from geogp.storage import update_facts
from geogp.storage.staging import sweep

Array = NDArray[np.float64]

#: Processes killed.
KILLS = 12
#: Seconds after which no more kills, and then no more odd data, begin beyond the fewest: a busy machine
#: plays fewer, and says how many.
MOST_SECONDS, FEWEST = (6.0, 12.0), 8
#: The default and what stands in for it where there are many rows and no places, with settings that make a fit a moment.
BASIS = METHODS[METHODS[DEFAULT].without_position].beyond
SMALL: dict[str, dict[str, Any]] = {
    BASIS: {"rank": 8, "hidden": 8, "epochs": 2, "batch_size": 64},
    DEFAULT: {"steps": 3, "epochs": 2},
}
#: By what predictions may differ, in sds of the data, where only the order of sums does.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Played:
    """A fault: its row in the table of faults, what was done, how often, and what did not hold."""

    row: int
    fault: str
    times: int
    broken: tuple[str, ...]

    @property
    def words(self) -> str:
        """What came of it."""
        return "; ".join(self.broken) if self.broken else "held"


def self_test(report: Callable[[int, int, str], None] | None = None) -> list[Played]:
    """Play all of them; some 10 to 25 s, and 1 MB in a temporary folder.

    Parameters
    ----------
    report : called with (played, in all, words)
    """
    out, begun = [], time.monotonic()
    kills, odd_data = (begun + seconds for seconds in MOST_SECONDS)
    faults: list[Callable[[Path], Played]] = [
        partial(_kills, until=kills), _damage, partial(_odd_data, until=odd_data), _orders,
    ]  # fmt: skip
    with TemporaryDirectory(prefix="geogp-self-test-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = _small_run(Path(name) / "run")
        for number, play in enumerate(faults):
            if report:
                report(number, len(faults), "playing faults")
            out.append(play(run))
    return out


def _world(n: int = 150, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    X, counts = rng.uniform(0, 20_000, (n, 2)), rng.integers(1, 50, n).astype(float)
    return X, np.sin(X[:, 0] / 4000) + 0.2 * rng.standard_normal(n), counts


def _small_run(path: Path) -> Path:
    X, y, counts = _world()
    model = GPRegressor(BASIS, **SMALL[BASIS]).fit(X, y, counts)
    data = {"crs": "EPSG:32604", "quarters": ["2023Q4"], "sha256": "0" * 64}
    save(path, model, {"target": "value", "method": BASIS, "data": data})
    return path


def _write_for_ever(run: Path, at_work: Event) -> None:
    """Change a run again and again, and say so from the first change on."""
    number = 0
    while True:
        number += 1
        facts = {"nll": float(number)}
        update_facts(run, {"scores": facts}, documents={"certificate.json": facts})
        at_work.set()


def _kills(run: Path, until: float = math.inf) -> Played:
    """Row 1: SIGKILL at random instants while a run is written; it is the old one or the new one, whole."""
    rng, broken = np.random.default_rng(int.from_bytes(os.urandom(4))), []
    fork, times = multiprocessing.get_context("fork"), 0
    while times < KILLS and (times < FEWEST or time.monotonic() < until):
        times += 1
        at_work = fork.Event()
        process = fork.Process(target=_write_for_ever, args=(run, at_work))
        process.start()
        while process.is_alive() and not at_work.wait(0.1):
            pass
        time.sleep(float(rng.uniform(0.005, 0.1)))
        process.kill()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            broken.append("a writer ended before it was killed")
        try:
            load(run)
            sweep(run.parent)
        except InvalidInput as error:
            broken.append(f"a killed writer left a run that is refused ({error})")
        if left := [p.name for p in run.parent.iterdir() if p != run]:
            broken.append(f"a killed writer left {left[0]}")
    return Played(1, "a writer killed at random", times, tuple(broken))


def _damage(run: Path) -> Played:
    """Row 4: each file altered, emptied, removed, and one too many: refused, and named."""
    broken, times = [], 0
    names = sorted(p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file())
    for name in [*names, "extra.bin"]:
        for kind in ("altered", "emptied", "removed") if name in names else ("added",):
            copy = Path(shutil.copytree(run, run.with_name("copy")))
            file, times = copy / name, times + 1
            if kind == "altered":
                data = bytearray(file.read_bytes())
                data[len(data) // 2] ^= 1
                file.write_bytes(data)
            elif kind == "removed":
                file.unlink()
            else:
                file.write_bytes(b"" if kind == "emptied" else b"x")
            try:
                load(copy)
                broken.append(f"a run with {name} {kind} opens")
            except InvalidInput as error:
                known = name in str(error) or name == "SHA256SUMS"
                broken += [] if known else [f"a run with {name} {kind} is refused without its name ({error})"]
            shutil.rmtree(copy)
    return Played(4, "files of a run altered, emptied, removed, added", times, tuple(broken))


def _odd_data(run: Path, until: float = math.inf) -> Played:
    """Row 8: few, equal, lined up, repeated rows: finite predictions with a sd above 0, or one sentence."""
    X, y, _ = _world(40)
    line = np.column_stack([X[:, 0], np.zeros(len(X))])
    odd = {
        "no row": (X[:0], y[:0]), "one row": (X[:1], y[:1]), "two rows": (X[:2], y[:2]), "a constant": (X, 0 * y + 3),
        "repeated rows": (np.repeat(X[:5], 8, axis=0), np.repeat(y[:5], 8)), "places on a line": (line, y),
        "one place": (0 * X + 5000, y), "huge values": (X, 1e12 * y), "tiny values": (X, 1e-12 * y),
    }  # fmt: skip
    broken, times, far = [], 0, np.array([[0.0, 0.0], [1e4, 1e4], [1e6, -1e6]])
    for name, (places, values) in odd.items():
        for method, settings in SMALL.items():
            if times >= FEWEST and time.monotonic() >= until:
                break
            times += 1
            try:
                mean, sd = GPRegressor(method, **settings).fit(places, values).predict(far, return_std=True)
            except (ValueError, ArithmeticError) as error:
                broken += [] if len(str(error)) > 10 else [f"{method} refuses {name} without a word"]
                continue
            if not (np.isfinite(mean).all() and np.isfinite(sd).all() and (sd > 0).all()):
                broken.append(f"{method} given {name} predicts {mean[0]:g} with a sd of {sd[0]:g}")
    return Played(8, "odd data", times, tuple(broken))


def _orders(run: Path) -> Played:
    """Row 10: order, parts and threads do not change a prediction; a deterministic fit repeats itself."""
    X, y, counts = _world(300)
    # Three cells that blend, and parts that go from west to east: each cell a part asks for costs most of the time.
    new = np.random.default_rng(1).uniform(0, 20_000, (500, 2)) * (1.0, 0.3)
    new = new[np.argsort(new[:, 0])]
    broken, times, before = [], 0, torch.get_num_threads()
    for method, settings in SMALL.items():
        model = GPRegressor(method, **settings).fit(X, y, counts)
        whole = np.stack(model.predict(new, return_std=True))
        order = np.random.default_rng(2).permutation(len(new))

        def parts(model: GPRegressor = model) -> Array:
            made = [np.stack(model.predict(piece, return_std=True)) for piece in np.array_split(new, 7)]
            return np.concatenate(made, axis=1)

        def one_thread(model: GPRegressor = model) -> Array:
            torch.set_num_threads(1)
            try:
                return np.stack(model.predict(new + 0.0, return_std=True))
            finally:
                torch.set_num_threads(before)

        turned = np.empty_like(whole)
        turned[:, order] = np.stack(model.predict(new[order], return_std=True))
        told = {"another order": turned, "seven parts": parts(), "one thread": one_thread()}
        for name, other in told.items():
            times += 1
            if (gap := float(np.abs(other - whole).max() / y.std())) > TOLERANCE:
                broken.append(f"{method} predicts something else in {name} (by {gap:.2g} sd)")
        times += 1
        with deterministic():
            twice = [GPRegressor(method, **settings).fit(X, y, counts).predict(new[:70]) for _ in range(2)]
        if not np.array_equal(*twice):
            broken.append(f"two deterministic fits of {method} differ")
    return Played(10, "order, parts, threads, a second fit", times, tuple(broken))


def told(played: list[Played], seconds: float) -> dict[str, Any]:
    """What `geogp doctor --self-test --json` adds to its document."""
    rows = [{"row": p.row, "fault": p.fault, "times": p.times, "broken": list(p.broken)} for p in played]
    return {"seconds": round(seconds, 1), "faults": rows}

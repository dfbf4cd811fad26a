"""Where and when numbers were measured."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "numpy", "gpytorch", "lightgbm", "gpboost", "pykrige", "mapie")


def describe() -> dict[str, Any]:
    """Processor, cores, load, versions, commit and date; no name or path of the machine."""
    found: dict[str, str] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "commit": commit(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": [round(v, 1) for v in os.getloadavg()],
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
        "versions": found,
    }


def commit() -> str:
    """Short hash of the checked-out commit, with a + when tracked files differ; "unknown" outside git."""
    folder = Path(__file__).parent
    try:
        name = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.strip()
        dirty = subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=folder, check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name + ("+" if dirty else "")


def processor() -> str:
    """Model name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def best_seconds(
    work: Callable[[], Any],
    *,
    at_least: float = 0.5,
    rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of one call: the best of `rounds`, each long enough to measure. The first call is not timed.

    clock : `time.process_time` measures processor time, which other programs on a busy machine disturb less; it
        equals wall time for work on one thread.
    """
    work()
    started = clock()
    work()
    once = max(clock() - started, 1e-7)
    repeats = max(1, round(at_least / once))
    best = once
    for _ in range(rounds):
        started = clock()
        for _ in range(repeats):
            work()
        best = min(best, (clock() - started) / repeats)
    return best


def clock_of(device: str) -> Callable[[], float]:
    """Processor time on one CPU thread, else wall time."""
    import torch

    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def synced(work: Callable[[], Any], device: str) -> Callable[[], Any]:
    """The work, waited for on a GPU."""
    if not device.startswith("cuda"):
        return work

    def run() -> None:
        import torch

        work()
        torch.cuda.synchronize()

    return run


def device_asked(parser: argparse.ArgumentParser, name: str) -> str:
    """The device that a command's `--device` names; one that is not here ends it with status 3."""
    from geogp.engines.asked import device_named
    from geogp.errors import InvalidInput

    try:
        return device_named(name)
    except InvalidInput as error:
        parser.exit(3, f"{error}\n")


def interleaved(works: Sequence[Callable[[], Any]], device: str, *, rounds: int = 3) -> list[float]:
    """Seconds of a call of each, the best of `rounds` in which all take turns: what else the machine does meets all alike.

    The first call of each is not timed.
    """
    clock, best = clock_of(device), [float("inf")] * len(works)
    for work in works:
        work()
    for _ in range(rounds):
        for k, work in enumerate(synced(work, device) for work in works):
            started = clock()
            work()
            best[k] = min(best[k], clock() - started)
    return best


def in_fresh(module: str, *arguments: str, limit: float | None = None) -> dict[str, Any] | str:
    """What `python -m module .. --out FILE` writes as JSON in an interpreter of its own, or why it wrote nothing.

    limit : seconds after which it is stopped
    """
    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, "-m", module, *arguments, "--out", str(out)]
        try:
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return f"stopped after {limit:.0f} s"
        if out.exists():
            return json.loads(out.read_text(encoding="utf-8"))
        return (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]


def write_text(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)

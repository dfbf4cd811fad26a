"""What workers of a cluster make of an export: processor time, share of the ideal, the same files, one worker killed.

    python -m benchmarks.cluster RUN [--resolution 100] [--workers 2] [--out cluster.json]

Each line is an export in processes of its own, from their first import on, in processor seconds: of the process that writes the
files (which is the scheduler, too), and of each worker. *Work* is the processor time of the export without a scheduler
over that of all processes; *speed* the same time over that of the busiest process and the number of workers: the share of the
ideal speed-up that a machine with enough idle processors gives. What a killed worker had spent is in no number.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import describe, in_fresh, write_text
from benchmarks.tables import markdown

LAYERS = ("median", "lower", "upper", "latent_sd", "explained", "exceedance")
HEADER = ("workers", "writer s", "workers s", "all s", "work", "speed", "files")


def main(argv: list[str] | None = None) -> int:
    """Run; 0 when all wrote the same files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--resolution", type=float, default=100.0, help="metres")
    parser.add_argument("--workers", type=int, default=2, help="at most")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--one", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--kill", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one is not None:
        write_text(
            options.out, json.dumps(exported(options.run, options.resolution, options.one, options.kill))
        )
        return 0
    asked = [(n, False) for n in range(options.workers + 1)] + [(options.workers, True)]
    found: list[dict[str, Any]] = []
    for n, kill in asked:
        more = ["--kill"] if kill else []
        line = [str(options.run), "--resolution", str(options.resolution), "--one", str(n), *more]
        row = in_fresh("benchmarks.cluster", *line)
        if isinstance(row, str):
            print(f"{n} workers: {row}", file=sys.stderr)
            return 1
        found.append(row)
    first = found[0]
    print(f"{first['pixels']:,} pixels inside, {len(LAYERS)} layers, {describe()['processor']}\n")
    rows = [_line(row, first) for row in found]
    print("\n".join(markdown(HEADER, rows)))
    if options.out is not None:
        write_text(options.out, json.dumps({"schema": 1, "machine": describe(), "rows": found}, indent=1))
    return 0 if all(row["sha256"] == first["sha256"] for row in found) else 1


def _line(row: dict[str, Any], first: dict[str, Any]) -> list[str]:
    each, alone = row["workers"], first["writer"]
    whole = row["writer"] + sum(each)
    busiest = max([row["writer"], *each]) * max(len(each), 1)
    return [
        f"{len(each)}, one killed" if row["killed"] else str(len(each) or "none"),
        f"{row['writer']:.1f}",
        " + ".join(f"{seconds:.1f}" for seconds in each),
        f"{whole:.1f}",
        f"{alone / whole:.2f}",
        "" if row["killed"] else f"{alone / busiest:.2f}",
        "the same" if row["sha256"] == first["sha256"] else "others",
    ]


def exported(run: Path, resolution: float, n: int, kill: bool) -> dict[str, Any]:
    """Processor seconds of the processes of an export by n workers, and a sum of its files."""
    os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    from app.workflow import export

    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as folder:
        out, wanted = (
            Path(folder) / "maps",
            {"formats": ["cog"], "layers": LAYERS, "resolution_m": resolution},
        )
        if not n:
            done, each = export(run, out, **wanted), []
        else:
            from distributed import Client

            from app import cluster

            with (
                cluster.started(n) as own,
                Client(own.scheduler_address, set_as_default=False) as client,
            ):
                client.wait_for_workers(n)
                victim = sorted(client.run(os.getpid).values())[0] if kill else None

                def progress(windows: int, total: int, words: str) -> None:
                    if windows == total // 2 and victim is not None:
                        os.kill(victim, signal.SIGKILL)

                done = export(run, out, scheduler=own.scheduler_address, progress=progress, **wanted)
                client.wait_for_workers(n)
                each = sorted(client.run(time.process_time).values(), reverse=True)
        digest = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(out.iterdir()))).hexdigest()
    return {
        "writer": time.process_time(), "workers": each, "killed": kill, "pixels": done.grid.n_inside, "sha256": digest,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

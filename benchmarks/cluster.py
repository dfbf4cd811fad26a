"""What workers of a cluster make of an export, of areas and of an ingest: processor time, share of the ideal, the same files, one
worker killed.

    python -m benchmarks.cluster RUN [--resolution 100] [--workers 2] [--out cluster.json]
    python -m benchmarks.cluster RUN --areas FILE [--samples 500]
    python -m benchmarks.cluster ROOT --quarters 2019Q1..2023Q4 --boundary FILE

Each line is such a command in processes of its own, from their first import on, in processor seconds: of the process that writes the
files (which is the scheduler, too), and of each worker. *Work* is the processor time of the command without a scheduler
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import describe, in_fresh, write_text
from benchmarks.tables import markdown

LAYERS = ("median", "lower", "upper", "latent_sd", "explained", "exceedance")
HEADER = ("workers", "writer s", "workers s", "all s", "work", "speed", "files")


def main(argv: list[str] | None = None) -> int:
    """Run; 0 when all wrote the same files."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster", description=" ".join(__doc__.split("\n")[:2])
    )
    parser.add_argument("source", type=Path, help="run, or root of published quarters")
    parser.add_argument("--resolution", type=float, default=100.0, help="metres, of an export")
    parser.add_argument("--areas", type=Path, default=None, help="polygons")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--quarters", default=None)
    parser.add_argument("--boundary", default=None, help="of an ingest")
    parser.add_argument("--workers", type=int, default=2, help="at most")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--one", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--kill", action="store_true", help=argparse.SUPPRESS)
    given = sys.argv[1:] if argv is None else argv
    options = parser.parse_args(given)
    if options.one is not None:
        write_text(options.out, json.dumps(measured(options)))
        return 0
    asked = [(n, []) for n in range(options.workers + 1)] + [(options.workers, ["--kill"])]
    found: list[dict[str, Any]] = []
    for n, more in asked:
        row = in_fresh("benchmarks.cluster", *given, "--one", str(n), *more)
        if isinstance(row, str):
            print(f"{n} workers: {row}", file=sys.stderr)
            return 1
        found.append(row)
    first = found[0]
    print(f"{first['done']}, {describe()['processor']}\n")
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


#: Done, of how many, and words.
Progress = Callable[[int, int, str], None]


def work(options: argparse.Namespace, out: Path, scheduler: str | None, progress: Progress | None) -> str:
    """Do what was asked; what was done, in words."""
    if options.quarters is not None:
        from app.cluster import workers
        from data_pipelines.observations import ingest

        asked = {"root": options.source, "quarters": options.quarters, "boundary": options.boundary}
        with workers(scheduler) as cluster:
            report = ingest(**asked, output=out / "obs.parquet", workers=cluster, progress=progress)
        return f"{report.metadata['rows_read']:,} rows read, {report.rows_kept:,} kept"
    if options.areas is not None:
        from app.workflow import areas

        more = {"n_samples": options.samples, "scheduler": scheduler, "progress": progress}
        made = areas(options.source, options.areas, out / "areas.parquet", **more)
        return f"{len(made.table)} areas, {made.facts['n_points']:,} points, {options.samples:,} draws"
    from app.workflow import export

    wanted = {"formats": ["cog"], "layers": LAYERS, "resolution_m": options.resolution}
    done = export(options.source, out / "maps", scheduler=scheduler, progress=progress, **wanted)
    return f"{done.grid.n_inside:,} pixels inside, {len(LAYERS)} layers"


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Processor seconds of the processes of a command by `--one` workers, and a sum of its files."""
    os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as folder:
        out = Path(folder)
        if not options.one:
            done, each = work(options, out, None, None), []
        else:
            done, each = _by_workers(options, out)
        files = sorted(p for p in out.rglob("*") if p.is_file())
        digest = hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()
    return {
        "writer": time.process_time(), "workers": each, "killed": options.kill, "done": done, "sha256": digest,
    }  # fmt: skip


def _by_workers(options: argparse.Namespace, out: Path) -> tuple[str, list[float]]:
    """What was done, and the processor seconds of each worker; half-way one may be killed."""
    from distributed import Client

    from app import cluster

    with (
        cluster.started(options.one) as own,
        Client(own.scheduler_address, set_as_default=False) as client,
    ):
        client.wait_for_workers(options.one)
        victims = sorted(client.run(os.getpid).values())[: int(options.kill)]

        def progress(at: int, total: int, words: str) -> None:
            if 0 < total // 2 <= at and victims:
                os.kill(victims.pop(), signal.SIGKILL)

        done = work(options, out, own.scheduler_address, progress)
        client.wait_for_workers(options.one)
        return done, sorted(client.run(time.process_time).values(), reverse=True)


if __name__ == "__main__":
    sys.exit(main())

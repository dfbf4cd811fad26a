"""Accuracy on real data: ours beside the peers, on the same rows, with time, memory and targets.

    python -m benchmarks.accuracy [--only NAME[,NAME]] [--methods a,b] [--quick] [--out results.json]

Each method runs in its own process, so its peak memory is its own. Rows are added to the results file as they
come; what it already holds is not measured again, unless `--again`. Data are read from GEOGP_DATA. A full run
also writes the tables to RESULTS.md, followed by NOTES.md (causes and remedies, written by hand) if it is there.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks import machine, page
from benchmarks.cases import CASES, Absent, Case
from benchmarks.machine import in_fresh, write_text
from benchmarks.tables import report
from geogp.engines.asked import device_named


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", default="", help="cases whose name contains one of these words, by commas")
    parser.add_argument("--methods", default="", help="these methods instead of each case's own, by commas")
    parser.add_argument(
        "--quick", action="store_true", help="a few thousand rows and little training: does it run?"
    )
    parser.add_argument("--again", action="store_true", help="measure what the results file already holds")
    parser.add_argument(
        "--out", type=Path, default=None, help="results file (default benchmarks/results.json)"
    )
    parser.add_argument("--markdown", type=Path, default=None, help="where to write the tables")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which a method is stopped")
    parser.add_argument("--list", action="store_true", help="name the cases and their methods, and stop")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "METHOD"), help=argparse.SUPPRESS)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run; 0 when everything asked for was measured."""
    options = arguments().parse_args(argv)
    if options.list:
        for case in CASES.values():
            print(f"{case.name}: {', '.join(case.methods)}")
        return 0
    where = os.environ.get("GEOGP_DATA")
    if not where or not Path(where).is_dir():
        print("GEOGP_DATA does not name a folder with the data; nothing to measure.", file=sys.stderr)
        return 0
    data = Path(where)
    device = device_named(options.device)
    if options.one:
        case, name = options.one
        return _one(case, name, data, options.quick, device, options.out)
    out = options.out or (page.RESULTS.with_name("results-quick.json") if options.quick else page.RESULTS)
    results = page.read(out)
    words = [w for w in options.only.split(",") if w]
    cases = [c for c in CASES.values() if not words or any(w in c.name for w in words)]
    failed = 0
    for case in cases:
        failed += _case(case, data, options, device, results, out)
    lines = page.heading(results) + report(results["rows"])
    print("\n".join(lines))
    where_to = options.markdown or (page.TABLES if out == page.RESULTS else None)
    if where_to and results["rows"]:
        page.write(results, where_to)
    return 1 if failed else 0


def _case(
    case: Case, data: Path, options: argparse.Namespace, device: str, results: dict[str, Any], out: Path
) -> int:
    """Measure a case's methods that the results do not hold; the number that failed."""
    from benchmarks.measure import known

    failed = 0
    methods = [m for m in options.methods.split(",") if m] or case.methods
    for name in methods:
        if not known(name):
            print(f"{case.name}: {name} is not in the tables of methods and peers; skipped", file=sys.stderr)
            continue
        key = (case.name, name, options.quick)
        have = [r for r in results["rows"] if (r["case"], r["method"], r["quick"]) == key]
        if have and not options.again:
            continue
        asked = ["--one", case.name, name, "--device", device, *(["--quick"] if options.quick else [])]
        row = in_fresh("benchmarks.accuracy", *asked, limit=options.limit)
        if isinstance(row, str):
            print(f"{case.name}: {name}: {row}", file=sys.stderr)
            if row.startswith("absent: "):
                return failed
            failed += 1
            continue
        row["commit"] = machine.commit()
        results["rows"] = [r for r in results["rows"] if r not in have] + [row]
        results["machine"] = machine.describe()
        write_text(out, json.dumps(results, indent=1) + "\n")
        s = row["scores"]
        print(
            f"{case.name}: {name}: NLL {s['nll']:.3f} CRPS {s['crps']:.3f} coverage {s['coverage95']:.3f}, "
            f"{row['fit_seconds']:.0f} + {row['predict_seconds']:.1f} s",
            file=sys.stderr,
        )
    return failed


def _one(case: str, name: str, data: Path, quick: bool, device: str, out: Path) -> int:
    from benchmarks.measure import measure

    try:
        row = measure(case, name, data, quick=quick, device=device)
    except Absent as absent:
        print(f"absent: {absent}; case skipped", file=sys.stderr)
        return 1
    write_text(out, json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())

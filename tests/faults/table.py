"""The table of faults: what is played in each row, how often, and what came of it.

`make test-faults` prints it and keeps what came of each test in played.json, from which `make docs` makes the page's table: a
part that is played alone takes the place of what was kept of it. `python -m tests.faults.table` prints what is kept.
"""

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: Test -> how often its fault was played in full counts, whether that failed, and on which day.
KEPT = HERE / "played.json"

#: Row -> (fault, tests whose names begin so; those after "also" are in the rest of the suite).
ROWS: dict[int, tuple[str, tuple[str, ...], str]] = {
    1: ("SIGKILL at changes of the file system and at random instants", ("test_killed.py",), ""),
    2: ("a full disk at many sizes of each writer", ("test_full_disk.py",), ""),
    3: (
        "mutations of eight formats; footers and polygons that never end",
        ("test_hostile.py",),
        "data_pipelines/test_repair.py",
    ),
    4: (
        "a run's files and what is kept beside outputs altered, removed, added, swapped",
        ("test_run_folders.py", "test_kept.py"),
        "",
    ),
    5: (
        "payloads, injection, traversal; files that name others",
        ("test_reaching.py",),
        "maps/test_browser.py maps/test_web.py -k hostile, app_dashboard/test_routes.py -k hostile",
    ),
    6: ("sizes beyond all bounds", ("test_nonsense.py::test_a_raster", "test_nonsense.py::test_samples"), ""),
    7: (
        "bad values, units, CRS, places, quarters, settings",
        ("test_nonsense.py", "test_places.py", "test_clumsy.py"),
        "",
    ),
    8: ("odd data", ("test_odd_data.py",), "geogp/test_neighbours.py -k one_place, app/test_small_data.py"),
    9: ("calibration on made-up worlds", (), "python -m benchmarks.strata, python -m benchmarks.coverage"),
    10: (
        "order, threads, bytes",
        ("test_reproducible.py",),
        "geogp/test_field.py test_cells.py test_contracts.py -k 'order or batch or chunk or unit'",
    ),
    11: ("downloads cut, damaged, changed, slow, two at once", ("test_downloads.py",), ""),
    12: ("runs and tables of earlier versions", ("test_upgrades.py",), "test_dependencies.py test_supply.py"),
}


def named(nodeid: str) -> str:
    """A test without the folders of its file; what it is played with may hold a slash, too."""
    test, bracket, case = nodeid.partition("[")
    return test.rsplit("/", 1)[-1] + bracket + case


def row_of(nodeid: str) -> int | None:
    """The row that a test belongs to: that whose pattern is the longest, for rows 6 and 7 share a file."""
    name = named(nodeid)
    fits = [(len(p), row) for row, (_, patterns, _) in ROWS.items() for p in patterns if name.startswith(p)]
    return max(fits)[1] if fits else None


def played(reports: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """What pytest's reports say of each test of the table: faults played (`times` of each, else 1), failed or not, the day."""
    out = {}
    for report in reports:
        told = [value for name, value in report.user_properties if name == "times"]
        if row_of(report.nodeid.split("[")[0]) is not None:
            out[named(report.nodeid)] = {
                "times": sum(told) or 1,
                "failed": report.outcome == "failed",
                "on": f"{datetime.now(UTC):%Y-%m-%d}",
            }
    return out


def keep(found: Mapping[str, Any], file: Path = KEPT) -> dict[str, Any]:
    """All that was played, this among it; nothing stays of tests that are gone, nor of a file all of whose tests were played."""
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    there, again = set(functions()), {name.split("[")[0] for name in found}
    whole = {name.split("::")[0] for name in there} - {name.split("::")[0] for name in there - again}
    stays = {k: v for k, v in before.items() if k.split("[")[0] in there and k.split("::")[0] not in whole}
    out = stays | dict(found)
    text = ",\n".join(f" {json.dumps(k)}: {json.dumps(out[k])}" for k in sorted(out))
    file.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    return out


def functions() -> Sequence[str]:
    """The tests of this folder that a row holds, as `file.py::test`."""
    return [
        f"{path.name}::{node.name}"
        for path in sorted(HERE.glob("test_*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and row_of(f"{path.name}::{node.name}")
    ]


def lines(found: Mapping[str, Any]) -> Sequence[str]:
    """The table as text: tests and faults played, how many failed, since when, and which tests have not been played."""
    out = ["| # | fault | tests | played | failed | on | also |", "|---|---|---|---|---|---|---|"]
    known = {name.split("[")[0] for name in found}
    for row, (fault, _, also) in ROWS.items():
        mine = [kept for name, kept in found.items() if row_of(name.split("[")[0]) == row]
        times, failed = sum(kept["times"] for kept in mine), sum(kept["failed"] for kept in mine)
        days = sorted({kept["on"] for kept in mine})
        left = [name.split("::")[1] for name in functions() if row_of(name) == row and name not in known]
        note = f"; not played in full yet: {', '.join(left)}" if left else ""
        counts = (
            f"{len(mine)} | {times:,} | {failed} | {' to '.join(days[:1] + days[1:][-1:])}"
            if mine
            else "in the suite | | |"
        )
        out.append(f"| {row} | {fault} | {counts} | {(also + note).removeprefix('; ')} |")
    return out


def page() -> str:
    """What was played last in full counts, for the page of faults."""
    return "\n".join(lines(json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {})) + "\n"


if __name__ == "__main__":
    print(page(), end="")

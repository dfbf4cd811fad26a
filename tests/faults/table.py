"""The table of faults: what is played in each row, how often, and what came of it; printed after `make test-faults`."""

from collections.abc import Iterable, Sequence
from typing import Any

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
    7: ("bad values, units, CRS, places, quarters, settings", ("test_nonsense.py", "test_places.py"), ""),
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


def row_of(nodeid: str) -> int | None:
    """The row that a test belongs to: that whose pattern is the longest, for rows 6 and 7 share a file."""
    name = nodeid.rsplit("/", 1)[-1]
    fits = [(len(p), row) for row, (_, patterns, _) in ROWS.items() for p in patterns if name.startswith(p)]
    return max(fits)[1] if fits else None


def lines(reports: Iterable[Any]) -> Sequence[str]:
    """The table as text, from pytest's reports: tests, faults played (`times` of each, else 1), and how many failed."""
    tests = dict.fromkeys(ROWS, 0)
    times, failed = dict(tests), dict(tests)
    for report in reports:
        row = row_of(report.nodeid.split("[")[0])
        if row is None:
            continue
        told = [value for name, value in report.user_properties if name == "times"]
        tests[row] += 1
        times[row] += sum(told) or 1
        failed[row] += report.outcome == "failed"
    out = ["| # | fault | tests | played | failed | also |", "|---|---|---|---|---|---|"]
    for row, (fault, _, also) in ROWS.items():
        counts = f"{tests[row]} | {times[row]:,} | {failed[row]}" if tests[row] else "in the suite | |"
        out.append(f"| {row} | {fault} | {counts} | {also} |")
    return out

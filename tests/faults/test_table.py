"""The table counts what was played, and every test of this folder is in it."""

import json
from pathlib import Path
from types import SimpleNamespace

from tests.faults.table import KEPT, ROWS, functions, keep, lines, page, played, row_of

HERE = Path(__file__).parent


def test_every_file_of_faults_is_in_a_row() -> None:
    files = {p.name for p in HERE.glob("test_*.py")} - {Path(__file__).name}
    assert {name for name in files if row_of(f"tests/faults/{name}") is None} == set()
    named = {p.split("::")[0] for _, patterns, _ in ROWS.values() for p in patterns}
    assert named == files and list(ROWS) == list(range(1, 13))


def test_the_table_counts_times_and_failures(tmp_path) -> None:
    def report(name: str, outcome: str, *times: int) -> SimpleNamespace:
        properties = [("times", n) for n in times] + [("else", 7)]
        return SimpleNamespace(nodeid=f"tests/faults/{name}", outcome=outcome, user_properties=properties)

    told = played(
        [
            report("test_killed.py::test_a[one]", "passed", 200, 4),
            report("test_killed.py::test_b", "failed"),
            report("test_nonsense.py::test_a_raster_beyond_all_bounds", "passed"),
            report("test_nonsense.py::test_a_quarter", "passed"),
            report("test_table.py::test_this", "failed"),
        ]
    )
    found = lines(told)
    assert "| 2 | 205 | 1 | 2" in found[2] and "| 1 | 1 | 0 | 2" in found[7] and "| 1 | 1 | 0 | 2" in found[8]
    assert "in the suite" in found[10] and "not played in full yet: test_a_source" not in found[1]
    assert (
        "not played in full yet: " in found[2]
        and "test_a_killed_first_export_leaves_all_or_nothing" in found[2]
    )


def test_what_a_test_is_played_with_may_hold_a_slash() -> None:
    test = "tests/faults/test_run_folders.py::test_this[a/b.bin]"
    found = played([SimpleNamespace(nodeid=test, outcome="passed", user_properties=[])])
    assert list(found) == ["test_run_folders.py::test_this[a/b.bin]"]


def test_what_is_kept_is_of_tests_that_there_are(tmp_path) -> None:
    """A part that is played again takes the place of what was kept of it; what is gone goes, and a file played whole is new."""
    file, mine = tmp_path / "played.json", [name for name in functions() if name.startswith("test_killed.py")]
    said = {"times": 3, "failed": False, "on": "2026-01-01"}
    keep(
        {f"{mine[0]}[a]": said, f"{mine[0]}[b]": said, "test_killed.py::test_gone": said, mine[1]: said}, file
    )
    found = keep({f"{mine[0]}[b]": said | {"times": 4}}, file)
    assert json.loads(file.read_text()) == found and set(found) == {f"{mine[0]}[a]", f"{mine[0]}[b]", mine[1]}
    assert found[f"{mine[0]}[b]"]["times"] == 4
    assert set(keep(dict.fromkeys(mine, said), file)) == set(mine)


def test_the_page_holds_what_was_played_in_full() -> None:
    """By a run, in the counts of `make test-faults`; nothing of it failed."""
    kept = json.loads(KEPT.read_text())
    assert {name.split("[")[0] for name in kept} <= set(functions())
    assert [name for name, told in kept.items() if told["failed"]] == []
    assert len(page().splitlines()) == len(ROWS) + 2

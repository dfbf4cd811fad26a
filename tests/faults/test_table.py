"""The table counts what was played, and every test of this folder is in it."""

from pathlib import Path
from types import SimpleNamespace

from tests.faults.table import ROWS, lines, row_of

HERE = Path(__file__).parent


def test_every_file_of_faults_is_in_a_row() -> None:
    files = {p.name for p in HERE.glob("test_*.py")} - {Path(__file__).name}
    assert {name for name in files if row_of(f"tests/faults/{name}") is None} == set()
    named = {p.split("::")[0] for _, patterns, _ in ROWS.values() for p in patterns}
    assert named == files and list(ROWS) == list(range(1, 13))


def test_the_table_counts_times_and_failures() -> None:
    def report(name: str, outcome: str, *times: int) -> SimpleNamespace:
        properties = [("times", n) for n in times] + [("else", 7)]
        return SimpleNamespace(nodeid=f"tests/faults/{name}", outcome=outcome, user_properties=properties)

    found = lines(
        [
            report("test_killed.py::test_a[one]", "passed", 200, 4),
            report("test_killed.py::test_b", "failed"),
            report("test_nonsense.py::test_a_raster_beyond_all_bounds", "passed"),
            report("test_nonsense.py::test_a_quarter", "passed"),
            report("test_table.py::test_this", "failed"),
        ]
    )
    assert "| 2 | 205 | 1 |" in found[2] and "| 1 | 1 | 0 |" in found[7] and "| 1 | 1 | 0 |" in found[8]
    assert "in the suite" in found[10]

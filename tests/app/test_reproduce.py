"""`geogp reproduce`: the list, one figure, refusals."""

import json

import pytest

from app.cli import main


def test_without_a_name_they_are_listed(capsys):
    assert main(["reproduce"]) == 0
    assert "dbk-fig1" in capsys.readouterr().out.split()


def test_a_quick_figure_prints_and_writes(tmp_path, capsys):
    out = tmp_path / "here"
    assert main(["reproduce", "lowrank-fig1", "--quick", "--json", "-o", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    (found,) = document["reproductions"]
    assert document["schema"] == 1 and found["name"] == "lowrank-fig1" and found["rows"]
    assert (out / "lowrank-fig1.md").read_text(encoding="utf-8").startswith("# how-good-are")
    assert (out / "lowrank-fig1.png").stat().st_size > 1000
    assert main(["reproduce", "lowrank-fig1", "--quick", "-o", str(out)]) == 3
    assert "--overwrite" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nope"], ["dbk-table2"], ["dbk-table1", "--data", "absent"]])
def test_what_cannot_be_reproduced_is_said(arguments, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("GEOGP_OBSERVATIONS", raising=False)
    assert main(["reproduce", *arguments, "--quick", "-o", str(tmp_path)]) == 3
    assert capsys.readouterr().err.startswith(("geogp: ", "nope", "dbk"))

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


def test_all_of_them_end_in_one_table(tmp_path, cli, monkeypatch):
    """Ours beside the papers' numbers; what is there is kept, what lacks its data is left out and said."""
    from app.workflow.steps import reproduce as papers
    from geogp.reproduce import Result

    calls = []

    def run(name, *, quick, seed, **inputs):
        calls.append((name, quick, seed, inputs))
        if name in papers.OBSERVATIONS:
            raise papers.CoreInvalidInput("dbk-table2 needs a table.")
        columns = ["set", "rank", "NLL", "sd of NLL", "paper NLL (best)", "RMSE of it", "paper RMSE"]
        return Result(
            name, f"title of {name}", columns, [["pol", 8, -3.0, 0.1, -2.9, 0.5, float("nan")]], ["a note"]
        )

    monkeypatch.setattr(papers, "run", run)
    out = tmp_path / "here"
    result = cli("reproduce", "--all", "--quick", "--observations", "obs.parquet", "--data", "uci", "-o", out)
    assert result.code == 0, result.err
    assert "dbk-table2 is left out: dbk-table2 needs a table." in result.err
    assert [name for name, *_ in calls] == papers.names() and all(quick for _, quick, *_ in calls)
    assert {name: inputs for name, _, _, inputs in calls}["softki-table1"]["data"].name == "uci"
    words = result.out.split("Ours beside the papers'")[1]
    assert "pol, rank 8" in words and "-2.9" in words and "-0.1" in words and "RMSE" not in words
    summary = (out / "all.md").read_text()
    assert summary.count("| dbk-fig5 | pol, rank 8 | NLL | -3 | -2.9 | -0.1 |") == 1 and "- a note" in summary
    calls.clear()
    assert cli("reproduce", "--all", "--quick", "-o", out).code == 0
    assert [name for name, *_ in calls] == ["dbk-table2"]  # the others are kept
    other = cli("reproduce", "--all", "-o", out)  # other settings are not
    assert other.code == 3 and "--overwrite" in other.err
    document = json.loads(cli("reproduce", "--all", "--quick", "--json", "-o", out).out)
    assert document["reproductions"][0]["rows"][0][-1] is None

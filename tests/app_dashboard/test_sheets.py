"""The pages Compare, Data and Methods: the scores' own numbers, the file's own counts, the table's own words."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app.dashboard import holding, scores
from app.dashboard.jobs import jobs
from app.dashboard.sheets import SHEETS, data
from app.workflow.outputs import titled
from geogp import load
from geogp.methods import METHODS
from geogp.run import Run

#: A page that is a function cannot be switched to in a test.
SCRIPT = """
from app.dashboard.page import sheet

sheet("{name}")
"""


@pytest.fixture
def two(two_runs: list[Path]) -> Iterator[list[Run]]:
    holding.hold(*two_runs)
    yield [holding.held(name).atlas().run for name in holding.names()]
    holding.let_go()


def opened(name: str, **query: str) -> AppTest:
    page = AppTest.from_string(SCRIPT.format(name=name), default_timeout=120)
    for key, value in query.items():
        page.query_params[key] = value
    return page.run()


def html(page: AppTest) -> str:
    return "\n".join(e.proto.body for e in page.get("html"))


@pytest.mark.parametrize("name", SHEETS)
def test_every_page_opens_and_links_to_the_others(two: list[Run], name: str) -> None:
    page = opened(name, q="2022Q1", t="40", lat="33.5")
    assert not page.exception
    bar = html(page)
    assert all(f'href="/pages/{other}?q=2022Q1&amp;t=40&amp;lat=33.5"' in bar for other in SHEETS)
    assert 'href="/?q=2022Q1' in bar and bar.count('aria-current="page"') == 1


def test_a_page_says_which_run_it_is_about_and_leads_to_the_others(two: list[Run]) -> None:
    """What belongs to one run, such as its table of areas, does not go along."""
    bar = html(opened("data", run="upload", q="2022Q1", areas="1"))
    assert f"<b>{titled(two[1])}</b>" in bar
    assert 'href="?run=download&amp;q=2022Q1" target="_self">download' in bar
    assert bar.count('aria-current="true">upload') == 1


@pytest.mark.parametrize("name", SHEETS)
def test_every_page_opens_of_a_run_that_records_little(shown: object, name: str) -> None:
    assert not opened(name).exception


def test_scores_are_those_of_the_evaluation(two: list[Run]) -> None:
    entry = scores.of_run("download", two[0])
    assert entry is not None and two[0].scores is not None
    assert scores.of_run("x", type("R", (), {"scores": None})()) is None  # type: ignore[arg-type]
    for stratum in scores.strata_of([entry]):
        row = scores.table([entry], stratum).iloc[0]
        known = two[0].scores["scores"] if stratum == "all" else two[0].scores["strata"][stratum]
        assert row["NLL"] == known["nll"] and row["inside 95%"] == known["coverage95"]
        held = scores.reliability([entry], stratum)
        assert held["held"].tolist() == [known[f"coverage{p}"] for p in (50, 80, 95)]
        assert (held["low"] < held["promised"]).all() and (held["promised"] < held["high"]).all()


def test_the_best_come_first_and_other_rows_are_not_set_beside_them(two: list[Run]) -> None:
    entries = [scores.of_run(run.path.name, run) for run in two]
    better = scores.Entry(
        "better", {**entries[0].document, "scores": {**entries[0].document["scores"], "nll": -9.0}}
    )
    assert scores.table([entries[0], better], "all")["method"].tolist() == ["better", entries[0].name]
    assert entries[0].about != entries[1].about
    page = opened("compare")
    assert page.selectbox(key="kind").options == [e.about for e in entries]
    assert "download (dbk-silu)" in html(page) and "upload (dbk-silu)" not in html(page)


def test_errors_are_those_of_the_held_out_rows(two: list[Run]) -> None:
    frame = scores.errors(two[0])
    every = frame[frame.group == "all"]
    known = two[0].scores
    assert known is not None and len(every) == known["n_test"] <= scores.MOST_ROWS
    assert np.mean((every.below >= 0.025) & (every.below <= 0.975)) == pytest.approx(
        known["scores"]["coverage95"], abs=1e-9
    )
    assert np.mean(np.abs(every.error)) == pytest.approx(known["scores"]["mae"], rel=1e-6)
    assert set(known["strata"]) >= set(frame.group) - {"all"} - {
        g for g in frame.group if g.startswith("tests")
    }


def test_a_peer_is_fitted_beside_and_stands_in_the_table(two: list[Run]) -> None:
    page = opened("compare")
    page.multiselect(key="methods").set_value(["knn"]).run()
    page.button(key="fit").click().run()
    key = "".join(page.query_params["compared"])
    job = jobs().get(key)
    assert job is not None and "--methods knn --split random" in job.shown
    while not job.over:
        time.sleep(0.1)
    assert job.state == "done", job.told
    page.run()
    assert not page.exception and "<td>knn</td>" in html(page)


def test_the_counts_are_the_files(two: list[Run], tmp_path: Path) -> None:
    document = data.document_of(two[0])
    frame = data.through_time(two[0].data | document, two[0].facts["rows"]["known"])
    assert frame[frame.kind == "kept"]["rows"].sum() == document["rows_kept"] == two[0].data["rows"]
    assert frame[frame.kind == "learned from"]["rows"].sum() == two[0].facts["rows"]["fitted"]
    assert f"{document['rows_kept']:,} rows" in data.sentence(document, two[0].facts["rows"])
    assert data.dropped_of({"dropped": {"a_b": 1, "none": 0}}, {"dropped": {"c": 5}}) == [
        ("c", 5),
        ("a b", 1),
    ]
    gone = load(two[0].path)
    gone.data["path"] = str(tmp_path / "gone.parquet")
    assert data.document_of(gone) == {}


def test_a_run_that_holds_nothing_out_is_not_sent_to_evaluate(
    two: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in (("split", "none"), ("scores", None)):
        monkeypatch.setitem(two[0].facts, key, value)
    page = opened("compare", run="download")
    said = " ".join(c.value for c in page.caption)
    assert "download holds no rows out, so nothing shows how good it is; fit it with" in said
    assert "download was not scored" not in said and not page.exception


def test_rows_without_quarters_have_no_chart_through_time() -> None:
    assert not len(
        data.through_time({"sources": [{"rows_read": 9, "rows_kept": 9}]}, {"all": 9, "added-12": 3})
    )


def test_the_methods_page_begins_with_the_runs_own(two: list[Run]) -> None:
    page = opened("methods")
    assert page.selectbox(key="method").value == two[0].model.method
    page.selectbox(key="method").set_value("sgpr").run()
    said = "\n".join(m.value for m in page.markdown)
    assert METHODS["sgpr"].use_when[1:] in said and "Formula" in said

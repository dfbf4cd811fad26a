"""Training from the page: another process, progress, cancel; the run that comes of it is among the others."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.dashboard import holding
from app.dashboard.jobs import Job, jobs
from app.dashboard.sheets import train
from app.errors import InvalidInput
from geogp import load

from .test_sheets import html, opened


@pytest.fixture
def shown_one(two_runs: list[Path]) -> Iterator[None]:
    holding.hold(two_runs[0])
    yield
    holding.let_go()


def job_of(page: AppTest) -> Job:
    job = jobs().get("".join(page.query_params["job"]))
    assert job is not None
    return job


def ended(job: Job) -> Job:
    while not job.over:
        time.sleep(0.1)
    return job


def test_a_run_is_fitted_and_appears_with_its_scores(shown_one: None, two_runs: list[Path]) -> None:
    page = opened("train")
    page.selectbox(key="method").set_value("vbll").run()
    page.selectbox(key="target").set_value("latency").run()
    page.text_input(key="name").set_value("fresh").run()
    page.button(key="train").click().run()
    job = job_of(page)
    assert "--target latency --method vbll --split random --counts tests -o fresh" in job.shown
    assert ended(job).state == "done", job.told
    page.run()  # the run is taken in, its scoring begins
    assert holding.names() == ["download", "fresh"]
    for other in jobs().all():
        ended(other)
    page.run()
    assert not page.exception
    run = load(two_runs[0].parent / "fresh")
    assert run.model.method == "vbll" and run.scores is not None
    assert f"{100 * run.scores['scores']['coverage95']:.1f}% inside 95%" in html(page)
    assert 'href="/?run=fresh"' in html(page)


def test_the_form_begins_with_the_target_of_the_map(two_runs: list[Path]) -> None:
    holding.hold(two_runs[1])
    try:
        assert opened("train").selectbox(key="target").value == "upload"
    finally:
        holding.let_go()


def test_a_cancelled_fit_leaves_no_run(shown_one: None, two_runs: list[Path]) -> None:
    page = opened("train")  # the default method: minutes, were it left alone
    page.text_input(key="name").set_value("never").run()
    page.button(key="train").click().run()
    job = job_of(page)
    while job.state == "waiting" or not job.total:
        time.sleep(0.05)
        assert not job.over, job.told
    assert "Cancel" in [b.label for b in page.run().button]
    page.button(key=f"cancel-{job.id}").click().run()
    assert job.state == "cancelled" and "goes on where it stopped" in page.info[0].value
    while jobs()._process is not None:
        time.sleep(0.05)
    assert not (two_runs[0].parent / "never").exists() and holding.names() == ["download"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 61, "a b"])
def test_a_name_is_a_name(shown_one: None, name: str) -> None:
    with pytest.raises(InvalidInput, match="name is made of"):
        train.start(holding.held().atlas(), Path("obs.parquet"), "obs", name)


def test_a_taken_name_is_refused(shown_one: None) -> None:
    with pytest.raises(InvalidInput, match="already"):
        train.start(holding.held().atlas(), Path("obs.parquet"), "obs", "upload")

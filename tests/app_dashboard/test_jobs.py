"""Commands in processes of their own: one at a time, watched, cancelled, kept."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.dashboard.jobs import MOST_WAITING, OUT, Job, Jobs
from app.errors import InvalidInput


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(tmp_path)
    yield made
    made.close()


def started(jobs: Jobs, *arguments: str, of: str = "") -> Job:
    return jobs.start("a job", arguments, name="out", shown="geogp ..", of=of)


def ended(job: Job) -> Job:
    for _ in range(600):
        if job.over:
            return job
        time.sleep(0.1)
    raise AssertionError(f"{job.title} is still {job.state}")


def test_a_job_says_what_the_command_said_and_is_begun_once(jobs: Jobs) -> None:
    job = started(jobs, "methods", "--json")
    assert started(jobs, "methods", "--json") is job
    assert ended(job).state == "done" and json.loads(job.said)["schema"] == 1
    assert started(jobs, "methods", "--json") is job and jobs.get(job.id) is job
    assert started(jobs, "methods", "--json", of="another run") is not job
    assert jobs.get("../../etc/passwd") is None


def test_a_refusal_is_its_sentence(jobs: Jobs) -> None:
    job = ended(started(jobs, "areas", "nowhere", "--areas", "none.geojson", "-o", OUT))
    assert job.state == "failed" and job.problem.startswith("nowhere is not a run folder")
    assert str(job.folder) in " ".join(job.arguments)
    assert started(jobs, "areas", "nowhere", "--areas", "none.geojson", "-o", OUT) is not job  # again


def test_progress_is_read_and_a_cancelled_job_leaves_the_next_its_turn(jobs: Jobs, tmp_path: Path) -> None:
    long = started(jobs, "demo", "--out", OUT)
    short = started(jobs, "methods")
    while long.state == "waiting":
        time.sleep(0.05)
    assert short.state == "waiting"
    while not long.told:
        time.sleep(0.05)
    process = jobs._process
    assert process is not None
    jobs.cancel(long)
    assert long.state == "cancelled"
    assert ended(short).state == "done"
    assert process.poll() is not None and long.state == "cancelled"
    assert os.path.exists(short.folder)


def test_a_line_of_progress_is_the_share(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    import app.dashboard.jobs as module

    words = "import sys; print('@progress 3 12 drawing places', 'Note: x.', sep=chr(10), file=sys.stderr)"
    script = jobs.folder / "python"
    script.write_text(f'#!/bin/sh\nexec {module.sys.executable} -c "{words}"\n')
    script.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(script))
    job = ended(started(jobs, "x"))
    assert (job.share, job.what, job.told) == (0.25, "drawing places", ["Note: x."])


def test_few_may_wait(jobs: Jobs) -> None:
    first = started(jobs, "demo", "--out", OUT)
    while first.state == "waiting":
        time.sleep(0.05)
    for k in range(MOST_WAITING):
        started(jobs, "methods", of=str(k))
    with pytest.raises(InvalidInput, match="wait already"):
        started(jobs, "methods", of="one more")
    for job in jobs.all():
        jobs.cancel(job)

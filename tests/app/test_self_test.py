"""`geogp doctor --self-test`: each fault is really played, and what does not hold is said."""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from app.workflow import self_test


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return self_test._small_run(tmp_path_factory.mktemp("self") / "run")


@pytest.mark.slow
def test_all_holds_here_and_is_told(cli) -> None:
    result = cli("doctor", "--self-test", "--json")
    found = json.loads(result.out)["self_test"]
    assert result.code == 0 and [fault["row"] for fault in found["faults"]] == [1, 4, 8, 10]
    assert all(fault["times"] >= 8 and fault["broken"] == [] for fault in found["faults"])


def test_kills_and_damage_hold(small) -> None:
    for play in (self_test._kills, self_test._damage):
        found = play(small)
        assert found.broken == () and found.words == "held" and found.times >= 12


def test_a_writer_is_killed_at_work_however_slow_it_is(tmp_path, monkeypatch) -> None:
    run = self_test._small_run(tmp_path / "runs" / "run")
    honest, written = self_test.update_facts, tmp_path / "written"

    def slow(*args: object, **named: object) -> None:
        time.sleep(0.2)
        honest(*args, **named)
        written.write_text(written.read_text() + "x" if written.exists() else "x")

    monkeypatch.setattr(self_test, "update_facts", slow)
    monkeypatch.setattr(self_test, "KILLS", 3)
    assert self_test._kills(run).broken == () and len(written.read_text()) >= 3


def test_a_writer_that_fails_is_found_out(small, monkeypatch) -> None:
    monkeypatch.setattr(self_test, "update_facts", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(self_test, "KILLS", 1)
    assert self_test._kills(small).broken == ("a writer ended before it was killed",)


def test_a_writer_that_writes_in_place_is_found_out(small, tmp_path, monkeypatch) -> None:
    def careless(run: Path, facts: dict, documents: dict) -> None:
        whole = (run / "run.json").read_text()
        with (run / "run.json").open("w") as file:
            for letter in whole:
                file.write(letter)
                file.flush()

    run = Path(shutil.copytree(small, tmp_path / "run"))
    monkeypatch.setattr(self_test, "update_facts", careless)
    assert any("left a run that is refused" in words for words in self_test._kills(run).broken)


def test_a_run_that_opens_in_spite_of_damage_is_found_out(small, monkeypatch) -> None:
    monkeypatch.setattr(self_test, "load", lambda path: path)
    found = self_test._damage(small)
    assert len(found.broken) == found.times and "run.json emptied opens" in found.words


class Silent:
    """A model that says NaN, and another thing each time it is asked."""

    def __init__(self, method: str, **settings: object) -> None:
        self.rng = np.random.default_rng()

    def fit(self, *data: object) -> "Silent":
        return self

    def predict(self, X: np.ndarray, return_std: bool = False):
        mean = self.rng.standard_normal(len(X))
        return (np.where(len(X) < 10, np.nan, mean), mean**2) if return_std else mean


def test_a_silent_nan_and_a_changing_answer_are_found_out(small, monkeypatch) -> None:
    monkeypatch.setattr(self_test, "GPRegressor", Silent)
    odd, orders = self_test._odd_data(small), self_test._orders(small)
    assert len(odd.broken) == odd.times and "predicts nan" in odd.words
    assert len(orders.broken) == orders.times and "two deterministic fits" in orders.words

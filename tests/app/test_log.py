"""Logs: each line names the version and the run it is about; no value of the data is in one."""

import hashlib
import json
import logging
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import app.workflow.steps.fit as fitting
from app import log
from app.cli import main
from app.errors import InvalidInput
from geogp import __version__

HEAD = re.compile(rf"geogp {re.escape(__version__)}(?: \[([^]]*)\])?: .")
#: Digits that stand in every value, longitude and latitude of the table, and nowhere else.
TELLTALE = ("77123", "155.8173", "19.7319")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of measurements that would be known again, and what each command said of it with --verbose."""
    folder = tmp_path_factory.mktemp("logs")
    rng = np.random.default_rng(0)
    rows = [
        f"-155.8173{rng.integers(10**5):05d},19.7319{rng.integers(10**5):05d},77123.{rng.integers(10**4):04d},{n}"
        for n in rng.integers(1, 40, 120)
    ]
    (folder / "points.csv").write_text("\n".join(["lon,lat,v,n", *rows]) + "\n")
    return folder


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, list[str]]:
    """Lines on stderr of each command."""
    table, run = str(folder / "table.parquet"), str(folder / "run")
    tiny = ["--method", "vbll", "--rank", "8", "--hidden", "8", "--epochs", "2", "--split", "random"]
    columns = ["--columns", "x=lon,y=lat,value=v,count=n"]
    commands = {
        "ingest": ["--source", "csv", str(folder / "points.csv"), *columns, "-o", table],
        "fit": [table, "--target", "value", *tiny, "-o", run],
        "evaluate": [run],
        "at": [run, str(folder / "points.csv"), "-o", str(folder / "at.csv")],
    }
    out = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("geogp.engines.asked._TOLD", set())  # as in a process of its own
        for name, arguments in commands.items():
            lines: list[str] = []
            patch.setattr("sys.stderr", Written(lines))
            assert main([name, *arguments, "--verbose"]) == 0
            out[name] = [line for line in "".join(lines).split("\n") if line]
    return out


class Written:
    """A stream that keeps what is written to it."""

    encoding = "utf-8"

    def __init__(self, kept: list[str]):
        self.kept = kept

    def write(self, text: str) -> None:
        self.kept.append(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def test_each_line_names_the_version(said: dict[str, list[str]]) -> None:
    assert all(said.values())
    assert not [line for lines in said.values() for line in lines if not HEAD.match(line)]


def test_lines_name_the_fit_and_then_the_run(said: dict[str, list[str]], folder: Path) -> None:
    facts = json.loads((folder / "run/run.json").read_text())
    run = "run " + hashlib.sha256((folder / "run/weights.safetensors").read_bytes()).hexdigest()[:8]
    assert f"[fit {facts['fit']}]: warning: method" in "\n".join(said["fit"])
    assert f"[fit {facts['fit']}, {run}]" in said["fit"][-1]
    assert {
        match[1] for name in ("evaluate", "at") for line in said[name] if (match := HEAD.match(line))
    } == {run}


def test_no_line_holds_a_value_of_the_data(said: dict[str, list[str]]) -> None:
    assert not [line for lines in said.values() for line in lines if any(t in line for t in TELLTALE)]


def test_the_same_fit_has_the_same_name_and_another_another() -> None:
    asked = ("0" * 64, "download", "geogp", "none", None, "tests", None, 0, {"steps": 3}, False)
    assert fitting._name(*asked) == fitting._name(*asked)
    assert fitting._name(*asked) != fitting._name(*asked[:-1], True)


def test_without_verbose_only_warnings_are_marked(
    cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def warn(*_: object, **__: object) -> None:
        logging.getLogger("geogp.linalg").info("a detail")
        logging.getLogger("geogp.linalg").warning("raised to %g", 1e-6)
        warnings.warn("of another package", RuntimeWarning, stacklevel=1)
        raise InvalidInput("no such thing.")

    monkeypatch.setattr(fitting, "read_rows", warn)
    err = cli("fit", __file__, "-o", tmp_path / "run").err.splitlines()
    assert err == [f"geogp {__version__}: geogp.linalg: raised to 1e-06", "geogp: no such thing."]


def test_the_traceback_of_a_defect_ends_with_version_and_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        logging.getLogger("geogp.run").info("opened", extra={log.WORK: "run 1a2b3c4d"})
        raise KeyError("x")

    monkeypatch.setattr(fitting, "read_rows", broken)
    with pytest.raises(KeyError) as caught:
        main(["fit", __file__, "-o", str(tmp_path / "run")])
    assert caught.value.__notes__ == [f"geogp {__version__} [run 1a2b3c4d]"]


def test_handlers_of_others_give_way_and_logs_leave_nothing_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = logging.getLogger("someserver.error")
    theirs.propagate, before = False, list(logging.getLogger().handlers)
    theirs.addHandler(logging.StreamHandler())
    with log.logs(verbose=False), log.logs(verbose=False):  # a second time inside changes nothing
        log.take_over("someserver")
        log.works_on("run 1a2b3c4d")
        theirs.error("two\nlines")
    assert capsys.readouterr().err.splitlines() == [
        f"geogp {__version__} [run 1a2b3c4d]: {words}" for words in ("someserver.error: two", "lines")
    ]
    assert logging.getLogger().handlers == before


def test_a_thread_of_a_server_names_its_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    log.begin_anew()
    for number in range(6):
        log.works_on(f"run {number}")
    assert log.mark().endswith("[run 2, run 3, run 4, run 5]")  # the latest
    log.works_here_on("run 1")
    assert log.mark().endswith("[run 1]")
    log.begin_anew()
    assert log.mark() == f"geogp {__version__}"

"""The faults that are really played: counts are small in the suite, whole with `make test-faults`."""

import os
from pathlib import Path

import numpy as np
import pytest

import geogp
from geogp.run import save
from tests.app.conftest import cli, command, run, shell, table, world, world_folder
from tests.faults.table import keep, lines, played

__all__ = ["cli", "command", "run", "shell", "table", "world", "world_folder"]

#: Of each format, with `make test-faults`.
MUTATIONS = int(os.environ.get("GEOGP_MUTATIONS") or 10_000)
#: Set by `make test-faults`.
FULL = bool(os.environ.get("GEOGP_FAULTS_FULL"))


@pytest.fixture
def count(record_property):
    """How often a fault is played: a few times in the suite, all of them with `make test-faults`."""

    def chosen(few, many):
        times = many if FULL else few
        record_property("times", times if isinstance(times, int) else len(times))
        return times

    return chosen


def pytest_terminal_summary(terminalreporter):
    """After `make test-faults`: what was played, how often, and what came of it."""
    if FULL:
        done = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, [])]
        for line in lines(keep(played(report for report in done if report.when == "call"))):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a few kilobytes, made in a moment; not for changing."""
    import torch

    rng = np.random.default_rng(0)
    X, counts = rng.uniform(0, 10_000, (80, 2)), rng.integers(1, 50, 80).astype(float)
    y = np.sin(X[:, 0] / 2000) + 0.2 * rng.standard_normal(80)
    model = geogp.GPRegressor("dbk-rbf", rank=8, hidden=8, epochs=1, batch_size=64).fit(X, y, counts)
    path = tmp_path_factory.mktemp("small") / "run"
    extra = {"statistics/2023Q4": {"a": torch.zeros(2)}, "support": {"positions_m": torch.from_numpy(X)}}
    data = {"crs": "EPSG:32604", "quarters": ["2023Q4"], "sha256": "0" * 64}
    save(path, model, {"target": "value", "method": "dbk-rbf", "data": data}, extra=extra)
    return path

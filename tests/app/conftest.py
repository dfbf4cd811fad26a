"""One small made-up world, ingested once; one small run, fitted once; and the command line at hand."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.cli import main
from data_pipelines.synthetic import World, write_world

#: A model that fits the small world in about a second.
TINY = ("--rank", "32", "--hidden", "32", "--epochs", "20")


@dataclass(frozen=True)
class Result:
    """What a command line came to."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def world_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder, size="small")
    return folder


@pytest.fixture(scope="session")
def world(world_folder: Path) -> World:
    return write_world(world_folder, size="small")


@pytest.fixture(scope="session")
def table(world_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world's fixed tiles, ingested by the command."""
    path = tmp_path_factory.mktemp("table") / "obs.parquet"
    assert main(["ingest", "--source", "synthetic", "--root", str(world_folder), "-o", str(path), "-q"]) == 0
    return path


@pytest.fixture(scope="session")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a random split."""
    path = tmp_path_factory.mktemp("runs") / "run"
    line = ["fit", str(table), "--method", "dbk-silu", "--split", "random", *TINY, "-o", str(path), "-q"]
    assert main(line) == 0
    return path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run a command line in this process."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def command() -> list[str]:
    """`geogp` as a process of its own."""
    return [sys.executable, "-P", "-m", "app"]


@pytest.fixture(scope="session")
def shell(command: list[str]) -> Callable[..., Result]:
    """Run a command line as a process."""

    def call(*arguments: object, timeout: float = 120, **environment: str) -> Result:
        done = subprocess.run(
            [*command, *map(str, arguments)],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            timeout=timeout,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return call

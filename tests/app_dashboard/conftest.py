"""A tiny run: 700 tiles of a made-up island in two quarters, a fast model, a polygon; fitted once."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyproj import CRS, Transformer

from app.caches import DiskCache
from app.cli import main
from app.dashboard import holding
from app.dashboard.atlas import Atlas
from data_pipelines.synthetic import write_world
from geogp import GPRegressor, load
from geogp import run as runs
from geogp.data import Moments
from geogp.predictive import Peak, Predictive

LON, LAT = -143.0, 34.0
LAEA = CRS.from_proj4(f"+proj=laea +lat_0={LAT} +lon_0={LON} +datum=WGS84 +units=m").to_wkt()
#: What is said of the level and the shares of areas of speeds, wherever they are shown.
LEVEL = (
    "the level is what many tests at each place would average to; shares are of the ground, not of tests or of measured "
    "averages, which scatter around the level"
)
HOSTILE = "<b>H*I</b> $x$ :material/home: `${1}` [x](http://evil.example)"


def polygon() -> dict[str, Any]:
    """An island of about 40 x 30 km with a bay."""
    angle = np.linspace(0, 2 * np.pi, 60)[:-1]
    radius = 0.2 * (1 + 0.25 * np.cos(3 * angle))
    ring = [[LON + float(r * np.cos(a)), LAT + 0.8 * float(r * np.sin(a))] for a, r in zip(angle, radius)]
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


def facts(**data: Any) -> dict[str, Any]:
    """What `geogp fit` and `geogp evaluate` write into a run, as far as the dashboard reads it."""
    return {
        "target": "download",
        "method": "dbk-rbf",
        "split": "random",
        "data": {
            "crs": LAEA,
            "quarters": ["2023Q3", "2023Q4"],
            "last_quarter": "2023Q4",
            "boundary": polygon(),
            "sha256": 64 * "0",
            "path": "none.parquet",
            "region": HOSTILE,
            "type": "fixed",
            **data,
        },
        "scores": {
            "n_test": 1357,
            "split": "random",
            "scores": {"coverage50": 0.512, "coverage80": 0.807, "coverage95": 0.941},
            "strata": {"urban": {"n": 900, "coverage95": 0.951}, "rural": {"n": 0}},
        },
    }


def fit(time: bool = True, counts: bool = True, n: int = 700) -> tuple[GPRegressor, np.ndarray]:
    """(model, places in metres) of a town on a plain."""
    rng = np.random.default_rng(0)
    xy = rng.uniform(-18_000, 18_000, (n, 2))
    years = rng.choice([2023.625, 2023.875], n)
    tests = rng.integers(1, 30, n).astype(float)
    town = np.exp(-((xy[:, 0] - 6000) ** 2 + xy[:, 1] ** 2) / 5000**2)
    y = 4.5 + 0.8 * town + 0.1 * (years - 2023.6) + rng.normal(0, 0.15 + 0.3 / np.sqrt(tests))
    X = np.column_stack([xy, years]) if time else xy
    model = GPRegressor(
        method="dbk-rbf",
        spatial=(0, 1),
        time=2 if time else None,
        steps=60,
        rank=32,
        hidden=16,
        random_state=0,
    )
    return model.fit(X, y, tests if counts else None), xy


def save(path: Path, model: GPRegressor, xy: np.ndarray, **data: Any) -> Path:
    runs.save(path, model, facts(**data), extra={"support": {"positions_m": torch.from_numpy(xy)}})
    return path


@pytest.fixture(scope="session")
def fitted() -> tuple[GPRegressor, np.ndarray]:
    return fit()


@pytest.fixture(scope="session")
def run_path(fitted: tuple[GPRegressor, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("runs") / "island", *fitted)


@pytest.fixture(scope="session")
def atlas(run_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return Atlas(load(run_path), DiskCache(tmp_path_factory.mktemp("atlas")))


@pytest.fixture
def shown(run_path: Path) -> Iterator[holding.Holding]:
    """The tiny run as the one this process shows."""
    yield holding.hold(run_path)
    holding.let_go()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(cache_folder: Path, *arguments: str) -> Iterator[str]:
    """A dashboard in a process of its own: its address."""
    port = free_port()
    command = [sys.executable, "-m", "app", "app", *arguments, "--port", str(port), "--no-open"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GEOGP_CACHE": str(cache_folder)}
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        address = f"http://127.0.0.1:{port}"
        for _ in range(600):
            if process.poll() is not None:
                raise RuntimeError(f"the dashboard ended: {process.communicate()[1]}")
            try:
                with urllib.request.urlopen(address + "/geogp/progress", timeout=5) as answer:
                    json.load(answer)
                break
            except OSError:
                time.sleep(0.25)
        else:
            process.kill()
            raise RuntimeError("the dashboard did not answer within some minutes")
        try:
            yield address
        finally:  # a test that fails does not wait for it
            process.terminate()
            process.communicate(timeout=20)


@pytest.fixture(scope="session")
def server(run_path: Path, cache_folder: Path) -> Iterator[str]:
    """The dashboard of the tiny run."""
    with serving(cache_folder, str(run_path)) as address:
        yield address


TINY = ("--method", "dbk-silu", "--split", "random", "--rank", "32", "--hidden", "32", "--epochs", "20")


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Download and upload of one small world, scored."""
    folder = tmp_path_factory.mktemp("two")
    write_world(folder / "world", size="small")
    table = folder / "obs.parquet"
    assert (
        main(["ingest", "--source", "synthetic", "--root", str(folder / "world"), "-o", str(table), "-q"])
        == 0
    )
    for target in ("download", "upload"):
        assert main(["fit", str(table), "--target", target, *TINY, "-o", str(folder / target), "-q"]) == 0
        assert main(["evaluate", str(folder / target), "-q"]) == 0
    return [folder / "download", folder / "upload"]


def peak_of(table: Mapping[str, Any], mark: str = "") -> Peak | None:
    """The second peak that planes tell of."""
    share, offset, scale = (table.get(f"peak_{name}{mark}") for name in ("share", "offset", "scale"))
    return None if share is None else Peak(share, table[f"location{mark}"] + offset, scale)


@pytest.fixture
def peaked(run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Atlas:
    """The tiny run, as if new measurements had a second peak in its town and nowhere else."""
    found = Atlas(load(run_path), DiskCache(tmp_path))
    model = found.run.model
    plain = model.distribution

    def distribution(moments: Moments, *, latent: bool = False) -> Predictive:
        p = plain(moments, latent=latent)
        share = np.clip(2.0 * (p.location - 4.6), 0.0, 0.7)
        peak = Peak(share, np.where(share > 0, 5.8, -1e9), np.where(share > 1e-3, 2.5, 20.0) * p.scale)
        return p if latent else replace(p, peak=peak)

    monkeypatch.setattr(model, "distribution", distribution)
    return found


LATITUDE, LONGITUDE = Transformer.from_crs(LAEA, "EPSG:4326", always_xy=True).transform(6000, 0)[::-1]

import json
import time
from pathlib import Path

import pytest

from app.dashboard import pace
from app.dashboard.atlas import Atlas
from app.dashboard.caches import DiskCache
from app.dashboard.canvas import canvas_of
from geogp import load


@pytest.mark.parametrize(
    ("seconds", "name"), [(2e-6, "fast"), (6e-5, "medium"), (5e-4, "slow"), (1.0, "slow")]
)
def test_a_slower_model_gets_a_coarser_map(
    run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, name: str
) -> None:
    monkeypatch.setattr(pace, "seconds_a_place", lambda run: seconds)
    assert pace.pace_of(load(run_path), DiskCache(tmp_path), "run") == pace.PACES[name][1]


def test_the_pace_is_kept_so_that_computed_maps_stay_valid(
    run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Atlas(load(run_path), DiskCache(tmp_path))
    monkeypatch.setattr(pace, "seconds_a_place", lambda run: 1.0)
    again = Atlas(load(run_path), DiskCache(tmp_path))
    assert (again.pace, again.id) == (first.pace, first.id)
    (note,) = tmp_path.glob("*/pace.json")
    note.write_text(json.dumps({"pace": "warp"}))
    assert Atlas(load(run_path), DiskCache(tmp_path)).pace == pace.PACES["slow"][1]


def test_the_speed_is_that_of_the_model(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = load(run_path)
    assert 0 < pace.seconds_a_place(run) < 1e-3
    original = run.model.engine_.moments

    def slow(X, n=None):
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        return original(X, n)

    monkeypatch.setattr(run.model.engine_, "moments", slow)
    assert pace.seconds_a_place(run) == pytest.approx(0.05 / pace.PROBE, rel=0.5)


def test_slow_and_fast_maps_show_the_same_region(run_path: Path) -> None:
    fine, coarse = (canvas_of(load(run_path), inside=n) for n in (20_000, 500))
    for a, b in zip(fine.bounds, coarse.bounds):
        assert a == pytest.approx(b, abs=0.02)

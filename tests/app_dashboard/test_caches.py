"""What is kept: worked out once, bounded, and never taken for another's."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from app.caches import DiskCache, MemoryCache
from geogp import GPRegressor
from geogp.blocks import MomentsCache


def test_whoever_asks_at_the_same_time_waits_for_one_answer() -> None:
    kept, asked = MemoryCache(1000), []

    def slowly() -> bytes:
        asked.append(1)
        time.sleep(0.05)
        return b"map"

    threads = [threading.Thread(target=lambda: kept.get("a", slowly)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 1


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    kept, asked = MemoryCache(3 * 400), []

    def plane(k: int) -> np.ndarray:
        return kept.get(k, lambda: (asked.append(k), np.full(100, k, np.float32))[1])

    for k in (0, 1, 2, 0, 3, 0, 1):
        assert (plane(k) == k).all()
    assert asked == [0, 1, 2, 3, 1]  # 1 had to go for 3, not 0, which was asked for in between


def test_what_is_larger_than_all_of_it_is_answered_and_not_kept() -> None:
    kept = MemoryCache(10)
    assert [kept.get("a", lambda: bytes(11)), kept.get("a", lambda: b"new")] == [bytes(11), b"new"]


def test_a_failure_is_not_kept() -> None:
    kept = MemoryCache(10)
    with pytest.raises(ZeroDivisionError):
        kept.get("a", lambda: bytes(1 // 0))
    assert kept.get("a", lambda: b"well") == b"well"


def test_the_disk_is_bounded(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, most_bytes=10_000)
    for k in range(8):
        disk.write("run", f"{k}.pack", bytes(2500))
    kept = sorted(p.name for p in tmp_path.glob("*/*"))
    assert len(kept) == 3 and "7.pack" in kept


@pytest.mark.parametrize("junk", [b"", b"abc", b"planes" + bytes(4), bytes(9)[:-1] + b"x"])
def test_what_is_not_whole_is_not_read(tmp_path: Path, junk: bytes) -> None:
    disk = DiskCache(tmp_path)
    disk.write("run", "a.pack", b"planes")
    assert disk.read("run", "a.pack") == b"planes"
    (tmp_path / "run" / "a.pack").write_bytes(junk)
    assert disk.read("run", "a.pack") is None


def test_moments_are_computed_once_for_the_same_inputs(fitted: tuple[GPRegressor, object]) -> None:
    rows: list[int] = []
    cache = MomentsCache(most_bytes=10**6, fewest_rows=100)

    class Counting:
        def moments(self, X: torch.Tensor, counts: torch.Tensor | None):
            rows.append(len(X))
            return fitted[0].engine_.moments(X, counts)

    engine = Counting()
    X, ones = torch.rand(100, 3, dtype=torch.float64), torch.ones(100)
    first = cache.moments(engine, X, ones)
    assert cache.moments(engine, X.clone(), ones.clone()) is first and rows == [100]
    for other in ((X, 2 * ones), (X, None), (X + 1e-9, ones), (X[:99], ones[:99]), (X[:99], ones[:99])):
        cache.moments(engine, *other)
    assert rows == [100, 100, 100, 100, 99, 99]  # few rows are not worth keeping

"""An interrupted export goes on with the windows it has, and ends in the very same files."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from maps.raster import export
from maps.render import Elsewhere, job_of, values_of
from maps.sinks import journal as journal_module

FORMATS = ("cog", "netcdf", "geoparquet")
SETTINGS = {"max_memory": 2**24, "layers": ["median", "pi_width"]}


def written(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.suffix != ".json"}


def go(make, counter, folder: Path, region=None, formats=FORMATS, by=0, **more) -> None:
    lazy = make((350, 550), 500.0, counter=counter)
    export(lazy, folder, formats, geometry=region, decided_by={"weights": by}, **SETTINGS, **more)


@pytest.fixture
def interrupted(make, islands, Counter, tmp_path, monkeypatch):
    """A folder whose export was stopped in its fourth window, the region, and what an unbroken one writes."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    region = islands(make((350, 550), 500.0))
    go(make, whole := Counter(), tmp_path / "whole" / "maps", region)
    stopped = Counter(fail_after=3)
    folder = tmp_path / "maps"
    with pytest.raises(KeyboardInterrupt):
        go(make, stopped, folder, region)
    assert not folder.exists() and [p.name for p in tmp_path.glob(".*")] == [".maps.windows"]
    return folder, region, written(tmp_path / "whole" / "maps"), whole.windows


def test_it_goes_on_to_the_same_bytes(interrupted, make, Counter) -> None:
    folder, region, truth, windows = interrupted
    go(make, rest := Counter(), folder, region)
    assert rest.windows == windows[3:] != []
    assert written(folder) == truth
    assert not list(folder.parent.glob(".*"))


def test_other_formats_take_the_same_windows(interrupted, make, Counter) -> None:
    """They change no pixel."""
    folder, region, truth, windows = interrupted
    go(make, rest := Counter(), folder, region, formats=("netcdf",))
    assert rest.windows == windows[3:]
    assert written(folder) == {name: data for name, data in truth.items() if name.endswith(".nc")}


@pytest.mark.parametrize("other", ["weights", "region", "layers", "title"])
def test_what_decides_otherwise_starts_again(interrupted, make, Counter, other) -> None:
    folder, region, _, windows = interrupted
    lazy = make(
        (350, 550), 500.0, counter=(again := Counter()), **({"title": "other"} if other == "title" else {})
    )
    settings = SETTINGS | ({"layers": ["pi_width"], "max_memory": 2**23} if other == "layers" else {})
    by = {"weights": 1 if other == "weights" else 0}
    export(lazy, folder, FORMATS, geometry=None if other == "region" else region, decided_by=by, **settings)
    assert len(again.windows) >= len(windows)
    assert not list(folder.parent.glob(".*"))


def test_a_damaged_window_is_computed_again(interrupted, make, Counter) -> None:
    folder, region, truth, windows = interrupted
    kept = sorted((folder.parent / ".maps.windows").glob("*.bin"))
    assert len(kept) == 3
    data = bytearray(kept[0].read_bytes())
    data[len(data) // 2] ^= 1
    kept[0].write_bytes(data)
    kept[1].write_bytes(kept[1].read_bytes()[:-4])
    go(make, rest := Counter(), folder, region)
    assert len(rest.windows) == len(windows) - 1 and written(folder) == truth


def test_what_fails_or_is_small_keeps_nothing(make, islands, Counter, tmp_path, monkeypatch) -> None:
    def failing(*_, **__):
        raise RuntimeError("broken")

    with monkeypatch.context() as m:
        m.setattr("maps.sinks.netcdf.NetcdfSink.finish", failing)
        with pytest.raises(RuntimeError, match="broken"):
            go(make, Counter(), tmp_path / "maps")
    assert not list(tmp_path.iterdir())
    small = make((40, 40), 500.0, counter=Counter(fail_after=0))
    with pytest.raises(KeyboardInterrupt):
        export(small, tmp_path / "maps", ["netcdf"], decided_by={})
    assert not list(tmp_path.iterdir())


def test_a_full_disk_ends_the_journal_and_not_the_export(
    make, Counter, tmp_path, monkeypatch, caplog
) -> None:
    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    go(make, Counter(), tmp_path / "maps", formats=("netcdf",))
    assert (tmp_path / "maps" / "prediction.nc").is_file() and "no room to keep" in caplog.text
    assert caplog.text.count("no room") == 1 and not list(tmp_path.glob(".*"))


def test_a_second_process_at_the_same_export_has_no_journal(tmp_path) -> None:
    with journal_module.journal(tmp_path / "maps", {}, 9) as mine:
        assert mine is not None
        with journal_module.journal(tmp_path / "maps", {}, 9) as other:
            assert other is None
        assert mine.folder.is_dir()
    assert not list(tmp_path.iterdir())


def test_planes_come_back_bit_for_bit(tmp_path, make) -> None:
    from maps.grid import Window
    from maps.render import job_of

    job = job_of(make((8, 9), 500.0), ["median", "pi_width"])
    rng, window = np.random.default_rng(0), Window(0, 8, 0, 9)
    planes = {band.name: rng.normal(size=(8, 9)).astype("f4") for band in job.bands}
    planes["median"][2] = np.nan
    kept = journal_module.Journal(tmp_path)
    assert kept.known(window, job) is None
    kept.keep(window, planes, job)
    back = kept.known(window, job)
    assert all(np.array_equal(back[name], planes[name], equal_nan=True) for name in planes)
    assert kept.known(Window(0, 8, 1, 10), job) is None
    shutil.rmtree(tmp_path)


# -- windows that somebody else computes ------------------------------------------------------------------


@pytest.fixture
def others(make):
    """Three threads that compute windows of the map of `go`, up to five ahead; and how many were begun."""
    job = job_of(make((350, 550), 500.0), SETTINGS["layers"], SETTINGS["max_memory"])
    begun = []
    with ThreadPoolExecutor(3) as pool:

        def begin(window):
            begun.append(window)
            return pool.submit(values_of, job.ds[list(job.variables)], window, job)

        yield Elsewhere(begin, lambda: 5), begun


def test_windows_of_others_end_in_the_same_files(
    make, islands, Counter, others, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    region = islands(make((350, 550), 500.0))
    go(make, here := Counter(), tmp_path / "here" / "maps", region)
    go(make, none := Counter(), tmp_path / "there" / "maps", region, elsewhere=others[0])
    assert written(tmp_path / "there" / "maps") == written(tmp_path / "here" / "maps")
    assert not none.windows and len(others[1]) == len(here.windows)


def test_a_stop_keeps_what_others_have_computed(make, islands, Counter, others, tmp_path) -> None:
    """Those on their way, too, and nothing is begun again that is there."""
    region, (elsewhere, begun) = islands(make((350, 550), 500.0)), others

    def stop(done, total):
        while not all(future.done() for future in kept):
            time.sleep(0.01)
        raise KeyboardInterrupt

    kept = []
    watched = Elsewhere(lambda window: kept.append(elsewhere.begin(window)) or kept[-1], elsewhere.ahead)
    with pytest.raises(KeyboardInterrupt):
        go(make, Counter(), tmp_path / "maps", region, elsewhere=watched, progress=stop)
    assert len(begun) > 3 and len(list(tmp_path.glob(".maps.windows/*.bin"))) == len(begun)
    go(make, rest := Counter(), tmp_path / "maps", region, elsewhere=elsewhere)
    assert not rest.windows and len(set(begun)) == len(begun)


def test_what_is_partial_keeps_the_journal(make, Counter, tmp_path) -> None:
    class Lost(RuntimeError):
        exit_code = 4

    def lose(window):
        raise Lost

    def fail(window):
        raise RuntimeError

    for error, begin, left in ((Lost, lose, [".maps.windows"]), (RuntimeError, fail, [])):
        with pytest.raises(error):
            go(make, Counter(), tmp_path / "maps", elsewhere=Elsewhere(begin, lambda: 2))
        assert [p.name for p in tmp_path.glob(".*")] == left

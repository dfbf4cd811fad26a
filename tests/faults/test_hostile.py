"""Mutations of every format: a right answer or our error; no traceback, no signal, no hang."""

import re
import zlib
from pathlib import Path

import pytest

from tests.faults import fuzzing
from tests.faults.conftest import MUTATIONS

FORMATS = ("parquet", "geoparquet", "csv", "geojson", "shapefile zip", "geotiff", "toml", "run folder")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds")
    fuzzing.write_seeds(folder)
    return folder


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.filterwarnings("ignore")
def test_a_mutated_file_is_refused_or_read(seeds, name, count) -> None:
    make, read = fuzzing.formats(seeds)[name]
    found = fuzzing.play(make, read, count(25, MUTATIONS))
    assert not found.bad, str(found)
    assert found.refused > 0


@pytest.mark.filterwarnings("ignore")
def test_the_unchanged_files_are_read(seeds, monkeypatch) -> None:
    monkeypatch.setattr(fuzzing, "mutated", lambda data, rng: data)
    monkeypatch.setattr(fuzzing, "mutated_json", lambda value, rng: value)
    for name, (make, read) in fuzzing.formats(seeds).items():
        found = fuzzing.play(make, read, 1)
        assert (found.read, found.refused) == (1, 0), f"{name}: {found}"


def test_the_fuzzer_sees_what_is_wrong(tmp_path) -> None:
    def read(i: int) -> None:
        if i == 1:
            raise KeyError("a bug")
        if i == 2:
            import os

            os.abort()

    found = fuzzing.play(lambda folder, i: i, read, 5)
    assert found.read == 3 and len(found.bad) == 2 and "SIGABRT" in str(found), str(found)


def test_the_fuzzer_goes_on_where_it_was_stopped(tmp_path, monkeypatch) -> None:
    """A stop between two blocks: none is played twice, none is left out, and what was found before still counts."""
    monkeypatch.setattr(fuzzing, "BLOCK", 3)
    kept, log = tmp_path / "kept.json", tmp_path / "log"

    def read(i: int) -> None:
        with log.open("a") as file:
            file.write(f"{i}\n")
        if i in (2, 6):
            raise KeyError("a bug")

    first = fuzzing.play_on(kept, "odd", lambda folder, i: i, read, 5)
    again = fuzzing.play_on(kept, "odd", lambda folder, i: i, read, 8)
    assert (first["played"], again["played"], again["read"], sum(again["bad"].values())) == (5, 8, 6, 2)
    assert log.read_text().split() == [str(i) for i in range(8)]


def test_a_footer_that_ends_the_process_is_refused(tmp_path) -> None:
    """Mutation 1,907 of a GeoParquet: Arrow 26 aborts where it has a size statistic of another length."""
    import shutil

    from data_pipelines.intact import Damaged, check_intact

    path = tmp_path / "points.parquet"
    shutil.copy(Path(__file__).parents[1] / "data" / "footer-that-aborts.bin", path)
    with pytest.raises(Damaged, match=r"points\.parquet is damaged \(its footer"):
        check_intact(path)


def test_a_footer_that_never_ends_is_refused(monkeypatch) -> None:
    import time

    from data_pipelines import intact

    monkeypatch.setattr(intact, "MOST_SECONDS", 1)
    started = time.perf_counter()
    assert not intact._survives(lambda: time.sleep(60)) and time.perf_counter() - started < 10
    assert intact._survives(lambda: None)


def test_a_flipped_bit_in_what_has_no_checksum_is_refused(seeds, tmp_path) -> None:
    """A Parquet footer: the name of a column of times, without which rows lie in the middle of their quarter, and a digit of the
    metadata."""
    from app.workflow.rows import read_rows
    from data_pipelines.errors import InvalidInput

    data = (seeds / "obs.parquet").read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    names = [m.start() for m in re.finditer(b"time_years", data) if m.start() >= footer]
    digits = [m.start() + 5 for m in re.finditer(rb'"crs": "', data) if m.start() >= footer]
    refused = 0
    for at in [*(n + k for n in names for k in (0, 5, 9)), *digits]:
        changed = bytearray(data)
        changed[at] ^= 1
        (tmp_path / "obs.parquet").write_bytes(changed)
        try:
            again = read_rows(tmp_path / "obs.parquet", "value")
        except InvalidInput:
            refused += 1
        else:  # names stand twice, and one of the two may be nobody's
            assert (again.X == read_rows(seeds / "obs.parquet", "value").X).all(), at
    assert refused >= 3


def test_a_table_may_be_cut_and_given_columns(seeds, tmp_path) -> None:
    """What people do with Arrow keeps the metadata, and is no damage."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from app.workflow.rows import read_rows

    table = pq.read_table(seeds / "obs.parquet").slice(0, 20).drop_columns(["devices", "geometry"])
    table = table.append_column("elevation_m", pa.array(range(20)))
    pq.write_table(table, tmp_path / "cut.parquet")
    assert len(read_rows(tmp_path / "cut.parquet", "value").X) == 20


def test_a_flipped_bit_is_never_data(seeds, tmp_path, count) -> None:
    """A table of ours and a zip carry checksums: each single flipped bit is refused, or changes no value."""
    import numpy as np

    from app.workflow.polygons import read_polygons
    from app.workflow.rows import read_rows
    from data_pipelines.errors import InvalidInput
    from geogp import InvalidInput as Refused

    whole = read_rows(seeds / "obs.parquet", "value")
    shapes = read_polygons(seeds / "areas.zip")
    for name in ("obs.parquet", "areas.zip"):
        data = (seeds / name).read_bytes()
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        for at in rng.integers(0, len(data), count(40, 4_000)):
            changed = bytearray(data)
            changed[at] ^= 1 << int(rng.integers(0, 8))
            (tmp_path / name).write_bytes(changed)
            try:
                if name == "areas.zip":
                    assert read_polygons(tmp_path / name).equals(shapes), at
                else:
                    again = read_rows(tmp_path / name, "value")
                    np.testing.assert_array_equal(again.t, whole.t, err_msg=str(at))
                    np.testing.assert_array_equal(again.X, whole.X, err_msg=str(at))
            except (InvalidInput, Refused):
                pass

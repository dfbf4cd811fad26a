"""Splits: shares, blocks that stay whole, time that runs forward, and files that must fit."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_pipelines.errors import DataWarning, InvalidInput
from data_pipelines.splits import SPLITS, folds_of, make_split


def shares(parts) -> dict[str, float]:
    names, counts = np.unique(parts, return_counts=True)
    return dict(zip(names.tolist(), (counts / len(parts)).tolist(), strict=True))


@pytest.mark.parametrize("spec", SPLITS)
def test_every_split_is_one_label_a_row_and_repeatable(table, spec):
    parts = make_split(table, spec, 3)
    assert len(parts) == table.num_rows and set(parts) <= {"train", "val", "test"}
    assert (parts == make_split(table, spec, 3)).all()


def test_each_row_is_tested_in_one_fold(table):
    splits = folds_of("kfold3")
    tested = np.array([make_split(table, spec, 1) == "test" for spec in splits])
    assert (tested.sum(0) == 1).all() and np.ptp(tested.sum(1)) <= 1
    assert set(make_split(table, "fold1of3", 1)) == {"train", "test"}
    assert len(folds_of("kfold")) == 5 and folds_of("random") == ("random",)
    for spec, match in (
        ("kfold", "fits once a fold"),
        ("kfold1", "2 to 100 folds"),
        ("fold4of3", "counted from 1"),
        ("fold0of3", "counted from 1"),
    ):
        with pytest.raises(InvalidInput, match=match):
            make_split(table, spec)
    with pytest.raises(InvalidInput, match="100 folds need at least 200 rows"):
        make_split(table.slice(0, 150), "fold1of100")


def test_none_trains_on_all(table):
    assert set(make_split(table, "none")) == {"train"}


def test_random_is_80_10_10(table):
    found = shares(make_split(table, "random", 0))
    assert found == pytest.approx({"train": 0.8, "val": 0.1, "test": 0.1}, abs=1 / table.num_rows)
    assert (make_split(table, "random", 0) != make_split(table, "random", 1)).any()


def points(n: int, **more) -> pa.Table:
    """Rows of a table of points, all of which differ."""
    rng = np.random.default_rng(1)
    columns = {name: rng.uniform(0, 1, n) for name in ("lon", "lat", "value", "time_years")}
    return pa.table({**columns, "tests": pa.nulls(n, pa.int64()), **more})


@pytest.mark.parametrize("spec", ["random", "fold2of5"])
def test_exact_copies_share_a_part(spec):
    """A row held out whose copy trains is no test; tables without copies keep their parts."""
    once = points(300)
    twice = pa.concat_tables([once, once.slice(0, 100)])
    bare = twice.drop_columns(["value"])  # by which nobody tells copies: as rows were dealt before
    parts, before = make_split(twice, spec, 3), make_split(bare, spec, 3)
    assert (before[:100] != before[300:]).any() and (parts[:300] == before[:300]).all()
    assert (parts[300:] == parts[:100]).all() and set(parts) == set(before)
    assert (make_split(once, spec, 3) == make_split(once.drop_columns(["value"]), spec, 3)).all()


def test_repeated_measurements_that_are_alike_are_dealt_one_by_one():
    """Of a place measured forty times with whole values, the parts must not be told by the value."""
    n = 40
    table = points(n, value=pa.array(np.arange(n) % 3 * 1.0))
    for name in ("lon", "lat", "time_years"):
        table = table.set_column(table.column_names.index(name), name, pa.array(np.ones(n)))
    assert (make_split(table, "random", 0) == make_split(table.select(["lon"]), "random", 0)).all()


def test_a_table_of_one_row_over_and_over_still_has_parts():
    one = points(1)
    assert set(make_split(pa.concat_tables([one] * 30), "random", 0)) == {"train", "val", "test"}


def test_blocks_stay_whole_and_are_dealt_70_15_15(table):
    parts = make_split(table, "block", 0)
    cells = np.floor(table.column("lon").to_numpy() / 0.05) * 10_000 + np.floor(
        table.column("lat").to_numpy() / 0.05
    )
    unique, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
    assert (parts == parts[first][inverse]).all()
    found = shares(parts[first])
    assert found == pytest.approx({"train": 0.7, "val": 0.15, "test": 0.15}, abs=1 / len(unique))
    assert (parts != make_split(table, "block", 1)).any()


@pytest.mark.parametrize(("count", "each"), [(3, 1), (7, 1), (8, 2), (20, 2)])
def test_forward_tests_on_the_last_quarters(count, each):
    names = [f"{2019 + i // 4}Q{i % 4 + 1}" for i in range(count)]
    shuffled = np.random.default_rng(0).permutation(np.repeat(names, 5))
    parts = make_split(pa.table({"quarter": shuffled}), "forward")
    assert set(shuffled[parts == "test"]) == set(names[-each:])
    assert set(shuffled[parts == "val"]) == set(names[-2 * each : -each])


@pytest.mark.parametrize(
    ("spec", "data", "match"),
    [
        ("forward", {"quarter": ["2023Q1", "2023Q2"]}, "at least 3 quarters"),
        ("forward", {"quarter": ["2023Q1", "2023Q2", "2023Q3", None]}, "1 rows without one"),
        ("random", {"lon": [0.0] * 9}, "at least 10 rows; the table has 9"),
        ("block", {"lon": [0.01, 0.02], "lat": [0.01, 0.06]}, "at least 3 cells.* has 2"),
        (
            "spatial",
            {"lon": [0.0]},
            "Unknown split 'spatial'; it is none, random, block, forward, kfold or FILE:COLUMN",
        ),
        ("absent.parquet:random", {"lon": [0.0]}, "absent.parquet does not exist"),
    ],
)
def test_tables_that_cannot_be_split(spec, data, match):
    with pytest.raises(InvalidInput, match=match):
        make_split(pa.table(data), spec)


@pytest.fixture
def split_file(table, tmp_path):
    """All but the first row, shuffled, and one row of another table."""
    rows = np.random.default_rng(0).permutation(np.arange(1, table.num_rows))
    part = np.where(np.arange(len(rows)) % 3 == 0, "test", "train")
    keys = [*table.column("quadkey").to_numpy()[rows], "0" * 16]
    quarters = [*table.column("quarter").to_numpy()[rows], "2022Q1"]
    path = tmp_path / "with:colon" / "split.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"quadkey": keys, "quarter": quarters, "mine": [*part, "val"]}), path)
    return path, rows, part


def test_a_file_is_followed_exactly(table, split_file):
    path, rows, part = split_file
    with pytest.warns(DataWarning, match=rf"1 of {table.num_rows:,} rows of the split file"):
        parts = make_split(table, f"{path}:mine")
    assert parts[0] == "unused"
    assert (parts[rows] == part).all()


def _rewrite(path, change) -> None:
    pq.write_table(change(pq.ParquetFile(path).read()), path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: t.drop_columns(["quarter"]), "has no column 'quarter'; it has quadkey, mine"),
        (lambda t: pa.concat_tables([t, t.slice(0, 1)]), "more than once"),
        (lambda t: t.set_column(2, "mine", pa.array(["dev"] * t.num_rows)), "has the value 'dev'"),
        (lambda t: t.slice(t.num_rows - 1), "belongs to another table"),
        (lambda t: t.slice(0, 0), "belongs to another table"),
    ],
)
def test_files_that_do_not_fit(table, split_file, change, match):
    path, *_ = split_file
    _rewrite(path, change)
    with pytest.raises(InvalidInput, match=match):
        make_split(table, f"{path}:mine")


def test_a_split_file_that_is_not_parquet(table, tmp_path):
    (tmp_path / "split.csv").write_text("quadkey,quarter,mine\n")
    with pytest.raises(InvalidInput, match="is not a readable Parquet file"):
        make_split(table, f"{tmp_path / 'split.csv'}:mine")

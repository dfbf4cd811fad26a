"""The table as a fit sees it: what repeats, and texts told by a few bytes a row."""

import numpy as np
import pyarrow as pa
import pytest

from app.workflow.rows import _repeated, coded

QUARTERS = [None, "2020Q1", None, "2020Q1", "2020Q2", None, "2020Q1"]


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_repeat_where_tile_and_quarter_do(seed):
    rng = np.random.default_rng(seed)
    tiles = np.array(["02300", "02301", "1"])[rng.integers(0, 3, 40)]
    quarters = [QUARTERS[i] for i in rng.integers(0, len(QUARTERS), 40)]
    parts = [
        pa.table({"quadkey": tiles[p], "quarter": pa.array(quarters[p], pa.string())})
        for p in (slice(25), slice(25, 40))
    ]
    table = pa.concat_tables(parts)
    met, again = set(), []
    for row in zip(tiles.tolist(), quarters):
        again.append(row in met)
        met.add(row)
    assert any(again) and not all(again)
    assert _repeated(table).tolist() == again


def test_texts_are_coded_across_chunks():
    column = pa.chunked_array([pa.array(["b", None]), pa.array(["a", "b"])])
    names, codes = coded(column)
    assert names.tolist() == ["b", "a"] and codes.tolist() == [0, -1, 1, 0]

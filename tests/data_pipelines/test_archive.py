"""Sorted copies, lists and plans of published quarters: agreement with what is published, kills, and damage."""

import signal
import subprocess
import sys
from dataclasses import replace

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_pipelines import archive, zorder
from data_pipelines.errors import InvalidInput
from data_pipelines.observations import ingest, read
from data_pipelines.readers import sorting, tiles
from data_pipelines.readers.copied import KEY, copied
from data_pipelines.readers.mirror import key

BOX = (-158.5, 21.0, -157.5, 21.9)


@pytest.fixture(params=["sorted", "shuffled"])
def root(request, tmp_path, monkeypatch):
    """Two quarters of 4,000 tiles with repeats, nulls, keys that are none, and a number too large for four bytes."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(sorting, "ROW_GROUP_ROWS", 256)
    for quarter in ("2023Q3", "2023Q4"):
        keys = zorder.quadkeys(rng.integers(3600, 4700, 4000), rng.integers(28400, 29100, 4000))
        keys[rng.integers(0, 4000, 400)] = keys[7]
        keys[rng.integers(0, 4000, 20)] = "01239x"
        if request.param == "sorted":
            keys = np.sort(keys)
        columns = {name: rng.integers(1, 1000, 4000) for name in tiles.COLUMNS}
        columns["avg_d_kbps"][5] = 2**40
        columns["avg_lat_ms"] = pa.array(columns["avg_lat_ms"], mask=rng.random(4000) < 0.1)
        if quarter == "2023Q4":
            columns["avg_lat_down_ms"] = pa.array(rng.integers(1, 9, 4000), mask=rng.random(4000) < 0.1)
        path = tmp_path / "root" / key("fixed", quarter)
        path.parent.mkdir(parents=True)
        pq.write_table(
            pa.table({"quadkey": keys, "tile": pa.nulls(4000), **columns}), path, row_group_size=900
        )
    return tmp_path / "root"


def copy(root, folder, **more):
    return list(archive.sort_into(folder, root=root, quarters="2023Q3..2023Q4", **more))


@pytest.mark.parametrize("bbox", [BOX, (-170, 10, -150, 40), (-158.2, 21.3, -158.0, 21.5)])
def test_a_copy_gives_the_table_that_the_published_files_give(root, tmp_path, bbox):
    copy(root, tmp_path / "copy")
    made = []
    for name in ("root", "copy"):
        output = tmp_path / f"{name}.parquet"
        ingest(root=tmp_path / name, quarters="2023Q3..2023Q4", bbox=bbox, output=output)
        made.append(read(output))
    (a, told), (b, told_of_copy) = made
    assert a.equals(b) and a.num_rows > 0
    for source in told_of_copy["sources"]:
        assert source.pop("sorted_copy").startswith(str(tmp_path / "copy"))
    assert told == told_of_copy


def test_a_copy_is_read_where_the_place_is(root, tmp_path):
    copy(root, tmp_path / "copy")
    whole = archive.plan(root=tmp_path / "copy", quarters="2023Q4", bbox=(-170, 10, -150, 40))
    part = archive.plan(root=tmp_path / "copy", quarters="2023Q4", bbox=(-158.0, 21.3, -157.99, 21.31))
    assert part.rows == whole.rows == 4000 and part.rows_read < whole.rows_read / 2


def test_a_copy_is_geoparquet_with_a_covering(root, tmp_path):
    (_, last) = copy(root, tmp_path / "copy")
    points = geopandas.read_parquet(last.path)
    assert points.crs == 4326 and len(points) == last.rows
    some = geopandas.read_parquet(last.path, bbox=BOX)
    assert len(some) == points.cx[BOX[0] : BOX[2], BOX[1] : BOX[3]].shape[0] > 0
    assert points.quadkey.is_monotonic_increasing


def test_what_is_up_to_date_is_kept_and_what_has_changed_is_sorted_again(root, tmp_path):
    assert [one.kept for one in copy(root, tmp_path / "copy")] == [False, False]
    assert [one.kept for one in copy(root, tmp_path / "copy")] == [True, True]
    path = root / key("fixed", "2023Q4")
    pq.write_table(pq.ParquetFile(path).read().slice(0, 3000), path)
    assert [one.kept for one in copy(root, tmp_path / "copy")] == [True, False]


def test_a_file_that_is_no_copy_is_left_unless_asked(root, tmp_path):
    mine = tmp_path / "copy" / key("fixed", "2023Q3")
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"precious")
    with pytest.raises(InvalidInput, match="exists already"):
        copy(root, tmp_path / "copy")
    assert mine.read_bytes() == b"precious"
    assert [one.kept for one in copy(root, tmp_path / "copy", overwrite=True)] == [False, False]
    with pytest.raises(InvalidInput, match="is the root itself"):
        copy(root, root)
    with pytest.raises(InvalidInput, match="is sorted already"):
        copy(tmp_path / "copy", tmp_path / "again")
    with pytest.raises(InvalidInput, match="leave out region"):
        copy(root, tmp_path / "other", region="HI")


def test_a_kill_leaves_whole_copies_or_none(root, tmp_path):
    """Killed while the second quarter is written: the first is whole, the second is not there, and the next run ends it."""
    code = f"""
import os, signal
import pyarrow.parquet as pq
from data_pipelines import archive
done = archive.sort_into({str(tmp_path / "copy")!r}, root={str(root)!r}, quarters="2023Q3..2023Q4")
next(done)
pq.ParquetWriter.close = lambda self: os.kill(os.getpid(), signal.SIGKILL)
next(done)
"""
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -signal.SIGKILL
    first, second = (tmp_path / "copy" / key("fixed", quarter) for quarter in ("2023Q3", "2023Q4"))
    assert first.exists() and not second.exists() and len(list(second.parent.iterdir())) == 1
    assert [one.kept for one in copy(root, tmp_path / "copy")] == [True, False]
    assert [p.name for p in second.parent.iterdir()] == [second.name]


def test_a_damaged_copy_is_told_never_read(root, tmp_path):
    (_, last) = copy(root, tmp_path / "copy")
    data, footer = last.path.read_bytes(), pq.read_metadata(last.path)
    names = footer.schema.names
    spoilt = []
    for name in ("quadkey", "avg_d_kbps", "devices"):
        column = footer.row_group(5).column(names.index(name))
        first = column.dictionary_page_offset or column.data_page_offset
        at = first + column.total_compressed_size - 1
        spoilt.append(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    table = pq.read_table(last.path)
    schema = table.schema.metadata
    other = schema | {KEY: schema[KEY].replace(b'"undecodable": ', b'"undecodable": 1')}
    for changed in (table.replace_schema_metadata(other), table.slice(1), table.slice(0, 256)):
        pq.write_table(changed, last.path, row_group_size=256)
        spoilt.append(last.path.read_bytes())
    for content in spoilt:
        last.path.write_bytes(content)
        with pytest.raises(InvalidInput, match="damaged"):
            ingest(
                root=tmp_path / "copy", quarters="2023Q4", bbox=(-170, 10, -150, 40), output=tmp_path / "o"
            )
        assert not (tmp_path / "o").exists()


def test_a_copy_of_a_later_version_is_refused(root, tmp_path):
    (_, last) = copy(root, tmp_path / "copy")
    told = copied(pq.read_schema(last.path).metadata, "x")
    later = replace(told, version=2)
    with pytest.raises(InvalidInput, match="x is a sorted copy of version 2, newer than 1"):
        copied({KEY: later.metadata()}, "x")


# lists and plans


def test_a_list_tells_rows_copies_and_damage(root, tmp_path):
    copy(root, tmp_path / "copy")
    assert [(one.quarter, one.rows, one.sorted) for one in archive.holds(root)] == [
        ("2023Q3", 4000, False),
        ("2023Q4", 4000, False),
    ]
    assert all(one.sorted and one.rows == 4000 for one in archive.holds(tmp_path / "copy", "fixed"))
    assert archive.holds(root, "mobile") == []
    (root / key("fixed", "2023Q4")).write_bytes(b"not parquet")
    damaged = archive.holds(root)[1]
    assert damaged.rows is None and "not a readable Parquet file" in damaged.problem
    with pytest.raises(InvalidInput, match="is not a folder"):
        archive.holds(tmp_path / "absent")


def test_a_plan_promises_what_comes_true_and_writes_nothing(root, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    plan = archive.plan(root=root, quarters="2023Q2..2023Q4", bbox=(-170, 10, -150, 40))
    assert sorted(tmp_path.rglob("*")) == before
    assert plan.missing == ("2023Q2",) and plan.quarters == ("2023Q3", "2023Q4")
    with pytest.warns(UserWarning, match="No data for 2023Q2"):
        report = ingest(
            root=root, quarters="2023Q2..2023Q4", bbox=(-170, 10, -150, 40), output=tmp_path / "o"
        )
    assert plan.rows == report.metadata["rows_read"] == 8000
    assert plan.rows_expected == pytest.approx(report.rows_kept, rel=0.1)
    assert "some " in plan.summary() and "1 quarter missing" in plan.summary()


LISTED = """<?xml version="1.0"?><ListBucketResult>{further}<Contents><Key>{key}</Key><ETag>&quot;a&quot;</ETag><Size>{size}</Size>
</Contents><Contents><Key>parquet/performance/readme.txt</Key><Size>7</Size></Contents></ListBucketResult>"""


def test_a_bucket_is_listed_over_https_page_by_page(server, tmp_path):
    further = "<NextContinuationToken>a+b</NextContinuationToken>"
    prefix = "?list-type=2&prefix=parquet/performance/"
    server.files[prefix] = LISTED.format(further=further, key=key("fixed", "2023Q3"), size=10).encode()
    server.files[prefix + "&continuation-token=a+b"] = LISTED.format(
        further="", key=key("mobile", "2023Q4"), size=20
    ).encode()
    found = archive.holds(server.url)
    assert [(one.type, one.quarter, one.bytes) for one in found] == [
        ("fixed", "2023Q3", 10),
        ("mobile", "2023Q4", 20),
    ]
    plan = archive.plan(root=server.url, type="mobile", quarters="2023Q3..2023Q4", bbox=BOX)
    assert (plan.bytes, plan.missing, plan.rows) == (20, ("2023Q3",), None)
    assert not [path for _, path, _ in server.requests if path.endswith(".parquet")]  # nothing was fetched


def test_a_server_that_does_not_list_is_told(server):
    server.files["?list-type=2&prefix=parquet/performance/"] = b"<html>"
    with pytest.raises(InvalidInput, match="does not list its files; name quarters"):
        archive.holds(server.url)
    with pytest.raises(InvalidInput, match=r"does not list its files \(HTTP Error 404"):
        archive.holds(f"{server.url}/elsewhere")

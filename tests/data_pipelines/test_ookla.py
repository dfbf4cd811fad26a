"""Ookla's layout from a folder, https and S3; its oddities; and every way a file can be wrong."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_pipelines import quadkey, zorder
from data_pipelines.errors import DataWarning, InvalidInput
from data_pipelines.observations import ingest, read
from data_pipelines.readers import tiles
from data_pipelines.readers.mirror import key
from data_pipelines.sources.contract import Request

BOX = (-161.0, 18.0, -154.0, 23.0)


def publish(root: Path, quarter: str = "2023Q4", type: str = "fixed", **changes) -> Path:
    """A file of five tiles in Honolulu and one in Paris, with columns replaced or (None) removed."""
    x, y = quadkey.tile_of([-157.85, -157.86, -157.87, -157.88, -157.89, 2.35], [21.3] * 5 + [48.85])
    columns = {
        "quadkey": pa.array(zorder.quadkeys(x, y)),
        "tile": pa.nulls(6, pa.string()),
        "avg_d_kbps": pa.array([100_000, 0, 20_000_000, 300, 5, 6]),
        "avg_u_kbps": pa.array([10_000, 20_000, 30_000, 300, 5, 6]),
        "avg_lat_ms": pa.array([10, 20, 30, 70_000, 50, 60]),
        "tests": pa.array([1, 2, 3, 4, 5, 6]),
        "devices": pa.array([1, 1, 1, 1, 9, 1]),
        **changes,
    }
    path = root / key(type, quarter)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: values for name, values in columns.items() if values is not None}), path)
    return path


def run(root: Path | str, output: Path, **changes):
    return ingest(**{"root": root, "quarters": "2023Q4", "bbox": BOX, "output": output, **changes})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "obs.parquet"


def test_key_is_the_buckets():
    assert key("mobile", "2020Q3") == (
        "parquet/performance/type=mobile/year=2020/quarter=3/2020-07-01_performance_mobile_tiles.parquet"
    )


def test_odd_values_are_kept_and_counted(tmp_path, out):
    publish(tmp_path)
    report = run(tmp_path, out)
    assert report.rows_kept == 5
    assert report.metadata["dropped"] == {"undecodable_quadkey": 0, "outside": 1, "duplicate": 0}
    assert report.metadata["flagged"] == {
        "nonpositive_download": 1,
        "absurd_download": 1,
        "absurd_latency": 1,
        "more_devices_than_tests": 1,
    }
    assert 20_000 in read(out)[0].column("download_mbps").to_pylist()


def test_undecodable_keys_are_dropped_and_counted(tmp_path, out):
    keys = [
        zorder.quadkeys(*quadkey.tile_of([-157.85], [21.3]))[0],
        None,
        "012",
        "0" * 15 + "9",
        "0" * 17,
        "",
    ]
    publish(tmp_path, quadkey=pa.array(keys))
    report = run(tmp_path, out)
    assert (report.rows_kept, report.metadata["dropped"]["undecodable_quadkey"]) == (1, 5)


def test_the_repeat_with_most_tests_stays(tmp_path, out):
    keys = np.repeat(zorder.quadkeys(*quadkey.tile_of([-157.85, -157.9], [21.3, 21.3])), 3)
    publish(tmp_path, quadkey=pa.array(keys), tests=pa.array([1, 5, 2, 7, 7, None]))
    report = run(tmp_path, out)
    assert report.metadata["dropped"]["duplicate"] == 4
    assert sorted(read(out)[0].column("tests").to_pylist()) == [5, 7]
    assert sorted(read(out)[0].column("download_mbps").to_pylist()) == [0.0, 0.005]  # devices break the tie


def test_nulls_stay_null_and_the_disguised_one_too(tmp_path, out):
    publish(
        tmp_path,
        avg_lat_ms=pa.array([None, tiles.NULL_LATENCY_MS, 30, 40, 50, 60]),
        avg_lat_down_ms=pa.array([1, 2, None, 4, 5, 6], pa.int32()),
    )
    report = run(tmp_path, out)
    assert sorted(read(out)[0].column("latency_ms").to_pylist(), key=str) == [30.0, 40.0, 50.0, None, None]
    assert read(out)[0].column("latency_down_ms").null_count == 1
    assert "latency_up_ms" not in read(out)[0].column_names
    assert report.metadata["flagged"]["null_latency"] == 2


def test_loaded_latency_is_decided_by_each_footer(tmp_path, out):
    publish(tmp_path, "2019Q1", avg_lat_down_ms=pa.array([1, 2, 3, 4, 5, 6]))
    publish(tmp_path, "2023Q4")
    run(tmp_path, out, quarters="2019Q1,2023Q4")
    table = read(out)[0].to_pandas()
    assert table.latency_down_ms.notna().tolist() == [True] * 5 + [False] * 5


@pytest.mark.parametrize(
    "type", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_keys_of_any_text_type(tmp_path, out, type):
    keys = zorder.quadkeys(*quadkey.tile_of([-157.85] * 6, np.linspace(21, 22, 6)))
    publish(tmp_path, quadkey=pa.array(keys.tolist(), pa.string()).cast(type))
    assert run(tmp_path, out).rows_kept == 6


def test_row_groups_elsewhere_are_skipped_and_counted(world_root, world, out, monkeypatch):
    seen = []
    real = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, *a, row_groups, **k: (
            seen.append(row_groups) or real(self, *a, row_groups=row_groups, **k)
        ),
    )
    city = world.cities[0]
    lon, lat = (float(v) for v in world.to_degrees(city.x_km, city.y_km))
    files = sorted(world_root.glob("parquet/performance/type=fixed/year=2023/*/*"))
    monkeypatch.setattr(tiles.Opened, "groups", lambda *a: [])
    with pytest.raises(InvalidInput, match=f"None of the {pq.read_metadata(files[-1]).num_rows} rows"):
        run(world_root, out, bbox=(lon - 0.1, lat - 0.1, lon + 0.1, lat + 0.1))
    assert seen == [[]]


def test_skipping_row_groups_changes_nothing(tmp_path, monkeypatch):
    """Statistics may only skip what the polygon test would drop."""
    rng = np.random.default_rng(0)
    keys = np.sort(zorder.quadkeys(rng.integers(3600, 4700, 4000), rng.integers(28400, 29100, 4000)))
    columns = {name: rng.integers(1, 1000, len(keys)) for name in tiles.COLUMNS}
    path = tmp_path / key("fixed", "2023Q4")
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"quadkey": keys, **columns}), path, row_group_size=100)
    kept = []
    for name in ("a", "b"):
        run(tmp_path, tmp_path / name, bbox=(-158.5, 21.0, -157.5, 21.9))
        kept.append(read(tmp_path / name)[0])
        monkeypatch.setattr(tiles.Opened, "groups", lambda self, _: list(range(self.metadata.num_row_groups)))
    assert kept[0].equals(kept[1]) and 50 < kept[0].num_rows < 1000


# roots


def test_https_root_is_downloaded_and_recorded(server, tmp_path, out):
    path = publish(tmp_path)
    server.files[key("fixed", "2023Q4")] = path.read_bytes()
    server.etags[key("fixed", "2023Q4")] = '"abc"'
    with pytest.warns(DataWarning, match="2023Q3"):
        report = run(server.url, out, quarters="2023Q3..2023Q4")
    (source,) = report.metadata["sources"]
    assert source["url"] == f"{server.url}/{key('fixed', '2023Q4')}"
    assert source["etag"] == '"abc"' and len(source["sha256"]) == 64
    assert (source["rows_read"], source["rows_kept"]) == (6, 5)
    assert report.metadata["missing_quarters"] == ["2023Q3"]


def test_s3_root_is_read_in_place_without_tile(server, tmp_path, out, monkeypatch):
    path = publish(tmp_path)
    name = f"bucket/{key('fixed', '2023Q4')}"
    server.files[name], server.etags[name] = path.read_bytes(), '"abc"'
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    report = run("s3://bucket", out)
    assert report.rows_kept == 5
    (source,) = report.metadata["sources"]
    assert source["url"] == f"s3://{name}" and source["etag"] == '"abc"' and source["sha256"] is None


# bad input: one sentence that names the file, the value and the remedy, and nothing written


def bad(out: Path, match: str, **arguments) -> None:
    with pytest.raises(InvalidInput, match=match) as caught:
        run(**{"output": out, **arguments})
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    assert not out.exists() and not list(out.parent.glob(".*tmp"))


def test_no_quarter_found(tmp_path, out):
    publish(tmp_path)
    bad(out, r"No fixed data for 2024Q1 under .*it has 2023Q4..2023Q4", root=tmp_path, quarters="2024Q1")
    bad(out, r"No fixed data for 2018Q1..2018Q4", root=tmp_path, quarters="2018Q1..2018Q4")
    bad(out, r"No mobile data for 2023Q4 .*no quarter of this type", root=tmp_path, type="mobile")


def test_a_gap_in_a_range_is_warned_about_and_recorded(tmp_path, out):
    publish(tmp_path)
    with pytest.warns(DataWarning, match="No data for 2023Q2, 2023Q3"):
        report = run(tmp_path, out, quarters="2023Q2..2023Q4")
    assert report.metadata["missing_quarters"] == ["2023Q2", "2023Q3"]
    assert "2 missing" in report.summary() and len(report.warnings) == 1


def test_a_thin_quarter_is_warned_about_and_recorded(tmp_path, out):
    for quarter in ("2023Q1", "2023Q2", "2023Q3", "2023Q4"):
        publish(tmp_path, quarter)
    keys = zorder.quadkeys(*quadkey.tile_of([-157.85] + [2.35] * 5, [21.3] + [48.85] * 5))
    publish(tmp_path, "2023Q2", quadkey=pa.array(keys))
    with pytest.warns(DataWarning, match="Far fewer rows .*: 2023Q2;"):
        report = run(tmp_path, out, quarters="2023Q1..2023Q4")
    assert report.metadata["thin_quarters"] == ["2023Q2"]


@pytest.mark.parametrize("quarters", ["2023", "2023Q5", "2023Q4..", "2023Q1...2023Q4", "", "x"])
def test_quarters_that_are_none(tmp_path, out, quarters):
    bad(out, r"[Qq]uarters", root=tmp_path, quarters=quarters)


def test_a_range_that_runs_backwards(tmp_path, out):
    bad(out, "runs backwards; write 2019Q1..2023Q4", root=tmp_path, quarters="2023Q4..2019Q1")


def test_unknown_type_source_and_root(tmp_path, out):
    bad(out, "Unknown type 'satellite'.*fixed and mobile", root=tmp_path, type="satellite")
    bad(out, "Unknown source 'mlab'.*ookla", root=tmp_path, source="mlab")
    bad(out, "is a table of points; name it with file", root=tmp_path, source="csv")
    bad(out, "takes no file .*; name its folder or URL with root", root=None, file="a.csv")
    bad(out, "absent is not a folder", root=tmp_path / "absent")


def test_a_file_that_is_not_parquet(tmp_path, out):
    publish(tmp_path).write_text("quadkey,avg_d_kbps\n")
    bad(out, r"2023-10-01_performance_fixed_tiles.parquet is not a readable Parquet file", root=tmp_path)


def test_a_file_that_breaks_off(tmp_path, out):
    path = publish(tmp_path)
    data = bytearray(path.read_bytes())
    data[4:200] = b"\xff" * 196
    path.write_bytes(data)
    bad(out, "breaks off or is damaged", root=tmp_path)


@pytest.mark.parametrize("name", ["quadkey", "avg_d_kbps", "tests", "devices"])
def test_a_missing_column(tmp_path, out, name):
    publish(tmp_path, **{name: None})
    bad(out, rf"tiles.parquet has no column {name} \(it has .*\)", root=tmp_path)


def test_columns_of_the_wrong_type(tmp_path, out):
    publish(tmp_path, avg_d_kbps=pa.array(["fast"] * 6))
    bad(out, "Column avg_d_kbps of .* is string, not a number", root=tmp_path)
    publish(tmp_path, quadkey=pa.array(range(6)))
    bad(out, "Column quadkey of .* is int64, not text", root=tmp_path)


def test_nothing_inside(tmp_path, out):
    publish(tmp_path)
    bad(
        out,
        r"None of the 6 rows read is in the bounding box 0 0 1 1 \(dropped: 6 outside\)",
        root=tmp_path,
        bbox=(0, 0, 1, 1),
    )


def test_no_place_or_two(tmp_path, out):
    bad(out, "one of region, bbox and boundary; got none", root=tmp_path, bbox=None)
    bad(out, "got region and bbox", root=tmp_path, region="HI")
    with pytest.raises(InvalidInput, match="cover the world"):
        tiles.collect(Request(root=tmp_path, quarters="2023Q4"))


def test_an_output_that_exists_is_kept(tmp_path, out):
    publish(tmp_path)
    out.write_text("mine")
    with pytest.raises(InvalidInput, match=r"obs.parquet exists already; .*--overwrite"):
        run(tmp_path, out)
    assert out.read_text() == "mine"
    run(tmp_path, out, overwrite=True)
    assert read(out)[0].num_rows == 5


def test_an_output_without_folder_or_that_is_one(tmp_path, out):
    bad(tmp_path / "no" / "obs.parquet", "no of the output does not exist", root=tmp_path)
    with pytest.raises(InvalidInput, match="is a folder"):
        run(tmp_path, tmp_path)

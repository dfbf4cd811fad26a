"""The table: schema, metadata, labels, order, GeoParquet, and that nothing is ever half-written."""

import json
from pathlib import Path

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
import pytest
import shapely
from shapely.geometry import shape

from data_pipelines import geoparquet, quadkey, zorder
from data_pipelines.errors import InvalidInput
from data_pipelines.observations import for_target, ingest, read
from data_pipelines.schema import MEASURED, OPTIONAL_TILE_COLUMNS, TILE_COLUMNS


def test_columns_are_the_schemas(table):
    columns = (*TILE_COLUMNS, *OPTIONAL_TILE_COLUMNS)
    assert table.column_names == [*(c.name for c in columns), "geometry", "bbox"]
    for column in columns:
        field = table.schema.field(column.name)
        assert field.type == column.type and field.metadata[b"unit"].decode() == (column.unit or "")
        if column.null == "never":
            assert table.column(column.name).null_count == 0


def test_rows_are_sorted_and_one_a_tile_and_quarter(table):
    keys = list(zip(table.column("quarter").to_pylist(), table.column("quadkey").to_pylist(), strict=True))
    assert keys == sorted(set(keys))


def test_places_agree_with_each_other(table, observations):
    codes, valid = zorder.of_keys(np.array(table.column("quadkey").to_pylist(), "S16"))
    lon, lat = quadkey.centre(*zorder.tiles(codes))
    assert valid.all()
    np.testing.assert_array_equal(table.column("lon"), lon)
    np.testing.assert_array_equal(table.column("lat"), lat)
    crs = pyproj.CRS.from_wkt(read(observations)[1]["crs"])
    east, north = pyproj.Transformer.from_crs(4326, crs, always_xy=True).transform(lon, lat)
    np.testing.assert_allclose(table.column("easting_m"), east)
    np.testing.assert_allclose(table.column("northing_m"), north)
    points = shapely.from_wkb(table.column("geometry").to_numpy(zero_copy_only=False))
    np.testing.assert_array_equal(shapely.get_coordinates(points), np.stack([lon, lat], 1))


def test_values_are_the_published_ones(table, world_root):
    files = sorted(world_root.glob("parquet/performance/type=fixed/**/*.parquet"))
    raw = pa.concat_tables(
        [pq.ParquetFile(f).read(columns=["quadkey", "avg_d_kbps", "tests"]) for f in files]
    )
    frame = raw.to_pandas().groupby("quadkey")[["avg_d_kbps", "tests"]].sum()
    ours = table.to_pandas().groupby("quadkey")[["download_mbps", "tests"]].sum()
    frame = frame.loc[ours.index]
    np.testing.assert_allclose(ours.download_mbps * 1000, frame.avg_d_kbps)
    assert (ours.tests == frame.tests).all()


def test_labels_agree_with_the_polygons(table, world):
    urban = shapely.union_all([area for _, area in world.urban_areas()])
    lon, lat = table.column("lon").to_numpy(), table.column("lat").to_numpy()
    label = table.column("urban").to_numpy(zero_copy_only=False)
    # the shapefile's NAD83 round trip moves edges by centimetres at most
    assert (label == shapely.contains_xy(urban, lon, lat)).mean() > 0.999
    share = table.column("urban_share").to_numpy()
    assert share.min() == 0 and share.max() == 1 and 0 < (share[~label] > 0).mean() < 0.2
    assert set(table.column("urban_vintage").to_pylist()) == {"2020"}
    assert set(table.column("region").to_pylist()) == {"HY"}


def test_metadata_accounts_for_every_row(observations, table, world):
    _, m = read(observations)
    assert m["schema_version"] == 1 and m["source"] == "synthetic" and m["type"] == "fixed"
    assert m["synthetic"] == {"seed": 0, "size": "small"}
    assert m["rows_kept"] == table.num_rows == m["rows_read"] - sum(m["dropped"].values())
    assert m["rows_kept"] == sum(s["rows_kept"] for s in m["sources"])
    assert m["rows_read"] == sum(s["rows_read"] for s in m["sources"])
    assert m["quarters"] == world.quarters and m["missing_quarters"] == []
    assert all(len(s["sha256"]) == 64 for s in m["sources"])
    assert m["targets"] == ["download", "upload", "latency", "tests"]
    assert m["urban"]["vintage"] == "2020" and len(m["urban"]["sha256"]) == 64
    assert shapely.symmetric_difference(shape(m["boundary"]), world.land()).area < 1e-3


def test_the_file_is_geoparquet_1_1_with_a_covering(observations):
    geo = json.loads(pq.read_metadata(observations).metadata[b"geo"])
    assert geo["version"] == "1.1.0" and geo["columns"]["geometry"]["encoding"] == "WKB"
    whole = geopandas.read_parquet(observations)
    assert whole.crs == 4326 and (whole.geometry.geom_type == "Point").all()
    west, south, east, north = whole.total_bounds
    window = (west, south, (west + east) / 2, (south + north) / 2)
    part = geopandas.read_parquet(observations, bbox=window)
    assert len(part) == len(whole.cx[window[0] : window[2], window[1] : window[3]]) > 0
    assert "bbox" not in part


def test_points_and_boxes_may_be_left_out(observations, table):
    some, metadata = read(observations, shapes=False)
    assert some.equals(table.drop_columns(["geometry", "bbox"])) and metadata["crs"]


def test_row_groups_follow_the_quarters(observations, table, monkeypatch, tmp_path):
    assert pq.read_metadata(observations).num_row_groups == 8
    monkeypatch.setattr(geoparquet, "ROW_GROUP_ROWS", 100)
    rows = table.drop_columns(["geometry", "bbox"])
    geoparquet.write_parts([rows], dict, tmp_path / "x.parquet", overwrite=False)
    meta = pq.read_metadata(tmp_path / "x.parquet")
    assert max(meta.row_group(g).num_rows for g in range(meta.num_row_groups)) == 100


def test_without_urban_areas_labels_are_null(world_root, world, tmp_path):
    report = ingest(
        root=world_root,
        quarters="2023Q4",
        region="HY",
        states=world.states_file(world_root),
        output=tmp_path / "o.parquet",
    )
    table = read(report.path)[0]
    assert report.metadata["urban"] is None
    assert all(
        table.column(name).null_count == table.num_rows for name in ("urban", "urban_vintage", "urban_share")
    )


def test_region_boundary_and_box_keep_what_they_say(world_root, world, tmp_path):
    """A boundary file of the state's own polygon is the state; a box about it holds more."""
    geopandas.GeoSeries([world.land()], crs=4326).to_file(tmp_path / "land.gpkg")
    places = {
        "region": {"region": "HY", "states": world.states_file(world_root)},
        "boundary": {"boundary": tmp_path / "land.gpkg"},
        "bbox": {"bbox": world.land().buffer(0.5).bounds},
    }
    kept = {}
    for name, place in places.items():
        report = ingest(root=world_root, quarters="2023Q4", output=tmp_path / name, **place)
        kept[name] = set(read(report.path)[0].column("quadkey").to_pylist())
    assert kept["region"] == kept["boundary"] < kept["bbox"]


def test_both_types_and_progress(world_root, tmp_path):
    calls = []
    report = ingest(
        source="synthetic",
        type="mobile",
        root=world_root,
        output=tmp_path / "m.parquet",
        progress=lambda *call: calls.append(call),
    )
    assert report.metadata["type"] == "mobile" and report.rows_kept > 300
    assert [done for done, *_ in calls] == list(range(9)) and {total for _, total, _ in calls} == {8}
    assert report.summary().startswith(f"{report.path}: {report.rows_kept:,} of ")
    assert "\n" not in report.summary()


def test_a_world_is_made_when_there_is_none(tmp_path):
    report = ingest(
        source="synthetic", size="small", seed=3, quarters="2023Q4", output=tmp_path / "o.parquet"
    )
    assert report.metadata["synthetic"] == {"seed": 3, "size": "small"} and report.rows_kept > 50


def test_ingest_is_deterministic(world_root, observations, tmp_path):
    ingest(source="synthetic", root=world_root, output=tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == observations.read_bytes()


# atomicity


@pytest.mark.parametrize("where", ["ParquetWriter.write_table", "ParquetWriter.close", "read-back"])
@pytest.mark.parametrize("before", [None, b"old"])
def test_a_failure_in_the_middle_leaves_what_was_there(world_root, tmp_path, monkeypatch, where, before):
    output = tmp_path / "out" / "obs.parquet"
    output.parent.mkdir()
    if before:
        output.write_bytes(before)
    calls = []

    def fail(*args, **kwargs):
        calls.append(args)
        raise KeyboardInterrupt if where == "ParquetWriter.write_table" else OSError("disk full")

    if where == "read-back":
        monkeypatch.setattr(geoparquet, "_read_back", fail)
    else:
        monkeypatch.setattr(pq.ParquetWriter, where.split(".")[1], fail)
    with pytest.raises((KeyboardInterrupt, OSError)):
        ingest(source="synthetic", root=world_root, output=output, overwrite=True)
    monkeypatch.undo()
    assert calls
    assert [p.name for p in output.parent.iterdir()] == (["obs.parquet"] if before else [])
    assert not before or output.read_bytes() == before


# targets


@pytest.mark.parametrize("column", [column for column in MEASURED if column.positive], ids=lambda c: c.name)
def test_for_target_drops_only_what_that_target_cannot_use(column):
    good = {c.name: [1.0, 2.0, 3.0, 4.0] for c in MEASURED}
    table = pa.table({**good, column.name: [1.0, 0.0, None, -3.0]})
    mask, dropped = for_target(table, column.name, positive=True, name=column.measures)
    assert mask.tolist() == [True, False, False, False]
    assert dropped == {f"null_{column.measures}": 1, f"nonpositive_{column.measures}": 2}
    assert for_target(table, column.name, positive=False)[0].tolist() == [True, True, False, True]
    for other in set(MEASURED) - {column}:
        assert for_target(table, other.name, positive=True)[0].all()


def test_for_target_refuses_what_is_not_there(table):
    with pytest.raises(InvalidInput, match="no target 'jitter'; it has download, upload, latency, tests"):
        for_target(table, "jitter_ms", positive=True, name="jitter")


# reading back


def test_reading_what_is_no_observations_file(tmp_path: Path, observations):
    with pytest.raises(InvalidInput, match="does not exist"):
        read(tmp_path / "absent.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(InvalidInput, match="not a readable Parquet file"):
        read(tmp_path / "text.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InvalidInput, match="not an observations table"):
        read(tmp_path / "other.parquet")
    future = pa.table({"a": [1]}).replace_schema_metadata({"geogp": json.dumps({"schema_version": 99})})
    pq.write_table(future, tmp_path / "future.parquet")
    with pytest.raises(InvalidInput, match="schema version 99, newer than 1"):
        read(tmp_path / "future.parquet")

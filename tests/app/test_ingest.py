"""`geogp ingest`: what it writes, and every bad input it refuses with a sentence."""

import json

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from data_pipelines.observations import read


@pytest.fixture
def place(world_folder, world):
    """Where the world's files are, as options of the command."""
    return ["--root", world_folder, "--states", world.states_file(world_folder)]


def test_a_region_of_published_files_becomes_a_table(cli, place, tmp_path):
    output = tmp_path / "obs.parquet"
    result = cli("ingest", *place, "--region", "HY", "--quarters", "2022Q1..2023Q4", "-o", output)
    assert result.code == 0 and result.out == ""
    assert "rows kept" in result.err and len(result.err.strip().splitlines()) == 1
    table, metadata = read(output)
    assert metadata["region"] == "HY" and len(metadata["quarters"]) == 8
    assert {"quadkey", "quarter", "easting_m", "northing_m", "download_mbps", "tests", "urban"} <= set(
        table.column_names
    )
    assert (
        cli(
            "ingest", *place, "--region", "HY", "--quarters", "2023Q4", "-q", "-o", tmp_path / "b.parquet"
        ).err
        == ""
    )


def test_a_gap_inside_a_range_is_only_warned_about(cli, place, tmp_path):
    output = tmp_path / "obs.parquet"
    result = cli("ingest", *place, "--region", "HY", "--quarters", "2023Q3..2024Q1", "-o", output)
    assert result.code == 0 and ": warning: " in result.err and "2024Q1" in result.err
    assert read(output)[1]["missing_quarters"] == ["2024Q1"]


def test_any_other_measurement(cli, tmp_path):
    csv = tmp_path / "rain.csv"
    rng = np.random.default_rng(0)
    rows = [f"{lon:.4f},{lat:.4f},{v:.2f}" for lon, lat, v in rng.uniform((5, 50, 1), (6, 51, 9), (40, 3))]
    csv.write_text("\n".join(["lon,lat,mm", *rows]), encoding="utf-8")
    output = tmp_path / "obs.parquet"
    line = (
        "ingest",
        "--source",
        "csv",
        csv,
        "--columns",
        "x=lon,y=lat,value=mm",
        "--value-unit",
        "mm",
        "-o",
        output,
    )
    assert cli(*line).code == 0
    table, metadata = read(output)
    assert table.num_rows == 40 and metadata["value_unit"] == "mm"
    assert metadata["value_name"] == "mm" and metadata["credit"] is None
    named = cli(*line, "--value-name", "rain", "--credit", "The gauge keepers", "--overwrite")
    assert named.code == 0
    metadata = read(output)[1]
    assert metadata["value_name"] == "rain" and metadata["credit"] == "The gauge keepers"
    tiles = cli("ingest", "--value-name", "rain", "--region", "HI", "-o", output, "--overwrite")
    assert tiles.code == 3 and "does not read value_name" in tiles.err


BAD = {
    "unknown region": (["--region", "ZZ", "--quarters", "2023Q4"], "ZZ"),
    "no quarter found": (["--region", "HY", "--quarters", "2015Q1..2015Q4"], "2015Q1"),
    "single quarter missing": (["--region", "HY", "--quarters", "2025Q1"], "2025Q1"),
    "quarter misspelt": (["--region", "HY", "--quarters", "2023-4"], "2023-4"),
    "range backwards": (["--region", "HY", "--quarters", "2023Q4..2022Q1"], "backwards"),
    "corners swapped": (["--bbox", "-141", "33", "-145", "35", "--quarters", "2023Q4"], "W S E N"),
    "south above north": (["--bbox", "-145", "35", "-141", "33", "--quarters", "2023Q4"], "W S E N"),
    "two places": (
        ["--region", "HY", "--bbox", "-145", "33", "-141", "35", "--quarters", "2023Q4"],
        "one of",
    ),
    "nothing there": (["--bbox", "10", "50", "11", "51", "--quarters", "2023Q4"], "rows"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_one_sentence_and_status_3(case, cli, place, tmp_path):
    options, fragment = BAD[case]
    result = cli("ingest", *place, *options, "-o", tmp_path / "obs.parquet")
    assert result.code == 3
    assert fragment in result.err and result.err.startswith("geogp: ")
    assert len(result.err.strip().splitlines()) == 1 and result.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_boundary_in_another_crs_is_understood_and_one_without_is_refused(cli, place, world, tmp_path):
    land = geopandas.GeoSeries([world.land()], crs=4326)
    projected, bare = tmp_path / "land.gpkg", tmp_path / "bare.shp"
    land.to_crs(32607).to_file(projected)
    geopandas.GeoSeries([shapely.box(-145, 33, -141, 35)], crs=4326).to_file(bare)
    bare.with_suffix(".prj").unlink()
    output = tmp_path / "obs.parquet"
    line = ("ingest", *place, "--quarters", "2023Q4", "-o", output)
    assert cli(*line, "--boundary", projected).code == 0
    refused = cli(*line, "--boundary", bare, "--overwrite")
    assert refused.code == 3 and "bare" in refused.err


def test_a_file_that_is_not_parquet_or_lacks_a_column(cli, place, world, world_folder, tmp_path):
    from data_pipelines.readers.mirror import key

    spoilt = tmp_path / "spoilt"
    source = world_folder / key("fixed", "2023Q4")
    target = spoilt / key("fixed", "2023Q4")
    target.parent.mkdir(parents=True)
    target.write_bytes(b"<html>404</html>")
    options = (
        "--root",
        spoilt,
        *place[2:],
        "--region",
        "HY",
        "--quarters",
        "2023Q4",
        "-o",
        tmp_path / "obs.parquet",
    )
    result = cli("ingest", *options)
    assert result.code == 3 and target.name in result.err
    pq.write_table(pq.ParquetFile(source).read().drop_columns(["avg_d_kbps"]), target)
    result = cli("ingest", *options)
    assert result.code == 3 and "avg_d_kbps" in result.err
    assert not (tmp_path / "obs.parquet").exists()


def test_an_existing_output_is_refused_unless_overwritten(cli, place, tmp_path):
    output = tmp_path / "obs.parquet"
    output.write_bytes(b"precious")
    line = ("ingest", *place, "--region", "HY", "--quarters", "2023Q4", "-o", output)
    result = cli(*line)
    assert result.code == 3 and str(output) in result.err and "exist" in result.err
    assert output.read_bytes() == b"precious"
    assert cli(*line, "--overwrite").code == 0 and output.read_bytes() != b"precious"


def test_metadata_is_one_json_document(table):
    document = json.loads(pa.parquet.read_schema(table).metadata[b"geogp"])
    assert document["schema_version"] == 1 and document["rows_kept"] > 1000


# published quarters as a whole


def test_what_a_root_holds(cli, place):
    shown = cli("ingest", "--list", *place[:2], "--type", "fixed")
    assert shown.code == 0 and "2022Q1" in shown.out and "mobile" not in shown.out
    told = json.loads(cli("ingest", "--list", *place[:2], "--json").out)
    assert told["schema"] == 1 and len(told["files"]) == 16
    assert all(one["rows"] > 0 and one["sorted"] is False for one in told["files"])


def test_a_dry_run_says_what_comes_and_writes_nothing(cli, place, tmp_path):
    line = ("ingest", *place, "--region", "HY", "--quarters", "2023Q1..2024Q1", "-o", tmp_path / "o.parquet")
    told = json.loads(cli(*line, "--dry-run", "--json").out)
    assert told["schema"] == 1 and told["missing"] == ["2024Q1"] and list(tmp_path.iterdir()) == []
    assert "4 files (2023Q1..2023Q4)" in cli(*line, "--dry-run").out
    made = json.loads(cli(*line, "--json").out)
    assert made["rows_read"] == told["rows"] and made["rows_kept"] == pytest.approx(
        told["rows_expected"], rel=0.2
    )
    refused = cli(*line[:-2], "--dry-run", "--bbox", "1", "2", "3", "4")
    assert refused.code == 3 and "one of region" in refused.err


def test_a_sorted_copy_is_a_root(cli, place, tmp_path):
    copy = tmp_path / "copy"
    made = cli("ingest", "--root", place[1], "--sort-into", copy, "--quarters", "2023Q1..2023Q4", "--json")
    assert made.code == 0 and [one["kept"] for one in json.loads(made.out)["files"]] == [False] * 4
    tables = []
    for number, root in enumerate((place[1], copy)):
        output = tmp_path / f"{number}.parquet"
        line = ("--root", root, *place[2:], "--region", "HY,LH", "--quarters", "2023Q1..2023Q4", "-o", output)
        assert cli("ingest", *line).code == 0
        tables.append(read(output))
    assert tables[0][0].equals(tables[1][0])
    assert tables[0][1]["regions"] == ["HY", "LH"]
    assert set(tables[0][0].column("region").to_pylist()) == {"HY", "LH"}


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--region", "HY", "--quarters", "2023Q4"], 2, "-o obs.parquet"),
        (["--list", "--dry-run"], 2, "one of --list and --dry-run"),
        (["--list", "-o", "o.parquet"], 2, "leave out"),
        (["--sort-into", "copy", "--quarters", "2023Q4", "--region", "HY"], 3, "leave out region"),
        (["--sort-into", "copy"], 3, "Say which quarters"),
        (["--dry-run", "--region", "HY", "--quarters", "2025Q1"], 3, "No fixed data for 2025Q1"),
        (["--dry-run", "--region", "HY,ZZ", "--quarters", "2023Q4"], 3, "No state 'ZZ'"),
        (["--dry-run", "--source", "csv", "--quarters", "2023Q4"], 3, "publishes no quarters"),
    ],
)
def test_what_cannot_be_asked_of_an_archive(cli, place, tmp_path, monkeypatch, options, code, said):
    monkeypatch.chdir(tmp_path)
    result = cli("ingest", *place, *options)
    assert (result.code, result.out) == (code, "") and said in result.err
    assert len(result.err.strip().splitlines()) == 1 and list(tmp_path.iterdir()) == []

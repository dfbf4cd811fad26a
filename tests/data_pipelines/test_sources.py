"""Every source of the registry keeps the contract, and what breaks it is refused."""

from dataclasses import replace

import numpy as np
import pytest

from data_pipelines.errors import InvalidInput
from data_pipelines.observations import ingest, ingest_table, read
from data_pipelines.sources import SOURCES
from data_pipelines.sources.contract import Collected, Request

BOX = (5.0, 50.0, 6.0, 51.0)


@pytest.fixture(params=SOURCES)
def name(request):
    return request.param


@pytest.fixture
def made(name, world_root, tmp_path):
    """A table of each source, from what is at hand."""
    output = tmp_path / "obs.parquet"
    if not SOURCES[name].takes_file:
        box = (-145.0, 33.0, -141.0, 35.0)
        return ingest(source=name, root=world_root, quarters="2023Q4", bbox=box, output=output)
    import geopandas

    file = tmp_path / "file"
    frame = geopandas.GeoDataFrame(
        {"x": [5.1, 5.2], "y": [50.1, 50.2], "v": [1.0, 2.0]},
        geometry=geopandas.points_from_xy([5.1, 5.2], [50.1, 50.2]),
        crs=4326,
    )
    frame.to_parquet(file) if name == "geoparquet" else frame.to_csv(file, index=False)
    columns = {"x": "x", "y": "y", "value": "v"}
    return ingest_table(file=file, source=name, columns=columns, bbox=BOX, value_unit="mm", output=output)


def test_a_source_says_who_it_is(name):
    source = SOURCES[name]
    assert source.words and source.attribution and source.credit.startswith(source.attribution)
    assert not source.words.endswith(".") and source.collect.__doc__


def test_its_rows_are_what_it_says_they_are(name, made):
    table, metadata = read(made.path)
    source = SOURCES[name]
    tiles = table.column("quadkey").null_count == 0
    assert made.rows_kept == table.num_rows > 0 and metadata["source"] == name
    assert (tiles, metadata["type"] in source.types) == (source.tiled, bool(source.types))
    assert metadata["targets"] == (["download", "upload", "latency", "tests"] if tiles else ["value"])
    assert metadata.get("value_unit") == (None if tiles else "mm")


def test_a_tiled_source_that_gives_degrees_is_refused(monkeypatch, tmp_path):
    def collect(request: Request) -> Collected:
        """Degrees, which are no tiles."""
        return Collected({}, (np.array([5.5]), np.array([50.5])), rows_read=1, dropped={}, sources=[])

    monkeypatch.setitem(SOURCES, "lost", replace(SOURCES["ookla"], collect=collect))
    with pytest.raises(TypeError, match="gives tile indices, integers; got float64"):
        ingest(source="lost", quarters="2023Q4", bbox=BOX, output=tmp_path / "obs.parquet")
    assert not list(tmp_path.iterdir())


def test_a_table_is_read_by_either_name(tmp_path):
    (tmp_path / "t.csv").write_text("x,y,v\n5.5,50.5,1\n", encoding="utf-8")
    asked = {"file": tmp_path / "t.csv", "columns": {"x": "x", "y": "y", "value": "v"}}
    ingest(source="csv", output=tmp_path / "a", **asked)
    ingest_table(output=tmp_path / "b", **asked)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(InvalidInput, match="Unknown table source 'ookla'; it is csv or geoparquet"):
        ingest_table(source="ookla", output=tmp_path / "c", **asked)

"""A file that names other files or addresses opens none of them, whatever its name ends in."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import geopandas
import numpy as np
import pyogrio
import pytest
import rasterio
import shapely
from rasterio.transform import from_bounds

from app.workflow.places import _frames
from app.workflow.polygons import read_polygons
from data_pipelines.census import boundary
from data_pipelines.intact import Damaged
from geogp import load
from maps import open_raster

#: Drivers that read nothing but the file they are given, those that only write, and those asked by names of their own,
#: such as "WFS:http://..", which are no files.
PLAIN = {
    "MEM",
    "ESRI Shapefile",
    "MapInfo File",
    "LVBAG",
    "S57",
    "DGN",
    "CSV",
    "GML",
    "GPX",
    "LIBKML",
    "KML",
    "GeoJSON",
    "GeoJSONSeq",
    "ESRIJSON",
    "TopoJSON",
    "JSONFG",
    "OGR_GMT",
    "GPKG",
    "SQLite",
    "WAsP",
    "OpenFileGDB",
    "DXF",
    "FlatGeobuf",
    "GeoRSS",
    "VFK",
    "PGDUMP",
    "OSM",
    "EDIGEO",
    "Idrisi",
    "ODS",
    "XLSX",
    "SXF",
    "Selafin",
    "JML",
    "VDV",
    "MVT",
    "MBTiles",
    "PMTiles",
    "MapML",
    "GTFS",
    "MiraMonVector",
    "AVCBin",
    "AVCE00",
    "AIVector",
    "PDF",
    "PCIDSK",
    "Parquet",
    "Arrow",
    "Memory",
    "UK .NTF",
    "TIGER",
    "OAPIF",
    "Elasticsearch",
    "Carto",
    "AmigoCloud",
    "PLSCENES",
    "NGW",
    "HTTP",
    "EEDA",
    "OGCAPI",
    "ADBC",
    "GPSBabel",
}
#: Drivers known by the words that `data_pipelines.intact.REACHING` looks for.
SEEN = {"OGR_VRT", "GDALG", "WFS", "CSW", "PDS4", "OGR_PDS", "VICAR"}  # fmt: skip


@pytest.fixture(scope="module")
def listening() -> Iterator[tuple[str, list[str]]]:
    """An address on this machine, and what was asked of it."""
    asked: list[str] = []

    class Listens(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *said: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Listens) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def hostile(folder: Path, address: str) -> tuple[list[Path], list[Path]]:
    """(vector files, rasters), each naming a file at the address, and a vector file naming one beside."""
    source = f"/vsicurl/{address}/secret"
    vrt = "<OGRVRTDataSource><OGRVRTLayer name='secret'><SrcDataSource>{}</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>"
    square = {"type": "Polygon", "coordinates": [[[-156, 19], [-155, 19], [-155, 20], [-156, 19]]]}
    feature = {"type": "Feature", "properties": {"name": "secret"}, "geometry": square}
    (folder / "secret.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    command = f"gdal vector pipeline ! read {source}.geojson ! write out"
    texts = {
        "areas.geojson": vrt.format(f"{source}.geojson"),
        "near.gpkg": vrt.format(folder / "secret.geojson"),
        "steps.json": json.dumps({"type": "gdal_streamed_alg", "command_line": command}),
        "like.tif": "<VRTDataset rasterXSize='20' rasterYSize='20'><SRS>EPSG:4326</SRS>"
        "<GeoTransform>-156.2,.02,0,19.9,0,-.02</GeoTransform><VRTRasterBand dataType='Float32' band='1'><SimpleSource>"
        f"<SourceFilename>{source}.tif</SourceFilename></SimpleSource></VRTRasterBand></VRTDataset>",
        "wms.tif": f"<GDAL_WMS><Service name='TMS'><ServerUrl>{address}/${{z}}</ServerUrl></Service><DataWindow>"
        "<UpperLeftX>-156.2</UpperLeftX><UpperLeftY>19.9</UpperLeftY><LowerRightX>-155.8</LowerRightX>"
        "<LowerRightY>19.5</LowerRightY><TileLevel>2</TileLevel></DataWindow><Projection>EPSG:4326</Projection>"
        "<BlockSizeX>256</BlockSizeX><BlockSizeY>256</BlockSizeY><BandsCount>1</BandsCount></GDAL_WMS>",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    with ZipFile(folder / "areas.zip", "w") as file:
        file.write(folder / "areas.geojson", "areas.vrt")
    vectors = [folder / name for name in ("areas.geojson", "near.gpkg", "steps.json", "areas.zip")]
    return vectors, [folder / "like.tif", folder / "wms.tif"]


def test_no_vector_file_reaches_further_than_itself(listening, tmp_path: Path) -> None:
    address, asked = listening
    vectors, _ = hostile(tmp_path, address)
    for read in (lambda path: [read_polygons(path)], lambda path: list(_frames(path)), boundary):
        assert read(tmp_path / "secret.geojson")  # what they could have shown
        for file in vectors:
            with pytest.raises(Damaged, match=r"has other files or addresses opened"):
                read(file)
    assert asked == []


def test_no_raster_reaches_further_than_itself(listening, tmp_path: Path, cli, run: Path) -> None:
    address, asked = listening
    _, rasters = hostile(tmp_path, address)
    areas, _ = whole_of(run, tmp_path)
    for raster in rasters:
        lines = [
            ("export", run, "-o", tmp_path / "maps", "--like", raster),
            ("areas", run, "--areas", areas, "--weights", raster, "-o", tmp_path / "areas.csv"),
        ]
        for line in lines:
            result = cli(*line)
            assert result.code == 3 and f"{raster.name} cannot be read as a raster" in result.err, result.err
        with pytest.raises(ValueError, match="cannot be read as a raster"):
            open_raster(raster)
    assert asked == []


def test_every_driver_that_reads_is_known_to_read_its_file_alone() -> None:
    """Another build of GDAL has other drivers: a new one is looked at, and goes to one of these two."""
    drivers = set(pyogrio.list_drivers())
    assert "GeoJSON" in drivers and not drivers - PLAIN - SEEN


def test_people_in_a_raster_cut_short_are_one_sentence(tmp_path: Path, cli, run: Path) -> None:
    whole, cut = tmp_path / "people.tif", tmp_path / "cut.tif"
    areas, bounds = whole_of(run, tmp_path)
    profile = {
        "driver": "GTiff",
        "width": 256,
        "height": 256,
        "count": 1,
        "dtype": "float32",
        "crs": load(run).crs.to_wkt(),
    }
    with rasterio.open(whole, "w", transform=from_bounds(*bounds, 256, 256), **profile) as out:
        out.write(np.random.default_rng(0).uniform(1, 9, (256, 256)).astype("float32"), 1)
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    result = cli("areas", run, "--areas", areas, "--weights", cut, "-o", tmp_path / "out.csv")
    assert result.code == 3 and "cut.tif cannot be read to its end" in result.err
    assert not (tmp_path / "out.csv").exists()


def whole_of(run: Path, folder: Path) -> tuple[Path, tuple[float, ...]]:
    """A file of one area that holds all places of a run, and its W, S, E, N in the run's CRS."""
    opened = load(run)
    places = opened.support.positions_m
    bounds = (*map(float, places.min(0)), *map(float, places.max(0)))
    file = folder / "whole.gpkg"
    square = geopandas.GeoDataFrame(
        {"name": ["all"]}, geometry=[shapely.box(*bounds)], crs=opened.crs.to_wkt()
    )
    square.to_file(file)
    return file, bounds

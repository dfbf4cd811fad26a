"""The formats that other programs open: tables, cells, tiles, styles, levels and the catalogue's item."""

import io
import json
from types import SimpleNamespace
from xml.etree import ElementTree

import geopandas
import h3
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pystac
import pytest
import rasterio
import shapely
import xarray as xr
from odc.geo.geobox import GeoBox
from PIL import Image
from pmtiles.reader import MmapSource, Reader, all_tiles
from pyproj import CRS, Transformer
from pystac.validation import JsonSchemaSTACValidator

from maps.colours import scales, table
from maps.grid import Window, geobox_of
from maps.mercator import MERCATOR_HALF, quadkeys
from maps.raster import export
from maps.region import Mask
from maps.sinks import rows
from maps.stac import item

LAYERS = ["median", "exceedance"]


@pytest.fixture(scope="module")
def done(make, islands, tmp_path_factory) -> SimpleNamespace:
    """Every format of 300 x 600 pixels, in blocks of few rows."""
    ds = make(
        (300, 600),
        500.0,
        license="CC BY-NC-SA 4.0",
        references="https://example.org/data",
        calibration="kept",
    )
    region, folder = islands(ds), tmp_path_factory.mktemp("export")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "GROUP", 4000)
        for module in ("geoparquet", "cells"):
            patch.setattr(f"maps.sinks.{module}.GROUP", 4000, raising=False)
        formats = ["cog", "zarr", "geoparquet", "h3", "gpkg", "csv", "pmtiles"]
        manifest = export(ds, folder, formats, layers=LAYERS, geometry=region)
    inside = Mask(geobox_of(ds), region).inside(Window(0, 300, 0, 600))
    return SimpleNamespace(ds=ds, folder=folder, manifest=manifest, inside=inside)


def pixel(ds: xr.Dataset, lon: np.ndarray, lat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) of places, by another route than the sinks'."""
    to_grid = Transformer.from_crs("EPSG:4326", ds["spatial_ref"].attrs["crs_wkt"], always_xy=True)
    x, y = to_grid.transform(lon, lat)
    pixel_m = 500.0
    return (
        np.floor((ds["y"].values[0] + pixel_m / 2 - y) / pixel_m).astype(int),
        np.floor((x - ds["x"].values[0] + pixel_m / 2) / pixel_m).astype(int),
    )


@pytest.mark.parametrize("name", ["prediction.parquet", "h3.parquet"])
def test_boxes_cover_the_geometries_and_row_groups_lie_apart(done, name) -> None:
    file = pq.ParquetFile(done.folder / name)
    geo = json.loads(file.schema_arrow.metadata[b"geo"])
    assert geo["version"] == "1.1.0"
    assert geo["columns"]["geometry"]["covering"]["bbox"]["xmin"] == ["bbox", "xmin"]
    whole = geopandas.read_parquet(done.folder / name)
    box = pd.DataFrame(pq.read_table(done.folder / name, columns=["bbox"])["bbox"].to_pylist())
    bounds = whole.geometry.bounds.to_numpy()
    assert (box[["xmin", "ymin"]].to_numpy() <= bounds[:, :2]).all()
    assert (box[["xmax", "ymax"]].to_numpy() >= bounds[:, 2:]).all()
    assert np.abs(box.to_numpy() - bounds).max() < 1e-4
    # A reader of a tenth of the width meets few of the groups.
    names = [file.schema.column(i).path for i in range(len(file.schema))]
    at = {side: names.index(f"bbox.{side}") for side in ("xmin", "xmax", "ymin", "ymax")}
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    assert len(groups) > (4 if name.startswith("pred") else 1)
    west, south, east, north = whole.total_bounds

    def share(group) -> float:
        ends = {side: group.column(i).statistics for side, i in at.items()}
        across = (ends["xmax"].max - ends["xmin"].min) / (east - west)
        return across * (ends["ymax"].max - ends["ymin"].min) / (north - south)

    assert sum(share(g) for g in groups) / len(groups) < (0.2 if name.startswith("pred") else 0.6)
    here = whole.cx[west : west + (east - west) / 10, south:north]
    read = geopandas.read_parquet(done.folder / name, bbox=(west, south, west + (east - west) / 10, north))
    assert len(read) == len(here) > 0


def test_cells_are_those_whose_centre_has_a_value_and_have_that_pixels_values(done) -> None:
    """Against all cells of the box, asked one by one."""
    got = geopandas.read_parquet(done.folder / "h3.parquet").set_index("h3")
    assert got.index.is_unique
    resolution = {h3.get_resolution(cell) for cell in got.index}
    assert resolution == {8}  # pixels of .25 km2, cells of about .74
    west, south, east, north = got.total_bounds
    box = h3.LatLngPoly([(south, west), (south, east), (north, east), (north, west)])
    cells = sorted(h3.h3shape_to_cells(box, 8))
    lat, lon = np.array([h3.cell_to_latlng(c) for c in cells]).T
    row, col = pixel(done.ds, lon, lat)
    good = (row >= 0) & (row < 300) & (col >= 0) & (col < 600)
    row, col = np.where(good, row, 0), np.where(good, col, 0)
    want = pd.Series(done.ds["median"].values[row, col], cells)[good & done.inside[row, col]]
    assert set(want.index) <= set(got.index)
    assert len(got) - len(want) < 0.01 * len(got)  # the box is that of what was found
    np.testing.assert_array_equal(got.loc[want.index, "median"], want)
    some = got.iloc[::97]
    for cell, shape in zip(some.index, some.geometry):
        assert shape.contains(shapely.Point(h3.cell_to_latlng(cell)[::-1]))
    assert json.loads(pq.read_schema(done.folder / "h3.parquet").metadata[b"geogp"])["calibration"] == "kept"


def test_tables_hold_each_pixel_once(done) -> None:
    squares = geopandas.read_file(done.folder / "prediction.gpkg")
    lines = pd.read_csv(done.folder / "prediction.csv")
    points = pq.read_table(done.folder / "prediction.parquet").to_pandas()
    assert len(squares) == len(lines) == len(points) == done.inside.sum()
    assert squares.area.to_numpy() == pytest.approx(500.0**2)
    row, col = pixel(done.ds, lines["lon"].to_numpy(), lines["lat"].to_numpy())
    assert len(set(zip(row, col))) == len(lines)
    for name, found in (("gpkg", squares), ("csv", lines), ("parquet", points)):
        truth = done.ds["exceedance"].values[1][row, col]
        np.testing.assert_allclose(found["exceedance_100"], truth, rtol=1e-6, err_msg=name)
    centre = squares.geometry.centroid.to_crs(4326)
    np.testing.assert_allclose(centre.x, lines["lon"], atol=1e-5)
    told = json.loads((done.folder / "prediction.csv-metadata.json").read_text())
    assert [c["name"] for c in told["tableSchema"]["columns"]] == list(lines.columns)
    assert told["dc:license"] == "CC BY-NC-SA 4.0" and told["geogp"]["calibration"] == "kept"
    import pyogrio

    about = pyogrio.read_info(done.folder / "prediction.gpkg", layer="prediction")["layer_metadata"]
    assert json.loads(about["geogp"])["calibration"] == "kept"


def test_on_a_grid_of_tiles_rows_have_their_quadkey(make, tmp_path) -> None:
    side = 2 * MERCATOR_HALF / 2**16
    x0, y0 = 6000 * side, 5000 * side
    box = GeoBox.from_bbox((x0, y0, x0 + 8 * side, y0 + 6 * side), crs="EPSG:3857", resolution=side)
    ds = make((6, 8)).assign_coords(
        y=("y", y0 + side * (6 - np.arange(6) - 0.5)),
        x=("x", x0 + side * (np.arange(8) + 0.5)),
        spatial_ref=((), np.int32(0), {"crs_wkt": box.crs.wkt}),
    )
    export(ds, tmp_path, ["csv", "geoparquet"], layers=["median"])
    found = pd.read_csv(tmp_path / "prediction.csv", dtype={"quadkey": str})
    assert found["quadkey"].is_unique and found["quadkey"].str.len().eq(16).all() and len(found) == 48
    # By the definition: the digits are the bits of column and row.
    key = found["quadkey"][0]
    column = sum((int(d) & 1) << (15 - i) for i, d in enumerate(key))
    row = sum((int(d) >> 1) << (15 - i) for i, d in enumerate(key))
    assert (
        column == (found["x"][0] + MERCATOR_HALF) // side and row == (MERCATOR_HALF - found["y"][0]) // side
    )
    assert quadkeys([found["lon"][0]], [found["lat"][0]], 16)[0] == key
    assert "quadkey" in pq.read_schema(tmp_path / "prediction.parquet").names


def test_pmtiles_show_the_maps_own_colours(done) -> None:
    with (done.folder / "median.pmtiles").open("rb") as file:
        source = MmapSource(file)
        reader = Reader(source)
        header, about = reader.header(), reader.metadata()
        tiles = dict(all_tiles(source))
    assert header["min_zoom"] <= 1 and header["clustered"]
    side = 2 * MERCATOR_HALF / 2 ** header["max_zoom"] / 256
    assert side * np.cos(np.radians(20.6)) <= 500.0 < 2 * side  # finest: no pixel of the map is skipped
    assert about["attribution"].endswith("CC BY-NC-SA 4.0") and about["geogp"]["calibration"] == "kept"
    scale = scales(
        done.ds[["median"]].where(done.inside), [b for b in _bands(done.ds) if b.name == "median"]
    )["level"]
    assert about["geogp"]["legend"][0]["value"] == pytest.approx(scale.value(0), rel=0.3)
    ramp = table("batlow").astype(int)
    seen = 0
    for (zoom, x, y), data in tiles.items():
        if zoom != header["max_zoom"]:
            continue
        with Image.open(io.BytesIO(data)) as png:
            assert png.mode == "P"  # a byte a pixel
            image = np.array(png.convert("RGBA"))
        assert set(np.unique(image[..., 3])) <= {0, 255}
        r, c = (v[::53] for v in np.nonzero(image[..., 3]))
        mx = -MERCATOR_HALF + (x * 256 + c + 0.5) * side
        my = MERCATOR_HALF - (y * 256 + r + 0.5) * side
        lon, lat = Transformer.from_crs(3857, 4326, always_xy=True).transform(mx, my)
        row, col = pixel(done.ds, lon, lat)
        assert done.inside[row, col].all()
        away = np.abs(image[r, c, None, :3].astype(int) - ramp).sum(-1)
        assert (away.min(1) == 0).all()  # no colour that the legend has not
        shown = away.argmin(1) / 255
        ends = about["geogp"]["legend"][0]["value"], about["geogp"]["legend"][-1]["value"]
        truth = np.clip(
            np.log(done.ds["median"].values[row, col] / ends[0]) / np.log(ends[1] / ends[0]), 0, 1
        )
        assert np.abs(shown - truth).max() < 0.01
        seen += len(r)
    assert seen > 500
    assert {zoom for zoom, _, _ in tiles} == set(range(header["min_zoom"], header["max_zoom"] + 1))


def _bands(ds: xr.Dataset) -> list:
    from maps.bands import bands

    return bands(ds)


def test_styles_lie_beside_each_raster_and_rise_from_end_to_end(done) -> None:
    for name in ("median", "exceedance_25", "exceedance_100"):
        text = (done.folder / f"{name}.qml").read_text()
        renderer = ElementTree.fromstring(text.split("\n", 1)[1]).find("pipe/rasterrenderer")
        values = [float(i.get("value")) for i in renderer.iter("item")]
        assert values == sorted(set(values)) and len(values) >= 17
        shader = renderer.find("rastershader/colorrampshader")
        assert (values[0], values[-1]) == (
            float(shader.get("minimumValue")),
            float(shader.get("maximumValue")),
        )
        with rasterio.open(done.folder / f"{name}.tif") as src:
            tags, data = src.tags(1), src.read(1)
        assert float(tags["STATISTICS_MINIMUM"]) == pytest.approx(np.nanmin(data))
        assert float(tags["STATISTICS_MEAN"]) == pytest.approx(np.nanmean(data), rel=1e-4)
        assert float(tags["STATISTICS_MAXIMUM"]) == pytest.approx(np.nanmax(data))
    assert values[0] == 0 and values[-1] == 1  # of a probability, whatever the data


def test_levels_of_the_zarr_are_pixels_of_the_map_in_their_place(done) -> None:
    import zarr

    root = zarr.open_group(done.folder / "prediction.zarr", mode="r")
    layout = root.attrs["multiscales"]["layout"]
    assert [level["asset"] for level in layout] == [".", "1"] and layout[1]["derived_from"] == "."
    whole = xr.open_zarr(done.folder / "prediction.zarr", chunks=None)
    half = xr.open_zarr(done.folder / "prediction.zarr", group="1", chunks=None)
    np.testing.assert_array_equal(half["median"].values, whole["median"].sel(x=half["x"], y=half["y"]).values)
    assert half["exceedance"].shape == (2, 150, 300) and np.isfinite(half["median"].values).any()
    assert geobox_of(half).affine.to_gdal() == pytest.approx(
        tuple(float(v) for v in half["spatial_ref"].attrs["GeoTransform"].split())
    )


def test_the_item_is_valid_and_names_every_file(done, monkeypatch) -> None:
    document = json.loads((done.folder / "item.json").read_text())
    found = pystac.Item.from_dict(document)
    JsonSchemaSTACValidator().validate_core(document, pystac.STACObjectType.ITEM, "1.1.0")
    files = {f["path"] for f in done.manifest["files"]}
    assert {a.href.removeprefix("./") for a in found.assets.values()} == files - {"item.json"}
    assert found.properties["license"] == "CC-BY-NC-SA-4.0"
    assert found.properties["start_datetime"].startswith("2023-10-01")
    bands = found.assets["median.tif"].extra_fields["bands"][0]
    assert bands["statistics"]["minimum"] >= 0 and bands["unit"] == "Mbit/s"
    assert found.properties["proj:shape"] == [300, 600]
    shape = shapely.geometry.shape(document["geometry"])
    points = pq.read_table(done.folder / "prediction.parquet", columns=["lon", "lat"]).to_pandas()
    assert shapely.contains_xy(shape, points["lon"], points["lat"]).all()
    broken = document | {"properties": {"title": "no time"}}
    with pytest.raises(pystac.STACValidationError):
        JsonSchemaSTACValidator().validate_core(broken, pystac.STACObjectType.ITEM, "1.1.0")


def test_an_item_across_180_degrees_is_cut_there(make) -> None:
    from maps.render import job_of

    found = item(job_of(make((40, 60), 20_000.0, centre=(179.0, 60.0)), ["median"]), [])
    shape = shapely.geometry.shape(found["geometry"])
    assert shape.geom_type == "MultiPolygon" and found["bbox"][0] > 0 > found["bbox"][2]
    assert shapely.bounds(shape)[[0, 2]] == pytest.approx([-180, 180])
    assert CRS.from_wkt(found["properties"]["proj:wkt2"]).is_projected

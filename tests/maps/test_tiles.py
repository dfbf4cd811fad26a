"""Tiles against rio-tiler; the display copy against the original."""

import io
import math
import threading

import numpy as np
import pytest
import rasterio
from PIL import Image
from rio_cogeo.cogeo import cog_validate
from rio_tiler.io import Reader

from maps.colours import Scale, paint
from maps.errors import InvalidInput
from maps.png import encode_png
from maps.raster import write_cogs
from maps.tiles import TileReader, tile_bounds, warp_for_display

SCALE = Scale(5, 500, "log")


def tile_of(lon: float, lat: float, z: int) -> tuple[int, int]:
    n = 2**z
    return int((lon + 180) / 360 * n), int((1 - math.asinh(math.tan(math.radians(lat))) / math.pi) / 2 * n)


@pytest.fixture(scope="module")
def display(make, islands, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiles")
    ds = make((600, 800), 250.0)
    source = write_cogs(ds, folder, layers=["median"], geometry=islands(ds))[0]
    return source, warp_for_display(source, folder / "median_3857.tif")


def test_the_display_copy_is_a_cog_with_the_originals_values(display) -> None:
    source, copy = display
    assert cog_validate(copy, strict=True)[0]
    with rasterio.open(source) as a, rasterio.open(copy) as b:
        assert b.crs.to_epsg() == 3857 and b.tags()["quarter"] == "2023Q4"
        values, origin = b.read(1), a.read(1)
        known = np.isfinite(values)
        assert np.isin(values[known], origin).all()
        area = abs(b.transform.a * b.transform.e) * math.cos(math.radians(20.6)) ** 2 * known.sum()
        assert area == pytest.approx(250.0**2 * np.isfinite(origin).sum(), rel=0.01)
        rows, cols = np.nonzero(known)
        pick = np.random.default_rng(0).integers(0, rows.size, 200)
        x, y = rasterio.transform.xy(b.transform, rows[pick], cols[pick])
        u, v = rasterio.warp.transform(b.crs, a.crs, list(x), list(y))
        r, c = rasterio.transform.rowcol(a.transform, u, v)
        assert (
            origin[r, c] == values[rows[pick], cols[pick]]
        ).mean() > 0.8  # the rest: mesh error beside an edge


@pytest.mark.parametrize("z", [10, 11, 12, 14])
def test_tiles_equal_rio_tilers(display, z: int) -> None:
    reader = TileReader(display[1], SCALE, "batlow")
    x, y = tile_of(-157.0, 20.5, z)
    with Reader(str(display[1])) as oracle:
        for i, j in ((x, y), (x + 1, y), (x, y - 1)):
            ours, theirs = reader.values(z, i, j), oracle.tile(i, j, z, tilesize=256).array[0].filled(np.nan)
            assert ours is not None
            np.testing.assert_array_equal(np.isfinite(ours), np.isfinite(theirs))
            both = np.isfinite(ours)
            assert (ours[both] == theirs[both]).mean() > 0.99


@pytest.mark.parametrize("z", [4, 6, 8, 9])
def test_overview_tiles_are_close_to_rio_tilers(display, z: int) -> None:
    """Both decimate by nearest neighbour but may pick different neighbours."""
    reader = TileReader(display[1], SCALE, "batlow")
    x, y = tile_of(-157.0, 20.5, z)
    with Reader(str(display[1])) as oracle:
        ours, theirs = reader.values(z, x, y), oracle.tile(x, y, z, tilesize=256).array[0].filled(np.nan)
    assert ours is not None
    assert (np.isfinite(ours) != np.isfinite(theirs)).mean() < 0.01
    both = np.isfinite(ours) & np.isfinite(theirs)
    assert np.abs(np.log10(ours[both] / theirs[both])).mean() < 0.05


def test_a_tile_is_a_png_of_the_painted_values(display) -> None:
    reader = TileReader(display[1], SCALE, "batlow")
    z, (x, y) = 10, tile_of(-157.0, 20.5, 10)
    image = np.asarray(Image.open(io.BytesIO(reader.tile(z, x, y))))
    values = reader.values(z, x, y)
    assert values is not None
    np.testing.assert_array_equal(image, paint(values, SCALE, "batlow"))


@pytest.mark.parametrize("tile", [(10, 0, 0), (3, -1, 99), (40, 0, 0), (0, 5, 1)])
def test_tiles_outside_are_transparent(display, tile) -> None:
    image = Image.open(io.BytesIO(TileReader(display[1], SCALE, "batlow").tile(*tile)))
    assert image.size == (256, 256) and not np.asarray(image).any()


def test_threads_read_the_same_tiles(display) -> None:
    reader = TileReader(display[1], SCALE, "batlow")
    x, y = tile_of(-157.0, 20.5, 11)
    alone = reader.tile(11, x, y)
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(reader.tile(11, x, y))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [alone] * 8


def test_value_at_a_place(display) -> None:
    reader = TileReader(display[1], SCALE, "batlow")
    assert 1 < reader.value(-157.0, 20.5) < 1000
    assert math.isnan(reader.value(-157.35, 19.8)) and math.isnan(reader.value(10, 50))


def test_tiles_on_both_sides_of_the_antimeridian(make, tmp_path) -> None:
    ds = make((200, 300), 2000.0, (179.8, 51.5))
    source = write_cogs(ds, tmp_path, layers=["median"])[0]
    reader = TileReader(warp_for_display(source, tmp_path / "d.tif"), SCALE, "batlow")
    for lon in (178.5, 179.9, -179.9, -178.5):
        values = reader.values(9, *tile_of(lon, 51.5, 9))
        assert values is not None and np.isfinite(values).all(), lon
        assert reader.value(lon, 51.5) > 0


def test_other_files_are_refused(display, tmp_path) -> None:
    with pytest.raises(InvalidInput, match="EPSG:3857"):
        TileReader(display[0], SCALE, "batlow")
    with pytest.raises(InvalidInput, match="exists"):
        warp_for_display(*display)


def test_png_equals_pillow() -> None:
    rgba = np.random.default_rng(0).integers(0, 256, (37, 53, 4), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(encode_png(rgba)))), rgba)
    assert tile_bounds(1, 1, 0) == pytest.approx((0, 0, 20037508.34, 20037508.34))

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from affine import Affine
from odc.geo.geobox import GeoBox

from app.dashboard.atlas import Atlas
from app.dashboard.caches import DiskCache
from app.dashboard.canvas import canvas_of, masked, pixels
from app.errors import InvalidInput
from geogp import GPRegressor, load

from .conftest import LAT, LON, PIXELS, TINY, polygon, save


def test_the_canvas_is_the_polygon(atlas: Atlas) -> None:
    canvas = atlas.canvas
    assert abs(canvas.inside.sum() / PIXELS - 1) < 0.05
    lon, lat = pixels(canvas.geobox)
    shape = shapely.geometry.shape(polygon())
    np.testing.assert_array_equal(canvas.inside.ravel(), shapely.contains_xy(shape, lon, lat))
    west, south, east, north = canvas.bounds
    np.testing.assert_allclose((west, north), (shape.bounds[0], shape.bounds[3]), atol=1e-9)
    assert east >= shape.bounds[2] and south <= shape.bounds[1]


def test_strips_hold_every_pixel_once(atlas: Atlas) -> None:
    seen = np.zeros(atlas.canvas.shape, int)
    windows = list(atlas.canvas.strips(250))
    for window in windows:
        seen[window.slices] += 1
        assert atlas.canvas.inside[window.slices].sum() <= 250
    assert len(windows) > 10
    assert (seen[atlas.canvas.inside] == 1).all() and seen.max() == 1


def test_a_thinned_grid_keeps_pixel_centres(atlas: Atlas) -> None:
    box, inside = atlas.canvas.thinned(300)
    all_of_them = set(zip(*(np.round(v, 9) for v in pixels(atlas.canvas.geobox))))
    assert set(zip(*(np.round(v, 9) for v in pixels(box)))) <= all_of_them
    assert 150 < inside.sum() < 600
    np.testing.assert_array_equal(atlas.canvas.mask(box), inside)


def test_a_mask_answers_for_parts() -> None:
    inside = np.random.default_rng(0).random((40, 60)) > 0.5
    box = GeoBox((40, 60), Affine(463.2, 0, -1.6e7, 0, -463.2, 4e6), "EPSG:3857")
    np.testing.assert_array_equal(masked(box, inside)(box[7:20, 11:33]), inside[7:20, 11:33])


def test_contains_agrees_with_the_mask(atlas: Atlas) -> None:
    assert atlas.canvas.contains(LAT, LON)
    assert atlas.canvas.contains(LAT, LON + 360)
    assert not atlas.canvas.contains(LAT + 1, LON)
    assert not atlas.canvas.contains(-LAT, LON)


def test_without_a_polygon_the_map_reaches_beyond_the_places(
    fitted: tuple[GPRegressor, np.ndarray], tmp_path: Path
) -> None:
    canvas = canvas_of(load(save(tmp_path / "run", *fitted, boundary=None)), inside=2000)
    assert canvas.outline is None
    assert canvas.contains(LAT, LON) and not canvas.contains(LAT + 2, LON)
    lon, lat = pixels(canvas.geobox)
    near = canvas.away_m(lon, lat) <= canvas.reach_m
    np.testing.assert_array_equal(near.reshape(canvas.shape), canvas.inside)


@pytest.mark.parametrize(
    ("data", "said"),
    [({"crs": None}, "CRS"), ({"boundary": {"type": "Point", "coordinates": [0, 0]}}, "Polygon")],
)
def test_a_run_that_cannot_be_mapped_says_why(
    fitted: tuple[GPRegressor, np.ndarray], tmp_path: Path, data: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        canvas_of(load(save(tmp_path / "run", *fitted, **data)), inside=500)
    assert getattr(caught.value, "exit_code", None) == 3


def test_neither_polygon_nor_places(fitted: tuple[GPRegressor, np.ndarray], tmp_path: Path) -> None:
    from geogp.run import save

    from .conftest import facts

    save(tmp_path / "run", fitted[0], facts(boundary=None))
    with pytest.raises(InvalidInput, match="neither"):
        canvas_of(load(tmp_path / "run"), inside=500)


def test_a_region_across_the_antimeridian_is_in_one_piece(
    fitted: tuple[GPRegressor, np.ndarray], tmp_path: Path
) -> None:
    split = {
        "type": "MultiPolygon",
        "coordinates": [
            [[[179, 50], [180, 50], [180, 52], [179, 52], [179, 50]]],
            [[[-180, 50], [-178.5, 50], [-178.5, 52], [-180, 52], [-180, 50]]],
        ],
    }
    atlas = Atlas(
        load(save(tmp_path / "run", *fitted, boundary=split)),
        DiskCache(tmp_path / "c"),
        pace=replace(TINY, inside=500),
    )
    canvas = atlas.canvas
    np.testing.assert_array_equal(np.isfinite(atlas.plane("median", atlas.choices.default)), canvas.inside)
    west, _, east, _ = canvas.bounds
    assert east - west < 3
    assert canvas.contains(51, 179.5) and canvas.contains(51, -179.5) and not canvas.contains(51, 178)


def test_far_islets_do_not_make_the_picture_coarse(
    fitted: tuple[GPRegressor, np.ndarray], tmp_path: Path
) -> None:
    ring = [[LON - 9, LAT], [LON - 8.99, LAT], [LON - 8.99, LAT + 0.01], [LON - 9, LAT]]
    both = {"type": "MultiPolygon", "coordinates": [polygon()["coordinates"], [ring]]}
    canvas = canvas_of(load(save(tmp_path / "run", *fitted, boundary=both)), inside=PIXELS)
    assert abs(canvas.inside.sum() / PIXELS - 1) < 0.05
    assert canvas.bounds[0] > LON - 1
    assert canvas.contains(LAT + 0.003, LON - 8.993)  # still on the map, drawn in detail

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from affine import Affine
from odc.geo.geobox import GeoBox

from app.dashboard.atlas import Atlas
from app.dashboard.cache import Cache
from app.dashboard.grid import Where, pixels, survey
from app.errors import InvalidInput
from geogp import GPRegressor, load

from .conftest import LAT, LON, PIXELS, TINY, polygon, save


def test_the_ground_is_the_polygon(atlas: Atlas) -> None:
    ground = atlas.ground
    assert abs(ground.inside.sum() / PIXELS - 1) < 0.05
    lon, lat = pixels(ground.geobox)
    shape = shapely.geometry.shape(polygon())
    np.testing.assert_array_equal(ground.inside.ravel(), shapely.contains_xy(shape, lon, lat))
    west, south, east, north = ground.bounds
    np.testing.assert_allclose((west, north), (shape.bounds[0], shape.bounds[3]), atol=1e-9)
    assert east >= shape.bounds[2] and south <= shape.bounds[1]


def test_strips_hold_every_pixel_once(atlas: Atlas) -> None:
    seen = np.zeros(atlas.ground.shape, int)
    windows = list(atlas.ground.strips(250))
    for window in windows:
        seen[window.slices] += 1
        assert atlas.ground.inside[window.slices].sum() <= 250
    assert len(windows) > 10
    assert (seen[atlas.ground.inside] == 1).all() and seen.max() == 1


def test_a_thinned_grid_keeps_pixel_centres(atlas: Atlas) -> None:
    box, inside = atlas.ground.thinned(300)
    all_of_them = set(zip(*(np.round(v, 9) for v in pixels(atlas.ground.geobox))))
    assert set(zip(*(np.round(v, 9) for v in pixels(box)))) <= all_of_them
    assert 150 < inside.sum() < 600
    np.testing.assert_array_equal(atlas.ground.mask(box), inside)


def test_where_answers_for_parts() -> None:
    inside = np.random.default_rng(0).random((40, 60)) > 0.5
    box = GeoBox((40, 60), Affine(463.2, 0, -1.6e7, 0, -463.2, 4e6), "EPSG:3857")
    np.testing.assert_array_equal(Where(box, inside)(box[7:20, 11:33]), inside[7:20, 11:33])


def test_contains_agrees_with_the_mask(atlas: Atlas) -> None:
    assert atlas.ground.contains(LAT, LON)
    assert atlas.ground.contains(LAT, LON + 360)
    assert not atlas.ground.contains(LAT + 1, LON)
    assert not atlas.ground.contains(-LAT, LON)


def test_without_a_polygon_the_map_reaches_beyond_the_places(
    fitted: tuple[GPRegressor, np.ndarray], tmp_path: Path
) -> None:
    ground = survey(load(save(tmp_path / "run", *fitted, boundary=None)), inside=2000)
    assert ground.outline is None and ground.support is not None
    assert ground.contains(LAT, LON) and not ground.contains(LAT + 2, LON)
    lon, lat = pixels(ground.geobox)
    near = ground.support.distances_m(lon, lat) <= ground.reach_m
    np.testing.assert_array_equal(near.reshape(ground.shape), ground.inside)


@pytest.mark.parametrize(
    ("data", "said"),
    [({"crs": None}, "CRS"), ({"boundary": {"type": "Point", "coordinates": [0, 0]}}, "Polygon")],
)
def test_a_run_that_cannot_be_mapped_says_why(
    fitted: tuple[GPRegressor, np.ndarray], tmp_path: Path, data: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        survey(load(save(tmp_path / "run", *fitted, **data)), inside=500)
    assert getattr(caught.value, "exit_code", None) == 3


def test_neither_polygon_nor_places(fitted: tuple[GPRegressor, np.ndarray], tmp_path: Path) -> None:
    from geogp.run import save

    from .conftest import facts

    save(tmp_path / "run", fitted[0], facts(boundary=None))
    with pytest.raises(InvalidInput, match="neither"):
        survey(load(tmp_path / "run"), inside=500)


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
        Cache(tmp_path / "c"),
        pace=replace(TINY, inside=500),
    )
    ground = atlas.ground
    np.testing.assert_array_equal(np.isfinite(atlas.plane("median", atlas.choices.default)), ground.inside)
    west, _, east, _ = ground.bounds
    assert east - west < 3
    assert ground.contains(51, 179.5) and ground.contains(51, -179.5) and not ground.contains(51, 178)


def test_far_islets_do_not_make_the_picture_coarse(
    fitted: tuple[GPRegressor, np.ndarray], tmp_path: Path
) -> None:
    ring = [[LON - 9, LAT], [LON - 8.99, LAT], [LON - 8.99, LAT + 0.01], [LON - 9, LAT]]
    both = {"type": "MultiPolygon", "coordinates": [polygon()["coordinates"], [ring]]}
    ground = survey(load(save(tmp_path / "run", *fitted, boundary=both)), inside=PIXELS)
    assert abs(ground.inside.sum() / PIXELS - 1) < 0.05
    assert ground.bounds[0] > LON - 1
    assert ground.contains(LAT + 0.003, LON - 8.993)  # still on the map, drawn in detail

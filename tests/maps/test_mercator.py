"""Web Mercator against PROJ, and the mesh that leads back from it to a grid's own pixels."""

import numpy as np
import pytest
from odc.geo.geobox import GeoBox
from pyproj import Transformer
from scipy.ndimage import map_coordinates

from maps.grid import geobox_of
from maps.mercator import MERCATOR_HALF, degrees, mercator, mercator_grid


def test_the_formulas_are_projs() -> None:
    lon, lat = np.array([-179.0, -143.0, 0.0, 179.0]), np.array([-80.0, 34.0, 0.0, 84.0])
    theirs = Transformer.from_crs("EPSG:4326", "EPSG:3857", always_xy=True).transform(lon, lat)
    np.testing.assert_allclose(mercator(lon, lat), theirs, atol=1e-6)
    np.testing.assert_allclose(degrees(*mercator(lon - 60, lat)), (lon - 60, lat), atol=1e-10)


def meshed(grid, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Source (column, row) of Mercator metres as the page finds them: bilinear between the mesh's nodes."""
    col, row = grid.mesh()
    n = col.shape[0] - 1
    height, width = grid.shape
    at = ((grid.top - y) / grid.pixel_m / height * n, (x - grid.left) / grid.pixel_m / width * n)
    return [map_coordinates(plane, at, order=1) for plane in (col, row)]


@pytest.mark.parametrize("centre", [(-157.3, 20.6), (179.5, 52.0), (-150.0, 64.0), (0.0, -70.0)])
def test_the_mesh_matches_the_projection(make, centre) -> None:
    """Between its nodes it gives what PROJ gives for that very place, also across the antimeridian."""
    box = geobox_of(make((120, 160), 5000.0, centre))
    grid = mercator_grid(box)
    assert 0.5 < grid.shape[0] * grid.shape[1] / (120 * 160) < 2.5
    u, v = np.random.default_rng(0).random((2, 500))
    x, y = grid.left + u * grid.pixel_m * grid.shape[1], grid.top - v * grid.pixel_m * grid.shape[0]
    turned = (x + MERCATOR_HALF) % (2 * MERCATOR_HALF) - MERCATOR_HALF
    place = Transformer.from_crs("EPSG:3857", str(box.crs.wkt), always_xy=True).transform(turned, y)
    truth = (~box.affine) @ place
    for found, true in zip(meshed(grid, x, y), truth, strict=True):
        # 0.1 at the middles of its cells; at their edges curvatures of opposite sign no longer cancel.
        assert np.abs(found - true).max() < 0.2


def test_mercator_of_a_geographic_grid() -> None:
    box = GeoBox.from_bbox((170, -20, 190, -10), crs="EPSG:4326", resolution=0.1)
    grid = mercator_grid(box)
    assert grid.bounds_lonlat == pytest.approx((170, -20, 190, -10), abs=0.2)
    x, y = mercator(185.0, -15.0)
    np.testing.assert_allclose(meshed(grid, np.array([x]), np.array([y])), [[150], [50]], atol=0.15)

"""GeoBox and the region's mask."""

import numpy as np
import pyproj
import pytest
import rasterio
import shapely
import xarray as xr
from pyproj import Transformer

from maps.errors import InvalidInput
from maps.grid import Window, geobox_like, geobox_of, windows
from maps.region import Mask, around, is_plain, near_data, plain_to_crs, polygon, to_crs


def test_geobox_agrees_with_the_geotransform(ds: xr.Dataset) -> None:
    box = geobox_of(ds)
    given = [float(v) for v in ds["spatial_ref"].attrs["GeoTransform"].split()]
    assert box.shape == (150, 200)
    assert box.affine.to_gdal() == pytest.approx(given)
    single = geobox_of(ds.isel(y=slice(3, 4), x=slice(7, 8)))  # the pixel size comes from GeoTransform
    assert single.affine.to_gdal() == pytest.approx((given[0] + 7000, 1000, 0, given[3] - 3000, 0, -1000))


def test_a_grid_that_is_none_is_refused(ds: xr.Dataset) -> None:
    with pytest.raises(InvalidInput, match="no CRS"):
        geobox_of(ds.drop_vars("spatial_ref"))
    with pytest.raises(InvalidInput, match="evenly"):
        geobox_of(ds.isel(x=[0, 1, 5, 6]))
    with pytest.raises(InvalidInput, match="coordinates y and x"):
        geobox_of(ds.drop_vars("x"))
    with pytest.raises(InvalidInput, match="no pixel"):
        geobox_of(ds.isel(x=slice(0, 0)))


def test_geobox_like_returns_the_rasters_pixels(ds: xr.Dataset, tmp_path) -> None:
    box = geobox_of(ds)
    path = tmp_path / "like.tif"
    options = {"driver": "GTiff", "count": 1, "dtype": "uint8", "height": 150, "width": 200}
    with rasterio.open(path, "w", crs=str(box.crs), transform=box.affine, **options) as dst:
        dst.write(np.zeros((150, 200), np.uint8), 1)
    assert geobox_like(path) == box
    with rasterio.open(path, "w", transform=box.affine, **options):
        pass
    with pytest.raises(InvalidInput, match="no CRS"):
        geobox_like(path)
    path.write_text("no raster")
    with pytest.raises(InvalidInput, match="cannot be read"):
        geobox_like(path)


def test_windows_tile_the_grid() -> None:
    seen = np.zeros((1030, 513), int)
    for w in windows(seen.shape):
        seen[w.slices] += 1
    assert (seen == 1).all()


def square(west: float, south: float, east: float, north: float) -> dict:
    return {
        "type": "Polygon",
        "coordinates": [[[west, south], [east, south], [east, north], [west, north], [west, south]]],
    }


BAD = {
    "not a dict": [],
    "a point": {"type": "Point", "coordinates": [0, 0]},
    "no coordinates": {"type": "Polygon"},
    "empty": {"type": "Polygon", "coordinates": []},
    "text": {"type": "Polygon", "coordinates": [[["a", "b"]]]},
    "two corners": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]},
    "metres": square(-500_000, 200_000, -400_000, 300_000),
    "a line": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [2, 2], [0, 0]]]},
    "nan": {"type": "Polygon", "coordinates": [[[0, 0], [1, float("nan")], [2, 2], [0, 0]]]},
    "no feature": {"type": "FeatureCollection", "features": []},
}


@pytest.mark.parametrize("name", BAD)
def test_unusable_regions_are_one_sentence(name: str) -> None:
    with pytest.raises(InvalidInput) as error:
        polygon(BAD[name])
    assert "\n" not in str(error.value) and error.value.exit_code == 3


def test_a_bow_tie_is_mended_and_a_feature_unpacked() -> None:
    tie = {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}
    assert polygon({"type": "Feature", "geometry": tie}).area == pytest.approx(0.5)


def test_mask_matches_a_point_in_polygon_test(ds: xr.Dataset, region) -> None:
    import shapely

    mask = Mask(geobox_of(ds), region)
    shape = to_crs(polygon(region), ds["spatial_ref"].attrs["crs_wkt"])
    x, y = np.meshgrid(ds["x"].values, ds["y"].values)
    truth = shapely.contains_xy(shape, x, y)
    whole = mask.inside(Window(0, 150, 0, 200))
    assert (whole != truth).mean() < 1e-3  # centres on the line itself
    parts = np.zeros_like(whole)
    for w in windows((150, 200), 37):
        parts[w.slices] = mask.inside(w)
        assert mask.touches(w) or not parts[w.slices].any()
    assert (parts == whole).all()
    assert Mask(geobox_of(ds), region, all_touched=True).inside(Window(0, 150, 0, 200)).sum() > whole.sum()


def test_long_edges_bow_as_parallels_do(make) -> None:
    """A box in degrees has curved sides in a metric projection: its middle must not be cut off."""
    ds = make((200, 400), 10_000.0, (-110.0, 60.0))
    inside = Mask(geobox_of(ds), square(-125, 58, -95, 62)).inside(Window(0, 200, 0, 400))
    back = Transformer.from_crs(ds["spatial_ref"].attrs["crs_wkt"], "EPSG:4326", always_xy=True)
    lon, lat = back.transform(*np.meshgrid(ds["x"].values, ds["y"].values))
    truth = (lon > -125) & (lon < -95) & (lat > 58) & (lat < 62)
    assert (inside != truth).sum() <= 0.002 * truth.sum()


@pytest.mark.parametrize(
    "shape",
    [
        {
            "type": "MultiPolygon",
            "coordinates": [
                square(175, 50, 180, 53)["coordinates"],
                square(-180, 50, -175, 53)["coordinates"],
            ],
        },
        square(175, 50, 185, 53),
        square(-185, 50, -175, 53),
        {"type": "Polygon", "coordinates": [[[175, 50], [-175, 50], [-175, 53], [175, 53], [175, 50]]]},
    ],
    ids=["split", "beyond 180", "below -180", "jump"],
)
def test_a_region_across_the_antimeridian(make, shape) -> None:
    ds = make((100, 200), 5000.0, (180.0, 51.5))
    inside = Mask(geobox_of(ds), shape).inside(Window(0, 100, 0, 200))
    back = Transformer.from_crs(ds["spatial_ref"].attrs["crs_wkt"], "EPSG:4326", always_xy=True)
    lon, lat = back.transform(*np.meshgrid(ds["x"].values, ds["y"].values))
    truth = (lat > 50) & (lat < 53) & ((lon > 175) | (lon < -175))
    assert (inside != truth).sum() <= 0.01 * truth.sum()
    assert around(polygon(shape), 180).bounds == pytest.approx((175, 50, 185, 53))


def test_pictures_show_what_lies_within_50_km_of_data() -> None:
    """An islet 28 km off, as Niihau off Kauai, is in; one 60 km off is out; a large part with places inside is in."""
    import shapely

    km = 1 / 111.195
    utm = "EPSG:32604"  # central meridian 159 W
    isle, near, far = (shapely.box(-159 + d * km, 0, -159 + (d + 5) * km, 0.05) for d in (0, 33, 65))
    large = shapely.box(-165, 5, -160, 10)
    region = shapely.MultiPolygon([isle, near, far, large])
    to = Transformer.from_crs("EPSG:4326", utm, always_xy=True)
    places = np.column_stack(to.transform([-159 + 2 * km, -162.5], [0.02, 7.5]))
    assert near_data(region, places, utm).tolist() == [True, True, False, True]
    turned = shapely.transform(region, lambda xy: xy + [360, 0])
    assert near_data(turned, places, utm).tolist() == [True, True, False, True]
    assert near_data(shapely.MultiPolygon([far]), places, utm).tolist() == [
        True
    ]  # else nothing would be shown


def test_a_region_elsewhere_is_refused(ds: xr.Dataset) -> None:
    with pytest.raises(InvalidInput, match="do not overlap"):
        Mask(geobox_of(ds), square(10, 50, 11, 51))


def test_many_plain_polygons_are_carried_as_one_is():
    lines = shapely.box(-4.0, 20.0, 9.0, 31.0)
    shapes = np.array(
        [
            lines,
            shapely.difference(lines, shapely.box(0, 22, 1, 23)),
            shapely.MultiPolygon([shapely.box(-100, 5, -99, 6), shapely.box(-90, 5, -89, 6)]),
            shapely.MultiPolygon([shapely.box(12, 5, 13, 6)]),
            shapely.Polygon([(0, 0), (1, 1), (0, 1), (1, 0)]),  # crosses itself
            shapely.box(170, 0, 180, 3),
            shapely.box(-170, 0, 170, 3),
        ],
        object,
    )
    plain = is_plain(shapes)
    assert plain.tolist() == [True] * 4 + [False] * 3
    crs = pyproj.CRS("+proj=laea +lat_0=25 +lon_0=-20").to_wkt()
    for moved, shape in zip(plain_to_crs(shapes[plain], crs), shapes[plain], strict=True):
        alone = to_crs(polygon(shapely.geometry.mapping(shape)), crs)
        assert moved.geom_type == alone.geom_type and moved.equals_exact(alone, 0)
    with pytest.raises(InvalidInput, match="cannot be expressed"):
        plain_to_crs(
            np.array([shapely.box(100, -80, 120, -70)], object), pyproj.CRS("+proj=gnom +lat_0=90").to_wkt()
        )

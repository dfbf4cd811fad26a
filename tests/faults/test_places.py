"""Places that degrees are bad at, end to end: both sides of 180 degrees, the poles, holes, several parts, other bodies."""

from collections.abc import Callable
from types import SimpleNamespace

import geopandas
import numpy as np
import pytest
import rasterio
import shapely
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer

from app.errors import InvalidInput
from app.workflow import fit
from app.workflow.grids import grid_of
from app.workflow.steps.export import export
from data_pipelines.census import read_polygons
from data_pipelines.errors import InvalidInput as Refused
from data_pipelines.observations import ingest
from data_pipelines.regions import Region

Inside = Callable[[np.ndarray, np.ndarray], np.ndarray]
SMALL = {"rank": 16, "hidden": 16, "epochs": 8}


def fiji() -> tuple[geopandas.GeoDataFrame, Inside]:
    """Two parts that meet at 180 degrees (RFC 7946), the western one with a hole."""
    west = shapely.box(177, -19, 180, -16).difference(shapely.box(178, -18, 178.8, -17.2))
    whole = shapely.MultiPolygon([west, shapely.box(-180, -19, -178.5, -16.5)])

    def inside(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
        hole = (lon > 178) & (lon < 178.8) & (lat > -18) & (lat < -17.2)
        here = (lon > 177) & (lat > -19) & (lat < -16) & ~hole
        return here | ((lon < -178.5) & (lat > -19) & (lat < -16.5))

    return geopandas.GeoDataFrame(geometry=[whole], crs=4326), inside


def aleutians() -> tuple[geopandas.GeoDataFrame, Inside]:
    """Six islands, one of them cut at 180 degrees, as the Census file has them."""
    middles = np.array([173.0, 176.0, 180.0, 184.0, 187.5, 191.0])
    shapes = [shapely.box(m - 0.8, 51.5, m + 0.8, 52.6) for m in middles]
    cut = []
    for shape in shapes:
        for turn in (0, 360):
            part = shapely.intersection(shape, shapely.box(turn - 180, -90, turn + 180, 90))
            if part.area > 0:
                cut.append(shapely.transform(part, lambda xy, turn=turn: xy - [turn, 0]))

    def inside(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
        near = np.abs((lon % 360)[..., None] - middles).min(axis=-1)
        return (near < 0.8) & (lat > 51.5) & (lat < 52.6)

    return geopandas.GeoDataFrame(geometry=cut, crs=4326), inside


def about_a_pole(epsg: int, radius: float, hole: float = 0.0) -> tuple[geopandas.GeoDataFrame, Inside]:
    """A disc about a pole in its own projection, or a ring."""
    disc = shapely.Point(0, 0).buffer(radius, 64).difference(shapely.Point(0, 0).buffer(hole, 64))
    to_plane = Transformer.from_crs(4326, epsg, always_xy=True)

    def inside(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
        r = np.hypot(*to_plane.transform(lon, lat))
        return (r < radius) & (r >= hole)

    return geopandas.GeoDataFrame(geometry=[disc], crs=epsg), inside


def value(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
    """A surface that is smooth on the sphere, over 180 degrees and the poles too."""
    u, v = np.radians(lon), np.radians(lat)
    return 8 * np.cos(v) * np.cos(3 * u) + 30 * np.cos(v) + 12 * np.cos(v) * np.sin(5 * u)


PLACES = {
    "Fiji": fiji,
    "Aleutians": aleutians,
    "Arctic": lambda: about_a_pole(3413, 1.5e6),
    "Antarctic ring": lambda: about_a_pole(3031, 2e6, 4e5),
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
def test_a_place_end_to_end(name, tmp_path) -> None:
    """Rows kept, pixels masked and values mapped are those that plain geometry says."""
    rng = np.random.default_rng(0)
    boundary, inside = PLACES[name]()
    boundary.to_file(tmp_path / "place.gpkg")
    region = Region.from_polygon("x", shapely.union_all(read_polygons(tmp_path / "place.gpkg").geometry))
    west, south, east, north = region.shape.bounds
    lon, lat = rng.uniform(west, east, 900), rng.uniform(south, north, 900)
    lon = (lon + 180) % 360 - 180
    truth = inside(lon, lat)
    (tmp_path / "p.csv").write_text(
        "lon,lat,v\n" + "".join(f"{a},{b},{v}\n" for a, b, v in zip(lon, lat, value(lon, lat)))
    )
    report = ingest(
        source="csv", file=tmp_path / "p.csv", columns={"x": "lon", "y": "lat", "value": "v"},
        boundary=tmp_path / "place.gpkg", output=tmp_path / "o.parquet",
    )  # fmt: skip
    assert abs(report.rows_kept - truth.sum()) <= 0.01 * len(lon)
    run = fit(
        tmp_path / "o.parquet", output=tmp_path / "run", target="value", method="dbk-rbf", model=SMALL
    ).run
    grid = grid_of(run)
    side = float(np.sqrt(np.prod(grid.shape) / 10_000)) * grid.resolution
    export(run, tmp_path / "maps", formats=["cog"], layers=["median"], resolution_m=side)
    with rasterio.open(tmp_path / "maps/median.tif") as src:
        found, to_degrees = src.read(1), Transformer.from_crs(src.crs, 4326, always_xy=True)
        rows, columns = np.indices(found.shape)
        u, v = to_degrees.transform(*(np.asarray(a) for a in src.xy(rows.ravel(), columns.ravel())))
    u, v = np.asarray(u).reshape(found.shape), np.asarray(v).reshape(found.shape)
    wanted = inside(u, v)
    assert (np.isfinite(found) != wanted).sum() <= 0.03 * wanted.sum()
    both = np.isfinite(found) & wanted
    assert np.corrcoef(found[both], value(u, v)[both])[0, 1] > 0.8
    # what a file cuts at 180 degrees is one piece on the map
    pieces, holes = (6, 0) if name == "Aleutians" else (1, int(name in ("Fiji", "Antarctic ring")))
    shapes = list(shapely.get_parts(grid_of(run).mask.shape))
    assert (len(shapes), sum(len(s.interiors) for s in shapes)) == (pieces, holes)


@pytest.mark.parametrize(("epsg", "pole"), [(3413, 90.0), (3031, -90.0)])
def test_points_about_a_pole_lie_in_a_plane_about_it(tmp_path, epsg, pole) -> None:
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(-180, 180, 400), np.sign(pole) * (90 - rng.uniform(0, 8, 400))
    (tmp_path / "p.csv").write_text("lon,lat,v\n" + "".join(f"{a},{b},1\n" for a, b in zip(lon, lat)))
    report = ingest(
        source="csv", file=tmp_path / "p.csv", columns={"x": "lon", "y": "lat", "value": "v"},
        output=tmp_path / "o.parquet",
    )  # fmt: skip
    table = CRS.from_user_input(report.metadata["crs"])
    x, y = Transformer.from_crs(4326, table, always_xy=True).transform(0.0, pole)
    assert np.hypot(x, y) < 12_000.0  # the centre is rounded to .1 degree


def test_bounds_about_a_pole(tmp_path) -> None:
    """A map about the pole can be cut by longitude and latitude; what is outside does not meet it."""
    boundary, _ = about_a_pole(3413, 1.5e6)
    boundary.to_file(tmp_path / "place.gpkg")
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(-180, 180, 90), rng.uniform(78, 90, 90)
    (tmp_path / "p.csv").write_text("lon,lat,v\n" + "".join(f"{a},{b},{b}\n" for a, b in zip(lon, lat)))
    ingest(
        source="csv", file=tmp_path / "p.csv", columns={"x": "lon", "y": "lat", "value": "v"},
        boundary=tmp_path / "place.gpkg", output=tmp_path / "o.parquet",
    )  # fmt: skip
    small = {"rank": 8, "hidden": 8, "epochs": 1}
    run = fit(
        tmp_path / "o.parquet", output=tmp_path / "run", target="value", method="dbk-rbf", model=small
    ).run

    def area(*bounds: float) -> float:
        grid = grid_of(run, resolution_m=10_000.0, bounds=bounds)
        return grid.n_inside * 1e8

    def cap(degrees: float) -> float:  # of a sphere; the ellipsoid's differs by less than 1%
        return 2 * np.pi * 6_371_007.0**2 * (1 - np.cos(np.radians(degrees)))

    assert area(-180, 85, 180, 90) == pytest.approx(cap(5), rel=0.03)
    assert area(-180, 82, 180, 84) == pytest.approx(cap(8) - cap(6), rel=0.03)
    assert area(0, 80, 90, 90) == pytest.approx(cap(10) / 4, rel=0.03)
    assert area(170, 80, -170, 90) == pytest.approx(cap(10) / 18, rel=0.05)
    with pytest.raises(InvalidInput, match="do not meet"):
        area(-180, 10, 180, 20)


@pytest.mark.parametrize("crs", ["IAU_2015:30100", "IAU_2015:49910", "+proj=stere +R=1737400 +lat_0=90"])
def test_polygons_of_another_body_are_one_sentence(tmp_path, crs) -> None:
    shape = shapely.box(0, 0, 10, 10)
    geopandas.GeoDataFrame(geometry=[shape], crs=crs).to_file(tmp_path / "moon.gpkg")
    with pytest.raises(Refused) as caught:
        read_polygons(tmp_path / "moon.gpkg")
    assert "\n" not in str(caught.value) and "leads to no place on Earth" in str(caught.value)


def test_an_export_about_a_pole_says_where_it_lies() -> None:
    from maps.stac import _footprint

    box = GeoBox.from_bbox((-6e5, -4e5, 6e5, 4e5), crs="EPSG:3413", shape=(40, 60))
    wkt = CRS.from_epsg(3413).to_wkt()
    geometry, bbox = _footprint(SimpleNamespace(shape=box.shape, crs_wkt=wkt, geobox=box))
    corner = Transformer.from_crs(3413, 4326, always_xy=True).transform(6e5, 4e5)[1]
    assert bbox == [-180.0, pytest.approx(corner, abs=0.01), 180.0, 90.0]
    shape = shapely.geometry.shape(geometry)
    assert shapely.intersects_xy(shape, [0.0, 90.0, -135.0, 179.0], [89.9, 88.0, 87.0, 89.0]).all()


def test_polygons_beyond_the_earth_are_one_sentence() -> None:
    """Longitudes of 1e308 met arrays of as many turns; a box around the Earth was said to lie on a line."""
    from app.workflow.polygons import in_plane

    run = SimpleNamespace(crs=CRS.from_epsg(3857))

    def frame(west: float, south: float, east: float, north: float) -> geopandas.GeoDataFrame:
        return geopandas.GeoDataFrame(geometry=[shapely.box(west, south, east, north)], crs=4326)

    for box in ((-1e308, -50, 1e308, 50), (-1e9, -50, 50, 50), (0, -50, 50, 91)):
        with pytest.raises(InvalidInput, match="Row 0 of the polygons has coordinates that do not exist"):
            in_plane(frame(*box), run)
    whole = in_plane(frame(-180, -60, 180, 60), run)[0]
    assert whole.bounds[2] - whole.bounds[0] == pytest.approx(2 * 20037508.34, rel=1e-6)
    run = SimpleNamespace(crs=CRS.from_user_input("+proj=laea +lat_0=15 +lon_0=180 +type=crs"))
    across = in_plane(frame(-190, 10, -170, 20), run)[0]  # half of it beyond 180 degrees
    assert across.area == pytest.approx(in_plane(frame(160, 10, 180, 20), run)[0].area, rel=1e-6)

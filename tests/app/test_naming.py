"""Names on a map: towns where they lie, files that people bring, and nothing outside the region."""

from pathlib import Path

import geopandas
import numpy as np
import pytest
import shapely
from affine import Affine
from odc.geo.geobox import GeoBox
from pyproj import Geod, Transformer

from app.errors import InvalidInput
from app.workflow.naming import MOST_BROUGHT, Brought, brought, closer, named, towns
from app.workflow.naming import names as names_of
from app.workflow.naming.counties import between, counties, county_names, islands


class Page:
    """A square of 60 km around Honolulu in metres, its western half water."""

    def __init__(self) -> None:
        crs = "EPSG:32604"
        self._there = Transformer.from_crs(4326, crs, always_xy=True)
        x, y = self._there.transform(-157.86, 21.31)
        self.geobox = GeoBox((120, 120), Affine(500, 0, x - 30_000, 0, -500, y + 30_000), crs)
        known = np.zeros((120, 120), bool)
        known[:, 58:] = True
        self.places = (known, np.zeros((0, 3)))
        self.run = self

    def from_degrees(self, lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
        return np.column_stack(self._there.transform(lon, lat))

    def to_degrees(self, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lon, lat = self._there.transform(*np.asarray(xy).T, direction="INVERSE")
        return lon, lat


def test_towns_lie_in_the_region_the_largest_first() -> None:
    found = towns(Page())  # type: ignore[arg-type]  # a page as far as names ask
    names = [town["name"] for town in found]
    assert names[0] == "Honolulu" and found[0]["about"].endswith(" people")
    assert {"Kaneohe", "Kailua"} <= set(names)
    assert not {"Hilo", "Waipahu", "Kapolei", "Pearl City"} & set(names)  # elsewhere, and in the western half
    for town in found:
        assert 21.0 < town["lat"] < 21.6 and -157.9 < town["lon"] < -157.5


GLOBE = (-180.0, -89.0, 180.0, 89.0)


def km2(shape: shapely.Geometry) -> float:
    return abs(Geod(ellps="WGS84").geometry_area_perimeter(shape)[0]) / 1e6


def test_counties_are_those_of_the_census() -> None:
    """Land areas as the Census publishes them, whatever the atlas' 400 metres do to a coast."""
    known = {county.key: county for county in counties((-161.0, 18.5, -154.0, 22.5))}
    assert set(known) == {"15001", "15003", "15005", "15007", "15009"}
    for key, area in (("15001", 10_434), ("15003", 1_556), ("15007", 1_606), ("15009", 3_008)):
        assert km2(known[key].shape) == pytest.approx(area, rel=0.03)
    assert {c.key for c in counties((179.0, 51.0, 181.0, 53.0))} == {"02016"}  # across 180 degrees


def test_lines_run_between_counties_and_never_along_a_coast() -> None:
    found = {county.key: county for county in counties((-157.05, 21.1, -156.9, 21.3))}
    (line,) = between(list(found.values()))
    shared = found["15005"].shape.boundary.intersection(found["15009"].shape.boundary)
    assert shapely.LineString(line).length == pytest.approx(shared.length, rel=1e-9) and shared.length > 0.05
    assert between([c for c in counties((-158.3, 21.2, -157.6, 21.8)) if c.key == "15003"]) == []


def test_islands_are_islands() -> None:
    """Each point of the list lies on a piece of land that is no larger than the largest island."""
    found = islands(GLOBE)
    assert len(found) == 38 and len({place["name"] for place in found}) == 38
    for place in found:
        w, s, e, n = place["bounds"]
        assert w < place["lon"] < e and s < place["lat"] < n
        assert km2(shapely.box(w, s, e, n)) < 40_000, place
    oahu = next(place for place in found if place["also"] == ["Oahu"])
    np.testing.assert_allclose(oahu["bounds"], (-158.28, 21.25, -157.65, 21.71), atol=0.02)


def test_a_page_has_the_names_of_its_region() -> None:
    names = named(Page())  # type: ignore[arg-type]
    areas = [(place["name"], place["about"]) for place in names.places if place["kind"] == "area"]
    assert areas == [("Honolulu County", "county")]  # the label of the island lies in the western half
    assert [p["also"] for p in names.places if p["kind"] == "area"] == [
        ["Honolulu", "15003"]
    ]  # which offices search by
    assert names.lines == []
    assert "GeoNames" in names.credit and "Census" in names.credit
    assert {"Honolulu", "Kaneohe"} <= {place["name"] for place in names.places if place["kind"] == "town"}


def test_polygons_that_are_brought_take_the_place_of_counties() -> None:
    """What two of them share is drawn once; what lies elsewhere is neither drawn nor named."""
    west, east = shapely.box(-157.9, 21.2, -157.8, 21.4), shapely.box(-157.8, 21.2, -157.7, 21.4)
    far = shapely.box(-100.0, 40.0, -99.0, 41.0)
    places = [
        {"name": name, "lon": s.centroid.x, "lat": s.centroid.y, "kind": "area", "bounds": s.bounds}
        for name, s in (("West", west), ("East", east), ("Far", far))
    ]
    names = named(Page(), [Brought(places, (west, east, far))], [])  # type: ignore[arg-type]
    assert [place["name"] for place in names.places] == ["West", "East"]
    drawn = shapely.MultiLineString(names.lines)
    both = shapely.union(west.boundary, east.boundary)
    assert drawn.length == pytest.approx(both.length, rel=1e-6)
    assert drawn.hausdorff_distance(both) < 1e-4


def test_counties_are_found_with_their_boxes(tmp_path: Path) -> None:
    shapes = [shapely.box(-158.3, 21.2, -157.6, 21.7), shapely.box(-156.7, 20.5, -155.9, 21.1)]
    frame = geopandas.GeoDataFrame({"NAME": ["Honolulu County", "Maui"]}, geometry=shapes, crs=4326)
    frame.to_crs(32604).to_file(tmp_path / "counties.gpkg")
    found = brought(tmp_path / "counties.gpkg").places
    assert [place["name"] for place in found] == ["Honolulu County", "Maui"]
    np.testing.assert_allclose(found[0]["bounds"], shapes[0].bounds, atol=0.01)
    assert shapes[1].contains(shapely.Point(found[1]["lon"], found[1]["lat"]))


def test_a_county_that_is_brought_leaves_its_town_its_name(tmp_path: Path) -> None:
    """The Census' own files say Honolulu of a county: both are found, and labelled apart."""
    frame = geopandas.GeoDataFrame(
        {"GEOID": ["15003", "99999"], "NAME": ["Honolulu", "Honolulu"]},
        geometry=[shapely.box(-157.9, 21.2, -157.8, 21.4), shapely.box(-157.8, 21.2, -157.7, 21.4)],
        crs=4326,
    )
    frame.to_file(tmp_path / "counties.gpkg")
    names = named(Page(), [brought(tmp_path / "counties.gpkg")])  # type: ignore[arg-type]
    found = [(p["name"], p["kind"], p["about"]) for p in names.places if p["name"].startswith("Honolulu")]
    assert found[:2] == [("Honolulu County", "area", "county"), ("Honolulu", "area", "")]
    assert [kind for name, kind, _ in found[2:]] == ["town"]
    also = [p["also"] for p in names.places if p["name"].startswith("Honolulu") and p["kind"] == "area"]
    assert also == [["Honolulu", "15003"], ["99999"]]


def test_a_table_of_places(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("Name,lon,lat\nSchool A,-157.9,21.3\nnowhere,,\n")
    assert brought(tmp_path / "p.csv").places == [
        {"name": "School A", "lon": -157.9, "lat": 21.3, "kind": "town", "about": "", "also": []}
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lon,lat\n1,2\n", "no column of names"),
        ("name,lon,lat\n" + "a,1,2\n" * (MOST_BROUGHT + 1), "at most"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(InvalidInput, match=said):
        brought(tmp_path / "p.csv")
    with pytest.raises(InvalidInput, match="does not exist"):
        brought(tmp_path / "none.gpkg")


def test_counties_with_values_are_asked_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nation has 3,000: only one without the middle of a pixel in it is looked through by itself."""
    page, asked = Page(), list[shapely.Geometry]()
    page.geobox = GeoBox(
        (120, 120), Affine(40_000, 0, -2_400_000 + 600_000, 0, -40_000, 4_800_000), "EPSG:32615"
    )
    page._there = Transformer.from_crs(4326, "EPSG:32615", always_xy=True)
    page.places = (np.ones((120, 120), bool), np.zeros((0, 3)))
    found = counties((-95.0, 36.0, -89.0, 42.0))
    single = names_of._lies_in
    monkeypatch.setattr(names_of, "_lies_in", lambda page, shape: asked.append(shape) or single(page, shape))
    held = names_of._with_values(page, found)  # type: ignore[arg-type]
    assert len(found) > 200 and len(asked) < 0.5 * len(found)
    assert [c.key for c in held] == [c.key for c in found if single(page, c.shape)]  # type: ignore[arg-type]


def test_beside_a_large_pixel_lies_another_country(monkeypatch: pytest.MonkeyPatch) -> None:
    """A harbour on a pixel of water is named where pixels are small, a town 13 km from all values is not."""
    page = Page()
    lon, lat = page.to_degrees(
        np.array([[page.geobox.affine.c + 57.5 * 500, page.geobox.affine.f - 60 * 500]])
    )
    assert names_of.holds(page, lon, lat).tolist() == [True]  # type: ignore[arg-type]
    page.geobox = page.geobox.zoom_out(20)
    page.places = (page.places[0][::20, ::20].copy(), page.places[1])
    page.places[0][:] = False
    page.places[0][:, 3:] = True
    lon, lat = page.to_degrees(
        np.array([[page.geobox.affine.c + 2.5 * 10_000, page.geobox.affine.f - 3 * 10_000]])
    )
    assert names_of.holds(page, lon, lat).tolist() == [False]  # type: ignore[arg-type]


def test_of_a_nation_states_are_parted_and_a_part_has_its_counties() -> None:
    every = counties((-125.0, 24.0, -66.0, 50.0))
    few, some = between(every), between([c for c in every if c.key[:2] == "17"])
    assert len(every) > 3000 and len(few) < 1500  # those of states alone
    cook = [c for c in every if c.name == "Cook"]
    assert {len(between([c])) > 0 for c in cook} == {True} and len(some) > 100
    named_so = county_names(cook)
    assert [place["of"] for place in named_so] == ["Illinois", "Georgia", "Minnesota"]  # of most people first


def test_closer_a_part_has_more_towns_and_its_own_lines() -> None:
    box = (-157.86, 21.28, -157.7, 21.45)
    found = closer(Page(), box)  # type: ignore[arg-type]
    names = [place["name"] for place in found.places]
    assert "Kaneohe" in names and "Hilo" not in names and len(names) == len(set(names)) > 3
    assert all(box[0] <= p["lon"] <= box[2] and box[1] <= p["lat"] <= box[3] for p in found.places)
    assert found.places[0]["of"] == "Hawaii"

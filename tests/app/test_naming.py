"""Names on a map: towns where they lie, files that people bring, and nothing outside the region."""

from pathlib import Path

import geopandas
import numpy as np
import pytest
import shapely
from affine import Affine
from odc.geo.geobox import GeoBox
from pyproj import Transformer

from app.errors import InvalidInput
from app.workflow.naming import MOST_BROUGHT, brought, towns


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


def test_counties_are_found_with_their_boxes(tmp_path: Path) -> None:
    shapes = [shapely.box(-158.3, 21.2, -157.6, 21.7), shapely.box(-156.7, 20.5, -155.9, 21.1)]
    frame = geopandas.GeoDataFrame({"NAME": ["Honolulu County", "Maui"]}, geometry=shapes, crs=4326)
    frame.to_crs(32604).to_file(tmp_path / "counties.gpkg")
    found = brought(tmp_path / "counties.gpkg")
    assert [place["name"] for place in found] == ["Honolulu County", "Maui"]
    np.testing.assert_allclose(found[0]["bounds"], shapes[0].bounds, atol=0.01)
    assert shapes[1].contains(shapely.Point(found[1]["lon"], found[1]["lat"]))


def test_a_table_of_places(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("Name,lon,lat\nSchool A,-157.9,21.3\nnowhere,,\n")
    assert brought(tmp_path / "p.csv") == [
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

"""An area drawn or picked on the map: the numbers of `geogp areas`, and nothing for what is no area."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from starlette.testclient import TestClient

from app.cli import main
from app.dashboard import picking
from app.dashboard.atlas import Atlas
from app.errors import InvalidInput
from app.workflow.naming import Brought, Names

from .conftest import HOSTILE, LAT, LEVEL, LON
from .test_routes import application

RING = ((LON - 0.05, LAT - 0.05), (LON + 0.06, LAT - 0.04), (LON + 0.01, LAT + 0.06))


def ring(corners: Any = RING) -> str:
    return ";".join(f"{lon:.5f},{lat:.5f}" for lon, lat in corners)


@pytest.mark.parametrize("limit", ["42", "41.2345678"])
def test_the_card_says_what_the_command_says(limit: str, atlas: Atlas, tmp_path: Path, capsys: Any) -> None:
    """Of the file that one can download, by the command that is shown beside it."""
    told = picking.told(atlas, {"ring": ring(), "t": limit, "q": "2023Q3", "level": "80"})
    (tmp_path / "area.geojson").write_text(told["file"])
    line = told["command"].split()[1:]
    where = {"area.geojson": str(tmp_path / "area.geojson"), "area.gpkg": str(tmp_path / "area.gpkg")}
    assert main([where.get(part, part) for part in line] + ["--json", "-q"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["areas"]
    assert told["said"].startswith(
        f"mean level {row['mean']:.3g} Mbit/s ({row['lower']:.3g} to {row['upper']:.3g})"
    )
    assert "rank" not in told["said"]
    low, share, high = (100 * row[f"share_below_{limit}{end}"] for end in ("_lower", "", "_upper"))
    facts = dict(told["facts"])
    assert facts[f"Ground with a level below {limit} Mbit/s"] == f"{share:.1f}% ({low:.1f} to {high:.1f})"
    assert 0 < share < 100 and low < share < high
    assert facts["Measured tiles"] == f"{row['n_tiles']:,}"
    assert told["note"] == LEVEL
    drawn = shapely.geometry.shape(told["geometry"])
    assert drawn.normalize().equals_exact(shapely.Polygon(RING).normalize(), 1e-5)
    assert shapely.geometry.shape(json.loads(told["file"])["features"][0]["geometry"]).equals(drawn)


def test_a_place_picks_what_lies_around_it(atlas: Atlas, monkeypatch: pytest.MonkeyPatch) -> None:
    west = shapely.box(LON - 0.1, LAT - 0.1, LON, LAT + 0.1)
    monkeypatch.setattr(atlas, "brought", [Brought([{"name": HOSTILE, "kind": "area"}], (west,))])
    here = {"lat": str(LAT), "lon": str(LON - 0.02)}
    county = picking.told(atlas, {"pick": "county", **here})
    assert county["name"] == HOSTILE and shapely.geometry.shape(county["geometry"]).equals(west)
    hexagon = shapely.geometry.shape(picking.told(atlas, {"pick": "hexagon", **here})["geometry"])
    assert len(hexagon.exterior.coords) == 7 and hexagon.contains(shapely.Point(LON - 0.02, LAT))
    assert 25 < hexagon.area * 111.2**2 * np.cos(np.radians(LAT)) < 50  # km2
    with pytest.raises(InvalidInput, match="No county is known"):
        picking.told(atlas, {"pick": "county", "lat": str(LAT), "lon": str(LON + 0.02)})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"ring": ring(RING[:2])}, "3 to 200 corners; got 2"),
        ({"ring": ";".join(["1,2"] * 201)}, "got 201"),
        ({"ring": "1,2;3;4,5"}, "lat must be a number"),
        ({"ring": "1,2;nan,3;4,5"}, "lon must be a number"),
        ({"ring": ring([(0, 0), (1, 1), (1, 0), (0, 1)])}, "cross each other"),
        ({"ring": ring([(0, 0), (1, 0), (1, 1)])}, "outside the mapped region"),
        ({"pick": "moon", "lat": "34", "lon": "-143"}, "got 'moon'"),
        ({}, "lat must be"),
        ({"ring": ring(), "t": "-3"}, "threshold"),
    ],
)
def test_what_is_no_area_is_one_sentence(shown: object, asked: dict[str, str], said: str) -> None:
    answer = TestClient(application()).get("/geogp/area", params=asked)
    assert answer.status_code == 400 and said in answer.json()["error"]


def test_what_is_brought_is_called_a_county_only_where_it_is_one(
    atlas: Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kinds, word in ((["county"], "county"), (["county", ""], "area"), (["island"], ""), ([], "")):
        places = [{"name": "A", "kind": "area", "about": kind} for kind in kinds]
        monkeypatch.setitem(atlas.__dict__, "names", Names(places, []))
        assert atlas._area() == word

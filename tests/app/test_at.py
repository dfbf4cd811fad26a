"""`geogp at`: the maps' own numbers at the places of a table, which keeps what it has."""

import json

import geopandas
import numpy as np
import pandas as pd
import pytest
from odc.geo.geobox import GeoBox

from geogp.prediction import predict
from geogp.run import load


@pytest.fixture
def schools(run, tmp_path):
    """Six rows: two at tiles, one off the coast, one far away, one without a place, one at the region's edge."""
    loaded = load(run)
    lon, lat = loaded.to_degrees(loaded.support.positions_m[[0, 50, 50]] + [[0, 0], [0, 0], [700, 0]])
    frame = pd.DataFrame(
        {
            "id": ["007", "008", "009", "010", "011", "012"],
            "median": list("abcdef"),
            "Latitude": [*map(str, lat), "10.5", "", "95"],
            "Longitude": [*map(str, lon), "20.5", "-143", "-143"],
        }
    )
    path = tmp_path / "schools.csv"
    frame.to_csv(path, index=False)
    return path


def test_each_row_is_told_what_the_maps_say(cli, run, schools, tmp_path, monkeypatch):
    monkeypatch.setattr("app.workflow.places.ROWS", 4)  # in two parts
    out = tmp_path / "out.csv"
    result = cli("at", run, schools, "-o", out, "--thresholds", "25,50", "--json")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert (document["rows"], document["rows_with_values"]) == (6, 3)
    assert "2 of 6 rows have no place" in result.err and "1 of 6 places lies outside" in result.err
    table, given = pd.read_csv(out, dtype={"id": str}), pd.read_csv(schools, dtype=str)
    assert table["id"].tolist() == given["id"].tolist() and table["median_given"].tolist() == list("abcdef")
    assert (
        table["distance_m"][0] < 0.1
        and 0 < table["distance_m"][2] <= 700
        and table["median"][3:].isna().all()
    )
    assert not table["inside"][3:].any()

    # A pixel of a map whose centre is the place.
    loaded = load(run)
    east, north = loaded.support.positions_m[50]
    box = GeoBox.from_bbox(
        (east - 5, north - 5, east + 5, north + 5), crs=loaded.crs.to_wkt(), shape=(1, 1), tight=True
    )
    ds = predict(loaded, box, thresholds=(25.0, 50.0))
    for name in ("median", "lower", "upper", "latent_median", "latent_lower", "latent_upper", "explained"):
        assert table[name][1] == pytest.approx(float(ds[name].values[0, 0]), rel=1e-4), name
    assert table["exceedance_50"][1] == pytest.approx(float(ds["exceedance"].values[1, 0, 0]), abs=1e-5)


def test_any_table_in_any_format(cli, run, schools, tmp_path):
    assert cli("at", run, schools, "-o", tmp_path / "a.csv").code == 0
    a = pd.read_csv(tmp_path / "a.csv")
    loaded = load(run)
    rows = pd.read_csv(schools)[:3]
    xy = loaded.from_degrees(rows["Longitude"].to_numpy(), rows["Latitude"].to_numpy())
    points = geopandas.GeoDataFrame(
        {"id": rows["id"]}, geometry=geopandas.points_from_xy(*xy.T), crs=loaded.crs.to_wkt()
    )
    points.to_file(tmp_path / "points.gpkg")
    points.to_parquet(tmp_path / "points.parquet")
    plane = pd.DataFrame({"e": xy[:, 0], "n": xy[:, 1]})
    plane.to_csv(tmp_path / "plane.csv", index=False)
    plane_crs = tmp_path / "plane.wkt"
    plane_crs.write_text(loaded.crs.to_wkt())
    tries = {
        "b.gpkg": ["points.gpkg"],
        "c.parquet": ["points.parquet"],
        "d.parquet": ["plane.csv", "--x", "e", "--y", "n", "--crs", loaded.crs.to_wkt()],
    }
    for name, (source, *options) in tries.items():
        assert cli("at", run, tmp_path / source, "-o", tmp_path / name, *options).code == 0
        read = geopandas.read_file if name.endswith("gpkg") else geopandas.read_parquet
        table = read(tmp_path / name)
        assert table.crs == 4326 and table.geometry.x.iloc[0] == pytest.approx(rows["Longitude"][0])
        np.testing.assert_allclose(table["median"], a["median"][:3], rtol=1e-4)


BAD = {
    "no file": ("nowhere.csv", (), "does not exist"),
    "no places": ("bare.csv", (), "name them with --x and --y"),
    "no row with a place": ("empty.csv", (), "No row of empty.csv has a place"),
    "one of two": ("good.csv", ("--x", "lon"), "--x and --y go together"),
    "no such column": ("good.csv", ("--x", "u", "--y", "lat"), "no column 'u' for --x"),
    "no CRS": ("good.csv", ("--x", "lon", "--y", "lat", "--crs", "EPSG:x"), "not known to PROJ"),
    "polygons": ("poly.geojson", (), "holds a Polygon"),
    "not a table": ("text.gpkg", (), "cannot be read as a table"),
    "quarter": ("good.csv", ("--quarter", "2023"), "2023"),
    "tests": ("good.csv", ("--tests", "0"), "tests"),
    "threshold": ("good.csv", ("--thresholds", "-1"), "-1"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_one_sentence_and_leaves_nothing(case, cli, run, tmp_path, monkeypatch):
    import shapely

    monkeypatch.chdir(tmp_path)
    name, options, words = BAD[case]
    (tmp_path / "bare.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty.csv").write_text("lon,lat\nx,y\n")
    (tmp_path / "good.csv").write_text("lon,lat\n-143,34\n")
    (tmp_path / "text.gpkg").write_text("no table")
    geopandas.GeoDataFrame(geometry=[shapely.box(-144, 33, -143, 34)], crs=4326).to_file("poly.geojson")
    before = sorted(p.name for p in tmp_path.iterdir())
    result = cli("at", run, name, "-o", "out.csv", *options)
    assert result.code == 3 and words in result.err and result.out == "", result.err
    assert len(result.err.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize("ending", [".csv", ".geojson"])
def test_no_spreadsheet_computes_a_cell_of_somebody_elses(cli, run, tmp_path, ending):
    """From CSV to CSV and from polygons' files, both of which others may have written."""
    loaded, words = load(run), ["=HYPERLINK(1)", "+cmd|' /C calc'!A0", "@x", "-1+2", "-5", "Hilo"]
    lon, lat = loaded.to_degrees(np.repeat(loaded.support.positions_m[:1], len(words), axis=0))
    frame = pd.DataFrame({"name": words, "=1+1": 1, "lon": lon, "lat": lat})
    places = tmp_path / f"places{ending}"
    if ending == ".csv":
        frame.to_csv(places, index=False)
    else:
        geopandas.GeoDataFrame(frame, geometry=geopandas.points_from_xy(lon, lat), crs=4326).to_file(places)
    out = tmp_path / "out.csv"
    assert cli("at", run, places, "-o", out).code == 0
    table = pd.read_csv(out, dtype=str)
    assert table["name"].tolist() == [*(f"'{word}" for word in words[:4]), *words[4:]]
    assert "'=1+1" in table.columns and "=1+1" not in table.columns


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252"])
def test_a_table_with_semicolons_and_decimal_commas(cli, run, tmp_path, encoding):
    loaded = load(run)
    (lon,), (lat,) = loaded.to_degrees(loaded.support.positions_m[:1])
    text = f"Lon;Lat;Straße\n{lon:.6f};{lat:.6f};Käsweg\n".replace(".", ",")
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    result = cli("at", run, tmp_path / "t.csv", "-o", tmp_path / "out.csv")
    assert result.code == 0, result.err
    table = pd.read_csv(tmp_path / "out.csv")
    assert table["Straße"][0] == "Käsweg" and table["distance_m"][0] < 1 and table["median"][0] > 0
    again = cli("at", run, tmp_path / "out.csv", "-o", tmp_path / "again.csv")
    assert again.code == 0, again.err
    assert pd.read_csv(tmp_path / "again.csv")["median"][0] == table["median"][0]
    columns = ("--columns", "value=median", "-o", tmp_path / "t.parquet")
    assert cli("ingest", "--source", "csv", tmp_path / "out.csv", *columns).code == 0


def test_places_with_two_decimal_signs_are_refused(cli, run, tmp_path):
    """One of the two would stand between thousands."""
    (tmp_path / "t.csv").write_text("x;y;note\n500.000;5500000,5;1.5\n")
    result = cli("at", run, tmp_path / "t.csv", "-o", tmp_path / "out.csv", "--crs", "EPSG:32604")
    assert result.code == 3 and "5500000,5 in column y and 500.000 in column x" in result.err


@pytest.mark.parametrize(("text", "lon"), [('x,y\n"41,25",7\n1,2\n', np.nan), ("x;y\n41,25;7\n1;2\n", 41.25)])
def test_commas_between_digits_are_decimals_where_others_separate_cells(tmp_path, text, lon):
    from app.workflow.places import parts_of

    (tmp_path / "t.csv").write_text(text)
    ((frame, places),) = parts_of(tmp_path / "t.csv")
    np.testing.assert_equal(places[:, 0], [lon, 1.0])
    assert frame["x"][0] == "41,25"  # its own words stay


def test_thresholds_that_six_digits_do_not_tell_apart_have_a_column_each(cli, run, schools, tmp_path):
    out = tmp_path / "out.csv"
    assert cli("at", run, schools, "-o", out, "--thresholds", "25.00001,25.00002,1000000").code == 0
    names = [name for name in pd.read_csv(out).columns if name.startswith("exceedance_")]
    assert names == ["exceedance_25.00001", "exceedance_25.00002", "exceedance_1000000"]

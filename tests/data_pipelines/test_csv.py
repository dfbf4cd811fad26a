"""Other measurements, from CSV and GeoParquet: places in any CRS, times, counts, and what is refused."""

import warnings

import geopandas
import numpy as np
import pandas as pd
import pytest
import shapely

from data_pipelines import quadkey, zorder
from data_pipelines.errors import DataWarning, InvalidInput
from data_pipelines.observations import for_target, ingest_table, read
from data_pipelines.quarters import of_years
from data_pipelines.readers.delimited import HEAD, dialect_of

COLUMNS = {"x": "x", "y": "y", "value": "temperature"}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "obs.parquet"


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "stations.csv"
    path.write_text(
        "x,y,temperature,n,when,note\n"
        "-157.85,21.30,-2.5,3,2023-12-31,a\n"
        "-157.90,21.35,4,1,2023-01-01,b\n"
        ",21.4,7,1,2023-07-02T12:00:00,c\n"
        "-157.91,21.36,,1,2023-01-01,e\n"
        "-157.92,21.37,nan,1,2023-01-01,f\n"
        "-157.93,21.38,-inf,1,2023-01-01,g\n"
        "2.35,48.85,9,2,2022-04-01,d\n"
    )
    return path


def test_csv_becomes_observations_of_value(csv, out):
    columns = {**COLUMNS, "count": "n", "time": "when"}
    report = ingest_table(file=csv, columns=columns, bbox=(-161, 18, -154, 23), value_unit="degC", output=out)
    table, metadata = read(out)
    assert metadata["targets"] == ["value"] and metadata["value_unit"] == "degC"
    causes = {"no_place": 1, "outside": 1, "without_value": 2, "infinite_value": 1}
    assert metadata["dropped"] == causes and report.rows_kept == 2
    rows = table.to_pandas().sort_values("quarter")
    assert rows.quarter.tolist() == ["2023Q1", "2023Q4"] and rows.quadkey.isna().all()
    assert rows.tests.tolist() == [1, 3] and rows.devices.isna().all() and rows.urban.isna().all()
    np.testing.assert_allclose(rows.time_years, [2023.0, 2023.75 + 91 / 92 / 4])
    mask, dropped = for_target(table, "value", positive=False)
    assert dropped == {"null_value": 0, "nonpositive_value": 0} and mask.sum() == 2
    assert "2 of 7 rows kept (1 no place, 1 outside, 2 without value, 1 infinite value)" in report.summary()


def test_without_place_or_time_all_rows_stay(csv, out):
    report = ingest_table(file=csv, columns=COLUMNS, output=out)
    table, metadata = read(out)
    assert report.rows_kept == 3 and metadata["boundary"] is None and metadata["region"] is None
    assert table.column("quarter").null_count == table.column("time_years").null_count == 3
    assert geopandas.read_parquet(out).crs == 4326


def test_points_are_labelled_urban_where_they_lie(world_root, world, tmp_path, out):
    city = world.cities[0]
    lon, lat = world.to_degrees([city.x_km, city.x_km + 3 * city.radius_km], [city.y_km, city.y_km])
    (tmp_path / "t.csv").write_text(
        "x,y,v\n" + "".join(f"{a},{b},1\n" for a, b in zip(lon, lat, strict=True))
    )
    columns = {"x": "x", "y": "y", "value": "v"}
    ingest_table(file=tmp_path / "t.csv", columns=columns, urban=world.urban_file(world_root), output=out)
    table = read(out, ["urban", "urban_vintage", "urban_share"])[0]
    assert table.column("urban").to_pylist() == [True, False]
    assert table.column("urban_share").null_count == 2  # a point has no area


def test_decimal_years_are_taken_as_they_are(tmp_path, out):
    (tmp_path / "t.csv").write_text("x,y,v,t\n3,3,1,2020.5\n1,1,2,2021\n2,2,3,2019.999\n")
    ingest_table(file=tmp_path / "t.csv", columns={"x": "x", "y": "y", "value": "v", "time": "t"}, output=out)
    assert read(out)[0].column("quarter").to_pylist() == ["2019Q4", "2020Q3", "2021Q1"]


def test_projected_coordinates_need_their_crs(tmp_path, out):
    (tmp_path / "utm.csv").write_text("x,y,v\n619000,2355000,1\n")
    columns = {"x": "x", "y": "y", "value": "v"}
    with pytest.raises(InvalidInput, match=r"Row 1 of .*utm.csv lies at x=619000, y=2.355e\+06.*which CRS"):
        ingest_table(file=tmp_path / "utm.csv", columns=columns, output=out)
    ingest_table(file=tmp_path / "utm.csv", columns=columns, crs="EPSG:32604", output=out)
    row = read(out)[0].to_pylist()[0]
    assert (row["lon"], row["lat"]) == pytest.approx((-157.853, 21.293), abs=0.01)
    with pytest.raises(InvalidInput, match="The CRS 'EPSG:1' is not known"):
        ingest_table(file=tmp_path / "utm.csv", columns=columns, crs="EPSG:1", output=out, overwrite=True)


def test_geoparquet_points_bring_their_own_place(tmp_path, out):
    points = shapely.points([-157.85, -157.9], [21.3, 21.35])
    frame = geopandas.GeoDataFrame({"v": [1.5, 2.5]}, geometry=points, crs=4326).to_crs(32604)
    frame.to_parquet(tmp_path / "points.parquet")
    file = tmp_path / "points.parquet"
    ingest_table(file=file, source="geoparquet", columns={"value": "v"}, output=out)
    rows = read(out)[0].to_pandas().sort_values("value")
    np.testing.assert_allclose(rows.lon, [-157.85, -157.9], atol=1e-9)
    frame.set_geometry(frame.buffer(10)).to_parquet(file)
    with pytest.raises(InvalidInput, match="geometries that are not points"):
        ingest_table(file=file, source="geoparquet", columns={"value": "v"}, output=tmp_path / "b.parquet")


def test_geoparquet_columns_can_be_named(tmp_path, out):
    frame = geopandas.pd.DataFrame({"a": [1.0], "b": [2.0], "v": [3.0]})
    frame.to_parquet(tmp_path / "plain.parquet")
    columns = {"x": "a", "y": "b", "value": "v"}
    ingest_table(file=tmp_path / "plain.parquet", source="geoparquet", columns=columns, output=out)
    assert read(out)[0].column("lon").to_pylist() == [1.0]
    with pytest.raises(InvalidInput, match="cannot be read as GeoParquet"):
        ingest_table(
            file=tmp_path / "plain.parquet",
            source="geoparquet",
            columns={"value": "v"},
            output=tmp_path / "b",
        )


def test_times_may_be_quarters(tmp_path, out):
    file = tmp_path / "quarters.csv"
    file.write_text("x,y,v,when\n-157.8,21.3,1,2021Q4\n-157.9,21.3,2,2022q1 \n")
    columns = {"x": "x", "y": "y", "value": "v", "time": "when"}
    ingest_table(file=file, columns=columns, output=out)
    rows = read(out)[0].to_pandas().sort_values("value")
    assert rows.quarter.tolist() == ["2021Q4", "2022Q1"]
    np.testing.assert_allclose(rows.time_years, [2021.875, 2022.125])


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (
            {"x": "x", "y": "y"},
            r"which column of .*stations.csv is value, such as --columns value=temperature; it has x, y, temperature",
        ),
        ({**COLUMNS, "value": "humidity"}, "has no column 'humidity' for value; it has x, y, temperature"),
        ({**COLUMNS, "weight": "n"}, "Unknown column role 'weight'"),
        ({**COLUMNS, "value": "note"}, "Column note of .* is not numeric"),
        ({**COLUMNS, "time": "note"}, "Column note of .* is no time"),
    ],
)
def test_columns_that_do_not_fit(csv, out, columns, match):
    with pytest.raises(InvalidInput, match=match):
        ingest_table(file=csv, columns=columns, output=out)
    assert not out.exists()


def test_files_that_do_not_fit(tmp_path, out):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "ragged.csv").write_text("x,y,v\n1,2\n")
    for name in ("empty.csv", "ragged.csv"):
        with pytest.raises(InvalidInput, match=f"{name} cannot be read as CSV"):
            ingest_table(file=tmp_path / name, columns=COLUMNS, output=out)
    with pytest.raises(InvalidInput, match="not a readable Parquet file"):
        ingest_table(file=tmp_path / "ragged.csv", source="geoparquet", columns=COLUMNS, output=out)
    with pytest.raises(InvalidInput, match="Unknown table source 'excel'"):
        ingest_table(file=tmp_path / "ragged.csv", source="excel", columns=COLUMNS, output=out)


GERMAN = 'Station;Länge;Breite;Härte;"n;N"\nA;174,5;-41,25;12,5;1\nB;174,75;-41,5;;2\nC;175;-41;-3;3\n'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_a_table_as_a_german_spreadsheet_writes_it(tmp_path, out, encoding):
    (tmp_path / "t.csv").write_bytes(GERMAN.encode(encoding))
    columns = {"x": "Länge", "y": "Breite", "value": "Härte", "count": "n;N"}
    ingest_table(file=tmp_path / "t.csv", columns=columns, output=out)
    rows = read(out)[0].to_pandas().sort_values("lon")
    assert (
        rows.value.tolist() == [12.5, -3]
        and rows.lon.tolist() == [174.5, 175]
        and rows.tests.tolist() == [1, 3]
    )


def test_thousands_between_commas_are_no_decimals(tmp_path, out):
    (tmp_path / "t.csv").write_text('lon,lat,v\n-155,20,"1,234"\n-156,21,"2,100"\n')
    with pytest.raises(InvalidInput, match=r"Column v of .* is not numeric"):
        ingest_table(file=tmp_path / "t.csv", columns={"value": "v"}, output=out)


def test_a_whole_number_first_hides_no_decimal_commas(tmp_path, out):
    (tmp_path / "t.csv").write_text("lon;lat;v\n-155;20;21\n-155,25;20,5;21,5\n")
    ingest_table(file=tmp_path / "t.csv", columns={"value": "v"}, output=out)
    assert sorted(read(out)[0].column("value").to_pylist()) == [21.0, 21.5]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ("10,5;50,2;25.236;1", "the number 10,5 in column lon and 25.236 in column v;"),
        ("10.5;50.2;25,236;1", "the number 25,236 in column v and 10.5 in column lon;"),
        ("10;50;25,236;1.5e1", "the number 25,236 in column v and 1.5e1 in column n;"),
    ],
)
def test_one_decimal_sign_a_table(tmp_path, out, cells, words):
    """Which of the two stands between thousands nobody can tell: the value was a thousandth of what was meant."""
    (tmp_path / "t.csv").write_text(f"lon;lat;v;n;note\n11;51;2;1;1.2\n{cells};1,2\n")
    with pytest.raises(InvalidInput, match=words) as refused:
        ingest_table(file=tmp_path / "t.csv", columns={"value": "v", "count": "n"}, output=out)
    assert refused.value.exit_code == 3 and not out.exists()


def test_what_is_not_asked_for_may_have_another_decimal_sign(tmp_path, out):
    (tmp_path / "t.csv").write_text("E;N;lon;v;version\n10,5;50,2;10.5;25,5;1.2\n11;51;11.5;3;2.0\n")
    columns = {"x": "E", "y": "N", "value": "v"}
    ingest_table(file=tmp_path / "t.csv", columns=columns, output=out)
    assert sorted(read(out)[0].column("value").to_pylist()) == [3.0, 25.5]
    with pytest.raises(InvalidInput, match=r"10,5 in column E and 1\.2 in column version"):
        ingest_table(
            file=tmp_path / "t.csv", columns=columns, covariates=["version"], output=out, overwrite=True
        )


@pytest.mark.parametrize("before", [0, 70_000])
def test_letters_of_windows_are_known_wherever_they_stand(tmp_path, before):
    file = tmp_path / "t.csv"
    file.write_bytes(b"lon;lat;v;name\n" + before * b"1;2;3;a\n" + b"1;2;3;caf\xe9\n")
    assert dialect_of(file).encoding == "cp1252"
    file.write_bytes(
        ("1;2;3;é" * (HEAD // 4)).encode()
    )  # a letter of two bytes across what is looked at first
    assert dialect_of(file).encoding == "utf-8"


def test_a_value_is_found_by_its_name(tmp_path, out):
    (tmp_path / "t.csv").write_text("n;lon;lat;Value\n7;-155,5;20;2,0\n8;-155;20;3\n")
    ingest_table(file=tmp_path / "t.csv", output=out)
    table, metadata = read(out)
    assert table.column("value").to_pylist() == [2.0, 3.0] and metadata["value_name"] == "Value"
    ingest_table(
        file=tmp_path / "t.csv", columns={"value": "n", "count": "Value"}, output=tmp_path / "other.parquet"
    )
    assert read(tmp_path / "other.parquet")[0].column("value").to_pylist() == [7, 8]
    with pytest.raises(InvalidInput, match="--columns value=n; it has n, lon, lat, Value"):
        ingest_table(file=tmp_path / "t.csv", columns={"count": "Value"}, output=tmp_path / "none.parquet")


def test_a_value_is_found_by_its_name_in_parquet(tmp_path, out):
    pd.DataFrame({"E": [1.0], "N": [2.0], "value": [3.0]}).to_parquet(tmp_path / "t.parquet")
    asked = {"file": tmp_path / "t.parquet", "source": "geoparquet", "crs": 4326}
    ingest_table(**asked, columns={"x": "E", "y": "N"}, output=out)
    points = geopandas.GeoDataFrame(
        {"lon": [9.0], "lat": [9.0], "value": [4.0]}, geometry=[shapely.Point(1, 2)], crs=4326
    )
    points.to_parquet(tmp_path / "p.parquet")
    ingest_table(file=tmp_path / "p.parquet", source="geoparquet", output=tmp_path / "p.out.parquet")
    rows = [
        read(path)[0].to_pandas()[["lon", "lat", "value"]].iloc[0].tolist()
        for path in (out, tmp_path / "p.out.parquet")
    ]
    assert rows == [[1.0, 2.0, 3.0], [1.0, 2.0, 4.0]]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_places_are_found_by_their_names(tmp_path, out, separator):
    text = "Latitude,id,Longitude,v\n-41.25,1,174.5,2\n"
    (tmp_path / "t.csv").write_text(text.replace(",", separator))
    ingest_table(file=tmp_path / "t.csv", columns={"value": "v"}, output=out)
    assert read(out)[0].column("lat").to_pylist() == [-41.25]


def test_empty_times_are_refused(tmp_path, out):
    (tmp_path / "t.csv").write_text("x,y,v,t\n0,0,1,2020-01-01\n1,1,2,\n")
    with pytest.raises(InvalidInput, match="has 1 empty time; fill it"):
        ingest_table(
            file=tmp_path / "t.csv", columns={"x": "x", "y": "y", "value": "v", "time": "t"}, output=out
        )


def test_single_measurements_become_averages_of_their_tiles(tmp_path, out):
    """As pandas groups them, one by one; the count that a row has weighs."""
    rng = np.random.default_rng(0)
    n = 3000
    homes = np.column_stack([rng.uniform(-157.9, -157.8, 40), rng.uniform(21.3, 21.4, 40)])
    home = rng.integers(0, 40, n)
    lon, lat = (homes[home] + 1e-5 * rng.standard_normal((n, 2))).T
    frame = pd.DataFrame({"lon": lon, "lat": lat, "mbps": rng.lognormal(4, 1, n), "n": rng.integers(0, 4, n)})
    frame["when"] = np.where(rng.random(n) < 0.5, "2023-02-01", "2023-08-20")
    frame["height"] = np.where(rng.random(n) < 0.1, np.nan, 10.0 * home)
    frame.to_csv(tmp_path / "tests.csv", index=False)
    columns = {"value": "mbps", "count": "n", "time": "when"}
    asked = {"file": tmp_path / "tests.csv", "columns": columns, "covariates": ["height"]}
    with pytest.warns(DataWarning, match=r"3,000 rows lie in \d+ tiles .* --average"):
        ingest_table(**asked, output=tmp_path / "plain.parquet")
    report = ingest_table(**asked, average=True, output=out)
    table, metadata = read(out)
    rows = table.to_pandas()
    tile = zorder.quadkeys(*quadkey.tile_of(frame.lon, frame.lat))
    frame = frame.assign(
        tile=tile, quarter=np.where(frame.when < "2023-04", "2023Q1", "2023Q3"), w=frame.n.clip(1)
    )
    want = frame.groupby(["tile", "quarter"]).apply(
        lambda g: pd.Series(
            {
                "value": np.average(g.mbps, weights=g.w),
                "tests": g.w.sum(),
                "height": np.average(g.height.dropna(), weights=g.w[g.height.notna()])
                if g.height.notna().any()
                else np.nan,
            }
        )
    )
    assert len(rows) == len(want) == report.rows_kept == metadata["rows_kept"] < n / 20
    assert (
        metadata["averaged_rows"] == n
        and f"{len(want):,} averages over 3,000 of 3,000 rows kept" in report.summary()
    )
    where = zorder.quadkeys(*quadkey.tile_of(rows.lon, rows.lat))
    got = rows.assign(tile=where).set_index(["tile", "quarter"]).loc[want.index]
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-9)
    centre = quadkey.centre(*quadkey.tile_of(rows.lon, rows.lat))
    np.testing.assert_allclose(np.stack(centre), rows[["lon", "lat"]].to_numpy().T, atol=1e-9)


def test_a_date_belongs_to_the_quarter_of_its_month(tmp_path, out):
    """The first days of April lie within the first quarter of the days of a year."""
    days = [f"2023-{month:02d}-{day}" for month in range(1, 13) for day in ("01", "02", "28")]
    path = tmp_path / "days.csv"
    path.write_text("x,y,t,when\n" + "".join(f"{k},1,2,{day}\n" for k, day in enumerate(days)))
    ingest_table(file=path, columns={"value": "t", "x": "x", "y": "y", "time": "when"}, output=out)
    rows = read(out)[0].to_pandas().sort_values("lon")
    assert rows.quarter.tolist() == [f"2023Q{(int(day[5:7]) + 2) // 3}" for day in days]
    assert rows.quarter.tolist() == of_years(rows.time_years).tolist()  # by which `update` forgets
    assert (np.diff(rows.time_years) > 0).all() and rows.time_years.iloc[9] == 2023.25


def test_averages_lie_in_the_place_by_their_tiles(tmp_path, out):
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(5.0, 5.02, (2, 2000))
    path = tmp_path / "here.csv"
    path.write_text("x,y,t\n" + "".join(f"{a:.6f},{b:.6f},1\n" for a, b in zip(lon, lat)))
    box = (5.003, 5.003, 5.017, 5.017)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        ingest_table(file=path, columns={**COLUMNS, "value": "t"}, bbox=box, average=True, output=out)
    table, metadata = read(out)
    where = np.stack([table.column(name).to_numpy() for name in ("lon", "lat")])
    assert (where > 5.003).all() and (where < 5.017).all()
    kept = metadata["sources"][0]["rows_kept"]
    assert sum(table.column("tests").to_pylist()) == kept == metadata["averaged_rows"]
    assert kept + metadata["dropped"]["outside"] == 2000


def test_a_dense_survey_is_not_taken_for_single_tests(tmp_path, out):
    rng = np.random.default_rng(0)
    path = tmp_path / "soil.csv"
    path.write_text("x,y,t\n" + "".join(f"{a:.6f},{b:.6f},1\n" for a, b in rng.uniform(5.0, 5.01, (150, 2))))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        ingest_table(file=path, columns={**COLUMNS, "value": "t"}, output=out)


def test_averages_without_counts_or_times_count_their_rows(csv, out):
    ingest_table(file=csv, columns=COLUMNS, average=True, output=out)
    table, _ = read(out)
    assert table.column("tests").to_pylist() == [1, 1, 1] and table.column("quarter").null_count == 3


def test_there_are_no_tiles_at_a_pole(tmp_path, out):
    (tmp_path / "ice.csv").write_text("x,y,temperature\n10,89.5,-30\n20,70,-3\n")
    with pytest.raises(InvalidInput, match=r"latitude 89.5, and tiles end at 85.05"):
        ingest_table(file=tmp_path / "ice.csv", columns=COLUMNS, average=True, output=out)
    assert not out.exists()


def test_counts_that_are_no_whole_numbers_are_told_of(tmp_path, out):
    path = tmp_path / "t.csv"
    cells = ["0.3", "2.6", "4.0", "0", "-1", "-7", ""]
    path.write_text("x,y,v,n\n" + "".join(f"{k},1,2,{cell}\n" for k, cell in enumerate(cells)))
    columns = {"x": "x", "y": "y", "value": "v", "count": "n"}
    with pytest.warns(DataWarning) as told:
        ingest_table(file=path, columns=columns, output=out)
    assert [str(one.message) for one in told] == [
        "2 counts were no whole numbers and are rounded, to 1 at least.",
        "2 counts were negative and are taken as missing.",
    ]
    table, metadata = read(out)
    assert table.column("tests").to_pylist() == [1, 3, 4, 0, None, None, None]
    assert metadata["flagged"] == {
        "rounded_count": 2,
        "negative_count": 2,
        "null_tests": 3,
        "nonpositive_tests": 1,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        (tmp_path / "w.csv").write_text("x,y,v,n\n0,1,2,1.0\n1,1,2,3\n2,1,2,\n")
        ingest_table(file=tmp_path / "w.csv", columns=columns, output=out, overwrite=True)

"""Tables as people write them: times in many forms, cells that are no numbers, places that are swapped, rows that repeat."""

import warnings

import numpy as np
import pytest

from data_pipelines.copies import first_of
from data_pipelines.errors import DataWarning, InvalidInput
from data_pipelines.observations import ingest, ingest_table, read

TIMED = {"value": "v", "time": "when"}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "obs.parquet"


@pytest.fixture
def file(tmp_path):
    """A function: lines to a file."""

    def write(*lines):
        path = tmp_path / "table.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.mark.parametrize(
    ("cells", "quarters", "years"),
    [
        (["2022-07", "2021-01"], ["2021Q1", "2022Q3"], [2021 + 0.5 / 12, 2022 + 6.5 / 12]),
        (["2022-Q3", "2021-q1"], ["2021Q1", "2022Q3"], [2021.125, 2022.625]),
        (["Q3 2022", "Q1-2021"], ["2021Q1", "2022Q3"], [2021.125, 2022.625]),
        (["20220701", "20210401"], ["2021Q2", "2022Q3"], [2021.25, 2022.5]),
        (["2022-07-01", "Q1 2021"], ["2021Q1", "2022Q3"], [2021.125, 2022.5]),
        (["20220701", "2021-04-01 00:00"], ["2021Q2", "2022Q3"], [2021.25, 2022.5]),
        (["2022.5", "2021-04"], ["2021Q2", "2022Q3"], [2021 + 3.5 / 12, 2022.5]),
        (["202207", "202101"], ["2021Q1", "2022Q3"], [2021 + 0.5 / 12, 2022 + 6.5 / 12]),
        (["202207", "2021-04"], ["2021Q2", "2022Q3"], [2021 + 3.5 / 12, 2022 + 6.5 / 12]),
        (["07/2022", "2021/04"], ["2021Q2", "2022Q3"], [2021 + 3.5 / 12, 2022 + 6.5 / 12]),
        (["2022/07/01", "2021.4.1 00:00"], ["2021Q2", "2022Q3"], [2021.25, 2022.5]),
        (["01/04/2021", "31/12/2022"], ["2021Q2", "2022Q4"], [2021.25, 2022.75 + 91 / 92 / 4]),
        (["04/01/2021", "12/31/2022 12:00"], ["2021Q2", "2022Q4"], [2021.25, 2022.75 + 91.5 / 92 / 4]),
        (["1.4.2021", "1.7.2022"], ["2021Q2", "2022Q3"], [2021.25, 2022.5]),
        (["1/1/2021", "7-7-2022"], ["2021Q1", "2022Q3"], [2021.0, 2022.5 + 6 / 92 / 4]),
    ],
)
def test_times_as_people_write_them(file, out, cells, quarters, years):
    ingest_table(
        file=file("lon,lat,v,when", *(f"1,{i},2,{cell}" for i, cell in enumerate(cells))),
        columns=TIMED,
        output=out,
    )
    rows = read(out)[0].to_pandas().sort_values("time_years")
    assert rows.quarter.tolist() == quarters
    np.testing.assert_allclose(rows.time_years, years, rtol=1e-12)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (
            ["2022-07-01", "07/03/22", "7/4/22"],
            r"has '07/03/22' in row 2, the first of 2 such cells of 3; give",
        ),
        (["31/12/2022", "31/11/2022", "13/12/2022"], r"has '31/11/2022' in row 2; give"),
        (["2022-07-01", "2022-13", "2022-07-02"], r"has '2022-13' in row 2; give"),
        (["20221301", "20220701", "x"], r"has '20221301' in row 1, the first of 2"),
        (["2022Q5", "2022Q1", ""], r"has '2022Q5' in row 1; give decimal years, dates such as"),
    ],
)
def test_what_is_no_time_is_named_with_its_row(file, out, cells, words):
    path = file("lon,lat,v,when", *(f"1,{i},2,{cell}" for i, cell in enumerate(cells)))
    with pytest.raises(InvalidInput, match=rf"Column when of .* is no time: it {words}"):
        ingest_table(file=path, columns=TIMED, output=out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (
            ["2022-07-01", "07/03/2022", "7/7/2022"],
            r"dates such as '07/03/2022', and no part above 12 that would tell whether the day or the month comes first; write",
        ),
        (
            ["13/01/2022", "07/03/2022", "1/31/2022"],
            r"begin with their day, as '13/01/2022', and with their month, as '1/31/2022'; write dates as 2023-11-20",
        ),
    ],
)
def test_days_and_months_that_nothing_tells_apart_are_refused(file, out, cells, words):
    path = file("lon,lat,v,when", *(f"1,{i},2,{cell}" for i, cell in enumerate(cells)))
    with pytest.raises(
        InvalidInput, match=rf"Column when of .* has dates (?:that )?{words.removeprefix('dates ')}"
    ):
        ingest_table(file=path, columns=TIMED, output=out)
    assert not out.exists()


@pytest.mark.parametrize("number", ["202213", "189912", "210101"])
def test_six_digits_that_are_no_month_of_our_time_are_named(file, out, number):
    with pytest.raises(InvalidInput, match=f"is no time: it has '{number}' in row 2; give decimal years"):
        ingest_table(
            file=file("lon,lat,v,when", "1,1,2,202207", f"1,2,2,{number}"), columns=TIMED, output=out
        )


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["7", "<5", "n.d."], r"in 2 of 3 rows, the first of them row 2 with '<5'; give a number in each"),
        (
            ['"1,043.5"', "5", "6"],
            r"in 1 of 3 rows, the first of them row 1 with '1,043.5'; write numbers without",
        ),
    ],
)
def test_a_text_among_numbers_is_named_with_its_row(file, out, cells, words):
    path = file("lon,lat,v", *(f"1,{i},{cell}" for i, cell in enumerate(cells)))
    with pytest.raises(InvalidInput, match=f"Column v of .*table.csv is not numeric {words}"):
        ingest_table(file=path, columns={"value": "v"}, output=out)


def test_a_swapped_row_is_told_from_swapped_columns(file, out):
    right, wrong = (
        [f"-157.{i:03d},21.3,{i}" for i in range(20)],
        [f"21.3,-157.{i:03d},{i}" for i in range(20)],
    )
    few = r"Row 3 of .* x=21.3, y=-157.002, which is no longitude and latitude, the only such row of 20; mend it"
    with pytest.raises(InvalidInput, match=few):
        ingest_table(file=file("lon,lat,value", *right[:2], wrong[2], *right[3:]), output=out)
    with pytest.raises(InvalidInput, match=r"Row 1 of .*, the first of 3 such rows of 20; mend it"):
        ingest_table(file=file("lon,lat,value", *wrong[:3], *right[3:]), output=out)
    with pytest.raises(InvalidInput, match=r"Row 1 of .*, the first of 20 such rows of 20; swap x and y"):
        ingest_table(file=file("lon,lat,value", *wrong), output=out)


def test_numbers_are_suggested_for_values(file, out):
    path = file("station,month,lon,lat,no2", "S1,202201,11.5,48.1,22.5", "S2,202202,11.6,48.2,20.5")
    with pytest.raises(InvalidInput, match=r"is value, such as --columns value=no2; it has station, month"):
        ingest_table(file=path, output=out)


def test_the_suggested_option_can_be_pasted(file, out):
    with pytest.raises(InvalidInput, match=r"such as --columns 'value=Download \(Mbps\)'; it has"):
        ingest_table(file=file("lon,lat,Download (Mbps)", "1,1,2"), output=out)


@pytest.mark.parametrize("name", ["count", "Tests", "n_tests"])
def test_counts_are_found_by_their_name(file, out, name):
    report = ingest_table(file=file(f"lon,lat,value,{name}", "1,1,2,7", "1,2,3,8"), output=out)
    table, metadata = read(out)
    assert table.column("tests").to_pylist() == [7, 8]
    assert metadata["columns_found"] == {"x": "lon", "y": "lat", "value": "value", "count": name}
    assert f"columns taken by their names: x=lon, y=lat, value=value, count={name}" in report.summary()


@pytest.mark.parametrize(
    ("names", "row", "columns"),
    [
        ("value,count,tests", "3,4,5", {}),  # which of the two?
        ("value,count", "3,0.5", {}),  # no counts
        ("value,count", "3,many", {}),
        ("v,count", "3,4", {"value": "count"}),  # it is something else
    ],
)
def test_what_may_be_no_counts_is_left(file, out, names, row, columns):
    ingest_table(file=file(f"lon,lat,{names}", f"1,1,{row}"), columns=columns, output=out)
    assert read(out)[0].column("tests").null_count == 1


def test_a_named_count_wins(file, out):
    path = file("lon,lat,value,count,n", "1,1,3,4,9")
    ingest_table(file=path, columns={"count": "n"}, output=out)
    assert read(out)[0].column("tests").to_pylist() == [9] and read(out)[1]["columns_found"] == {
        "x": "lon",
        "y": "lat",
        "value": "value",
    }


def test_exact_copies_are_kept_and_told_of(file, out):
    rows = [f"1,{i},2,{i + 1},2023-01-0{i + 1}" for i in range(5)]
    columns = {"time": "when", "value": "value"}
    path = file("lon,lat,value,count,when", *rows, *rows[:2], "1,0,2,1,2023-01-02")
    with pytest.warns(
        DataWarning, match="2 rows are exact copies of others .* and kept; .* take such rows out"
    ):
        report = ingest_table(file=path, columns=columns, output=out)
    assert report.rows_kept == 8 and report.metadata["flagged"]["repeated_row"] == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        other = out.parent / "other"
        other.mkdir()
        ingest_table(
            file=file("lon,lat,value,count,when", *rows), columns=columns, output=other / "obs.parquet"
        )


def test_the_first_of_copies_by_another_route():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (200, 3)).astype(float)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    met: dict[str, int] = {}
    want = [met.setdefault(repr(row), i) for i, row in enumerate(rows.tolist())]
    assert first_of(list(rows.T)).tolist() == want and len(met) < 100


@pytest.mark.parametrize("name", ["obs.csv", "obs.GPKG"])
def test_a_name_that_promises_another_format_is_refused(file, tmp_path, name):
    with pytest.raises(InvalidInput, match=f"written as GeoParquet; name the output .parquet, not {name}"):
        ingest_table(file=file("lon,lat,value", "1,1,2"), output=tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("quarters", "words"), [("2023Q5", "cannot be read at '2023Q5'"), ("2023Q4..2022Q1", "runs backwards")]
)
def test_quarters_are_read_before_anything_is_fetched(out, monkeypatch, quarters, words):
    from data_pipelines import census

    monkeypatch.setattr(census, "state", lambda *asked: pytest.fail("fetched for nothing"))
    with pytest.raises(InvalidInput, match=words):
        ingest(quarters=quarters, region="HI", output=out)

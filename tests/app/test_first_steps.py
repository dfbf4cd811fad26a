"""What somebody meets who tries it for the first time: a line without a command, slips in names, a few rows, a full disk."""

import geopandas
import numpy as np
import pytest
import shapely

from app.errors import InvalidInput
from app.peers import PEERS
from app.workflow.tables import write_table
from app.workflow.together import _shared
from geogp.methods import METHODS
from geogp.run import load
from tests.faults.limiting import under_limit


@pytest.fixture
def survey(tmp_path):
    """A function: values to a CSV of them."""

    def write(values):
        rng = np.random.default_rng(0)
        places = rng.uniform(0, 0.2, (len(values), 2))
        path = tmp_path / "plain.csv"
        path.write_text(
            "lon,lat,value\n"
            + "".join(f"{a:.5f},{b:.5f},{v}\n" for (a, b), v in zip(places, values, strict=True))
        )
        return path

    return write


@pytest.fixture
def fitted(cli, survey, tmp_path):
    """A function: values to a run of them, and what its fit said."""

    def fit(values):
        table, run = tmp_path / "t.parquet", tmp_path / "run"
        assert cli("ingest", "--source", "csv", survey(values), "-o", table).code == 0
        result = cli("fit", table, "--method", "local-gp", "--set", "steps=5", "-o", run)
        assert result.code == 0, result.err
        return run, result.err

    return fit


def test_a_line_without_a_command_shows_the_help(cli):
    result, asked = cli(), cli("--help")
    assert result.code == 2 and result.out == "" and result.err.strip() == asked.out.strip()
    assert len(result.err.splitlines()) > 20


def test_peers_are_named_where_methods_are(cli, table):
    result = cli("compare", table, "--split", "random", "--methods", "geogp,lightgbm")
    assert result.code == 2 and "there is no method 'lightgbm', nor a peer; methods are" in result.err
    assert all(name in result.err for name in (*METHODS, *PEERS))
    shown = cli("compare", "--help").out.replace("\n", "").replace(" ", "")
    assert all(name in shown for name in PEERS) and "compare --help" in cli("methods").out


def test_a_table_of_ones_own_needs_its_source(cli, survey, tmp_path):
    result = cli("ingest", survey([1, 2]), "-o", tmp_path / "t.parquet")
    assert result.code == 2 and "for a table of your own say --source csv or geoparquet" in result.err


@pytest.mark.parametrize("command", ["fit", "export"])
def test_a_file_where_a_folder_was_asked_for(command, cli, table, run, tmp_path):
    (tmp_path / "afile").write_text("precious")
    output = tmp_path / "afile" if command == "export" else tmp_path / "afile" / "x"
    result = cli(command, run if command == "export" else table, "-o", output)
    assert result.code == 3 and "afile is a file, and a folder was asked for" in result.err, result.err
    assert len(result.err.strip().splitlines()) == 1 and (tmp_path / "afile").read_text() == "precious"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([5.0], "Only 1 row was learned from, too few"),
        ([5.0, 6.0], "Only 2 rows were learned from, too few"),
        ([7.0] * 30, "All 30 rows learned from have the value 7: no map follows from them"),
    ],
)
def test_rows_from_which_nothing_follows_are_told_of(values, words, cli, fitted, tmp_path):
    run, said = fitted(values)
    assert f"warning: {words}" in said
    assert cli("report", run, "-o", tmp_path / "r.html").code == 0
    text = (tmp_path / "r.html").read_text()
    n = len(values)
    assert words in text and f"learned from {n} row{'s' if n > 1 else ''} " in text.replace("<", " ")
    assert ("lies below 7" in text or "it lies" in text) == (n == 2)
    shown = cli("export", run, "-o", tmp_path / "maps", "--format", "csv", "--resolution", 5000)
    assert shown.code == 0 and f"Note: {words}" in shown.err


def test_ten_rows_pass_without_a_word(fitted):
    assert "warning" not in fitted([float(i) for i in range(10)])[1]


def test_runs_of_other_places_share_no_rows(run):
    from app.workflow.rows import observations_of

    one = load(run)
    rows = observations_of(one)
    half = np.arange(len(rows.t)) < len(rows.t) // 2

    class Part:
        sha256, table, usable = "other", rows.table.slice(0, len(rows.t) // 2), half[: len(rows.t) // 2]

    class Rest:
        sha256, table, usable = "another", rows.table.slice(len(rows.t) // 2), half[len(rows.t) // 2 :]

    with pytest.raises(InvalidInput, match=r"share no rows, none of one tile and quarter.*name two runs of"):
        _shared(one, one, Part, Rest)


def test_a_geopackage_that_meets_a_full_disk(tmp_path):
    """GDAL told ten kilobytes of SQL; what was there before stays."""
    n, rng = 500, np.random.default_rng(0)
    frame = geopandas.GeoDataFrame(
        {f"c{i}": rng.normal(size=n) for i in range(10)},
        geometry=shapely.points(rng.random((n, 2))),
        crs=4326,
    )
    file = tmp_path / "a.gpkg"
    file.write_bytes(b"old")
    for size in (0, 300, 50_000, 100_000, 120_000):
        (name, code, text), _ = under_limit(size, _write, frame, file)
        assert (name, code) == ("NoRoom", 1), text
        assert text.startswith(f"{file} could not be written: it needs") and "\n" not in text
        assert file.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["a.gpkg"]
    _write(frame, file)
    assert geopandas.read_file(file, layer="areas").shape == (n, 11)


def _write(frame, file):
    write_table(frame, file, {"a": 1}, overwrite=True, layer="areas")

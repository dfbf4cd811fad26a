"""A quarter in which nobody measured: each command says so, in one sentence, once."""

import shutil

import pytest

from geogp import storage
from geogp.errors import NotMeasured
from geogp.run import load
from tests.app.test_areas import HALVES, boxes

COARSE = ("--resolution", 20_000)
LINES = {
    "export": (
        "export",
        "RUN",
        "-o",
        "OUT",
        "--quarter",
        "Q",
        "--format",
        "cog",
        "--layers",
        "median",
        *COARSE,
    ),
    "at": ("at", "RUN", "PLACES", "-o", "OUT.csv", "--quarter", "Q"),
    "areas": ("areas", "RUN", "--areas", "BOXES", "-o", "OUT.csv", "--quarter", "Q", "--samples", 20),
    "change": ("change", "RUN", "--from", "2023Q4", "--to", "Q", "-o", "OUT", *COARSE),
    "slice": ("slice", "RUN", "--at", "LON", "LAT", "-o", "OUT.tif", "--quarter", "Q", *COARSE),
    "suggest": ("suggest", "RUN", "-n", 2, "-o", "OUT.geojson", "--quarter", "Q"),
    "excursions": ("excursions", "RUN", "--above", 50, "-o", "OUT", "--quarter", "Q", *COARSE),
    "report": ("report", "RUN", "-o", "OUT.html", "--quarter", "Q", "--areas", "BOXES"),
}


@pytest.fixture
def line(run, world, tmp_path):
    """A function: the line of a command in a quarter."""
    lon, lat = world.to_degrees(0, 0)
    boxes(world, *HALVES).to_file(tmp_path / "boxes.geojson")
    (tmp_path / "places.csv").write_text(f"lon,lat\n{lon},{lat}\n")
    words = {
        "RUN": run,
        "PLACES": tmp_path / "places.csv",
        "BOXES": tmp_path / "boxes.geojson",
        "LON": lon,
        "LAT": lat,
    }

    def of(command, quarter):
        own = words | {"Q": quarter}
        return [
            tmp_path / str(word).replace("OUT", "out") if str(word).startswith("OUT") else own.get(word, word)
            for word in LINES[command]
        ]

    return of


@pytest.mark.parametrize("command", LINES)
def test_a_quarter_that_nobody_measured_is_said_once(cli, line, command):
    result = cli(*line(command, "2032Q1"))
    assert result.code == 0, result.err
    (said,) = [words for words in result.err.splitlines() if "2032Q1" in words and "warning" in words]
    assert "nobody measured in 2032Q1: what is said of it rests on" in said
    assert "says nothing of what comes so late; name an earlier quarter." in said
    assert result.err.count("so late") == 1


def test_a_quarter_soon_after_is_no_more_than_not_measured(run):
    with pytest.warns(
        NotMeasured, match="nobody measured in 2024Q1: what is said of it rests on .* to 2023Q4\\.$"
    ):
        load(run).quarter("2024Q1")


def test_a_quarter_that_was_held_out_is_said_to_be(cli, line, run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    rows = load(copy).facts["rows"]
    storage.update_facts(
        copy, {"rows": {**rows, "known": {q: n for q, n in rows["known"].items() if q < "2023Q3"}}}
    )
    words = [copy if word == run else word for word in line("at", "2023Q4")]
    said = "warning: all rows of 2023Q4 were held out: what is said of it rests on 2022Q1 to 2023Q2."
    result = cli(*words)
    assert result.code == 0 and said in result.err, result.err
    words = [copy if word == run else word for word in line("change", "2022Q4")]
    result = cli(*words)
    assert said in result.err and "nobody" not in result.err

"""`geogp report`: one page whose numbers are the run's own, that asks for nothing outside and shows no foreign markup."""

import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest

from geogp import storage
from geogp.areas import surface
from geogp.run import load
from geogp.storage.folders import _seal
from tests.app.test_areas import HALVES, boxes


class Page(HTMLParser):
    """Tags, what they point to, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href")]

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def evaluated(run, tmp_path_factory):
    from app.workflow import evaluate

    copy = tmp_path_factory.mktemp("runs") / "run <b>1</b>"
    shutil.copytree(run, copy)
    evaluate(copy)
    return copy


@pytest.fixture
def file(world, tmp_path):
    path = tmp_path / "boxes.geojson"
    wide = [tuple(4 * v for v in half) for half in HALVES[:2]]
    boxes(world, *wide).assign(name=["<script>alert(1)</script>", "Two & co"]).to_file(path)
    return path


def test_the_page_says_what_the_run_says(cli, evaluated, file, tmp_path):
    out = tmp_path / "report.html"
    result = cli(
        "report", evaluated, "-o", out, "--areas", file, "--key", "name", "--thresholds", 100, "--json"
    )
    assert result.code == 0, result.err
    told, text = json.loads(result.out), out.read_text()
    page = Page(text)
    words = " ".join(" ".join(page.words).split())
    assert "script" not in page.tags and "<script>alert(1)</script>" in words and "b" not in page.tags
    assert {link.split(":")[0] for link in page.links} == {"data"} and "default-src 'none'" in text
    certificate = json.loads((evaluated / "certificate.json").read_text())
    held = 100 * certificate["groups"]["all"]["achieved"][-1]
    assert f"intervals held {held:.1f}%" in words
    for heading in (
        "Where not to trust it",
        "Appendix for reviewers",
        "Calibration certificate",
        "Reliability",
    ):
        assert heading in words
    assert page.tags.count("img") == told["n_figures"] >= 6
    row = told["missed"][0]
    assert (
        "the level of download speed, what many tests at each place would average to, has the mean" in words
    )
    assert (
        f"it lies below 100 Mbit/s on {100 * row['share']:.0f}% ({100 * row['lower']:.0f} to {100 * row['upper']:.0f}%) of the "
        "ground. These are no shares of tests or of measured averages"
    ) in words
    assert "level below 100" in words and words.count("scatter around the level") == 2  # of the table, too
    # By another route: draws at random places of the region.
    loaded = load(evaluated)
    from app.workflow.polygons import Ground, points_in

    ground = Ground.of(loaded)
    found = surface(loaded.model, loaded.inputs(points_in(ground.outline, 1500)))
    y = np.concatenate(list(found.batches(300, 7)), axis=1)
    share = (y < float(loaded.target.to_score(100))).mean(axis=0)
    assert row["share"] == pytest.approx(share.mean(), abs=4 * share.std() / np.sqrt(300) + 0.005)
    assert row["upper"] - row["lower"] == pytest.approx(np.ptp(np.quantile(share, [0.025, 0.975])), rel=0.35)
    again = cli("report", evaluated, "-o", out)
    assert again.code == 3 and out.read_text() == text


def test_a_quarter_that_was_held_out_is_called_so(cli, run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    rows = load(copy).facts["rows"]
    known = {quarter: n for quarter, n in rows["known"].items() if quarter < "2023Q3"}
    storage.update_facts(copy, {"rows": {**rows, "known": known}})
    assert cli("report", copy, "-o", tmp_path / "r.html").code == 0
    text = (tmp_path / "r.html").read_text()
    assert "All rows of 2023Q4 were held out: it rests on the trend of 2022Q1 to 2023Q2." in text
    assert cli("report", copy, "-o", tmp_path / "q.html", "--quarter", "2023Q1").code == 0
    assert "were held out: it rests" not in (tmp_path / "q.html").read_text()
    one = {quarter: n for quarter, n in rows["known"].items() if quarter == "2023Q2"}
    storage.update_facts(copy, {"rows": {**rows, "known": one}})
    assert cli("report", copy, "-o", tmp_path / "one.html").code == 0
    assert "it rests on 2023Q2 alone, in which no trend shows." in (tmp_path / "one.html").read_text()


def test_without_evaluation_or_rows_it_says_so(cli, run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    facts = json.loads((copy / "run.json").read_text())
    # Another test may have scored the run: sealed again without its certificate.
    (copy / "certificate.json").unlink(missing_ok=True)
    _seal(copy, {**facts, "scores": None, "data": {**facts["data"], "path": "/gone.parquet"}})
    board = tmp_path / "board.json"
    scores = {"nll": 1.0, "crps": 0.5, "mae": 0.25, "coverage95": 0.951}
    board.write_text(
        json.dumps({"target": "download", "split": "random", "rows": [{"method": "sgpr", "scores": scores}]})
    )
    result = cli("report", copy, "-o", tmp_path / "r.html", "--compare", board)
    assert result.code == 0, result.err
    words = re.sub(r"\s+", " ", " ".join(Page((tmp_path / "r.html").read_text()).words))
    assert (
        "has not been checked yet" in words
        and "never evaluated" in words
        and "held-out rows are left out" in words
    )
    assert "Beside other methods" in words and "95.1%" in words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-o", "report.pdf"), "a browser prints"),
        (("-o", "r.html", "--areas", "nowhere.gpkg"), "does not exist"),
        (("-o", "r.html", "--level", "95"), "--level"),
        (("-o", "r.html", "--compare", "BOARD"), "not what `geogp compare --json` prints"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(options, words, cli, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "board").write_text("[]")
    result = cli("report", run, *(o.replace("BOARD", "board") for o in options))
    assert result.code == 3 and words in result.err, result.err
    assert len(result.err.strip().splitlines()) == 1 and [p.name for p in tmp_path.iterdir()] == ["board"]

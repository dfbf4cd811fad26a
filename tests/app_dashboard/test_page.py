"""The page's logic, without a browser."""

import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from app.dashboard import holding
from app.dashboard.panels import coverage

from .conftest import HOSTILE, LATITUDE, LONGITUDE

AT = f"{LATITUDE},{LONGITUDE}"

#: A page that is a function cannot be switched to in a test.
SCRIPT = """
from app.dashboard.page import of_place

of_place()
"""


def opened(**query: str) -> AppTest:
    page = AppTest.from_string(SCRIPT, default_timeout=60)
    for name, value in query.items():
        page.query_params[name] = value
    return page.run()


def given(page: AppTest) -> dict[str, str]:
    """The setting that the way back to the map is given."""
    (link,) = [e.proto.body for e in page.get("html") if "href=" in e.proto.body]
    query = parse_qs(urlsplit(unescape(re.findall('href="([^"]+)"', link)[0])).query)
    return {name: query[name][0] for name in ("q", "n", "level", "t")}


def texts(page: AppTest) -> str:
    kinds = (page.markdown, page.caption, page.title, page.subheader, page.text, page.info, page.error)
    return "\n".join(str(e.value) for kind in kinds for e in kind)


def test_the_page_opens_with_settings_coverage_and_a_hint(shown: object) -> None:
    page = opened()
    assert not page.exception
    assert given(page) == {"q": "2023Q4", "n": given(page)["n"], "level": "95", "t": "100"}
    said = texts(page)
    assert "1,357 held-out rows" in said and "**94.1%** fell inside the 95% interval" in said
    assert "Mark a place" in said
    assert page.table[0].value.index.tolist() == ["urban"]


def test_the_address_sets_what_is_shown(shown: object) -> None:
    page = opened(q="2023Q3", t="42", level="80", n="3", at=AT)
    assert given(page) == {"q": "2023Q3", "n": "3", "level": "80", "t": "42"}
    assert [m.label for m in page.metric][:3] == [
        "Median",
        "80% prediction interval",
        r"P(> 42 Mbit/s)".replace(">", r"\>").replace("(", r"\(").replace(")", r"\)"),
    ]
    assert page.metric[3].value == "80.7%"
    assert "2023 Q3" in texts(page)


@pytest.mark.parametrize("at", ["", "x", "1,2,3", "nan,nan", "91,0", "<script>,1"])
def test_a_broken_address_opens_without_a_place(shown: object, at: str) -> None:
    page = opened(at=at, q="bad", t="-1", level="7", n="many")
    assert not page.exception
    assert "Mark a place" in texts(page)


def test_a_large_threshold_stands_in_its_box(shown: object) -> None:
    page = opened(t="3e13", at=AT)
    assert page.number_input(key="threshold").value == 3e13 and given(page)["t"] == "3e+13"
    page.number_input(key="threshold").set_value(4e20).run()
    assert given(page)["t"] == "4e+20" and not page.exception


def test_a_place_outside_is_said_so(shown: object) -> None:
    assert "outside the mapped region" in texts(opened(at="10,10"))


def test_settings_reach_the_map(shown: object) -> None:
    page = opened(at=AT)
    page.number_input(key="threshold").set_value(60.0).run()
    assert given(page)["t"] == "60"
    page.button_group(key="preset").set_value(25.0).run()
    assert given(page)["t"] == "25" and page.number_input(key="threshold").value == 25.0
    page.select_slider(key="quarter").set_value("2023Q3").run()
    assert given(page)["q"] == "2023Q3"
    page.number_input(key="tests").set_value(40).run()
    assert given(page)["n"] == "40"
    assert not page.exception


def test_the_command_that_writes_these_maps(shown: object) -> None:
    page = opened(q="2023Q3", t="42", level="80", n="3")
    assert page.code[0].value.endswith(
        "-o maps --format cog --quarter 2023Q3 --tests 3 --level 0.8 --thresholds 42"
    )


def test_data_text_is_never_markup(shown: object) -> None:
    page = opened()
    caption = page.sidebar.caption[0].value
    assert HOSTILE not in caption and r"\<b\>" in caption and r"\$x\$" in caption and r"\:material" in caption


@pytest.fixture
def copy(run_path: Path, tmp_path: Path) -> Iterator[Path]:
    path = Path(shutil.copytree(run_path, tmp_path / "run"))
    holding.hold(path)
    yield path
    holding.let_go()


def test_an_altered_run_is_one_clear_sentence(copy: Path) -> None:
    with open(copy / "weights.safetensors", "ab") as file:
        file.write(b"x")
    page = opened()
    assert not page.exception
    assert len(page.error) == 1 and "has changed since it was written" in page.error[0].value.replace(
        "\\", ""
    )
    assert page.button[0].label == "Try again"


def test_a_missing_run_is_one_clear_sentence(copy: Path) -> None:
    shutil.rmtree(copy)
    page = opened()
    assert not page.exception and "is not a run folder" in page.error[0].value.replace("\\", "")


def test_a_run_never_scored_says_how(copy: Path) -> None:
    from geogp import storage

    storage.update_facts(copy, {"scores": None})
    page = opened(at=AT)
    assert not page.exception and "geogp evaluate" in texts(page)
    assert len(page.metric) >= 3  # those of the numbers, whatever else a panel shows


def test_words_say_what_is_hatched(shown: object) -> None:
    assert "no test within 1 km" in texts(opened())


def test_a_certified_run_shows_every_group_beside_the_band_of_an_honest_interval(
    shown: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {
        "all": {"n": 1357, "achieved": [0.94], "band": [[0.93, 0.96]], "within": [True]},
        "tests 1": {"n": 700, "achieved": [0.91], "band": [[0.925, 0.97]], "within": [False]},
        "far": {"n": 80, "achieved": [0.9], "band": [[0.88, 1.0]], "within": [None]},
    }
    document = {"levels": [0.95], "groups": groups}
    monkeypatch.setattr(coverage, "certificate_of", lambda run: document)
    table = opened().table[0].value
    assert table.index.tolist() == ["tests 1 (700)", "far (80)"]
    assert table["inside"].tolist() == ["91.0%", "90.0%"]
    assert table["honest"].tolist() == ["not 92–97%", "too few"]
    # A level the certificate does not have falls back on the scores.
    assert coverage.certified(document, 0.5) == []

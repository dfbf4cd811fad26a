import math
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dashboard.setting import Choices, Setting, place
from app.errors import InvalidInput
from geogp.errors import MOST_VALUE
from maps.page_data import LEAST, MOST

CHOICES = Choices(("2023Q3", "2023Q4"), 6.0, 100.0, positive=True)


def test_nothing_said_is_the_default() -> None:
    assert CHOICES.read({}) == Setting("2023Q4", 6.0, 0.95, 100.0) == CHOICES.default


def test_a_setting_survives_its_own_address() -> None:
    setting = Setting("2023Q3", 17.0, 0.8, 33.3)
    assert CHOICES.read(setting.params) == setting


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"q": "2019Q1"}, "2019Q1"),
        ({"q": "../../etc/passwd"}, "choose from 2023Q3 to 2023Q4"),
        ({"n": "0"}, "at least 1"),
        ({"n": "nan"}, "nan"),
        ({"n": "1e999"}, "1e999"),
        ({"level": "42"}, "50, 80 or 95"),
        ({"level": "-95"}, "level"),
        ({"t": "0"}, "above 0"),
        ({"t": "inf"}, "threshold"),
        ({"t": "<script>"}, "threshold"),
        ({"n": "200000"}, "at most 100,000"),
        ({"t": "2e100"}, "threshold"),
        ({"t": "1e-101"}, "threshold"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_sentence(params: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInput, match=named) as caught:
        CHOICES.read(params)
    assert len(str(caught.value)) < 200


@given(st.dictionaries(st.sampled_from(["q", "n", "level", "t", "at"]), st.text(max_size=30)))
def test_a_mailed_address_always_opens(params: dict[str, str]) -> None:
    setting = CHOICES.lenient(params)
    assert setting.quarter in CHOICES.quarters
    assert setting.tests is not None and 1 <= setting.tests <= 1e5
    assert math.isfinite(setting.threshold) and LEAST <= setting.threshold <= MOST


def test_a_threshold_may_be_as_large_as_values_are() -> None:
    """The bound of the page is said apart from that of the library, which it does not import."""
    assert MOST == MOST_VALUE and MOST * LEAST == 1
    for t in (1e13, -MOST_VALUE):
        found = Choices((), None, 5.0, positive=False).read(dict(parse_qsl(urlencode({"t": f"{t:.10g}"}))))
        assert found.threshold == t


def test_a_run_without_time_or_counts_ignores_both() -> None:
    assert Choices((), None, 5.0, positive=False).read({"q": "x", "n": "x", "t": "-3"}) == Setting(
        None, None, 0.95, -3.0
    )


@given(st.floats(-90, 90), st.floats(-360, 360))
def test_places_lie_on_the_globe(lat: float, lon: float) -> None:
    found = place({"lat": str(lat), "lon": str(lon)})
    assert found[0] == lat
    assert -180 <= found[1] < 180
    assert math.isclose(math.cos(math.radians(found[1] - lon)), 1, abs_tol=1e-9)


@pytest.mark.parametrize(
    "lat, lon", [("nan", "0"), ("0", "inf"), ("91", "0"), ("0", "361"), ("", ""), ("1,2", "x")]
)
def test_what_is_no_place_is_refused(lat: str, lon: str) -> None:
    with pytest.raises(InvalidInput, match="degrees"):
        place({"lat": lat, "lon": lon})

"""Quarters as text and as years."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines import quarters
from data_pipelines.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023Q4", ["2023Q4"]),
        ("2019q3..2020Q1", ["2019Q3", "2019Q4", "2020Q1"]),
        (" 2020Q1, 2019Q1 ,2020Q1", ["2019Q1", "2020Q1"]),
        ("2019Q4..2020Q1,2021Q2", ["2019Q4", "2020Q1", "2021Q2"]),
    ],
)
def test_parse(text, expected):
    assert quarters.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "2023", "2023Q0", "23Q1", "2023Q1..", "..2023Q1", "2023Q1;2023Q2", "²023Q1x"]
)
def test_parse_refuses(text):
    with pytest.raises(InvalidInput, match="cannot be read"):
        quarters.parse(text)


def test_years_are_middles():
    np.testing.assert_array_equal(
        quarters.years(["2023Q4", "2019Q1", "2023Q4"]), [2023.875, 2019.125, 2023.875]
    )


@given(st.floats(1990, 2100))
def test_a_time_lies_in_its_quarter(time):
    (name,) = quarters.of_years([time])
    assert abs(quarters.years([name])[0] - time) <= 0.125

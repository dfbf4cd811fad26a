"""Calendar quarters as users write them ("2019Q1..2023Q4") and as models read them (years)."""

import re

import numpy as np
from numpy.typing import ArrayLike, NDArray

from data_pipelines.errors import InvalidInput

_QUARTER = re.compile(r"(\d{4})Q([1-4])", re.IGNORECASE)


def parse(text: str) -> list[str]:
    """Quarters named by a range, a single quarter or a comma list, in order and without repeats.

    Raises
    ------
    InvalidInput
        A part that is not a quarter, or a range that runs backwards.

    Examples
    --------
    >>> parse("2019Q3..2020Q1")
    ['2019Q3', '2019Q4', '2020Q1']
    """
    found: set[int] = set()
    for part in str(text).split(","):
        ends = [_index(end.strip(), text) for end in part.split("..", 1)]
        if ends[0] > ends[-1]:
            first, last = (_name(end) for end in ends)
            raise InvalidInput(f"The range {first}..{last} runs backwards; write {last}..{first}.")
        found.update(range(ends[0], ends[-1] + 1))
    return [_name(index) for index in sorted(found)]


def is_quarter(text: str) -> bool:
    """Whether a text names one quarter.

    Examples
    --------
    >>> is_quarter("2019Q3"), is_quarter("all")
    (True, False)
    """
    return _QUARTER.fullmatch(text) is not None


def years(quarters: ArrayLike) -> NDArray[np.float64]:
    """Middle of each quarter in years: year + (q - 0.5) / 4, so 2023Q4 is 2023.875."""
    names = np.asarray(quarters, dtype="U6")
    unique, inverse = np.unique(names, return_inverse=True)
    return np.array([(_index(name, name) + 0.5) / 4 for name in unique], np.float64)[inverse]


def of_years(time_years: ArrayLike) -> NDArray[np.str_]:
    """Quarter that holds each time given in decimal years."""
    index = np.floor(np.asarray(time_years, np.float64) * 4).astype(np.int64)
    unique, inverse = np.unique(index, return_inverse=True)
    return np.array([_name(int(i)) for i in unique], dtype="U6")[inverse]


def _index(quarter: str, text: str) -> int:
    match = _QUARTER.fullmatch(quarter)
    if not match:
        raise InvalidInput(
            f"Quarters {text!r} cannot be read at {quarter!r}; write 2023Q4, 2019Q1..2023Q4 or 2019Q1,2020Q1."
        )
    return int(match[1]) * 4 + int(match[2]) - 1


def _name(index: int) -> str:
    return f"{index // 4:04d}Q{index % 4 + 1}"

"""Times as people write them, as decimal years: dates, months, quarters, or the years themselves."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_pipelines import arrow, quarters
from data_pipelines.errors import InvalidInput

Array = NDArray[np.float64]

#: Quarters and months, which stand for their middles, and dates without signs between, in the years that have four digits.
QUARTER = re.compile(
    r"(?P<year>[1-9]\d{3})[- ]?Q(?P<q>[1-4])|Q(?P<q_>[1-4])[-/ ]?(?P<year_>[1-9]\d{3})", re.I
)
MONTH = re.compile(r"([1-9]\d{3})[-/](0[1-9]|1[0-2])|(19\d\d|20\d\d|2100)(0[1-9]|1[0-2])")
MONTH_FIRST = re.compile(r"(0?[1-9]|1[0-2])/([1-9]\d{3})")
DAY = re.compile(r"^([1-9]\d{3})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$")
YEAR = re.compile(r"[1-9]\d{3}(?:[.]\d*)?")
#: A date that begins with its year, and one that ends with it, whose day or month may come first.
SLASHED = re.compile(
    r"(?P<year>[1-9]\d{3})(?P<sign>[/.])(?P<m>\d\d?)(?P=sign)(?P<d>\d\d?)(?P<rest>(?:[ T].*)?)"
)
TURNED = re.compile(
    r"(?P<a>\d\d?)(?P<sign>[-/.])(?P<b>\d\d?)(?P=sign)(?P<year>[1-9]\d{3})(?P<rest>(?:[ T].*)?)"
)
#: Whole numbers of eight digits are such dates, of six such months, for they are no years.
EIGHT_DIGITS, SIX_DIGITS = (10_000_101, 99_991_231), (100_001, 999_912)


def years_of(column: pa.ChunkedArray, named: str, path: Path) -> Array:
    """Decimal years of a column, NaN where empty: numbers as they are, or dates of eight digits and months of six; dates and times; or
    texts, each a date, a month (2022-07, 07/2022), a quarter (2022Q3, 2022-Q3, Q3 2022), eight or six digits or a year.

    Whether 07/03/2022 begins with its day or its month is told by the column: by its parts above 12. Where dots stand between
    and nothing tells, it is the day.

    Raises
    ------
    InvalidInput
        a cell that is none, with its row and what it holds; days and months that nothing tells apart.
    """
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        numbers = arrow.numbers(column)
        there = numbers[np.isfinite(numbers)]
        if not _whole(there, EIGHT_DIGITS) and not _whole(there, SIX_DIGITS):
            return numbers
        texts = [f"{number:.0f}" if np.isfinite(number) else "" for number in numbers]
    elif (
        pa.types.is_string(column.type)
        or pa.types.is_large_string(column.type)
        or pa.types.is_dictionary(column.type)
    ):
        texts = [str(cell).strip() if cell else "" for cell in column.to_pylist()]
    else:
        try:
            return of_stamps(pc.cast(column, pa.timestamp("s"), safe=False).to_numpy())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _no_time(named, path, f"has the type {column.type}") from error
    kinds, which = np.unique(np.array(texts, dtype=np.str_), return_inverse=True)
    years = np.array([_year_of(str(text)) for text in kinds], np.float64)
    dates = np.flatnonzero(np.isnan(years) & (kinds != ""))
    years[dates] = _years_of_dates(_iso([str(text) for text in kinds[dates]], named, path))
    wrong = (np.isnan(years) & (kinds != ""))[which]
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        more = f", the first of {int(wrong.sum()):,} such cells of {len(texts):,}" if wrong.sum() > 1 else ""
        raise _no_time(named, path, f"has {texts[row]!r} in row {row + 1}{more}")
    return years[which]


def _whole(numbers: Array, ends: tuple[int, int]) -> bool:
    """Whether there are numbers, all of them whole and between these."""
    return bool(numbers.size and ((numbers % 1 == 0) & (numbers >= ends[0]) & (numbers <= ends[1])).all())


def _iso(texts: list[str], named: str, path: Path) -> list[str]:
    """Dates as ISO writes them; what is none stays as it is."""
    out = [DAY.sub(r"\1-\2-\3", text) for text in texts]
    for i, text in enumerate(texts):
        if found := SLASHED.fullmatch(text):
            out[i] = f"{found['year']}-{int(found['m']):02}-{int(found['d']):02}{found['rest']}"
    turned = {i: found for i, text in enumerate(texts) if (found := TURNED.fullmatch(text))}
    day_first = [date[0] for date in turned.values() if int(date["a"]) > 12]
    month_first = [date[0] for date in turned.values() if int(date["b"]) > 12]
    undecided = [date[0] for date in turned.values() if int(date["a"]) != int(date["b"])]
    remedy = "write dates as 2023-11-20"
    if day_first and month_first:
        raise InvalidInput(
            f"Column {named} of {path} has dates that begin with their day, as {day_first[0]!r}, and with their month, as "
            f"{month_first[0]!r}; {remedy}."
        )
    dotted = all(date["sign"] == "." for date in turned.values())
    if undecided and not (day_first or month_first or dotted):
        raise InvalidInput(
            f"Column {named} of {path} has dates such as {undecided[0]!r}, and no part above 12 that would tell whether the day or the "
            f"month comes first; {remedy}."
        )
    for i, date in turned.items():
        d, m = (date["b"], date["a"]) if month_first else (date["a"], date["b"])
        out[i] = f"{date['year']}-{int(m):02}-{int(d):02}{date['rest']}"
    return out


def _no_time(named: str, path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"Column {named} of {path} is no time: it {what}; give decimal years, dates such as 2023-11-20, months such as "
        "2023-11 or quarters such as 2023Q4."
    )


def _year_of(text: str) -> float:
    """Decimal years of a quarter, a month or a year; NaN of anything else."""
    if found := QUARTER.fullmatch(text):
        name = f"{found['year'] or found['year_']}Q{found['q'] or found['q_']}"
        return float(quarters.years([name])[0])
    if found := MONTH.fullmatch(text):
        year, month = filter(None, found.groups())
        return int(year) + (int(month) - 0.5) / 12
    if found := MONTH_FIRST.fullmatch(text):
        return int(found[2]) + (int(found[1]) - 0.5) / 12
    return float(text) if YEAR.fullmatch(text) else np.nan


def _years_of_dates(texts: list[str]) -> Array:
    """Decimal years of dates and times as ISO writes them, NaN of anything else."""
    try:
        return of_stamps(pc.cast(pa.array(texts, pa.string()), pa.timestamp("s"), safe=False).to_numpy(False))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(texts) == 1:
            return np.array([np.nan])
    return np.concatenate([_years_of_dates([text]) for text in texts])


def of_stamps(stamps: NDArray[np.datetime64]) -> Array:
    """The year, its quarters that have gone, and the share of the next: each quarter is a fourth of a year, whatever its
    days, so that the quarter of a time is that of its month. NaN for no time."""
    stamps = stamps.astype("datetime64[s]")
    month = stamps.astype("datetime64[M]").astype(np.int64)
    first = (month - month % 3).astype("datetime64[M]")
    start, end = first.astype("datetime64[s]"), (first + 3).astype("datetime64[s]")
    share = (stamps - start).astype(float) / (end - start).astype(float)
    return np.where(np.isnat(stamps), np.nan, 1970 + (month // 3 + share) / 4)

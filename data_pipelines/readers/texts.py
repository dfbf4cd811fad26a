"""What stands in a column of numbers and is none."""

import re

import pyarrow as pa
import pyarrow.compute as pc

#: A number as Arrow reads it, and one with commas between its thousands.
NUMBER = r"^\s*[+-]?(?:(?:\d+[.]?\d*|[.]\d+)(?:[eE][+-]?\d+)?|[nN][aA][nN]|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)\s*$"
THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}(?:,\d{3})+(?:[.]\d*)?\s*")


def first_text(column: pa.ChunkedArray) -> str | None:
    """In how many rows of a column of text no number stands, which is the first, and what to do; None where all do.

    Examples
    --------
    >>> first_text(pa.chunked_array([["7.5", None, "<5", "n/a"]]))
    "2 of 4 rows, the first of them row 3 with '<5'; give a number in each, or leave its cell empty."
    """
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    wrong = pc.invert(pc.fill_null(pc.match_substring_regex(column, NUMBER), True))
    count = pc.sum(wrong).as_py() or 0
    if not count:
        return None
    row = pc.index(wrong, True).as_py()
    text = str(column[row].as_py())
    remedy = "give a number in each, or leave its cell empty"
    if THOUSANDS.fullmatch(text):
        remedy = "write numbers without commas between thousands"
    return f"{count:,} of {len(column):,} rows, the first of them row {row + 1} with {text[:40]!r}; {remedy}."

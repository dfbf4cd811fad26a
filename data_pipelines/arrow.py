"""Arrow columns as numpy arrays, and what its readers complain about as one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_pipelines.errors import InvalidInput
from data_pipelines.staging import is_full


def numbers(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """A column as float64 of its own, null as NaN: validity is honoured, never the bytes behind a null.

    Examples
    --------
    >>> numbers(pa.array([1, None]))
    array([ 1., nan])
    """
    return np.array(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def strings(column: pa.Array | pa.ChunkedArray) -> NDArray[np.str_]:
    """A text column, null as the empty string.

    Examples
    --------
    >>> strings(pa.array(["2023Q4", None])).tolist()
    ['2023Q4', '']
    """
    return np.array(["" if value is None else value for value in column.to_pylist()], dtype=np.str_)


def text(value: str | bytes) -> str:
    """What Arrow hands over as text or as bytes, by version."""
    return value.decode() if isinstance(value, bytes) else value


def reason(error: Exception) -> str:
    """The first line of an error, short and printable, or its kind when it says nothing."""
    line = next((text for text in str(error).splitlines() if text.strip()), type(error).__name__)
    return "".join(c if c.isprintable() else "?" for c in line)[:200]


@contextmanager
def refusing(
    problem: str, remedy: str = ".", errors: tuple[type[Exception], ...] = (Exception,)
) -> Iterator[None]:
    """A library's error inside the block becomes InvalidInput: "{problem} ({its first line}){remedy}".

    Libraries meet damaged files in ways that nobody lists, so all errors are meant unless some are named; those that
    have words for people, and full disks, pass.

    Examples
    --------
    >>> with refusing("speed.csv cannot be read"):
    ...     raise OSError("too fast")
    Traceback (most recent call last):
    data_pipelines.errors.InvalidInput: speed.csv cannot be read (too fast).
    """
    try:
        yield
    except errors as error:
        if hasattr(error, "exit_code") or is_full(error):
            raise
        raise InvalidInput(f"{problem} ({reason(error)}){remedy}") from error

"""Arrow columns as numpy arrays, and what its readers complain about as one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_pipelines.errors import InvalidInput


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
    """The first line of an error, or its kind when it says nothing."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextmanager
def refusing(
    problem: str, remedy: str = ".", errors: tuple[type[Exception], ...] = (pa.ArrowInvalid, OSError)
) -> Iterator[None]:
    """A library's error inside the block becomes InvalidInput: "{problem} ({its first line}){remedy}".

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
        raise InvalidInput(f"{problem} ({reason(error)}){remedy}") from error

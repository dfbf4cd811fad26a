"""What a caller of this package may want to catch, and the refusal of a file or a seed that is none. Light."""

from numbers import Integral
from pathlib import Path


class InvalidInput(ValueError):
    """An input that cannot be used; the message says what was got and what to do."""

    exit_code = 3


class DataWarning(UserWarning):
    """Something odd in the data that does not stop the work: a missing quarter, an unmatched split row."""


def check_seed(seed: object, name: str = "seed") -> None:
    """Refuse what is no seed.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> check_seed(-1)
    Traceback (most recent call last):
    ...
    data_pipelines.errors.InvalidInput: seed must be a whole number, 0 or more; got -1.
    """
    if isinstance(seed, bool) or not isinstance(seed, Integral) or int(seed) < 0:
        raise InvalidInput(f"{name} must be a whole number, 0 or more; got {seed!r}.")


def check_file(path: Path, name: str = "file") -> None:
    """Refuse what is no file, before what reads it is imported.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> check_file(Path("nowhere.parquet"), "observations file")
    Traceback (most recent call last):
    ...
    data_pipelines.errors.InvalidInput: The observations file nowhere.parquet does not exist.
    """
    if not path.is_file():
        raise InvalidInput(f"The {name} {path} does not exist.")

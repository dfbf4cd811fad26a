"""What a caller of this package may want to catch, and the refusal of a file that is not there. Light."""

from pathlib import Path


class InvalidInput(ValueError):
    """An input that cannot be used; the message says what was got and what to do."""

    exit_code = 3


class DataWarning(UserWarning):
    """Something odd in the data that does not stop the work: a missing quarter, an unmatched split row."""


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

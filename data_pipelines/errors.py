"""What a caller of this package may want to catch."""


class InvalidInput(ValueError):
    """An input that cannot be used; the message says what was got and what to do."""

    exit_code = 3


class DataWarning(UserWarning):
    """Something odd in the data that does not stop the work: a missing quarter, an unmatched split row."""

"""Errors that someone will catch."""


class InvalidInput(ValueError):
    """What was asked cannot be done with what was given; the message says what to do."""

    exit_code = 3

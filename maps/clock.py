"""What time it is for files: the clock's, or that of SOURCE_DATE_EPOCH, with which equal inputs give equal bytes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from maps.errors import InvalidInput


def told() -> datetime | None:
    """The time that SOURCE_DATE_EPOCH (seconds since 1970) tells; None where it is not set.

    Raises
    ------
    InvalidInput
        It is no such number.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if not text:
        return None
    try:
        return datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(
            f"SOURCE_DATE_EPOCH is {text!r}, and must be whole seconds since 1970; unset it or give a number."
        ) from None


def now() -> datetime:
    """Now in UTC, or the time that SOURCE_DATE_EPOCH tells."""
    return told() or datetime.now(UTC)


@contextmanager
def in_gdal() -> Iterator[None]:
    """GeoPackages written inside have the time that SOURCE_DATE_EPOCH tells in them, where it is set."""
    import pyogrio

    if (time := told()) is not None:
        pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": f"{time:%Y-%m-%dT%H:%M:%S.000Z}"})
    try:
        yield
    finally:
        if time is not None:
            pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": None})

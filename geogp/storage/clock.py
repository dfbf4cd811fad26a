"""What time it is for files: the clock's, or that of SOURCE_DATE_EPOCH, with which equal inputs give equal bytes."""

import os
from datetime import UTC, datetime

from geogp.errors import InvalidInput


def now() -> datetime:
    """Now, to the second, in UTC; of SOURCE_DATE_EPOCH (seconds since 1970) where that is set.

    Raises
    ------
    InvalidInput
        SOURCE_DATE_EPOCH is no such number.

    References
    ----------
    https://reproducible-builds.org/specs/source-date-epoch/
    """
    told = os.environ.get("SOURCE_DATE_EPOCH")
    if not told:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(told), UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(
            f"SOURCE_DATE_EPOCH is {told!r}, and must be whole seconds since 1970; unset it or give a number."
        ) from None

"""Counts in words: of a noun, one or many, and of what was dropped."""


def many(n: int, noun: str) -> str:
    """A number of things, in the singular where it is one.

    Examples
    --------
    >>> many(1, "row"), many(1204, "row"), many(0, "file")
    ('1 row', '1,204 rows', '0 files')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def causes(dropped: dict[str, int], none: str = "none dropped") -> str:
    """Drop counts in words.

    Examples
    --------
    >>> causes({"outside": 1200, "undecodable_quadkey": 3, "duplicate": 0})
    '1,200 outside, 3 undecodable quadkey'
    """
    return ", ".join(f"{n:,} {cause.replace('_', ' ')}" for cause, n in dropped.items() if n) or none

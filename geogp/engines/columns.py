"""Which columns are places and which is time: by number, or by the names of a frame."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from geogp.errors import InvalidInput


def names_of(X: Any) -> list[str] | None:
    """What the columns that a model takes of X are called, None where they have no names.

    Points come first as easting and northing, then the frame's other columns (see `geogp.data.features_of`).
    """
    if not hasattr(X, "columns"):
        return None
    names = [str(name) for name in X.columns]
    if not hasattr(X, "geom_type"):
        return names
    return ["easting", "northing", *(name for name in names if name != str(X.geometry.name))]


def numbered(asked: Mapping[str, Any], n: int, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The same parameters with `spatial` and `time` as numbers of the n columns.

    Raises
    ------
    InvalidInput
        a name that no column has, a number beyond them, or one column for two things.

    Examples
    --------
    >>> numbered({"spatial": ("x", "y"), "time": "year"}, 3, ["x", "y", "year"])
    {'spatial': (0, 1), 'time': 2}
    """
    spatial, time = asked["spatial"], asked["time"]
    if spatial is not None:
        if isinstance(spatial, str) or len(spatial) not in (1, 2):
            raise InvalidInput(
                f"spatial must name two of the {n} columns, or the one along a line; got {spatial!r}."
            )
        spatial = tuple(_number("spatial", column, n, names) for column in spatial)
    if time is not None:
        time = _number("time", time, n, names)
    places = (0, 1) if spatial is None and n == 2 and time is None else spatial or ()
    used = [*places, *([] if time is None else [time])]
    if len(set(used)) < len(used):
        raise InvalidInput(
            f"easting, northing and time must be columns of their own; got spatial {asked['spatial']!r}, time {asked['time']!r}."
        )
    return {**asked, "spatial": spatial, "time": time}


def _number(what: str, column: Any, n: int, names: Sequence[str] | None) -> int:
    if isinstance(column, str):
        if names is None or column not in names:
            there = (
                f"they are {', '.join(names)}" if names else "they have none: give a number, or a data frame"
            )
            raise InvalidInput(f"{what} names {column!r}, and no column is called so ({there}).")
        return list(names).index(column)
    if isinstance(column, bool) or not isinstance(column, Integral) or not -n <= int(column) < n:
        raise InvalidInput(f"{what} must name columns, by name or by number below {n}; got {column!r}.")
    return int(column) % n

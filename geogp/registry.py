"""Registries: a name, and the piece of code it stands for, a line each."""

import importlib
from typing import Any

from geogp.errors import ImpossibleCombination


def registry(package: str, lines: dict[str, str]) -> dict[str, Any]:
    """The pieces of a folder by name: "silu": "silu.SiLU" is class `SiLU` of the folder's file silu.py.

    Every piece has a docstring, whose first line says what it is, and a `formula` for the methods' pages.

    Examples
    --------
    >>> registry("geogp", {"download": "targets.target"})["download"]("download").unit
    'Mbit/s'
    """
    out = {}
    for name, where in lines.items():
        file, _, attribute = where.partition(".")
        out[name] = getattr(importlib.import_module(f"{package}.{file}"), attribute)
    return out


def choose(entries: dict[str, Any], kind: str, name: str) -> Any:
    """The entry called `name`.

    Raises
    ------
    ImpossibleCombination
        for a name that is not registered; the message lists those that are.
    """
    if name not in entries:
        raise ImpossibleCombination(f"there is no {kind} {name!r}; choose from {', '.join(entries)}.")
    return entries[name]


def words(piece: Any) -> str:
    """What a piece is: the first line of its docstring, without the full stop."""
    return (piece.__doc__ or "").strip().split("\n")[0].rstrip(".:")

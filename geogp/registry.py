"""Registries: a name, and the piece of code it stands for, a line each."""

import ast
import importlib
import sys
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from geogp.errors import ImpossibleCombination

#: The choices of a method's row, and the dict of a module where each value must be registered.
REGISTRIES = {
    "encoder": "geogp.basis.encoders.ENCODERS",
    "backbone": "geogp.basis.backbones.BACKBONES",
    "expansion": "geogp.basis.expansions.EXPANSIONS",
    "residual": "geogp.basis.residuals.RESIDUALS",
    "noise": "geogp.basis.noise.NOISES",
    "objective": "geogp.basis.objectives.OBJECTIVES",
    "posterior": "geogp.basis.posterior.POSTERIORS",
    "spread": "geogp.basis.spread.SPREADS",
}


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
    _refuse_other(entries, kind, name)
    return entries[name]


def registered(kind: str) -> dict[str, Any]:
    """The pieces of a kind by name."""
    module, _, variable = REGISTRIES[kind].rpartition(".")
    return getattr(importlib.import_module(module), variable)


def check_names(asked: Mapping[str, Any]) -> None:
    """Refuse choices of a row that are not registered, before anything is imported that they stand for.

    Parameters
    ----------
    asked : parameters of `GPRegressor` by name, all or some; an expansion may be several joined by "+"

    Raises
    ------
    ImpossibleCombination

    Examples
    --------
    >>> check_names({"noise": "counts", "expansion": "rbf+fourier", "rank": 64})
    """
    for kind in REGISTRIES:
        if asked.get(kind) is not None:
            for name in parts(kind, asked[kind]):
                _refuse_other(_names(kind), kind, name)


def parts(kind: str, value: str) -> list[str]:
    """The names in what a row says of a kind: of an expansion those joined by "+".

    Examples
    --------
    >>> parts("expansion", "rbf+fourier"), parts("noise", "counts+smooth")
    (['rbf', 'fourier'], ['counts+smooth'])
    """
    return value.split("+") if kind == "expansion" and isinstance(value, str) else [value]


def _refuse_other(entries: Collection[str], kind: str, name: str) -> None:
    if not isinstance(name, str) or name not in entries:
        raise ImpossibleCombination(f"there is no {kind} {name!r}; choose from {', '.join(entries)}.")


def _names(kind: str) -> Collection[str]:
    """The names of a kind; of a module that nobody has imported from its source, for importing it takes seconds."""
    module, _, variable = REGISTRIES[kind].rpartition(".")
    if module in sys.modules:
        return registered(kind)
    spec = find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return registered(kind)
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    set_here = (node for node in tree.body if isinstance(node, ast.AnnAssign))
    named = next(node for node in set_here if ast.unparse(node.target) == variable)
    lines = next(node for node in ast.walk(named) if isinstance(node, ast.Dict))
    return [ast.literal_eval(key) for key in lines.keys if key is not None]


def words(piece: Any) -> str:
    """What a piece is: the first line of its docstring, without the full stop."""
    return (piece.__doc__ or "").strip().split("\n")[0].rstrip(".:")

"""`geogp methods`: what there is to fit, and what each method is made of."""

import re
from typing import Annotated

import typer

from app.commands import options
from app.console import console

PLACE = 120


def methods(
    name: Annotated[str | None, typer.Argument(help="One method; all of them without.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """List every method, or show the reference page of one: formula, choices, when to use it, cost, source."""
    from geogp.methods import METHODS, method

    rows = [method(name)] if name else list(METHODS.values())
    if as_json:
        console.document({"schema": 1, "methods": [row.to_dict() for row in rows]})
    elif name:
        from geogp.pages import page

        console.data(page(name).rstrip())
    else:
        console.table(
            "Methods (`geogp methods NAME` shows all choices of one; `geogp compare --help` lists peers, which are other people's)",
            ["name", "what it is", "expansion", "residual", "objective", "paper"],
            [[m.name, m.summary, m.expansion, m.residual, m.objective, _key(m.paper)] for m in rows],
            numbers_from=6,
        )


def _key(paper: str) -> str:
    """The papers' short names, which stand in brackets after their titles."""
    return ", ".join(re.findall(r"\(([a-z0-9-]+)\)", paper)) or paper

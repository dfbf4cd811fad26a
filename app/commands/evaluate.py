"""`geogp evaluate`: scores on the held-out part of a run's split."""

import textwrap
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.console import console


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder made by `geogp fit`.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The run's observations, if they were moved.")
    ] = None,
    part: Annotated[Literal["test", "val"], typer.Option(help="Which held-out rows.")] = "test",
) -> None:
    """Score a run on rows it never saw, and certify its intervals: what they promised, what they kept.

    By place, distance to data and number of tests; kept in the run and, in short, in exported files.
    """
    from app.workflow import certifying
    from app.workflow import evaluate as evaluate_run

    result = evaluate_run(run, data=data, part=part)
    if as_json:
        console.document(result.document)
        return
    console.table(result.title(), result.header, result.rows())
    title, header, rows, notes = certifying.table(result.document["certificate"])
    console.table(title, header, rows)
    for note in notes:
        console.data(textwrap.fill(note, 79))

"""`geogp evaluate`: scores on the held-out part of a run's split."""

import textwrap
from typing import Annotated, Literal

import typer

from app.commands import options
from app.console import console

PLACE = 40


def evaluate(
    run: options.RunFolder,
    as_json: options.AsJson = False,
    data: options.Data = None,
    part: Annotated[Literal["test", "val"], typer.Option(help="Which held-out rows.")] = "test",
) -> None:
    """Score a run on rows it never saw, and certify its intervals: what they promised, what they kept.

    By place, distance to data and number of tests; kept in the run and, in short, in exported files.
    """
    from app.workflow import certifying
    from app.workflow.steps.evaluate import evaluate as evaluate_run

    result = evaluate_run(run, data=data, part=part)
    if as_json:
        console.document(result.document)
        return
    console.table(result.title(), result.header, result.rows())
    title, header, rows, notes = certifying.table(result.document["certificate"])
    console.table(title, header, rows)
    for note in notes:
        console.data(textwrap.fill(note, 79))

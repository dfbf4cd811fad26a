"""`geogp evaluate`: scores on the held-out part of a run's split."""

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
    """Score a run on rows it never saw: overall, urban and rural, near and far."""
    from app.workflow import evaluate as evaluate_run

    result = evaluate_run(run, data=data, part=part)
    if as_json:
        console.document(result.document)
    else:
        console.table(result.title(), result.header, result.rows())

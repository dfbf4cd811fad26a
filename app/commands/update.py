"""`geogp update`: a run learns new quarters, or forgets old ones, without retraining."""

from pathlib import Path
from typing import Annotated

import typer

from app.console import console


def update(
    run: Annotated[Path, typer.Argument(help="Run folder made by `geogp fit`.")],
    add: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|QUARTERS",
            help="Table of `geogp ingest` with new quarters, or quarters of the run's own file, such as 2023Q4.",
        ),
    ] = None,
    forget: Annotated[
        str | None,
        typer.Option(metavar="QUARTERS", help="Such as 2019Q1, 2019Q1..2019Q4 or a comma list."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the updated run there; default: change the run itself."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The run's observations, if they were moved.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="What changed as one JSON document.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
) -> None:
    """Add or forget quarters: the weights are solved again, exactly; kernel and noise stay as fitted.

    A local field (geogp, local-gp) knows other observations instead; after many quarters, fit again.
    """
    from app.workflow import update as update_run

    result = update_run(run, add=add, forget=forget, data=data, output=output, overwrite=overwrite)
    for note in result.notes:
        console.say(f"Note: {note}.")
    if as_json:
        console.document(result.document())
    console.say(result.summary())

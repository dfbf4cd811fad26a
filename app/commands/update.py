"""`geogp update`: a run learns new quarters, or forgets old ones, without retraining."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands import options
from app.console import console

PLACE = 90


def update(
    run: options.RunFolder,
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
        Path | None, options.output("Write the updated run there; default: change the run itself.")
    ] = None,
    data: options.Data = None,
    as_json: options.AsJson = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Add or forget quarters: the weights are solved again, exactly; kernel and noise stay as fitted.

    A local field knows other observations instead; after many quarters, fit again.
    """
    from app.workflow.steps.update import update as update_run

    result = update_run(run, add=add, forget=forget, data=data, output=output, overwrite=overwrite)
    console.notes(result.notes)
    if as_json:
        console.document(result.document())
    console.say(result.summary())

"""`geogp reproduce`: the papers' tables and figures, ours beside theirs."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands import options
from app.console import console

PLACE = 130


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which one; without a name they are listed.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every one of them, and one table of all their numbers.")
    ] = False,
    output: Annotated[
        Path, options.output("Folder for NAME.md, NAME.json and, where there is one, NAME.png.")
    ] = Path("reproductions"),
    data: Annotated[
        Path | None, typer.Option(help="Folder of the UCI files; default: GEOGP_DATA/uci.")
    ] = None,
    observations: Annotated[
        Path | None, typer.Option(help="Table of `geogp ingest`, for dbk-table2.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds, not minutes: to see that it works.")
    ] = False,
    seed: options.Seed = None,
    as_json: options.AsJson = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Reproduce a table or figure of the papers: ours beside theirs, with what differs.

    What was stopped goes on where it was. --all leaves out what lacks its data; hours without --quick.
    """
    from geogp.reproduce import REPRODUCTIONS, check_name

    if name is None and not everything:
        console.data("\n".join(REPRODUCTIONS))
        return
    if name is not None:
        check_name(name)
    # Takes seconds: not for a list or a wrong name.
    from app.workflow.steps import reproduce as papers

    documents = []
    for each in papers.names() if everything else [str(name)]:
        console.say(f"{each} ...")
        document = papers.reproduce(
            each,
            output,
            data=data,
            observations=observations,
            quick=quick,
            seed=seed or 0,
            keep=everything,
            overwrite=overwrite,
        )
        documents.append(document)
        if "left_out" in document:
            console.say(f"{each} is left out: {document['left_out']}")
        elif not as_json:
            rows = [[papers.cell(v) for v in row] for row in document["rows"]]
            console.table(document["title"], document["columns"], rows, numbers_from=2)
            for note in document["notes"]:
                console.say(f"- {note}")
    if everything:
        header, rows = papers.side_by_side(documents)
        papers.write_summary(output, header, rows, documents)
        if not as_json:
            title = "Ours beside the papers'"
            console.table(
                f"{title}: quick runs, which tell nothing but that they run" if quick else title,
                header,
                rows,
                numbers_from=3,
            )
    if as_json:
        console.document({"schema": 1, "reproductions": documents})

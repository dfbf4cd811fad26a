"""`geogp reproduce`: the papers' tables and figures, ours beside theirs."""

import math
from pathlib import Path
from typing import Annotated

import typer

from app.console import console


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which one; without a name they are listed.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every one of them.")] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for NAME.md and, where there is one, NAME.png.")
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
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Reproduce a table or figure of the papers: ours beside theirs, with what differs."""
    from app.errors import InvalidInput
    from geogp.reproduce import REPRODUCTIONS

    if name is None and not everything:
        console.data("\n".join(REPRODUCTIONS))
        return
    names = list(REPRODUCTIONS) if everything else [str(name)]
    taken = [output / f"{n}.md" for n in names if (output / f"{n}.md").exists()]
    if taken and not overwrite:
        raise InvalidInput(f"{taken[0]} exists; give another -o, or --overwrite to replace it.")
    documents = []
    for each in names:
        if everything and each == "dbk-table2" and observations is None:
            console.say("dbk-table2 is left out: it needs --observations")
            continue
        document = _one(each, output, data, observations, quick, seed, overwrite)
        documents.append(document)
        if not as_json:
            rows = [[_text(v) for v in row] for row in document["rows"]]
            console.table(document["title"], document["columns"], rows, numbers_from=2)
            for note in document["notes"]:
                console.say(f"- {note}")
    if as_json:
        console.document({"schema": 1, "reproductions": documents})


def _one(
    name: str,
    output: Path,
    data: Path | None,
    observations: Path | None,
    quick: bool,
    seed: int,
    overwrite: bool,
) -> dict:
    """Run one, write its files, and return it as plain data."""
    from geogp.reproduce import run
    from geogp.storage import write_text
    from maps.figures import write_png
    from maps.panels import panels_figure

    inputs: dict = {}
    if name == "dbk-table2" and observations is not None:
        inputs["observations"] = observations
    if data is not None and name in ("dbk-table1", "dbk-fig6", "lowrank-table1", "softki-table1"):
        inputs["data"] = data
    console.say(f"{name} ...")
    result = run(name, quick=quick, seed=seed, **inputs)
    output.mkdir(parents=True, exist_ok=True)
    write_text(output / f"{name}.md", result.markdown())
    document = result.to_dict()
    if result.panels:
        write_png(
            panels_figure(document["panels"], title=result.title), output / f"{name}.png", overwrite=overwrite
        )
    # JSON has no NaN: null where the paper prints no number.
    document["rows"] = [
        [None if isinstance(v, float) and not math.isfinite(v) else v for v in r] for r in result.rows
    ]
    return document


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)

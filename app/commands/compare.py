"""`geogp compare`: a leaderboard of methods on one split."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands.export import names_of
from app.commands.fit import Target
from app.console import console


def compare(
    observations: Annotated[Path, typer.Argument(help="GeoParquet made by `geogp ingest`.")],
    methods: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Such as geogp,dbk-rbf,knn: rows of `geogp methods`, and peers (extra `bench`).",
        ),
    ],
    split: Annotated[str, typer.Option(metavar="random|block|forward|FILE:COLUMN", help="What to hold out.")],
    target: Annotated[Target, typer.Option(help="What to map.")] = "download",
    seed: Annotated[int, typer.Option(help="Of split and training.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Of all models, such as steps=1500; repeatable."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Keep the runs, one folder a method.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace runs in the output.")] = False,
) -> None:
    """Fit several methods on the same split and rank them, with time and memory beside the scores."""
    from app.config import fit_config, setting
    from app.workflow import compare as compare_methods

    model = dict(setting(text) for text in settings or [])
    chosen = fit_config(None, {"target": target, "split": split, "seed": seed, "device": device}, model)
    with console.progress("comparing") as progress:
        result = compare_methods(
            observations,
            methods=names_of(methods) or [],
            keep=output,
            overwrite=overwrite,
            progress=progress,
            **chosen.model_dump(include={"target", "split", "seed", "device", "model"}),
        )
    if as_json:
        console.document(result.document())
    else:
        console.table(f"{result.target}, split {result.split}, best NLL first", result.header, result.rows())

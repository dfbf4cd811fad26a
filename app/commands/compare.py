"""`geogp compare`: a leaderboard of methods on one split."""

from pathlib import Path
from typing import Annotated

import typer

from app.choices import check_methods
from app.commands import options
from app.console import console

PLACE = 50


def compare(
    observations: options.Observations,
    methods: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="By commas: rows of `geogp methods`, and peers, most of which need the extra `bench`: {peers}.",
        ),
    ],
    split: options.Split,
    covariates: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[=RASTER],..", help="Columns of the table, or rasters, to learn by as well."
        ),
    ] = None,
    target: options.Target = None,
    seed: options.Seed = None,
    device: options.Device = None,
    settings: Annotated[list[str] | None, options.settings()] = None,
    output: Annotated[
        Path | None, options.output("Keep the runs, one folder a method, and compare.json.", metavar="DIR")
    ] = None,
    scheduler: options.Scheduler = None,
    as_json: options.AsJson = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Fit several methods on the same split and rank them, with time and memory beside the scores."""
    from app.config import fit_config, setting

    model = dict(setting(text) for text in settings or [])
    chosen = fit_config(
        None,
        {"target": target, "split": split, "seed": seed, "device": device, "covariates": covariates},
        model,
    )
    # Each takes longer, the last seconds: not for what is refused above.
    from data_pipelines.splits import check_split

    check_split(chosen.split)
    names = check_methods(options.names_of(methods) or [])
    from app.workflow.steps.compare import compare as compare_methods

    with console.progress("comparing") as progress:
        result = compare_methods(
            observations,
            methods=names,
            keep=output,
            scheduler=scheduler,
            overwrite=overwrite,
            progress=progress,
            **chosen.model_dump(include={"target", "split", "seed", "device", "model", "covariates"}),
        )
    if as_json:
        console.document(result.document())
    else:
        if caution := result.caution():
            console.warn(caution)
        console.table(f"{result.words}, split {result.split}, best NLL first", result.header, result.rows())

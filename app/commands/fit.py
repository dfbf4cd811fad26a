"""`geogp fit`: observations become a run."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from app.choices import CountedBy
from app.commands import options
from app.console import console
from app.errors import Usage
from geogp.errors import check_new_run, check_seconds

PLACE = 30
_MODEL = "The model (table `model` of run.toml)"


def fit(
    observations: options.Observations,
    output: Annotated[Path, options.output("Run folder to write.")],
    target: options.Target = None,
    method: options.Method = None,
    config: Annotated[
        Path | None, typer.Option(metavar="TOML", help="run.toml; the line wins over it.")
    ] = None,
    split: options.Split = None,
    refit: Annotated[
        Literal["train+val"] | None, typer.Option(help="After choosing, train once more on these rows.")
    ] = None,
    counts: Annotated[
        CountedBy | None,
        typer.Option(help="What counts measurements; both: their geometric mean. Default: tests."),
    ] = None,
    predictor: Annotated[
        Path | None,
        typer.Option(
            metavar="RASTER",
            help="With a fixed-mean method: its mean, in the target's unit (band 1 of a GeoTIFF).",
        ),
    ] = None,
    covariates: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[=RASTER],..",
            help="Learn by columns of the table, or by rasters, which the run remembers, as well.",
        ),
    ] = None,
    seed: options.Seed = None,
    device: options.Device = None,
    rank: Annotated[int | None, typer.Option(help="Basis functions.", rich_help_panel=_MODEL)] = None,
    hidden: Annotated[int | None, typer.Option(help="Width of the network.", rich_help_panel=_MODEL)] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the rows.", rich_help_panel=_MODEL)] = None,
    steps: Annotated[
        int | None, typer.Option(help="Instead of epochs: steps.", rich_help_panel=_MODEL)
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows a step.", rich_help_panel=_MODEL)] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Peak of the schedule; kernels without a network find theirs.", rich_help_panel=_MODEL
        ),
    ] = None,
    settings: Annotated[list[str] | None, options.settings(rich_help_panel=_MODEL)] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Stay below, such as 2GiB: a larger table is read in parts, by the methods that can.",
            callback=options.bytes_first,
        ),
    ] = None,
    checkpoint_every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Least time between checkpoints.")
    ] = 10.0,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop then, resumable, with exit status 4.")
    ] = None,
    deterministic: Annotated[
        bool | None,
        typer.Option(
            "--deterministic",
            help="One thread: the same weights to the last bit whatever the number of cores. Slower on many.",
        ),
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Train a method; an unfinished run with identical arguments goes on where it stopped."""
    from app.config import fit_config, setting

    model = {
        "rank": rank,
        "hidden": hidden,
        "epochs": epochs,
        "steps": steps,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
    }
    for name, value in map(setting, settings or []):
        if model.get(name) is not None:
            raise Usage(f"{name} is set twice, to {model[name]} and to {value}; say it once.")
        model[name] = value
    check_seconds(checkpoint_every, "--checkpoint-every")
    check_seconds(time_limit, "--time-limit")
    most = None if max_memory is None else options.bytes_of(max_memory)
    given = {
        "target": target, "method": method, "split": split, "refit": refit, "seed": seed, "device": device,
        "counts": counts, "predictor": None if predictor is None else str(predictor), "deterministic": deterministic,
        "covariates": covariates,
    }  # fmt: skip
    chosen = fit_config(config, given, model)
    check_new_run(output, overwrite)
    # Each takes longer, the last seconds: not for what is refused above.
    from data_pipelines.splits import check_split

    check_split(chosen.split)
    from app.workflow.steps.fit import fit as fit_run

    with console.progress("fitting") as progress:
        result = fit_run(
            observations,
            output=output,
            max_memory=most,
            overwrite=overwrite,
            progress=progress,
            checkpoint_seconds=checkpoint_every,
            time_limit_seconds=time_limit,
            **chosen.model_dump(),
        )
    console.say(result.summary())

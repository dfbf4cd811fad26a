"""What several commands take: each option once, with its flags and words, and how its text is read."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from app.choices import TargetName, check_formats, map_crs
from app.errors import Usage
from data_pipelines.errors import check_file
from geogp.errors import check_count, check_level, check_metres, check_quarter, check_run_folder, seed_of

# -- arguments -------------------------------------------------------------------------------------

#: Where a context keeps what must hold when the command begins: checked before it imports what does the work, which takes
#: seconds. Lines that are only parsed, as those of the README, may name what is not there.
CHECKS = "app.checks"


def _run(context: typer.Context, path: Path) -> Path:
    context.meta.setdefault(CHECKS, []).append(partial(check_run_folder, path))
    return path


def _table(context: typer.Context, path: Path) -> Path:
    context.meta.setdefault(CHECKS, []).append(partial(check_file, path, "observations file"))
    return path


def _held_to(check: Callable[[Any, str], object]) -> Callable[[typer.Context, typer.CallbackParam, Any], Any]:
    """The callback of an option that `check(value, name)` refuses when the command begins."""

    def keep(context: typer.Context, option: typer.CallbackParam, value: Any) -> Any:
        context.meta.setdefault(CHECKS, []).append(partial(check, value, option.opts[0]))
        return value

    return keep


RunFolder = Annotated[Path, typer.Argument(help="Run folder made by `geogp fit`.", callback=_run)]
Observations = Annotated[Path, typer.Argument(help="GeoParquet made by `geogp ingest`.", callback=_table)]


def numbers_first(option: typer.CallbackParam, text: str | None) -> str | None:
    """The callback of a comma list of numbers; the text goes on as it is."""
    numbers_of(text, option.opts[0])
    return text


def pairs_first(option: typer.CallbackParam, text: str | None) -> str | None:
    """The callback of a comma list of pairs; the text goes on as it is."""
    pairs_of(text, option.opts[0])
    return text


def bytes_first(text: str | None) -> str | None:
    """The callback of a size; the text goes on as it is."""
    if text is not None:
        bytes_of(text)
    return text


# -- outputs ---------------------------------------------------------------------------------------


def output(help: str, **more: Any) -> Any:
    """The option -o, which is something else in every command."""
    return typer.Option("--output", "-o", help=help, **more)


Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there already.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]

# -- of a map --------------------------------------------------------------------------------------


def _layers(text: str | None, option: str) -> None:
    if text is not None:
        from maps.layers import check_names

        check_names(names_of(text) or [])


def _formats(text: str, option: str) -> None:
    check_formats(names_of(text) or [])


def _crs(text: str | None, option: str) -> None:
    if text is not None:
        map_crs(text)


Formats = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="LIST",
        help="Of cog, netcdf, zarr, geoparquet, h3, gpkg, csv, pmtiles, figures, html.",
        callback=_held_to(_formats),
    ),
]
Quarter = Annotated[
    str | None,
    typer.Option(help="As 2023Q4; default: the run's last.", callback=_held_to(check_quarter)),
]
Tests = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="Measurements behind the averages meant; default: the training median.",
        callback=_held_to(check_count),
    ),
]
Level = Annotated[float, typer.Option(help="Of the intervals.", callback=_held_to(check_level))]
Thresholds = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Such as 25,100, in the target's unit; default: the target's own.",
        callback=numbers_first,
    ),
]
Layers = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Of {layers}, or one threshold as exceedance_25; default: all.",
        callback=_held_to(_layers),
    ),
]
#: Where a map lies: the panel of help, and what several commands ask.
WHERE = "Where"
Bounds = Annotated[
    tuple[float, float, float, float] | None,
    typer.Option(metavar="W S E N", help="Cut to this box, degrees.", rich_help_panel=WHERE),
]
MapCrs = Annotated[
    str | None,
    typer.Option(
        metavar="EPSG:..",
        help="Of the maps; default: the run's.",
        rich_help_panel=WHERE,
        callback=_held_to(_crs),
    ),
]
MaxDistance = Annotated[
    float | None,
    typer.Option(
        metavar="M",
        help="No values farther than this from data.",
        rich_help_panel=WHERE,
        callback=_held_to(check_metres),
    ),
]
Resolution = Annotated[
    float | None,
    typer.Option(
        metavar="M",
        help="Pixel in metres; default: 500 of tiles, else by the data's spacing and the size.",
        rich_help_panel=WHERE,
        callback=_held_to(check_metres),
    ),
]
Covariates = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=RASTER,..",
        help="What the run has learned by, at the places of this: a raster of each.",
    ),
]


def _scheduler(text: str | None, option: str) -> None:
    from app.cluster import check_scheduler

    check_scheduler(text, option)


Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS|local:N",
        help="Work on a Dask cluster, or in N processes here (which share any --max-memory): the same files. Workers see "
        "the files and folders that are named.",
        callback=_held_to(_scheduler),
    ),
]
Data = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The run's observations, if they were moved.")
]

# -- of two runs -----------------------------------------------------------------------------------

_BOTH = "Two targets together"
With = Annotated[
    Path | None,
    typer.Option(
        "--with", metavar="RUN", help="A second run: what misses either limit.", rich_help_panel=_BOTH
    ),
]
Below = Annotated[
    float | None,
    typer.Option(
        metavar="X", help="Limit of the first; above it, if lower is better.", rich_help_panel=_BOTH
    ),
]
WithBelow = Annotated[
    float | None, typer.Option(metavar="Y", help="Limit of the second.", rich_help_panel=_BOTH)
]


def check_both(other: Path | None, below: float | None, with_below: float | None) -> None:
    """Refuse limits of two runs where there is one.

    Raises
    ------
    Usage
    """
    if other is None and (below is not None or with_below is not None):
        raise Usage("--below and --with-below belong to --with RUN; for one target use --thresholds.")


# -- of a fit --------------------------------------------------------------------------------------

Method = Annotated[str | None, typer.Option(help="See `geogp methods`; default: {method}.")]
Target = Annotated[
    TargetName | None,
    typer.Option(
        help="What to map; default: what the table has alone, else download. A column of your own is called value."
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        metavar="none|random|block|forward|kfold|FILE:COLUMN",
        help="What to hold out; none is nothing, kfold (of compare) all rows in turn.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Of all that is drawn at random; default: 0.", callback=_held_to(seed_of)),
]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda; default: auto.")]


def settings(**more: Any) -> Any:
    """The option --set."""
    return typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other setting of the model, such as steps=1500; repeatable.",
        **more,
    )


# -- what they say ---------------------------------------------------------------------------------


def names_of(text: str | None) -> list[str] | None:
    """A comma list; None for nothing said.

    Examples
    --------
    >>> names_of("cog, netcdf,"), names_of(None)
    (['cog', 'netcdf'], None)
    """
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def numbers_of(text: str | None, option: str) -> list[float] | None:
    """A comma list of numbers, each once; None for nothing said.

    Examples
    --------
    >>> numbers_of("25,100,25", "--thresholds")
    [25.0, 100.0]
    """
    try:
        return None if text is None else list(dict.fromkeys(map(float, names_of(text) or [])))
    except ValueError:
        raise Usage(f"{option} is a comma list of numbers, such as 25,100; got {text!r}.") from None


def pairs_of(text: str | None, option: str) -> list[tuple[str, str]]:
    """A comma list of pairs; empty for nothing said.

    Examples
    --------
    >>> pairs_of("15001:15003, 15001:15007", "--pairs")
    [('15001', '15003'), ('15001', '15007')]
    """
    out = []
    for part in names_of(text) or []:
        a, mark, b = part.partition(":")
        if not (a and mark and b):
            raise Usage(f"{option} is a comma list of pairs, such as 15001:15003; got {text!r}.")
        out.append((a.strip(), b.strip()))
    return out


#: Less does not hold one window of a map and the libraries' caches.
LEAST_MEMORY = 1 << 20


def bytes_of(text: str) -> int:
    """A size such as 2GiB, 500MB or a number of bytes.

    Examples
    --------
    >>> bytes_of("2GiB"), bytes_of("500 MB"), bytes_of("2e6")
    (2147483648, 500000000, 2000000)
    """
    match = re.fullmatch(r"\s*([0-9]+[.]?[0-9]*(?:e[0-9]{1,3})?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if not match or float(match[1]) <= 0:
        raise Usage(f"--max-memory is a size such as 2GiB; got {text!r}.")
    if len(match[1]) > 30 or (number := float(match[1])) > 2**60:
        raise Usage(f"--max-memory is a size such as 2GiB, at most {2**30} GiB; got {text!r}.")
    base = 1024 if match[3] or not match[2] else 1000
    size = int(number * base ** " kmgt".index(match[2] or " "))
    if size < LEAST_MEMORY:
        raise Usage(
            f"--max-memory must be at least {LEAST_MEMORY // 2**20} MiB, what one window of a map takes; got {text!r}."
        )
    return size

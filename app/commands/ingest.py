"""`geogp ingest`: public files become one GeoParquet of observations."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from app.cluster import workers
from app.commands import options
from app.console import console
from app.errors import Usage
from data_pipelines.sources import SOURCES
from data_pipelines.sources.contract import BETTER
from data_pipelines.words import many

PLACE = 20
TYPES = tuple(dict.fromkeys(type for source in SOURCES.values() for type in source.types))
#: The panel of help of what is done instead of a table.
ARCHIVE = "Published quarters as a whole"
#: The sources that read a FILE, for help texts.
TABLES = ", ".join(name for name, source in SOURCES.items() if source.takes_file)
if TYPE_CHECKING:
    SourceName: TypeAlias = str
    TypeName: TypeAlias = str
    Better: TypeAlias = str
else:  # the choices that the command line shows and holds people to
    SourceName, TypeName, Better = Literal[tuple(SOURCES)], Literal[TYPES], Literal[BETTER]


def ingest(
    file: Annotated[
        str | None, typer.Argument(help=f"The table, for --source {TABLES} (path or URL).")
    ] = None,
    output: Annotated[Path | None, options.output("GeoParquet to write.")] = None,
    source: Annotated[
        SourceName,
        typer.Option(
            help="Where the measurements come from: "
            + "; ".join(f"{name}, {source.words}" for name, source in SOURCES.items())
            + "."
        ),
    ] = "ookla",
    root: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="https URL, s3://bucket or folder in the bucket's layout; default the public bucket.",
        ),
    ] = None,
    type_: Annotated[
        TypeName | None,
        typer.Option("--type", help="Kind of connection; default the source's first."),
    ] = None,
    quarters: Annotated[
        str | None, typer.Option(help="2023Q4, 2019Q1..2023Q4 or a comma list.", metavar="QUARTERS")
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(help="State code, such as HI, or several: HI,AK. US is the 50 states and DC."),
    ] = None,
    states: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Census states file for --region; default: download it."),
    ] = None,
    bbox: Annotated[
        tuple[float, float, float, float] | None, typer.Option(metavar="W S E N", help="Box in degrees.")
    ] = None,
    boundary: Annotated[str | None, typer.Option(metavar="FILE", help="Polygons in any CRS.")] = None,
    urban: Annotated[
        str | None, typer.Option(metavar="FILE", help="Census urban areas; without it `urban` stays null.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="x=..,y=..,value=..[,count=..,time=..]",
            help=f"Column names, for {TABLES}; x and y may be left out where two are called lon and lat, or so, value where one is, and count where one is called count or tests, or so.",
        ),
    ] = None,
    crs: Annotated[str | None, typer.Option(help="CRS of x and y; default longitude and latitude.")] = None,
    value_unit: Annotated[str | None, typer.Option(help="Unit of `value`, for legends.")] = None,
    value_name: Annotated[
        str | None, typer.Option(help="What `value` is, for titles; default: its column's name.")
    ] = None,
    better: Annotated[
        Better | None,
        typer.Option(help=f"Which of `value` is better, for ranks, colours and words, for {TABLES}."),
    ] = None,
    covariates: Annotated[
        str | None,
        typer.Option(metavar="LIST", help=f"Further columns, kept for `fit --covariates`, for {TABLES}."),
    ] = None,
    average: Annotated[
        bool,
        typer.Option(
            "--average", help=f"Average the rows of each tile of some 600 m and quarter, for {TABLES}."
        ),
    ] = False,
    credit: Annotated[
        str | None, typer.Option(metavar="WORDS", help=f"Who measured, to be named on maps, for {TABLES}.")
    ] = None,
    expect_sha256: Annotated[
        list[str] | None,
        typer.Option(metavar="HEX", help="Refuse measurements from a file of another SHA-256; repeatable."),
    ] = None,
    list_: Annotated[
        bool,
        typer.Option("--list", help="Instead: the quarters that --root holds.", rich_help_panel=ARCHIVE),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Instead: files, bytes, rows and seconds of it.", rich_help_panel=ARCHIVE
        ),
    ] = False,
    sort_into: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Instead: copy the quarters into DIR, sorted; --root DIR then reads any place in a moment.",
            rich_help_panel=ARCHIVE,
        ),
    ] = None,
    scheduler: options.Scheduler = None,
    as_json: options.AsJson = False,
    seed: options.Seed = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Public speed-test files, or any table of point measurements, become one table of observations."""
    instead = [
        name
        for name, asked in (("--list", list_), ("--dry-run", dry_run), ("--sort-into", sort_into))
        if asked
    ]
    if len(instead) > 1:
        raise Usage(f"Give one of {' and '.join(instead)}.")
    if instead and (file is not None or (output is not None and not dry_run)):
        raise Usage(f"{instead[0]} reads published quarters and writes no table; leave out the FILE and -o.")
    if not instead and output is None:
        raise Usage("Name the GeoParquet to write: -o obs.parquet.")
    takes_file = SOURCES[source].takes_file
    if scheduler is not None and (takes_file or list_ or dry_run):
        what = next((name for name in instead if sort_into is None), f"--source {source}")
        raise Usage(f"--scheduler has quarters read side by side, and {what} reads none; leave it out.")
    where: dict[str, Any] = {"region": region, "states": states, "bbox": bbox, "boundary": boundary}
    if instead:
        asked = {"source": source, "root": root, "type": type_, "quarters": quarters, **where}
        if list_:
            _holds(root, type_, as_json)
        elif sort_into is not None:
            with workers(scheduler) as others:
                _sort(sort_into, as_json, overwrite, workers=others, **asked)
        else:
            _plan(as_json, **asked)
        return
    from data_pipelines import observations

    assert output
    if takes_file and file is None:
        raise Usage(f"--source {source} needs the FILE to read; see `geogp ingest --help`.")
    if file is not None and not takes_file:
        raise Usage(
            f"--source {source} takes no FILE ({file}); for a table of your own say --source {TABLES.replace(', ', ' or ')}, for "
            "published tiles name their folder or URL with --root."
        )
    with workers(scheduler) as others, console.progress("reading") as progress:
        report = observations.ingest(
            source=source,
            root=root,
            file=file,
            type=type_,
            quarters=quarters,
            columns=_pairs(columns),
            crs=crs,
            value_unit=value_unit,
            value_name=value_name,
            better=better,
            covariates=options.names_of(covariates),
            average=average,
            credit=credit,
            **where,
            urban=urban,
            output=output,
            overwrite=overwrite,
            expect_sha256=tuple(expect_sha256 or ()),
            progress=progress,
            workers=others,
            seed=seed or 0,
        )
    if as_json:
        console.document(report.document())
    console.say(report.summary())


def _pairs(text: str | None) -> dict[str, str]:
    """`x=lon,y=lat` as a dict."""
    pairs = [part.partition("=") for part in (text or "").split(",") if part.strip()]
    wrong = [name for name, equals, value in pairs if not (equals and value)]
    if wrong:
        raise Usage(f"--columns is written x=..,y=..,value=..; {wrong[0]!r} has no `=NAME`.")
    roles = [name.strip() for name, _, _ in pairs]
    if twice := [role for role in roles if roles.count(role) > 1]:
        raise Usage(f"--columns names {twice[0]} twice; a table has one column for it.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _holds(root: str | None, type: str | None, as_json: bool) -> None:
    """A line for each quarter under a root."""
    from data_pipelines import archive

    found = archive.holds(root, type)
    if as_json:
        return console.document({"schema": 1, "root": root, "files": [asdict(one) for one in found]})
    rows = [
        [
            one.type,
            one.quarter,
            f"{one.bytes / 2**20:,.1f}",
            "" if one.rows is None else f"{one.rows:,}",
            "damaged" if one.problem else "" if one.sorted is None else "yes" if one.sorted else "no",
        ]
        for one in found
    ]
    console.table(
        many(len(found), "file"), ["type", "quarter", "MiB", "rows", "sorted copy"], rows, numbers_from=2
    )
    return None


def _plan(as_json: bool, **asked: Any) -> None:
    """What an ingest would read and give."""
    from data_pipelines import archive

    found = archive.plan(**asked)
    if as_json:
        console.document({"schema": 1, **asdict(found)})
    else:
        console.data(found.summary())


def _sort(folder: Path, as_json: bool, overwrite: bool, **asked: Any) -> None:
    """Sorted copies of quarters, each told of when it is in place."""
    from data_pipelines import archive

    made = []
    with console.progress("sorting") as progress:
        for one in archive.sort_into(folder, overwrite=overwrite, progress=progress, **asked):
            made.append(one)
            done = "was there" if one.kept else f"{one.seconds:.1f} s"
            console.say(f"{one.path}: {many(one.rows, 'row')}, {one.bytes / 2**20:,.0f} MiB, {done}")
    if as_json:
        console.document({"schema": 1, "files": [one.document() for one in made]})

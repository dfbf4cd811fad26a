"""Published quarters as a whole: what a root holds, what a table would take, sorted copies; told to people or programs."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.console import console


def holds(root: str | None, type: str | None, as_json: bool) -> None:
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
        f"{len(found)} files", ["type", "quarter", "MiB", "rows", "sorted copy"], rows, numbers_from=2
    )
    return None


def plan(as_json: bool, **asked: Any) -> None:
    """What an ingest would read and give."""
    from data_pipelines import archive

    found = archive.plan(**asked)
    if as_json:
        console.document({"schema": 1, **asdict(found)})
    else:
        console.data(found.summary())


def sort(folder: Path, as_json: bool, overwrite: bool, **asked: Any) -> None:
    """Sorted copies of quarters, each told of when it is in place."""
    from data_pipelines import archive

    made = []
    with console.progress("sorting") as progress:
        for one in archive.sort_into(folder, overwrite=overwrite, progress=progress, **asked):
            made.append(one)
            done = "was there" if one.kept else f"{one.seconds:.1f} s"
            console.say(f"{one.path}: {one.rows:,} rows, {one.bytes / 2**20:,.0f} MiB, {done}")
    if as_json:
        console.document({"schema": 1, "files": [one.document() for one in made]})

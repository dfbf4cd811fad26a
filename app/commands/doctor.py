"""`geogp doctor`: is everything here that the other commands need?"""

import time
from typing import Annotated

import typer

from app.commands import options
from app.console import console
from app.errors import Failed

PLACE = 140


def doctor(
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Play kills, damaged files, odd data and other orders on this machine, in half a minute.",
        ),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Report versions, device, GDAL and PROJ, free memory and disk."""
    from app.workflow.steps.doctor import doctor as examine

    report, started = examine(), time.perf_counter()
    document, rows, problems = report.document(), report.rows(), list(report.problems)
    if self_test:
        from app.workflow import self_test as test

        with console.progress("playing faults") as progress:
            played = test.self_test(progress)
        document["self_test"] = test.told(played, time.perf_counter() - started)
        rows += [[f"self-test {p.row}: {p.fault}", f"{p.times} times, {p.words}"] for p in played]
        problems += [words for p in played for words in p.broken]
        document |= {"ok": not problems, "problems": problems}
    if as_json:
        console.document(document)
    else:
        console.table("geogp doctor", ["what", "found"], rows, numbers_from=2)
    if problems:
        raise Failed("; ".join(problems))

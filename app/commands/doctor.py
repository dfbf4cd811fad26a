"""`geogp doctor`: is everything here that the other commands need?"""

from typing import Annotated

import typer

from app.console import console
from app.errors import Failed


def doctor(as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """Report versions, device, GDAL and PROJ, free memory and disk."""
    from app.doctor import examine

    report = examine()
    if as_json:
        console.document(report.document())
    else:
        console.table("geogp doctor", ["what", "found"], report.rows(), numbers_from=2)
    if report.problems:
        raise Failed("; ".join(report.problems))

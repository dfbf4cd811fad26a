"""`geogp doctor`: is everything here that the other commands need?"""

from app.commands import options
from app.console import console
from app.errors import Failed

PLACE = 140


def doctor(as_json: options.AsJson = False) -> None:
    """Report versions, device, GDAL and PROJ, free memory and disk."""
    from app.workflow.steps.doctor import doctor as examine

    report = examine()
    if as_json:
        console.document(report.document())
    else:
        console.table("geogp doctor", ["what", "found"], report.rows(), numbers_from=2)
    if report.problems:
        raise Failed("; ".join(report.problems))

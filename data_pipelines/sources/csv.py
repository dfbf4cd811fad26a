"""Any other point measurement, from a CSV file with named columns."""

from data_pipelines.sources.contract import Collected, Request, Source


def collect(request: Request) -> Collected:
    """Rows of the file; x and y are longitude and latitude unless a CRS is given."""
    from data_pipelines.readers import points

    return points.collect_csv(request)


CSV = Source(
    words="any point measurement in a CSV file",
    collect=collect,
    tiled=False,
    takes_file=True,
    attribution="a table of measurements",
)

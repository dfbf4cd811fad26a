"""Any other point measurement, from a GeoParquet file in any CRS."""

from data_pipelines.sources.contract import Collected, Request, Source


def collect(request: Request) -> Collected:
    """Rows of the file; x and y come from its geometry unless columns are named."""
    from data_pipelines.readers import points

    return points.collect_geoparquet(request)


GEOPARQUET = Source(
    words="any point measurement in a GeoParquet file",
    collect=collect,
    tiled=False,
    takes_file=True,
    attribution="a table of measurements",
)

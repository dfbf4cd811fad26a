"""Speedtest by Ookla's open tiles: what was measured in each quarter, averaged over tiles of about 600 m."""

from collections.abc import Iterator

from data_pipelines.sources.contract import Collected, Request, Source


def collect(request: Request) -> Iterator[Collected]:
    """Rows of the quarters asked for whose tile meets the place: see `readers.tiles.collect`."""
    from data_pipelines.readers import elsewhere, tiles

    return tiles.collect(request) if request.workers is None else elsewhere.collect(request)


OOKLA = Source(
    words="Speedtest by Ookla's open tiles",
    collect=collect,
    tiled=True,
    types=("fixed", "mobile"),
    attribution="Speedtest by Ookla Global Fixed and Mobile Network Performance Maps",
    licence="CC BY-NC-SA 4.0",
    reference="https://github.com/teamookla/ookla-open-data",
)

"""A made-up world in the published formats, whose truth is known: for demonstrations and tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from data_pipelines.sources import ookla
from data_pipelines.sources.contract import Collected, Request, Source


@contextmanager
def in_a_world(request: Request) -> Iterator[Request]:
    """The request with a written world as its root, made where there is none, and the world's own place."""
    from data_pipelines.synthetic import world_folder

    with world_folder(request.root, seed=request.seed, size=request.size) as (world, root):
        somewhere = request.region or request.bbox or request.boundary
        yield replace(
            request,
            root=root,
            quarters=request.quarters or f"{world.quarters[0]}..{world.quarters[-1]}",
            region=request.region if somewhere else world.state_code,
            states=request.states or world.states_file(root),
            urban=request.urban or world.urban_file(root),
        )


def collect(request: Request) -> Iterator[Collected]:
    """A written world, read as the real thing; which world it is goes into the metadata."""
    from data_pipelines.synthetic import load_world

    world = load_world(request.root or "")
    about = {"synthetic": {"seed": world.seed, "size": world.size}}
    return (replace(part, about=about) for part in ookla.collect(request))


SYNTHETIC = Source(
    words="a made-up world in the same format",
    collect=collect,
    ready=in_a_world,
    tiled=True,
    types=ookla.OOKLA.types,
    attribution="a made-up world in the published formats",
)

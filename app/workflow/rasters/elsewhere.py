"""Windows of a map computed by workers of a cluster, which open the runs by their paths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from app.cluster import Cluster
from app.errors import InvalidInput
from app.workflow.rasters.covariates import Covered, opened
from geogp.run import Run
from maps.grid import Window
from maps.render import MAX_MEMORY, Elsewhere, Pending, job_of, values_of
from maps.sinks.base import Job


@dataclass(frozen=True)
class Place:
    """Where a run lies, the sum of its weights, and its rasters, as `opened` takes them."""

    path: str
    weights_sha256: str | None
    covariates: str | None

    @classmethod
    def of(cls, run: Run) -> "Place":
        """Of a run that was opened here.

        Raises
        ------
        InvalidInput
            it lies nowhere.
        """
        if not run.path.is_dir() or not (run.covariates is None or isinstance(run.covariates, Covered)):
            raise InvalidInput(
                "A cluster maps runs that lie in a folder, with rasters as their covariates; save this one first."
            )
        files = run.covariates.files if run.covariates is not None else {}
        said = ",".join(f"{name}={file['path']}" for name, file in files.items())
        return cls(str(run.path.resolve()), run.weights_sha256, said or None)

    def run(self) -> Run:
        """The run, in a worker.

        Raises
        ------
        InvalidInput
            not seen from there, or another one.
        """
        if not Path(self.path).is_dir():
            raise InvalidInput(
                f"A worker does not see the run {self.path}; put it where all machines see it under this name."
            )
        run = opened(self.path, self.covariates)
        if run.weights_sha256 != self.weights_sha256:
            raise InvalidInput(
                f"A worker sees another run at {self.path}; put the same where all machines see it."
            )
        return run


@dataclass(frozen=True)
class Drawing:
    """All that decides the pixels of a map: `make(*arguments)` is its lazy Dataset, in whichever process.

    key : another for each map; make : a function of a module
    """

    key: str
    make: Callable[..., xr.Dataset]
    arguments: tuple[Any, ...]
    layers: tuple[str, ...] | None
    max_memory: int


def on(
    cluster: Cluster,
    make: Callable[..., xr.Dataset],
    *arguments: Any,
    layers: Sequence[str] | None = None,
    max_memory: int = MAX_MEMORY,
) -> Elsewhere:
    """Workers that compute the windows of the Dataset `make(*arguments)`, for `maps.raster.export`, told the same layers
    and memory."""
    named = None if layers is None else tuple(layers)
    drawing = Drawing(uuid4().hex, make, arguments, named, max_memory)
    shared = cluster.share(drawing)

    def begin(window: Window) -> Pending:
        return cluster.submit(window_of, shared, tuple(window))

    return Elsewhere(begin, cluster.ahead)


def window_of(drawing: Drawing, window: tuple[int, int, int, int]) -> NDArray[np.float32]:
    """In a worker: a window of all bands of a map, (bands, rows, columns)."""
    if drawing.key not in _at:
        _at.clear()
        _at[drawing.key] = job_of(drawing.make(*drawing.arguments), drawing.layers, drawing.max_memory)
    job = _at[drawing.key]
    return values_of(job.ds[list(job.variables)], Window(*window), job)


#: The map that a worker is at.
_at: dict[str, Job] = {}

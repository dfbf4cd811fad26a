"""Steps of training that a GPU repeats from a recording: one call for some two hundred kernels, each shorter than its own."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from geogp.data import Data

log = logging.getLogger(__name__)

#: Steps of a size of batch before one is recorded: by then the optimiser has its memory, and libraries their own.
FIRST = 3


class Tape(Protocol):
    """A recording, and what its recorder needs to be."""

    def replay(self) -> None:
        """Do all of it again, with whatever its tensors hold by now."""


class RecordedSteps:
    """Steps as they are, until one of the same size of batch is recorded; from then on the recording.

    What cannot be recorded, as what waits for the device in its midst, stays as it is.

    Parameters
    ----------
    step : moves the parameters and returns the loss, a tensor on the device; of a batch it may see the numbers alone, and draw none
    record : calls a function once, without effect, and gives what repeats its work and what it returned

    Examples
    --------
    >>> seen = []
    >>> def step(batch):
    ...     seen.append(float(batch.y.sum()))
    ...     return batch.y.sum()
    >>> steps = RecordedSteps(step, lambda work: (type("Tape", (), {"replay": lambda self: work()})(), work()))
    >>> batch = Data(torch.zeros(2, 2), torch.ones(2))
    >>> [float(steps(batch)) for _ in range(5)]
    [2.0, 2.0, 2.0, 2.0, 2.0]
    """

    def __init__(
        self,
        step: Callable[[Data], Tensor],
        record: "Callable[[Callable[[], Tensor]], tuple[Tape, Tensor]] | None" = None,
    ):
        self._step, self._record = step, _on_cuda if record is None else record
        self._taken: Counter[int] = Counter()
        self._tapes: dict[int, tuple[Tape, Data, Tensor]] = {}
        self._impossible = False

    def __call__(self, batch: Data) -> Tensor:
        """The loss of a step. Its tensor is written over by the next."""
        size = len(batch)
        if size not in self._tapes:
            self._taken[size] += 1
            if self._impossible or self._taken[size] <= FIRST:
                return self._step(batch)
            try:
                self._tapes[size] = self._recorded(batch)
            except RuntimeError as error:  # torch's, of what no graph holds; nothing of the step was done
                log.warning("steps are not recorded: %s", str(error).splitlines()[0])
                self._impossible = True
                return self._step(batch)
        tape, place, loss = self._tapes[size]
        _copied(batch, place)
        tape.replay()
        return loss

    def _recorded(self, batch: Data) -> tuple[Tape, Data, Tensor]:
        counts = None if batch.counts is None else batch.counts.clone()
        place = Data(batch.X.clone(), batch.y.clone(), counts)
        tape, loss = self._record(lambda: self._step(place))
        return tape, place, loss


def _copied(batch: Data, place: Data) -> None:
    place.X.copy_(batch.X)
    place.y.copy_(batch.y)
    if batch.counts is not None and place.counts is not None:
        place.counts.copy_(batch.counts)


def _on_cuda(work: Callable[[], Tensor]) -> tuple[Tape, Tensor]:
    stream, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            loss = work()
    except RuntimeError:
        # torch stays on the recording's stream where one fails, and its memory goes with the graph.
        torch.cuda.set_stream(stream)
        torch.cuda.synchronize()
        raise
    return graph, loss.detach()

"""The parts of a long fit, each computed once: what an interrupted fit need not compute again."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from geogp.linalg.threads import go_on

Tensors = dict[str, Tensor]
Piece = TypeVar("Piece")

#: What a stage, which holds tensors, calls the facts of a state.
FACTS = "facts"


class Stages:
    """What is computed already, by name, and whom to tell.

    known : tensors of an earlier attempt, named "stage/tensor"
    report : called with all tensors known after each stage, and now and then within one: it may write them, and may
        raise to end the fit
    progress : called with how many stages are done
    tell : called with what is worked on next, in words

    Examples
    --------
    >>> import torch
    >>> first = Stages()
    >>> first.once("square", lambda: {"value": torch.tensor(9.0)})
    {'value': tensor(9.)}
    >>> Stages(first.known).once("square", lambda: {"value": torch.tensor(0.0)})  # not computed again
    {'value': tensor(9.)}
    """

    def __init__(
        self,
        known: Tensors | None = None,
        report: Callable[[Tensors], None] | None = None,
        progress: Callable[[int], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ):
        self.known: Tensors = dict(known or {})
        self.report, self.progress, self._tell = report, progress, tell
        # Stages may be computed side by side; they are kept and told of one at a time.
        self._turn = threading.RLock()

    def once(self, name: str, compute: Callable[[], Tensors]) -> Tensors:
        """What `compute` gives, or gave in an earlier attempt."""
        start = f"{name}/"
        if found := self._under(start):
            return found
        made = compute()
        with self._turn:
            self.known |= {start + k: v.detach().clone() for k, v in made.items()}
            self._progress(self.done)
            self.tick()
        return made

    def of_stages(self, name: str, compute: Callable[["Stages"], Tensors]) -> Tensors:
        """`once` of what is computed in stages itself: they are kept beside those here, under its name."""
        start = f"{name}."
        inner = Stages(self._under(start))

        def keep(known: Tensors) -> None:
            with self._turn:
                self.known |= {start + k: v for k, v in known.items()}
                self.tick()

        before = self.done - inner.done
        inner.report = keep
        inner.progress = lambda done: self._progress(before + done)
        return self.once(name, lambda: compute(inner))

    def _under(self, start: str) -> Tensors:
        """What is known by names that start so, by the rest of these."""
        with self._turn:
            return {k.removeprefix(start): v for k, v in self.known.items() if k.startswith(start)}

    @property
    def done(self) -> int:
        """How many stages are known."""
        with self._turn:
            return len({k.split("/")[0] for k in self.known})

    def _progress(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done)

    def tell(self, words: str) -> None:
        """Say what is worked on next."""
        if self._tell is not None:
            self._tell(words)

    def tick(self) -> None:
        """Say that work goes on: the moment to write what is known, or to stop; within a piece of `side_by_side`, too."""
        go_on()
        with self._turn:
            if self.report is not None:
                self.report(self.known)

    def between(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces of a long work as they are taken, with a `tick` before each."""
        for piece in pieces:
            self.tick()
            yield piece


def packed(tensors: Tensors, facts: dict[str, Any]) -> Tensors:
    """A state, tensors and JSON-able facts, as the tensors of a stage.

    Examples
    --------
    >>> unpacked(packed({}, {"epochs": 3}))
    ({}, {'epochs': 3})
    """
    return {**tensors, FACTS: torch.from_numpy(np.frombuffer(json.dumps(facts).encode(), np.uint8).copy())}


def unpacked(made: Tensors) -> tuple[Tensors, dict[str, Any]]:
    """The inverse of `packed`."""
    tensors = dict(made)
    return tensors, json.loads(tensors.pop(FACTS).numpy().tobytes())

"""The parts of a long fit, each computed once: what an interrupted fit need not compute again."""

from collections.abc import Callable

from torch import Tensor

Tensors = dict[str, Tensor]


class Stages:
    """What is computed already, by name, and whom to tell.

    known : tensors of an earlier attempt, named "stage/tensor"
    report : called with all tensors known after each stage, and now and then within one: it may write them, and may
        raise to end the fit
    progress : called with how many stages are done

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
    ):
        self.known: Tensors = dict(known or {})
        self.report, self.progress = report, progress

    def once(self, name: str, compute: Callable[[], Tensors]) -> Tensors:
        """What `compute` gives, or gave in an earlier attempt."""
        start = f"{name}/"
        found = {k.removeprefix(start): v for k, v in self.known.items() if k.startswith(start)}
        if found:
            return found
        made = compute()
        self.known |= {start + k: v.detach().clone() for k, v in made.items()}
        if self.progress is not None:
            self.progress(len({k.split("/")[0] for k in self.known}))
        self.tick()
        return made

    def tick(self) -> None:
        """Say that work goes on: the moment to write what is known, or to stop."""
        if self.report is not None:
            self.report(self.known)

"""The parts of a fit that is not one training, each computed once, as a checkpoint keeps them."""

from typing import Any

from torch import Tensor

from geogp.basis.train import Progress
from geogp.engines.plan import Hooks
from geogp.field.stages import Stages

NO_OPTIMISER: dict[str, Any] = {"state": {}, "param_groups": []}


def stages_of(hooks: Hooks, expected: int) -> Stages:
    """Stages that a fit's hooks keep and count: an epoch each of about `expected`, their tensors those of the model.

    Examples
    --------
    >>> import torch
    >>> kept = []
    >>> stages = stages_of(Hooks(checkpoint=kept.append), expected=2)
    >>> _ = stages.once("first", lambda: {"value": torch.tensor(9.0)})
    >>> kept[-1]["model"]
    {'first/value': tensor(9.)}
    >>> again = stages_of(Hooks(resume=kept[-1]), expected=2)
    >>> again.once("first", lambda: {"value": torch.tensor(0.0)})  # not computed again
    {'value': tensor(9.)}
    """

    def report(known: dict[str, Tensor]) -> None:
        if hooks.checkpoint is not None:
            done = Progress(epoch=len({k.split("/")[0] for k in known}))
            hooks.checkpoint({"progress": done, "model": dict(known), "optimiser": NO_OPTIMISER})

    def progress(done: int) -> None:
        if hooks.on_epoch is not None:
            hooks.on_epoch(done, max(done, expected), None)

    return Stages(None if hooks.resume is None else hooks.resume["model"], report, progress, hooks.on_part)

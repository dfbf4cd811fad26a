"""Parameters averaged over the last part of training: what annealing would give, at any epoch."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class ParameterAverage:
    """A running average of a model's parameters whose memory grows with the training: a share of all steps.

    A model at a high learning rate circles around what it has learned; the average is the centre. So every
    epoch can be judged as if the rate had been annealed there, and one schedule serves data that overfit within
    a tenth of it and data that learn to its end.

    Parameters
    ----------
    share : of the steps so far that the average remembers
    values : averages to go on from, by parameter name

    Notes
    -----
    Step t moves the average by 1 / (share t) of the way (Karras et al. 2024, eq. 2: a power-function profile).
    Cost: one pass over the parameters a step.

    Examples
    --------
    >>> layer = nn.Linear(1, 1, bias=False)
    >>> average = ParameterAverage(layer, share=0.5)
    >>> for step, w in enumerate((1.0, 1.0, 3.0, 3.0), start=1):
    ...     _ = nn.init.constant_(layer.weight, w)
    ...     average.update(step)
    >>> with average.worn():
    ...     print(round(layer.weight.item(), 3))
    2.667
    >>> layer.weight.item()
    3.0
    """

    def __init__(self, model: nn.Module, share: float, values: dict[str, Tensor] | None = None):
        self.share = share
        self.own = dict(model.named_parameters())
        self.values = {k: p.detach().clone() for k, p in self.own.items()}
        for name, value in (values or {}).items():
            self.values[name].copy_(value)

    def update(self, step: int) -> None:
        """Take in the parameters after step 1, 2, ..."""
        weight = min(1.0, 1.0 / (self.share * step))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.values.values()), list(self.own.values()), weight)

    def put_on(self) -> None:
        """Give the model the averages for good."""
        with torch.no_grad():
            torch._foreach_copy_(list(self.own.values()), list(self.values.values()))

    @contextmanager
    def worn(self) -> Iterator[None]:
        """The model with its averages in place; its own parameters return to the bit."""
        kept = [p.detach().clone() for p in self.own.values()]
        self.put_on()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(list(self.own.values()), kept)

"""Adam's steps, their rates rising and falling once: torch's arithmetic without its optimisers.

Making one of those imports a compiler that nothing here uses: two seconds of processor time, more than many a fit takes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adam import adam

#: Share of the highest rate that a cycle starts from, and of that the one it ends at; β₁ where rates are low and high.
START, END, SLOW, FAST = 1 / 25, 1e-4, 0.95, 0.85


@dataclass(frozen=True)
class Group:
    """Parameters with a highest rate of their own; weight decay is decoupled from the gradient."""

    parameters: Sequence[Tensor]
    rate: float
    weight_decay: float = 0.0


class Steps:
    """Adam on groups of parameters; over `total` steps, the first `rise` of them faster and faster, one cycle.

    Parameters
    ----------
    total : steps of the cycle; None for one rate throughout, and β₁ = .9

    References
    ----------
    Kingma and Ba 2015 (Adam); Loshchilov and Hutter 2019 (its weight decay); Smith and Topin 2018 (one cycle)

    Examples
    --------
    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> steps = Steps([Group([x], 0.5)], total=60)
    >>> for _ in range(60):
    ...     steps.down(x.square().sum())
    >>> bool(x.abs() < 0.3)
    True
    """

    def __init__(
        self, groups: Sequence[Group], *, total: int | None, rise: float = 0.2, beta2: float = 0.999
    ):
        self.groups, self.total, self.rise, self.beta2, self.done = groups, total, rise, beta2, 0
        self._kept = [[_State.of(p) for p in group.parameters] for group in groups]

    def down(self, loss: Tensor) -> None:
        """One step against the gradient of a loss."""
        for group in self.groups:
            for p in group.parameters:
                p.grad = None
        loss.backward()
        share, beta1 = self._now()
        for group, kept in zip(self.groups, self._kept):
            told = [(p, p.grad, s) for p, s in zip(group.parameters, kept) if p.grad is not None]
            with torch.no_grad():
                adam(
                    [p for p, _, _ in told],
                    [g for _, g, _ in told],
                    [s.mean for _, _, s in told],
                    [s.square for _, _, s in told],
                    [],
                    [s.count for _, _, s in told],
                    fused=True,
                    amsgrad=False,
                    beta1=beta1,
                    beta2=self.beta2,
                    lr=share * group.rate,
                    weight_decay=group.weight_decay,
                    eps=1e-8,
                    maximize=False,
                    decoupled_weight_decay=True,
                )
        self.done += 1

    def _now(self) -> tuple[float, float]:
        """Share of the highest rate, and β₁, of this step."""
        if self.total is None:
            return 1.0, 0.9
        top, last = self.rise * self.total - 1.0, self.total - 1.0
        if self.done <= top and top > 0:
            return _between(START, 1.0, self.done / top), _between(SLOW, FAST, self.done / top)
        part = (self.done - top) / (last - top)
        return _between(1.0, START * END, part), _between(FAST, SLOW, part)


@dataclass(frozen=True)
class _State:
    """What Adam keeps of a parameter: steps so far, running mean of its gradient and of its square."""

    count: Tensor
    mean: Tensor
    square: Tensor

    @classmethod
    def of(cls, p: Tensor) -> "_State":
        zero = torch.zeros_like(p.detach())
        return cls(torch.zeros((), device=p.device), zero, zero.clone())


def _between(start: float, end: float, part: float) -> float:
    """Along half a cosine."""
    return end + 0.5 * (start - end) * (1.0 + math.cos(math.pi * part))

"""Steps of L-BFGS for a loss of all rows at once: kernels and noise without a network."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from geogp.errors import NumericalFailure
from geogp.linalg import held_back, warn

#: Pairs of a step and a change of the gradient that are remembered.
REMEMBERED = 20
#: Points that a line search looks at before it takes the best of them.
TRIED = 25
#: How much worse than where a step began a point counts at which the loss has no value.
FAR = 1e3
#: What the optimiser keeps as lists of tensors of one shape.
LISTS = ("old_dirs", "old_stps", "ro")


@dataclass(frozen=True)
class _Seen:
    """A point where the loss was evaluated, its loss and its gradients, and what its factorisations warn of."""

    x: Tensor
    loss: Tensor
    gradients: list[Tensor | None]
    said: list[str]


class QuasiNewton:
    """L-BFGS with a line search for the strong Wolfe conditions, an iteration a step; the loss has no other rows to follow.

    Where the loss cannot be evaluated, as of a matrix that has no Cholesky factor, the line search turns back. Of the points
    that it looks at only the one that a step ends at goes into the log, and what the last one said is not repeated.

    Parameters
    ----------
    parameters : what is learned

    Notes
    -----
    Memory: 2 `REMEMBERED` vectors and the points of one line search. A step takes a gradient of all rows, now and then some more.

    References
    ----------
    Nocedal and Wright 2006, Numerical optimization, algorithms 7.4 and 3.5; `torch.optim.LBFGS`

    Examples
    --------
    >>> x = nn.Parameter(torch.tensor([3.0, -2.0], dtype=torch.float64))
    >>> search = QuasiNewton([x])
    >>> def loss():
    ...     value = (x - 1).square() @ torch.tensor([1.0, 50.0], dtype=torch.float64)
    ...     value.backward()
    ...     return value
    >>> losses = [search.step(loss) for _ in range(8)]
    >>> [round(v, 6) for v in x.tolist()]
    [1.0, 1.0]
    """

    def __init__(self, parameters: Iterable[nn.Parameter]):
        self.parameters = [p for p in parameters if p.requires_grad]
        self._search = torch.optim.LBFGS(
            self.parameters, max_iter=1, max_eval=TRIED, history_size=REMEMBERED, line_search_fn="strong_wolfe", tolerance_grad=0.0,
            tolerance_change=1e-12,
        )  # fmt: skip
        self._seen: list[_Seen] = []
        self._told: list[str] = []

    def step(self, backward: Callable[[], Tensor]) -> float:
        """One iteration; the loss where it began.

        Parameters
        ----------
        backward : fills the gradients and returns the loss

        Raises
        ------
        NumericalFailure
            when the loss cannot be evaluated where the step begins.
        """
        first: float | None = None

        def closure() -> Tensor:
            nonlocal first
            loss = self._evaluated(backward, first)
            first = float(loss) if first is None else first
            return loss

        self._search.step(closure)
        assert first is not None  # the search begins with a look at where it stands
        self._forget()  # the next step begins where this one ends
        said = [words for seen in self._seen for words in seen.said]
        for words in said if said != self._told else []:
            warn(words)
        self._told = said
        return first

    def _forget(self) -> None:
        """All points but where the search stands."""
        here = parameters_to_vector(self.parameters).detach()
        self._seen = [seen for seen in self._seen if torch.equal(seen.x, here)]

    def _evaluated(self, backward: Callable[[], Tensor], first: float | None) -> Tensor:
        """The loss, its gradients filled; a large one, flat, beyond where it has a value. first : of the step, None before any."""
        x = parameters_to_vector(self.parameters).detach().clone()
        for seen in self._seen:
            if torch.equal(seen.x, x):
                for p, gradient in zip(self.parameters, seen.gradients):
                    p.grad = None if gradient is None else gradient.clone()
                return seen.loss
        self._search.zero_grad(set_to_none=True)
        try:
            with held_back() as said:
                loss = backward().detach()
        except NumericalFailure:
            if first is None:
                for words in said:
                    warn(words)
                raise
            loss = torch.tensor(float("nan"))
        finite = bool(torch.isfinite(loss)) and all(
            bool(torch.isfinite(p.grad).all()) for p in self.parameters if p.grad is not None
        )
        if not finite:
            if first is None:
                raise NumericalFailure(
                    f"the loss or its slope is not finite where the search stands ({float(loss)})."
                )
            self._search.zero_grad(set_to_none=True)
            loss = torch.as_tensor(first + FAR * (1.0 + abs(first)), dtype=x.dtype)
        self._seen.append(
            _Seen(x, loss, [None if p.grad is None else p.grad.clone() for p in self.parameters], said)
        )
        return loss

    # -- state: tensors alone, to the last bit -------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes: of one slot."""
        state = dict(self._search.state[self.parameters[0]])
        state.pop("al", None)
        slot = {
            name: torch.stack(list(value)) if name in LISTS else _number(value)
            for name, value in state.items()
            if value is not None and not (name in LISTS and not value)
        }
        return {"state": {0: slot} if slot else {}, "param_groups": []}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand where another stood."""
        device = self.parameters[0].device
        slot = {name: value.to(device) for name, value in state["state"].get(0, {}).items()}
        told: dict[str, Any] = {name: list(value.unbind()) for name, value in slot.items() if name in LISTS}
        told |= {name: [] for name in LISTS if slot and name not in told}
        told |= {name: int(slot[name]) for name in ("func_evals", "n_iter") if name in slot}
        told |= {name: float(slot[name]) for name in ("t", "prev_loss") if name in slot}
        told |= {name: slot[name].clone() for name in ("d", "prev_flat_grad", "H_diag") if name in slot}
        self._search.state[self.parameters[0]].update(told)


def _number(value: Tensor | float) -> Tensor:
    """A number with all its digits; a tensor as it is."""
    return value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)

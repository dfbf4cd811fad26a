"""Training on several processes: each passes its rows of a batch through the model, and the loss is that of all rows.

In a script that `torchrun --nproc-per-node 8 script.py` starts, before anything is fitted:

    torch.distributed.init_process_group("gloo")  # "nccl" on GPUs

Then `GPRegressor.fit` of the same rows, in all processes alike, comes to the weights of one process up to the order of sums:
batches are drawn from the seed, what an objective looks at (a few numbers a row) is gathered, and the gradients of
all rows are added. So objectives need not be means over rows. What takes no minibatches (closed forms, L-BFGS) all
processes do alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor, distributed

from geogp.basis.objectives import Terms
from geogp.data import Data


@dataclass(frozen=True)
class Share:
    """The part of this process in each batch: every `among`-th row from `rank` on."""

    rank: int
    among: int

    @classmethod
    def here(cls) -> Self | None:
        """Of this process; None where it trains alone."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return None
        among = distributed.get_world_size()
        return cls(distributed.get_rank(), among) if among > 1 else None

    def of(self, batch: Data) -> Data:
        """Its rows of a batch.

        Examples
        --------
        >>> Share(rank=1, among=2).of(Data(torch.zeros(5, 2), torch.arange(5.0))).y.tolist()
        [1.0, 3.0]
        """
        return batch.rows(torch.arange(self.rank, len(batch), self.among, device=batch.y.device))

    def gathered(self, own: Terms, n: int) -> Terms:
        """The terms of all n rows of a batch. Gradients flow to this process' own rows, and once to what knows no row."""
        rows = [f.name for f in fields(own) if f.name not in ("kl", "n_total")]
        table = torch.stack([getattr(own, name) for name in rows], dim=1)
        most = -(-n // self.among)
        sent = table.new_zeros(most, len(rows))
        sent[: len(table)] = table.detach()
        received = [torch.empty_like(sent) for _ in range(self.among)]
        distributed.all_gather(received, sent)
        received[self.rank] = torch.cat([table, sent[len(table) :]])
        whole = torch.stack(received, dim=1).flatten(0, 1)[:n]  # row i is that of process i modulo `among`
        kl = own.kl if self.rank == 0 else 0.0 * own.kl
        told: dict[str, Any] = dict(zip(rows, whole.unbind(1)))
        return replace(own, **told, kl=kl)

    def add(self, parameters: Iterable[Tensor]) -> None:
        """The gradients of all processes' rows, added, become those of each."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        whole = torch.cat([g.reshape(-1) for g in gradients])
        distributed.all_reduce(whole)
        for gradient, summed in zip(gradients, whole.split([g.numel() for g in gradients])):
            gradient.copy_(summed.view_as(gradient))

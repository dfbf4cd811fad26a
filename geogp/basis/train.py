"""The one training loop: minibatches, AdamW, averaged parameters, a checkpoint rule that outliers cannot rule."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from geogp.basis.averages import Average
from geogp.basis.model import LowRankGP, Trainable
from geogp.basis.objectives import OBJECTIVES, Terms, Weights
from geogp.data import Data
from geogp.densities import gaussian_crps, gaussian_nll
from geogp.errors import NumericalFailure

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    epochs : None for as many as make about `steps` steps (between 20 and 400 epochs;
        60 + n for n < 340 rows)
    learning_rate : peak for network weights; kernel parameters and the weights'
        distribution take twice, the noise ten times as much
    average : share of the steps so far over which the parameters in use are averaged, see `Average`; 0 for the
        last ones
    patience : training stops at this multiple of its best epoch, but not before a seventh of all epochs

    Notes
    -----
    How long to train differs a hundredfold between data sets: Elevators overfits within 40 epochs, Pol improves for
    400. Averages make every epoch's score that of an annealed model, so one long cosine serves both; three
    growing cycles, each annealed, gave .323 instead of .308 of NLL on Elevators (validation rows).
    """

    epochs: int | None = None
    steps: int = 6000
    batch_size: int = 1024
    learning_rate: float = 5e-3
    weight_decay: float = 1e-2
    average: float = 0.1
    patience: float = 2.5

    def rate(self, share: float) -> float:
        """Learning rate, as a share of its peak, when `share` of the training is done: up over the first
        twentieth, then down to nothing along a cosine.

        Examples
        --------
        >>> [round(Schedule().rate(t), 2) for t in (0, 0.05, 0.525, 1)]
        [0.04, 1.0, 0.5, 0.0]
        """
        if share < 0.05:
            return 0.04 + 0.96 * share / 0.05
        return 0.5 * (1.0 + math.cos(math.pi * (share - 0.05) / 0.95))

    def is_past_the_best(self, epoch: int, best_epoch: int, epochs: int) -> bool:
        """Whether `epoch` of `epochs` is so far past the best one that training may stop.

        Examples
        --------
        >>> [Schedule().is_past_the_best(epoch, 30, 400) for epoch in (50, 74, 75)]
        [False, False, True]
        """
        return 7 * epoch >= epochs and epoch >= self.patience * best_epoch

    def is_scored(self, epoch: int, epochs: int) -> bool:
        """Whether the validation rows are looked at after `epoch`: at first after each, then at every tenth more.

        Examples
        --------
        >>> [e for e in range(1, 41) if Schedule().is_scored(e, 40)]
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 18, 20, 22, 24, 26, 29, 31, 35, 38, 40]
        """
        grid = math.log(1.1)
        return epoch in (1, epochs) or int(math.log(epoch) / grid) > int(math.log(epoch - 1) / grid)

    def n_epochs(self, n: int) -> int:
        """Epochs for n rows."""
        if self.epochs is not None:
            return self.epochs
        per_epoch = math.ceil(n / min(self.batch_size, n))
        # A handful of rows is learned in fewer steps: 60 + n of them below 340 rows.
        return int(min(400, 60 + n, max(20, round(self.steps / per_epoch))))


@dataclass
class Progress:
    """Where training stands: saved to resume, returned when done."""

    epoch: int = 0
    best_score: float = math.inf
    best_epoch: int = -1
    best_state: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, float | None]] = field(default_factory=list)


#: Fills the gradients of a model from one batch and returns the loss.
Backward = Callable[[Data], Tensor]


def terms_of(model: LowRankGP, batch: Data, n_total: int) -> Terms:
    """Everything an objective may look at, from one pass through the model."""
    Z, h, phi = model.represent(batch.X)
    weights = model.weights()
    mean, weight_variance = weights.moments(phi)
    return Terms(
        y=batch.y,
        mean=model.constant_mean + mean,
        weight_variance=weight_variance,
        residual_variance=model.residual.variance(model.expansion, Z, h, phi),
        basis_variance=phi.square().sum(1),
        noise_variance=model.noise(Z, batch.counts),
        kl=weights.kl(),
        n_total=n_total,
    )


def robust_score(model: Trainable, data: Data, chunk: int = 8192) -> float:
    """Validation score that ranks checkpoints: mean NLL with each row's part capped, plus CRPS.

    The cap (the NLL of a 4-sd miss of a unit normal) keeps a handful of outliers from choosing the
    checkpoint: one run measured -2.49 at the best plain NLL and -3.86 at its last epoch.
    """
    total = 0.0
    with torch.no_grad():
        for i in range(0, len(data), chunk):
            rows = torch.arange(i, min(i + chunk, len(data)), device=data.y.device)
            batch = data.rows(rows)
            moments = model.moments(batch.X, batch.counts)
            variance = moments.latent_variance + moments.noise_variance
            nll = gaussian_nll(batch.y, moments.mean, variance)
            cap = 0.5 * variance.log() + 0.5 * math.log(2 * math.pi) + 8.0
            total += float((torch.minimum(nll, cap) + gaussian_crps(batch.y, moments.mean, variance)).sum())
    return total / max(len(data), 1)


def parameter_groups(model: Trainable, schedule: Schedule) -> list[dict]:
    """Learning rates: x1 the network (with weight decay), x2 kernel and weights, x10 the noise."""
    kernel = model.kernel_parameters()
    noise = list(model.noise.parameters())
    special = {id(p) for p in kernel + noise}
    network = [p for p in model.parameters() if id(p) not in special]
    lr = schedule.learning_rate
    groups = [
        {"params": network, "lr": lr, "weight_decay": schedule.weight_decay},
        {"params": kernel, "lr": 2 * lr, "weight_decay": 0.0},
        {"params": noise, "lr": 10 * lr, "weight_decay": 0.0},
    ]
    return [g for g in groups if g["params"]]


def batches(n: int, size: int, generator: torch.Generator, device: torch.device) -> Iterator[Tensor]:
    """Row indices of one shuffled epoch; a last batch below half size is dropped when there are others."""
    order = torch.randperm(n, generator=generator).to(device)
    for i in range(0, n, size):
        rows = order[i : i + size]
        if i > 0 and len(rows) < size // 2:
            return
        yield rows


def minibatch(model: LowRankGP, objective: str, weights: Weights, n_total: int) -> Backward:
    """How a minibatch objective fills the gradients."""
    loss_of = OBJECTIVES[objective]

    def backward(batch: Data) -> Tensor:
        loss = loss_of(terms_of(model, batch, n_total), weights)
        loss.backward()
        return loss

    return backward


def train(
    model: Trainable,
    data: Data,
    *,
    objective: str,
    schedule: Schedule,
    weights: Weights = Weights(),
    backward: Backward | None = None,
    before_scoring: Callable[[], None] | None = None,
    score_of: Callable[[Any, Data], float] | None = None,
    validation: Data | None = None,
    seed: int = 0,
    resume: dict | None = None,
    on_epoch: Callable[[int, int, float | None], None] | None = None,
    checkpoint: Callable[[dict], None] | None = None,
) -> Progress:
    """Fit `model` in place; with validation rows, keep the best epoch by `robust_score`.

    Parameters
    ----------
    objective : of `OBJECTIVES`, for the minibatch losses of a `LowRankGP`; else the name of what `backward` does
    backward : fills the gradients from a batch in another way; batch_size = n makes the batch all rows
    score_of : validation score of the averaged model that chooses the epoch, lower is better; default
        `robust_score`
    before_scoring : called before a validation score, e.g. to solve for the weights
    resume : what `checkpoint` was last given; training goes on from that epoch to the same result
    on_epoch : called with (epoch, epochs, score or None) for a progress bar
    checkpoint : called after each epoch with a resumable state (tensors and numbers only)

    Raises
    ------
    NumericalFailure
        when the loss is not finite.

    Notes
    -----
    Cost: epochs * O(n (network + r^2)); the peak memory is one batch's features.
    """
    n, device = len(data), data.y.device
    if backward is None:
        assert isinstance(model, LowRankGP)
        backward = minibatch(model, objective, weights, n)
    epochs = schedule.n_epochs(n)
    size = min(schedule.batch_size, n)
    per_epoch = max(
        1, sum(1 for _ in batches(n, size, torch.Generator().manual_seed(0), torch.device("cpu")))
    )
    optimiser = torch.optim.AdamW(parameter_groups(model, schedule), fused=False, foreach=True)
    peaks = [g["lr"] for g in optimiser.param_groups]
    progress = Progress()
    if resume is not None:
        progress = resume["progress"]
        model.load_state_dict(resume["model"])
        optimiser.load_state_dict(resume["optimiser"])
    average = None
    if schedule.average:
        average = Average(model, schedule.average, (resume or {}).get("average"))
    for epoch in range(progress.epoch, epochs):
        if progress.best_state and schedule.is_past_the_best(epoch, progress.best_epoch + 1, epochs):
            break
        # The shuffle depends on seed and epoch alone, so that a resumed run repeats an unbroken one.
        generator = torch.Generator().manual_seed(1_000_003 * (seed + 1) + epoch)
        if not model.training:  # walking the modules costs as much as a small step
            model.train()
        total = 0.0
        for step, rows in enumerate(batches(n, size, generator, device)):
            rate = schedule.rate((epoch + step / per_epoch) / epochs)
            for group, peak in zip(optimiser.param_groups, peaks):
                group["lr"] = rate * peak
            optimiser.zero_grad(set_to_none=True)
            loss = backward(data.rows(rows))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimiser.step()
            if average is not None:
                average.update(epoch * per_epoch + step + 1)
            total += float(loss.detach())
        if not math.isfinite(total):
            raise NumericalFailure(
                f"the {objective} loss became {total} in epoch {epoch + 1}; lower the learning rate "
                f"(now {schedule.learning_rate:g}) or look for extreme values in the inputs."
            )
        score = None
        if validation is not None and len(validation) and schedule.is_scored(epoch + 1, epochs):
            with average.worn() if average is not None else nullcontext():
                model.eval()
                if before_scoring is not None:
                    before_scoring()
                score = (score_of or robust_score)(model, validation)
                if score < progress.best_score:
                    progress.best_score, progress.best_epoch = score, epoch
                    progress.best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        progress.epoch = epoch + 1
        progress.history.append(
            {
                "epoch": epoch + 1,
                "loss": total / per_epoch,
                "validation": score,
            }
        )
        if on_epoch is not None:
            on_epoch(epoch + 1, epochs, score)
        if checkpoint is not None:
            checkpoint(
                {
                    "progress": progress,
                    "model": model.state_dict(),
                    "optimiser": optimiser.state_dict(),
                    "average": {} if average is None else average.values,
                }
            )
    if progress.best_state:
        model.load_state_dict(progress.best_state)
    elif average is not None:
        average.put_on()
    model.eval()
    return progress

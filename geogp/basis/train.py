"""The one training loop: minibatches and AdamW, or all rows and L-BFGS; a checkpoint rule that outliers cannot rule."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from geogp.basis.averages import ParameterAverage
from geogp.basis.data_parallel import Share
from geogp.basis.model import LowRankGP, Trainable
from geogp.basis.objectives import OBJECTIVES, Terms, Weights
from geogp.basis.quasi_newton import QuasiNewton
from geogp.basis.recorded import RecordedSteps
from geogp.basis.schedule import Schedule
from geogp.data import Data, n_batches
from geogp.densities import gaussian_crps, gaussian_nll
from geogp.errors import NumericalFailure
from geogp.linalg.precision import products_in

#: Held-out rows scored at once.
SCORED_AT_ONCE = 8192
#: Gradients longer than this are shortened to it.
LONGEST_GRADIENT = 10.0
#: A loss stands still that falls by less than this, relative to its size, in so many epochs.
STILL, STILL_FOR = 1e-6, 4


@dataclass
class Progress:
    """Where training stands: saved to resume, returned when done."""

    epoch: int = 0
    best_score: float = math.inf
    best_epoch: int = -1
    best_state: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, float | None]] = field(default_factory=list)

    def facts(self) -> dict:
        """What a run keeps of it."""
        return {"epochs": self.epoch, "best_epoch": self.best_epoch + 1, "history": self.history}


@dataclass(frozen=True)
class Hooks:
    """Where a long fit reports, and from where it goes on.

    on_epoch : called with (epoch, epochs, score or None) for a progress bar
    checkpoint : called after each epoch with a resumable state (tensors and numbers only)
    resume : what `checkpoint` was last given; training goes on from that epoch to the same result
    taught : what validation rows taught an earlier fit (`Engine.taught`), for one that takes them in
    on_part : called with the part that is fitted next, in words, where a fit has parts, and with none for the whole
    moment : called within parts that keep no state of their own: it may raise to end the fit
    """

    on_epoch: Callable[[int, int, float | None], None] | None = None
    checkpoint: Callable[[dict], None] | None = None
    resume: dict | None = None
    taught: dict[str, Any] = field(default_factory=dict)
    on_part: Callable[[str], None] | None = None
    moment: Callable[[], None] | None = None

    def within(self, words: str) -> "Hooks":
        """Those of a training that comes before or after the one that is kept: it may be stopped where its epochs end, and
        then begins again.

        words : what the part does, for people
        """

        def on_epoch(epoch: int, epochs: int, score: float | None) -> None:
            self._say(words)
            if self.on_epoch is not None:
                self.on_epoch(epoch, epochs, score)
            self._say("")

        def checkpoint(state: dict) -> None:
            if self.moment is not None:
                self.moment()

        return Hooks(on_epoch=on_epoch, checkpoint=checkpoint, moment=self.moment)

    def _say(self, words: str) -> None:
        if self.on_part is not None:
            self.on_part(words)


@dataclass(frozen=True)
class Loss:
    """What training minimises.

    name : for people
    backward : fills the gradients of a model from one batch and returns the loss
    repeats : of every batch of a size it does the same, draws nothing and asks nobody: a GPU may repeat a recording of it
    """

    name: str
    backward: Callable[[Data], Tensor]
    repeats: bool = False

    @classmethod
    def of(cls, name: str, value: Callable[[Data], Tensor], *, repeats: bool = False) -> "Loss":
        """A loss of one batch at a time, by automatic differentiation."""

        def backward(batch: Data) -> Tensor:
            loss = value(batch)
            loss.backward()
            return loss

        return cls(name, backward, repeats)


def terms_of(model: LowRankGP, batch: Data, n_total: int) -> Terms:
    """Everything an objective may look at, from one pass through the model."""
    Z, h, phi = model.represent(batch.X)
    weights = model.weights()
    mean, weight_variance, basis_variance = weights.moments_and_prior(phi)
    return Terms(
        y=batch.y,
        mean=model.constant_mean + mean,
        weight_variance=weight_variance,
        residual_variance=model.residual.variance(model.expansion, Z, h, phi),
        basis_variance=basis_variance,
        noise_variance=model.noise(Z, batch.counts),
        kl=weights.kl(),
        n_total=n_total,
    )


def minibatch(model: LowRankGP, objective: str, weights: Weights, n_total: int) -> Loss:
    """A loss of `OBJECTIVES` over batches of `n_total` rows; several processes share each batch, see `data_parallel`."""
    loss_of = OBJECTIVES[objective]
    share = Share.here()
    if share is None:
        repeats = not (model.expansion.factorises or model.posterior.factorises)
        return Loss.of(
            objective, lambda batch: loss_of(terms_of(model, batch, n_total), weights), repeats=repeats
        )

    def backward(batch: Data) -> Tensor:
        own = terms_of(model, share.of(batch), n_total)
        loss = loss_of(share.gathered(own, len(batch)), weights)
        loss.backward()
        share.add(model.parameters())
        return loss

    return Loss(objective, backward)


def robust_score(model: Trainable, data: Data) -> float:
    """Validation score that ranks checkpoints: mean NLL with each row's part capped, plus CRPS.

    The cap, the NLL of a 4-sd miss of a unit normal, keeps a handful of outliers from choosing the checkpoint.
    """
    total = 0.0
    with torch.no_grad():
        for batch in data.chunks(SCORED_AT_ONCE):
            moments = model.moments(batch.X, batch.counts)
            variance = moments.latent_variance + moments.noise_variance
            nll = gaussian_nll(batch.y, moments.mean, variance)
            cap = 0.5 * variance.log() + 0.5 * math.log(2 * math.pi) + 8.0
            total += float((torch.minimum(nll, cap) + gaussian_crps(batch.y, moments.mean, variance)).sum())
    return total / max(len(data), 1)


@dataclass(frozen=True)
class Watch:
    """Held-out rows that choose the epoch.

    rows : None, or none of them, to train to the end
    score : of the averaged model on the rows, lower is better
    prepare : called before a score, e.g. to solve for the weights
    """

    rows: Data | None = None
    score: Callable[[Any, Data], float] = robust_score
    prepare: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        return self.rows is not None and len(self.rows) > 0

    def look(self, model: Trainable) -> float:
        """The score of a model as it is."""
        assert self.rows is not None
        model.eval()
        if self.prepare is not None:
            self.prepare()
        return self.score(model, self.rows)


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


def train(
    model: Trainable,
    data: Data,
    loss: Loss,
    *,
    schedule: Schedule,
    watch: Watch = Watch(),
    seed: int = 0,
    hooks: Hooks = Hooks(),
) -> Progress:
    """Fit `model` in place, epoch by epoch; of those scored on the rows to watch, keep the best.

    Training begins anew or where a checkpoint stood. An epoch takes a step for each batch and moves the average of
    the parameters along; then the averaged model is scored, where the schedule says so, and the hooks hear of it.
    It ends with the schedule, or well past the best epoch (of L-BFGS where the loss stands still). The model is left with
    the parameters of its best epoch, or, where no epoch was scored, with the averaged ones.

    Raises
    ------
    NumericalFailure
        when the loss is not finite.

    Notes
    -----
    Cost: epochs * O(n (network + r^2)); the peak memory is one batch's features.
    """
    training = Training(model, data, loss, schedule, seed)
    if hooks.resume is not None:
        training.go_on_from(hooks.resume)
    while not training.is_over():
        mean_loss = training.run_epoch()
        score = training.look(watch)
        training.note(mean_loss, score)
        if hooks.on_epoch is not None:
            hooks.on_epoch(training.progress.epoch, training.epochs, score)
        if hooks.checkpoint is not None:
            hooks.checkpoint(training.state())
    training.look_at_the_end(watch)
    training.finish()
    return training.progress


class Training:
    """A training under way: a model, its optimiser, the average of its parameters, and where it stands.

    `progress.epoch` epochs are done.
    """

    def __init__(self, model: Trainable, data: Data, loss: Loss, schedule: Schedule, seed: int):
        n = len(data)
        self.model, self.data, self.loss, self.schedule, self.seed = model, data, loss, schedule, seed
        self.epochs, self.size = schedule.n_epochs(n), min(schedule.batch_size, n)
        self.steps = n_batches(n, self.size)
        averaged = bool(schedule.average) and not schedule.quasi_newton
        self.average = ParameterAverage(model, schedule.average) if averaged else None
        self.optimiser: QuasiNewton | torch.optim.AdamW
        self.on_device = data.y.device.type != "cpu"
        if schedule.quasi_newton:
            self.optimiser, self.peaks = QuasiNewton(model.parameters()), []
        else:
            self.optimiser = torch.optim.AdamW(parameter_groups(model, schedule), fused=True)
            self.peaks = [g["lr"] for g in self.optimiser.param_groups]
        recorded = self.on_device and loss.repeats and not schedule.quasi_newton
        self.moved = RecordedSteps(self._move) if recorded else self._move
        self._put_rates_there()
        self.progress = Progress()

    def _put_rates_there(self) -> None:
        """On a device the learning rates lie, too, where a recorded step reads them."""
        if isinstance(self.optimiser, torch.optim.AdamW) and self.on_device:
            for group in self.optimiser.param_groups:
                group["capturable"], group["lr"] = (
                    True,
                    torch.tensor(float(group["lr"]), device=self.data.y.device),
                )

    def state(self) -> dict:
        """What `go_on_from` takes."""
        optimiser = self.optimiser.state_dict()
        for group in optimiser["param_groups"]:
            group["lr"] = float(group["lr"])
        return {
            "progress": self.progress,
            "model": self.model.state_dict(),
            "optimiser": optimiser,
            "average": {} if self.average is None else self.average.values,
        }

    def go_on_from(self, state: dict) -> None:
        """Stand where an earlier training stood."""
        self.progress = state["progress"]
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self._put_rates_there()
        if self.average is not None:
            self.average = ParameterAverage(self.model, self.schedule.average, state.get("average"))

    def is_over(self) -> bool:
        """Whether the schedule is at its end, the best epoch far behind, or the loss standing still."""
        done, best = self.progress.epoch, self.progress.best_epoch + 1
        if self.schedule.quasi_newton:
            return done >= self.epochs or self._stands_still()
        past = bool(self.progress.best_state) and self.schedule.is_past_the_best(done, best, self.epochs)
        return done >= self.epochs or past

    def _stands_still(self) -> bool:
        last = [float(h["loss"] or 0.0) for h in self.progress.history[-STILL_FOR - 1 :]]
        return len(last) > STILL_FOR and last[0] - last[-1] < STILL * (1.0 + abs(last[-1]))

    def run_epoch(self) -> float:
        """One pass over shuffled rows; the mean loss of its steps."""
        epoch = self.progress.epoch
        # The shuffle depends on seed and epoch alone, so that a resumed run repeats an unbroken one.
        generator = torch.Generator().manual_seed(1_000_003 * (self.seed + 1) + epoch)
        if not self.model.training:  # walking the modules costs as much as a small step
            self.model.train()
        # On a device losses are added up where they lie: a look at each would wait for its step.
        total: float | Tensor = 0.0
        if self.on_device:
            total = torch.zeros((), dtype=torch.float64, device=self.data.y.device)
        batches = [self.data] if self.schedule.quasi_newton else self.data.shuffled(self.size, generator)
        for step, batch in enumerate(batches):
            self._set_rate((epoch + step / self.steps) / self.epochs)
            total += self._step(batch)
            if self.average is not None:
                self.average.update(epoch * self.steps + step + 1)
        total = float(total)
        if not math.isfinite(total):
            raise NumericalFailure(
                f"the {self.loss.name} loss became {total} in epoch {epoch + 1}; lower the learning rate "
                f"(now {self.schedule.learning_rate:g}) or look for extreme values in the inputs."
            )
        return total / self.steps

    def _set_rate(self, share: float) -> None:
        if isinstance(self.optimiser, QuasiNewton):
            return
        rate = self.schedule.rate(share)
        for group, peak in zip(self.optimiser.param_groups, self.peaks):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * peak)
            else:
                group["lr"] = rate * peak

    def _step(self, batch: Data) -> float | Tensor:
        if isinstance(self.optimiser, QuasiNewton):
            return self.optimiser.step(lambda: self.loss.backward(batch))
        loss = self.moved(batch)
        return loss if self.on_device else float(loss)

    def _move(self, batch: Data) -> Tensor:
        """Move the parameters by a batch; its loss before."""
        assert not isinstance(self.optimiser, QuasiNewton)
        self.optimiser.zero_grad(set_to_none=True)
        with products_in(self.schedule.precision):
            loss = self.loss.backward(batch)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), LONGEST_GRADIENT)
        self.optimiser.step()
        return loss.detach()

    def look(self, watch: Watch) -> float | None:
        """Score of the averaged model after this epoch, where it is time for one; the best is kept."""
        epoch = self.progress.epoch
        if not watch or not self.schedule.is_scored(epoch + 1, self.epochs):
            return None
        with nullcontext() if self.average is None else self.average.worn():
            return self._kept(watch.look(self.model), epoch)

    def look_at_the_end(self, watch: Watch) -> None:
        """Score of a model whose loss stands still, wherever the schedule looks next."""
        done = self.progress.history[-1:]
        if self.schedule.quasi_newton and watch and done and done[0]["validation"] is None:
            done[0]["validation"] = self._kept(watch.look(self.model), self.progress.epoch - 1)

    def _kept(self, score: float, epoch: int) -> float:
        """A score of the model as it is, which stands for the whole training if it is the best."""
        progress = self.progress
        if score < progress.best_score:
            progress.best_score, progress.best_epoch = score, epoch
            progress.best_state = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        return score

    def note(self, loss: float, score: float | None) -> None:
        """Count the epoch as done."""
        self.progress.epoch += 1
        self.progress.history.append({"epoch": self.progress.epoch, "loss": loss, "validation": score})

    def finish(self) -> None:
        """Leave the model with its best parameters, else with the averaged ones, ready to predict."""
        if self.progress.best_state:
            self.model.load_state_dict(self.progress.best_state)
        elif self.average is not None:
            self.average.put_on()
        self.model.eval()

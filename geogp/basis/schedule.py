"""How long and how fast a training goes, when it looks at held-out rows, and when it stops."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    epochs : None for as many as make about `steps` steps (between 20 and 400 epochs;
        60 + n for n < 340 rows)
    learning_rate : peak for network weights; kernel parameters and the weights'
        distribution take twice, the noise ten times as much
    average : share of the steps so far over which the parameters in use are averaged, see `ParameterAverage`; 0 for the
        last ones
    patience : training stops at this multiple of its best epoch, but not before a seventh of all epochs
    quasi_newton : a step of L-BFGS an epoch, of all rows, which finds its own length: the rate, the average and the patience
        do not matter, and training stops where the loss stands still or with the last epoch
    precision : "bfloat16" rounds the factors of a step's large products, see `geogp.linalg.precision`; scores and predictions
        stay in float32

    Notes
    -----
    How long to train differs a hundredfold between data sets. Averages make every epoch's score that of an
    annealed model, so one long cosine serves them all.
    """

    epochs: int | None = None
    steps: int = 6000
    batch_size: int = 1024
    learning_rate: float = 5e-3
    weight_decay: float = 1e-2
    average: float = 0.1
    patience: float = 2.5
    quasi_newton: bool = False
    precision: str = "float32"

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

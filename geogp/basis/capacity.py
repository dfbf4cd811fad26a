"""Which wavelengths a basis hears of: Fourier scales chosen on rows held out of the training rows.

Bandwidth is the main knob of a basis over a map. Short waves tell towns apart where rows are near and invent towns
where none are, so the answer depends on what will be asked: about places beside the data, about gaps, or about times
to come. A small network trained for a moment on most of the training rows tells the scales apart on the others; what
it says of each kind of held-out rows counts as much as that kind will be asked for.
"""

import logging
import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.basis.build import Shape, Size, build
from geogp.basis.initialise import warm_start
from geogp.basis.model import LowRankGP
from geogp.basis.objectives import Weights
from geogp.basis.schedule import Schedule
from geogp.basis.train import Watch, minibatch, train
from geogp.data import Data
from geogp.densities import gaussian_nll
from geogp.holdout import one_of_each_kind, spacing
from geogp.methods import Method

Array = NDArray[np.float64]

log = logging.getLogger(__name__)

#: Radians per standard deviation of position; the first few of them are taken.
LADDER = (1.0, 4.0, 12.0, 40.0, 120.0, 400.0)
#: Without a choice.
USUAL = 3
SCALES = LADDER[:USUAL]
#: Nats a row that other scales must gain over those nearer to `SCALES`, beside what they gain by chance.
WORTH = 0.01
#: Sd of the difference that other scales make to one row, and the share of rows that stand and fall alone: those of a
#: block do so together, and overfitting in gaps comes after the trial's last step.
SPREAD, ALONE = 0.25, {"blocks": 1 / 16}
#: Fewer rows are not worth it, and say too little; of more, so many drawn at random say as much.
ENOUGH, MOST = 2000, 200_000
#: Rows scored of each kind. A kind that fewer rows make up says nothing.
TARGETS, FEWEST = 3000, 50
#: The trial: a network of half the usual rank, trained on so many batches of so many rows. It ranks scales as whole
#: fits do.
TRIAL = Method("trial", "", "", "")
RANK, STEPS, BATCH = 64, 100, 512


@dataclass(frozen=True)
class Capacity:
    """What was chosen, and why.

    fourier_scales : radians per standard deviation of position
    asked : weight of each kind of held-out rows ("rows", "blocks", "future"); empty where all had to agree
    scores : one for each choice compared, {"fourier_scales": [..], kind: mean negative log density, ..}, on
        standardised targets; empty where there was nothing to choose by
    """

    fourier_scales: tuple[float, ...] = SCALES
    asked: dict[str, float] = field(default_factory=dict)
    scores: tuple[dict, ...] = ()

    def to_dict(self) -> dict:
        """JSON-able."""
        scales = list(self.fourier_scales)
        return {"fourier_scales": scales, "asked": dict(self.asked), "scores": list(self.scores)}

    @classmethod
    def from_dict(cls, d: dict) -> "Capacity":
        """What `to_dict` described."""
        return cls(tuple(d["fourier_scales"]), dict(d["asked"]), tuple(d["scores"]))


def choose_capacity(
    X: Array,
    y: Array,
    counts: Array | None = None,
    *,
    spatial: tuple[int, ...],
    time: int | None = None,
    asked: dict[str, float] | None = None,
    seed: int = 0,
) -> Capacity:
    """Fourier scales by the held-out density of a small network, from training rows alone.

    From the first three of `LADDER` upwards, or else downwards, while that gains; then the choice nearest to the
    three that is as good as the best but for .01 a row and a standard error. Held out are single rows, square blocks
    of 10 and 30 spacings, and the last of the times (`holdout.one_of_each_kind`), all at once, so that one short
    training serves each choice.

    Parameters
    ----------
    X : (n, d) training inputs, positions in one unit; y : (n,) targets in any unit; counts : (n,) measurements
        behind each, or None. The order of the rows changes nothing, nor do units
    spatial, time : columns of X
    asked : weight of each kind of held-out rows, see `holdout.kinds_asked`. None: nobody says what will be asked, so
        that other scales than the usual three must gain in all and lose in no kind
    seed : of the frequencies, the held-out rows and the training

    Returns
    -------
    Capacity : with `SCALES` below 2,000 rows, where less than 500 are left to train on, or where nothing gains

    Notes
    -----
    Three or four trainings of 100 batches of 512 rows, .4 s each of one core, at any n; O(n log n) beside.
    Tancik et al. 2020 on the spread of frequencies as the width of a kernel; Roberts et al. 2017 on why blocks.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1000, (3000, 2)); y = np.sin(X[:, 0] / 300) + 0.1 * rng.standard_normal(3000)
    >>> len(choose_capacity(X, y, spatial=(0, 1), asked={"rows": 1.0}).fourier_scales) < 3
    True
    """
    sd = float(np.std(y))
    if len(y) < ENOUGH or not sd > 1e-10 * max(1.0, float(np.abs(y).max())):
        return Capacity()
    data = _in_one_order(X, y, counts, seed)
    X = data.X.numpy()
    position, times = X[:, list(spatial)], None if time is None else X[:, time]
    fitted, held = one_of_each_kind(position, times, most=TARGETS, fewest=FEWEST, seed=seed)
    share = {kind: v for kind, v in (asked or {}).items() if kind in held and v > 0}
    if len(fitted) < ENOUGH // 4 or not held or (asked is not None and not share):
        return Capacity()
    share = {kind: v / sum(share.values()) for kind, v in share.items()}
    some = np.sort(np.random.default_rng(seed).permutation(fitted)[: STEPS * BATCH])
    trials = _Trials(
        data.rows(torch.as_tensor(some)),
        {kind: data.rows(torch.as_tensor(rows)) for kind, rows in held.items()},
        weights=share or dict.fromkeys(held, 1.0 / len(held)),
        shape=Shape(X.shape[1], spatial, time, counts is not None),
        finest=math.pi * float(np.sqrt(position.var(0).mean())) / spacing(position),
        seed=seed,
    )
    taken = trials.nearest_good(trials.climb())
    if not share and trials.loses_somewhere(taken):
        taken = USUAL
    named = tuple({"fourier_scales": list(LADDER[:k]), **trials.scores[k]} for k in sorted(trials.scores))
    log.info("Fourier scales %s; held-out scores %s", LADDER[:taken], named)
    return Capacity(LADDER[:taken], share, named)


def _in_one_order(X: Array, y: Array, counts: Array | None, seed: int) -> Data:
    """The rows, standardised, in one order for any that they come in; `MOST` of them drawn at random."""
    order = np.lexsort([y, *([] if counts is None else [counts]), *X.T])
    if len(order) > MOST:
        order = order[np.sort(np.random.default_rng(seed).permutation(len(order))[:MOST])]
    X, y = X[order], y[order]
    return Data(
        torch.as_tensor(X),
        torch.as_tensor((y - y.mean()) / y.std(), dtype=torch.float32),
        None if counts is None else torch.as_tensor(counts[order], dtype=torch.float32),
    )


@dataclass
class _Trials:
    """Scores of the first rungs of the ladder on held-out rows; each network is trained when first asked about.

    fitted : rows to train on; held : rows of each kind to score, and their weights
    finest : radians per sd that the spacing of the rows can tell apart
    """

    fitted: Data
    held: dict[str, Data]
    weights: dict[str, float]
    shape: Shape
    finest: float
    seed: int
    scores: dict[int, dict[str, float]] = field(default_factory=dict)

    def total(self, rungs: int) -> float:
        """Score of the first rungs; waves too short for the spacing of the rows have none."""
        if not 1 <= rungs <= len(LADDER) or (rungs > USUAL and LADDER[rungs - 1] > self.finest):
            return math.inf
        if rungs not in self.scores:
            self.scores[rungs] = self.trained(LADDER[:rungs])
        return self.weighted(self.scores[rungs])

    def weighted(self, scores: dict[str, float]) -> float:
        """One score of those of each kind."""
        return sum(w * scores[kind] for kind, w in self.weights.items())

    def trained(self, scales: tuple[float, ...]) -> dict[str, float]:
        """Score of each kind's rows under a network of these scales, at the epoch that is best by their weights."""
        some = self.fitted
        model = build(TRIAL, self.shape, Size(rank=RANK, fourier_scales=scales), seed=self.seed)
        model.encoder.fit_scaling(some.X)
        warm_start(model, some.X, some.y, some.counts, seed=self.seed)
        seen: list[dict[str, float]] = []

        def score(trained: LowRankGP, _: Data) -> float:
            seen.append({kind: _score(trained, rows) for kind, rows in self.held.items()})
            return self.weighted(seen[-1])

        epochs = max(1, round(STEPS / math.ceil(len(some) / BATCH)))
        train(
            model,
            some,
            minibatch(model, TRIAL.objective, Weights(), len(some)),
            schedule=Schedule(epochs=epochs, batch_size=BATCH),
            watch=Watch(next(iter(self.held.values())), score),
            seed=self.seed,
        )
        return min(seen, key=self.weighted)

    def climb(self) -> int:
        """The best number of rungs, up from the usual one while that gains, else down."""
        best = USUAL
        for step in (1, -1):
            while self.total(best + step) < self.total(best):
                best += step
            if best != USUAL:
                break
        return best

    def nearest_good(self, best: int) -> int:
        """The number nearest to the usual one that is as good as the best but for what chance explains."""
        chance = sum(
            w * SPREAD / math.sqrt(ALONE.get(k, 1.0) * len(self.held[k])) for k, w in self.weights.items()
        )
        enough = self.total(best) + WORTH + chance
        return min((k for k in self.scores if self.total(k) <= enough), key=lambda k: abs(k - USUAL))

    def loses_somewhere(self, rungs: int) -> bool:
        """Whether some kind of rows is worse off than with the usual number."""
        return any(self.scores[rungs][kind] > self.scores[USUAL][kind] for kind in self.held)


def _score(model: LowRankGP, data: Data) -> float:
    """Mean negative log density; no row costs more than a miss of four sd, as in `train.robust_score`."""
    with torch.no_grad():
        moments = model.moments(data.X, data.counts)
        variance = moments.latent_variance + moments.noise_variance
        most = 0.5 * (2.0 * math.pi * variance).log() + 8.0
        return float(torch.minimum(gaussian_nll(data.y, moments.mean, variance), most).double().mean())

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
from scipy.spatial import cKDTree

from geogp.basis.build import Shape, Size, build
from geogp.basis.initialise import warm_start
from geogp.basis.model import LowRankGP
from geogp.basis.train import Schedule, train
from geogp.data import Data
from geogp.densities import gaussian_nll
from geogp.holdout import hold_out, spacing
from geogp.methods import method

Array = NDArray[np.float64]
Index = NDArray[np.int64]

log = logging.getLogger(__name__)

#: Radians per standard deviation of position; the first few of them are taken. The rank is not chosen: of ranks 64,
#: 128 and 256 none gains (.8057, .8046, .8052 on random rows of Hawaii's download, 1.040, 1.048, 1.047 on blocks).
LADDER = (1.0, 4.0, 12.0, 40.0, 120.0, 400.0)
#: Without a choice.
SCALES = LADDER[:3]
#: Nats a row that other scales must gain over those nearer to `SCALES`, beside what they gain by chance.
WORTH = 0.01
#: Sd of the difference that other scales make to one row, .2 to .35 on Hawaii. Rows of a block stand and fall together,
#: and overfitting in gaps comes after the trial's last step: with a quarter in place of a sixteenth of them the Virgin
#: Islands' blocks take a fourth scale for a gain of .03 that whole fits turn into a loss of .05 (four seeds).
SPREAD, ALONE = 0.25, {"blocks": 1 / 16}
#: Fewer rows are not worth it, and say too little; of more, so many drawn at random say as much.
ENOUGH, MOST = 2000, 200_000
#: Rows scored of each kind. A kind that fewer rows make up says nothing.
TARGETS, FEWEST = 3000, 50
#: The trial: a dbk-silu of half the usual rank, trained on so many batches of so many rows. It ranks the scales of
#: Hawaii's download as whole fits do: .964, .949, .936 and .930 by single rows for three to six of them, where the
#: fits reach .870, .832, .805 and .799 on random test rows.
RANK, STEPS, BATCH = 64, 100, 512
#: Farther from training places than so many times what nine of ten training rows are from the next is a gap.
GAP = 1.5


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


def kinds_asked(space: Array, time: Array | None, places: Array, times: Array | None) -> dict[str, float]:
    """How rows to be predicted lie beside the training rows: shares of "rows", "blocks" and "future".

    Parameters
    ----------
    space : (n, 2) training positions; time : (n,) or None
    places : (m, 2) positions to come, in the same unit; times : (m,) or None

    Returns
    -------
    shares that sum to one: "blocks" where a row is farther from every training place than training rows are from
    each other; of the rest "future" after the last training time and "rows" up to it. Nothing but where rows lie is
    looked at.

    Notes
    -----
    O((n + m) log n).

    Examples
    --------
    >>> line = np.column_stack([np.arange(10.0), np.zeros(10)])
    >>> kinds_asked(line, None, np.array([[2.5, 0.0], [4.5, 0.0], [30.0, 0.0], [31.0, 0.0]]), None)
    {'rows': 0.5, 'blocks': 0.5, 'future': 0.0}
    """
    tree = cKDTree(space)
    apart = float(np.quantile(tree.query(space, k=2)[0][:, 1], 0.9))
    # Places that repeat are zero apart; another copy of a place may differ by its last bits.
    far = tree.query(places)[0] > GAP * apart + 1e-9 * float(np.ptp(space, axis=0).max())
    ahead = np.zeros(len(far), dtype=bool) if time is None or times is None else times > time.max()
    blocks, future = float(far.mean()), float((ahead & ~far).mean())
    return {"rows": 1.0 - blocks - future, "blocks": blocks, "future": future}


def choose_capacity(
    X: Array,
    y: Array,
    counts: Array | None = None,
    *,
    spatial: tuple[int, int],
    time: int | None = None,
    asked: dict[str, float] | None = None,
    seed: int = 0,
) -> Capacity:
    """Fourier scales by the held-out density of a small network, from training rows alone.

    From the first three of `LADDER` upwards, or else downwards, while that gains; then the choice nearest to the
    three that is as good as the best but for .01 a row and a standard error. Held out are single rows, square blocks
    of 10 and 30 spacings, and the last of the times (`crossfit.hold_out`), all at once, so that one short training
    serves each choice.

    Parameters
    ----------
    X : (n, d) training inputs, positions in one unit; y : (n,) targets in any unit; counts : (n,) measurements
        behind each, or None. The order of the rows changes nothing, nor do units
    spatial, time : columns of X
    asked : weight of each kind of held-out rows, see `kinds_asked`. None: nobody says what will be asked, so that
        other scales than the usual three must gain in all and lose in no kind
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
    # Held-out rows and batches are drawn by number: one order for any that the rows come in.
    order = np.lexsort([y, *([] if counts is None else [counts]), *X.T])
    if len(order) > MOST:
        order = order[np.sort(np.random.default_rng(seed).permutation(len(order))[:MOST])]
    X, y = X[order], y[order]
    data = Data(
        torch.as_tensor(X),
        torch.as_tensor((y - y.mean()) / y.std(), dtype=torch.float32),
        None if counts is None else torch.as_tensor(counts[order], dtype=torch.float32),
    )
    position = X[:, list(spatial)]
    fitted, held = held_out(position, None if time is None else X[:, time], seed=seed)
    share = {kind: v for kind, v in (asked or {}).items() if kind in held and v > 0}
    if len(fitted) < ENOUGH // 4 or not held or (asked is not None and not share):
        return Capacity()
    share = {kind: v / sum(share.values()) for kind, v in share.items()}
    shape = Shape(X.shape[1], spatial, time, counts is not None)
    finest = math.pi * float(np.sqrt(position.var(0).mean())) / spacing(position)
    weights = share or dict.fromkeys(held, 1.0 / len(held))
    scores: dict[int, dict[str, float]] = {}

    def total(rungs: int) -> float:
        """Score of the first rungs; waves too short for the spacing of the rows have none."""
        if not 1 <= rungs <= len(LADDER) or (rungs > usual and LADDER[rungs - 1] > finest):
            return math.inf
        if rungs not in scores:
            scores[rungs] = _trial(data, fitted, held, weights, shape, LADDER[:rungs], seed)
        return _weighted(scores[rungs], weights)

    best = usual = len(SCALES)
    for step in (1, -1):
        while total(best + step) < total(best):
            best += step
        if best != usual:
            break
    chance = sum(w * SPREAD / math.sqrt(ALONE.get(k, 1.0) * len(held[k])) for k, w in weights.items())
    enough = total(best) + WORTH + chance
    taken = min((k for k in scores if total(k) <= enough), key=lambda k: abs(k - usual))
    if not share and any(scores[taken][kind] > scores[usual][kind] for kind in held):
        taken = usual
    named = tuple({"fourier_scales": list(LADDER[:k]), **scores[k]} for k in sorted(scores))
    log.info("Fourier scales %s; held-out scores %s", LADDER[:taken], named)
    return Capacity(LADDER[:taken], share, named)


def held_out(space: Array, time: Array | None, *, seed: int) -> tuple[Index, dict[str, Index]]:
    """Rows to train on, and rows of each kind that no other kind has taken.

    Returns
    -------
    fitted : row numbers; held : kind -> row numbers, about `TARGETS` of each, no kind of fewer than `FEWEST`

    Notes
    -----
    A tenth of the rows, a tenth in small blocks, a tenth in large ones, and two of the times where there are eight.
    """
    taken = np.zeros(len(space), dtype=np.int64)
    parts: list[tuple[str, Index]] = []
    seen: set[tuple[str, int]] = set()
    sizes = (10.0, 30.0)
    for side in sizes:
        folds = hold_out(space, time, n_targets=len(space), block_sizes=(side,), folds=10, seed=seed)
        for part in folds:
            # One of each: the blocks of either size; rows and times come with the first.
            key = (part.kind, int(side) if part.kind == "blocks" else 0)
            if key in seen:
                continue
            seen.add(key)
            left = np.setdiff1d(np.arange(len(space)), part.reference, assume_unique=True)
            taken[left] += 1
            parts.append((part.kind, left))
    rng = np.random.default_rng(seed)
    held: dict[str, Index] = {}
    for kind, left in parts:
        own = left[taken[left] == 1]
        own = np.sort(rng.permutation(own)[: TARGETS if kind != "blocks" else TARGETS // len(sizes)])
        held[kind] = np.concatenate([held[kind], own]) if kind in held else own
    return np.flatnonzero(taken == 0), {kind: rows for kind, rows in held.items() if len(rows) >= FEWEST}


def _trial(
    data: Data,
    fitted: Index,
    held: dict[str, Index],
    weights: dict[str, float],
    shape: Shape,
    scales: tuple[float, ...],
    seed: int,
) -> dict[str, float]:
    """Score of each kind's rows under a network of these scales, at the epoch that is best by their weights."""
    rows = np.sort(np.random.default_rng(seed).permutation(fitted)[: STEPS * BATCH])
    some = data.rows(torch.as_tensor(rows))
    parts = {kind: data.rows(torch.as_tensor(numbers)) for kind, numbers in held.items()}
    model = build(method("dbk-silu"), shape, Size(rank=RANK, fourier_scales=scales), seed=seed)
    model.encoder.fit_scaling(some.X)
    warm_start(model, some.X, some.y, some.counts, seed=seed)
    seen: list[dict[str, float]] = []

    def score(trained: LowRankGP, _: Data) -> float:
        seen.append({kind: _score(trained, part) for kind, part in parts.items()})
        return _weighted(seen[-1], weights)

    epochs = max(1, round(STEPS / math.ceil(len(rows) / BATCH)))
    train(
        model,
        some,
        objective="dppgp",
        schedule=Schedule(epochs=epochs, batch_size=BATCH),
        score_of=score,
        validation=next(iter(parts.values())),
        seed=seed,
    )
    return min(seen, key=lambda found: _weighted(found, weights))


def _score(model: LowRankGP, data: Data) -> float:
    """Mean negative log density; no row costs more than a miss of four sd, as in `train.robust_score`."""
    with torch.no_grad():
        moments = model.moments(data.X, data.counts)
        variance = moments.latent_variance + moments.noise_variance
        most = 0.5 * (2.0 * math.pi * variance).log() + 8.0
        return float(torch.minimum(gaussian_nll(data.y, moments.mean, variance), most).double().mean())


def _weighted(scores: dict[str, float], weights: dict[str, float]) -> float:
    return sum(w * scores[kind] for kind, w in weights.items())

"""Whether measuring where a model suggests would have done what it promises: tried on rows that it holds.

Blocks of places are hidden from the model in turn, as if nobody had measured there. Half of what is hidden is offered
to `geogp.suggest`, which chooses as it always does, knowing nothing of the values; the model comes to know what was
measured at the chosen places, and its squared error at the other half says what that brought. The noise of these rows is
in the error before and after alike, so the difference is that of the surface. A judged row
counts by the goal's weight over the variance the model expects of it: rows of single measurements tell little.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.spatial.distance import cdist

from geogp.errors import InvalidInput, seed_of
from geogp.estimator import GPRegressor
from geogp.holdout import spacing
from geogp.linalg.distinct import distinct
from geogp.suggest.places import covariance_and_noise, greedy
from geogp.update import knowing

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: Parts in which blocks are hidden; side of a block in spacings of places; blocks at least, of which sides are halved.
PARTS, SIDE, BLOCKS = 4, 30.0, 24
#: Places offered, and judged, of a part at most; places judged in all at least.
MOST, LEAST = 1500, 20


@dataclass(frozen=True, eq=False)
class Kept:
    """What suggestions promised and brought, in squared units of y on the model's scale.

    n_parts : blocks were hidden in so many parts; n_hidden, n_judged : rows, in all parts together
    n_chosen : places that were chosen in a part, at most
    error_before : mean squared error of the judged rows while nothing hidden was known
    variance_before : what the model said of the surface's part in it
    promised, achieved, achieved_se : by how much the choice was to lower that error, by how much it did, and the
        standard error of that, from block to block
    random_promised, random, random_se : the same of as many places drawn at random
    """

    n_parts: int
    n_hidden: int
    n_judged: int
    n_chosen: int
    error_before: float
    variance_before: float
    promised: float
    achieved: float
    achieved_se: float
    random_promised: float
    random: float
    random_se: float


def try_suggestions(
    model: GPRegressor,
    X: Float[np.ndarray, "N d"],
    y: Float[np.ndarray, " N"],
    counts: Float[np.ndarray, " N"] | None,
    n: int,
    *,
    asked: Bool[np.ndarray, " N"] | None = None,
    judged: Bool[np.ndarray, " N"] | None = None,
    weigh: Callable[[GPRegressor, Array], Array] | None = None,
    new_counts: ArrayLike | float | None = None,
    budget: float | None = None,
    spatial: tuple[int, int] = (0, 1),
    seed: int = 0,
) -> Kept:
    """Hide places a model knows, let it choose n of them, and compare what it promised with what they brought.

    Parameters
    ----------
    model : fitted to X, y and counts
    asked : (N,) rows that may be offered, those of one quarter, say; of several at a place the first; default all
    judged : (N,) rows among `asked` where the error counts; default all
    weigh : of a model and places (P, d) the weights (P,) of the goal, as `suggest_places` takes them
    new_counts : measurements that the choice expects behind each new observation; what is promised is by those it had
    budget : as for `suggest_places`

    Raises
    ------
    InvalidInput
        a method that cannot forget rows; too few places.

    Notes
    -----
    Kernel, basis and noise stay as they were learned from all rows, the hidden ones among them. Three times `PARTS` the
    cost of `geogp.update.knowing` and of predicting the judged rows, and a covariance of 3,000 places a part.
    """
    seed = seed_of(seed, "seed")
    now = np.ones(len(X), dtype=bool) if asked is None else asked
    counted = now if judged is None else now & judged
    block = _blocks(X[:, spatial], seed)
    part = _dealt(block, now, seed)
    working = model.transform_.forward(y)
    found = []
    for k in range(int(part.max()) + 1):
        hidden = part == k
        offered, judges = _halves(X, hidden & now, counted, spatial, np.random.default_rng([seed, k]))
        if len(offered) < 2 or not len(judges):
            continue
        rest = knowing(model, *_rows(X, y, counts, ~hidden))
        weights = np.ones(len(judges)) if weigh is None else weigh(rest, X[judges])
        if not weights.sum() > 1e-6 * len(weights):
            continue
        C, noise = covariance_and_noise(rest, X[offered], X[judges], new_counts)
        distances = None if budget is None else cdist(X[offered][:, spatial], X[offered][:, spatial])
        take = min(n, len(offered) // 2)
        first = len(offered)
        chosen = greedy(
            C, noise, take, first_place=first, weights=weights, distances=distances, budget=budget
        ).chosen
        random = np.random.default_rng([seed, k, 1]).choice(first, len(chosen), replace=False)
        real = noise
        if counts is not None:
            own = rest.moments(X[offered], counts[offered]).noise_variance
            real = model.target_sd_**2 * own.double().numpy()
        before, spread = _errors(rest, X, working, counts, judges)
        weights = weights / spread
        said = [_lowered(C, real, some, first) for some in (chosen, random)]
        brought = []
        for some in (chosen, random):
            known = ~hidden
            known[offered[some]] = True
            more = knowing(model, *_rows(X, y, counts, known))
            brought.append(before - _errors(more, X, working, counts, judges)[0])
        found.append(
            (
                hidden.sum(),
                take,
                block[judges],
                weights,
                before,
                np.maximum(C.diagonal()[first:], 0.0),
                *said,
                *brought,
            )
        )
    if sum(len(row[2]) for row in found) < LEAST:
        raise InvalidInput(
            f"Of the rows the model knows too few lie where they count to try suggestions on; at least {LEAST} must, in "
            "several blocks."
        )
    hid, took, *columns = zip(*found, strict=True)
    blocks, w, before, variance, promised, random_promised, gain, random_gain = map(np.concatenate, columns)
    w = w / w.sum()
    return Kept(
        n_parts=len(found),
        n_hidden=int(sum(hid)),
        n_judged=len(w),
        n_chosen=int(max(took)),
        error_before=float(w @ before),
        variance_before=float(w @ variance),
        promised=float(w @ promised),
        achieved=float(w @ gain),
        achieved_se=_error_by_block(gain, w, blocks),
        random_promised=float(w @ random_promised),
        random=float(w @ random_gain),
        random_se=_error_by_block(random_gain, w, blocks),
    )


def _blocks(P: Array, seed: int) -> Index:
    """The square block of each place (N,): 30 spacings wide, narrower where there would be few."""
    side = SIDE * spacing(P)
    shift = np.random.default_rng(seed).random(2)
    for _ in range(20):
        cells = np.floor(P / side + shift)
        block = distinct(cells)[1]
        if block.max() + 1 >= BLOCKS:
            break
        side /= 2
    return block


def _dealt(block: Index, now: NDArray[np.bool_], seed: int) -> Index:
    """The part (N,) in which each row is hidden: whole blocks, drawn at random, about as many rows asked in each."""
    n = np.bincount(block, now, minlength=int(block.max()) + 1)
    order = np.random.default_rng(seed + 1).permutation(len(n))
    middle = np.cumsum(n[order]) - 0.5 * n[order]
    part = np.empty(len(n), dtype=np.int64)
    part[order] = np.minimum(PARTS * middle / max(n.sum(), 1), PARTS - 1)
    return part[block]


def _halves(
    X: Array,
    hidden: NDArray[np.bool_],
    counted: NDArray[np.bool_],
    spatial: tuple[int, int],
    rng: np.random.Generator,
) -> tuple[Index, Index]:
    """Rows offered, one a place, and rows judged, of other places: numbers of rows, at most `MOST` of each."""
    rows = np.flatnonzero(hidden)
    if not len(rows):
        return rows, rows
    first, place = np.unique(X[rows][:, spatial], axis=0, return_index=True, return_inverse=True)[1:]
    half = rng.permutation(len(first)) < len(first) // 2
    offered, judges = rows[first[half]], rows[~half[place.ravel()] & counted[rows]]
    offered, judges = (
        some if len(some) <= MOST else np.sort(rng.choice(some, MOST, replace=False))
        for some in (offered, judges)
    )
    return offered, judges


def _rows(
    X: Array, y: Array, counts: Array | None, which: NDArray[np.bool_]
) -> tuple[Array, Array, Array | None]:
    return X[which], y[which], None if counts is None else counts[which]


def _errors(
    model: GPRegressor, X: Array, working: Array, counts: Array | None, rows: Index
) -> tuple[Array, Array]:
    """Squared error (n,) of the mean at some rows, on the model's scale, and what the model expects of it (n,)."""
    m = model.moments(X[rows], None if counts is None else counts[rows])
    mean, variance = m.mean.double().numpy(), (m.latent_variance + m.noise_variance).double().numpy()
    return np.square(
        model.target_mean_ + model.target_sd_ * mean - working[rows]
    ), model.target_sd_**2 * variance


def _lowered(C: Array, noise: Array, chosen: Index, first_place: int) -> Array:
    """By how much measuring some candidates lowers the variance of each place: (P,)."""
    S = C[np.ix_(chosen, chosen)] + np.diag(noise[chosen])
    half = linalg.solve_triangular(linalg.cholesky(S, lower=True), C[chosen, first_place:], lower=True)
    return np.square(half).sum(axis=0)


def _error_by_block(values: Array, weights: Array, block: Index) -> float:
    """Standard error of a weighted mean of values that go together within blocks."""
    sums = np.bincount(np.unique(block, return_inverse=True)[1], weights * (values - weights @ values))
    m = len(sums)
    return float(np.sqrt(np.square(sums).sum() * m / max(m - 1, 1)))

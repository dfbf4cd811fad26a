"""The smooth noise learned from rows that were left out, the scale on which it speaks, and the calibration of its intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.calibrate import Calibration, fit_calibration
from geogp.field.conditioned import Conditioned
from geogp.field.frame import SPACINGS, Frame
from geogp.field.kernel import LocalKernel
from geogp.field.left_out import GAPS, SIDES, LeftOut, most_at_once
from geogp.field.mean.drift import Drift
from geogp.field.noise.judged import surely_better
from geogp.field.noise.members import Dealt
from geogp.field.noise.smooth import HeldOutRows, Parts, SmoothNoise, fit_smooth_noise, new_smooth_noise
from geogp.field.noise.warped import learned_warp
from geogp.field.observations import canonical, counted
from geogp.field.options import FieldOptions
from geogp.field.predict.around import around
from geogp.field.predict.averaged import moments_at
from geogp.field.predict.moments import moments_of
from geogp.field.predict.outlook import noise_inputs, outlook
from geogp.field.stages import Stages
from geogp.field.surroundings import NAMES, Surroundings
from geogp.linalg.distinct import distinct
from geogp.linalg.threads import side_by_side
from geogp.transforms import Identity, Transform, Warp, Warped

#: Validation rows within a square of this many spacings of places share their luck: one vote in calibration; of training
#: rows that were held out those within so many are left to the same members.
CLUSTER_SPACINGS, SQUARE_SPACINGS = 30.0, 10.0
#: Rows beyond a side are many and say one thing: together as many votes where members are judged.
VOTES_OF_A_SIDE = 10.0
#: Networks hear of each row of a table so many times at most, in whatever company it was left out, and where members are judged it
#: has so many votes.
HEARD, VOTES = 24, 2.5
#: Validation rows, which are what the model will be used for, weigh as much as those of a kind, each as so many others at most; as one
#: at most where the table has as many rows as so many kinds.
ASKED, KINDS = 6.0, 2
#: So few rows tell no second peak; so many at most judge it.
PEAK_FROM, JUDGES = 1000, 12_000
#: The input of the smooth noise that says how far the neighbours deviate from the mean: surroundings come first.
SPREAD = NAMES.index("log_spread")

#: X, y, counts of rows that are never conditioned on.
Validation = tuple[Tensor, Tensor, Tensor | None]


@dataclass(frozen=True)
class LeveledRows(HeldOutRows):
    """Held-out rows that know what their values are above, the prior mean there, and whether they lie beyond a side of the others: (N,)
    each."""

    level: Tensor
    beyond: Tensor


def held_out_rows(
    known: Conditioned, left_out: list[LeftOut], X: Tensor, stages: Stages
) -> list[LeveledRows]:
    """What the smooth noise learns from, of all training rows X (N, D): those left out, a table for each kind. Before each set
    there is a moment to stop.
    """

    def of(out: LeftOut) -> LeveledRows:
        return _held_out(known, out, X[out.rows])

    pieces: dict[str, list[LeveledRows]] = {}
    found = side_by_side(of, stages.between(left_out), most=most_at_once(len(X)))
    for out, rows in zip(left_out, found):
        pieces.setdefault(out.kind, []).append(rows)
    return [LeveledRows.together(parts) for parts in pieces.values()]


def _held_out(known: Conditioned, out: LeftOut, X: Tensor) -> LeveledRows:
    """What is known of rows X (m, D) that are left out together."""
    seen, C = known.left, known.left.X[out.rows]
    # Single rows and blocks tell the plane nothing that the rest does not.
    one_side = out.kind == "sides"
    drift = known.drift_given(out.reference) if one_side else known.drift
    kernel = known.kernel_given(out.reference) if out.kind in GAPS else known.gp.kernel
    told = _as_predicted if known.frame.others else _by_neighbours
    here, uncertain = told(known, out, C, kernel, drift)
    surface = known.regional_given(out.reference)
    regional = None if surface is None else surface.at_observations(out.rows)
    counts, then = seen.counts[out.rows], known
    if out.kind == "future" and known.gp.of_times is not None:
        # How noisy the times left out are is not known then.
        until = known.gp.of_times.until(known.frame.newest(seen.X[out.reference]))
        then = replace(known, gp=replace(known.gp, of_times=until))
    weight = torch.full((len(out.rows),), SIDES if one_side else 1.0, dtype=torch.float64)
    return LeveledRows(
        features=noise_inputs(then, here, counts, X, regional),
        mean=here.mean,
        variance=here.variance,
        drift_variance=uncertain,
        counts=counts,
        value=seen.value[out.rows],
        level=known.prior_mean(C, counts),
        weight=weight,
        square=_square(C, SQUARE_SPACINGS),
        vote=weight * min(1.0, VOTES_OF_A_SIDE / len(out.rows)) if one_side else weight,
        beyond=torch.full((len(out.rows),), one_side),
    )


def _by_neighbours(
    known: Conditioned, out: LeftOut, C: Tensor, kernel: LocalKernel, drift: Drift
) -> tuple[Surroundings, Tensor]:
    """What the neighbours of each row at C (m, D) say, given the reference alone, less the drift that is known of all rows; and the
    variance that the drift adds."""
    near = out.neighbours[out.neighbours >= 0].unique()
    here = known.survey(
        C,
        out.neighbours,
        known.frame.newest(known.left.X[out.reference]),
        given=known.left_given(out.reference, near),
        kernel=kernel,
    )
    change, uncertain = known.drift.extra(C, here.leaning, drift)
    return here.moved(change), uncertain


def _as_predicted(
    known: Conditioned, out: LeftOut, C: Tensor, kernel: LocalKernel, drift: Drift
) -> tuple[Surroundings, Tensor]:
    """The same from as many rows as predictions rest on: of covariates, which have no neighbourhood in space, every further row tells."""
    seen = known.seen.at(out.reference)
    seen = known.gp.observed(seen.X, seen.value, seen.counts)
    there = replace(known, gp=replace(known.gp, kernel=kernel), drift=drift, seen=seen)
    here = around(there, C)
    _, uncertain = drift.extra(C, here.leaning)
    return here.moved(drift(C) - known.drift(C)), uncertain


@dataclass(frozen=True)
class Learned:
    """A noise, and the warp of what it says."""

    noise: SmoothNoise
    warp: Warp | None


def fit_noise_and_warp(
    known: Conditioned, kinds: list[LeveledRows], stages: Stages
) -> tuple[SmoothNoise, None, Warp | None]:
    """The noise, no calibration, and the warp, from training rows alone."""
    learned = fit_noise(known, kinds, stages)
    return learned.noise, None, learned.warp


def fit_noise(
    known: Conditioned,
    kinds: list[LeveledRows],
    stages: Stages,
    asked: LeveledRows | None = None,
    dealt: Dealt | None = None,
) -> Learned:
    """The smooth noise of a field, with a second peak where rows that members have not learned from surely gain by it, and the warp.
    Beyond a side of the data a second peak passes for what the mean misses there: such rows do not say whether there is one.

    Each kind of missing data counts alike, however many rows it found, but for sides; of validation rows (`asked`)
    none counts more than those rows do on average, or than `ASKED` of them do where the table is small, so that a few cannot outvote
    the rest.
    """
    o = known.options
    tables = kinds if asked is None else [*kinds, asked]
    dealt = _dealt(known, tables) if dealt is None else dealt
    judges = LeveledRows.together([_weighted(rows, 1.0 / len(rows)) for rows in tables])
    kind = torch.repeat_interleave(torch.tensor([len(rows) for rows in tables]))
    two = o.peak and bool(dealt.without.any()) and len(judges) >= PEAK_FROM
    noises = _members(known, _taught(known, kinds, asked), dealt, (False, True)[: 1 + two], stages)

    def with_warp(noise: SmoothNoise) -> tuple[Learned, Parts]:
        parts = _unseen(known, noise, judges, dealt)
        with torch.enable_grad():
            return Learned(noise, _warp_of(known, parts, judges, kind)), parts

    plain, *peaked = side_by_side(with_warp, noises)
    if not peaked:
        return plain[0]
    likely = torch.where(judges.beyond, 0.0, judges.weight).numpy()
    n = min(int((likely > 0.0).sum()), JUDGES)
    drawn = np.random.default_rng(o.seed).choice(len(judges), n, replace=False, p=likely / likely.sum())
    drawn = np.sort(drawn)
    some = judges.at(torch.from_numpy(drawn))
    new, old = (
        parts.at(torch.from_numpy(drawn)).predictive(_bent(learned.warp, some.counts))
        for learned, parts in (*peaked, plain)
    )
    better = surely_better(new, old, (some.value + some.level).numpy(), some.square.numpy())
    return peaked[0][0] if better else plain[0]


def _taught(known: Conditioned, kinds: list[LeveledRows], asked: LeveledRows | None) -> LeveledRows:
    """What members learn from: each kind alike, validation rows no more than that, and where they are judged one vote each."""
    o, n, heard = known.options, len(known.left), sum(len(rows) for rows in kinds)
    typical, votes = heard / len(kinds), min(1.0, VOTES * n / heard)
    share = [_weighted(rows, typical / len(rows), votes) for rows in kinds]
    if asked is not None:
        some = _at_most(o.n_targets, asked, o.seed)
        whole, most = typical / len(some), ASKED if n < KINDS * o.n_targets else 1.0
        share.append(replace(some, weight=some.weight * min(most, whole), vote=some.vote * min(1.0, whole)))
    return LeveledRows.together(share)


def passes(o: FieldOptions, n: int, taught: int) -> int:
    """How often members go through the rows that they learn from, so many taken from a table of n: fewer times where these are few
    rows over and over.

    Examples
    --------
    >>> [passes(FieldOptions(), n, taught) for n, taught in ((600, 6000), (6000, 26_000), (60_000, 42_000))]
    [2, 6, 15]
    """
    return min(o.epochs, max(1, round(HEARD * n / taught)))


def _members(
    known: Conditioned, rows: LeveledRows, dealt: Dealt, peaks: Sequence[bool], stages: Stages
) -> list[SmoothNoise]:
    """A stage: a noise with each of these, with a second peak or without, learned side by side."""
    o, gp = known.options, known.gp
    n, epochs = rows.features.shape[1], passes(o, len(known.left), len(rows))
    noises = [
        new_smooth_noise(n, hidden=o.hidden, members=o.members, seed=o.seed, spread=SPREAD, peak=peak)
        for peak in peaks
    ]
    s2 = gp.s2 if known.has_counts else 1e-6
    for noise in noises:
        noise.start_from(rows.features, gp.tau2, s2, gp.degrees_of_freedom or 30.0)
        if noise.peak:
            noise.start_apart(rows)

    def learn(noise: SmoothNoise) -> dict[str, Tensor]:
        with torch.enable_grad():
            fit_smooth_noise(
                noise, rows, gp.kernel.prior_variance, dealt, epochs=epochs, seed=o.seed, tick=stages.tick
            )
        return noise.state_dict()

    def learn_all() -> dict[str, Tensor]:
        states = side_by_side(learn, noises)
        return {f"{k}.{name}": value for k, state in enumerate(states) for name, value in state.items()}

    made = stages.once("members of the noises", learn_all)
    for k, noise in enumerate(noises):
        own = f"{k}."
        noise.load_state_dict({name.removeprefix(own): v for name, v in made.items() if name.startswith(own)})
    return [noise.eval() for noise in noises]


def _bent(warp: Warp | None, counts: Tensor) -> Transform:
    """The scale of values that are averages of so many (N,)."""
    return Identity() if warp is None else Warped(Identity(), warp, warp.strength(counts.numpy()))


def _unseen(known: Conditioned, noise: SmoothNoise, rows: LeveledRows, dealt: Dealt) -> Parts:
    """How values are distributed by what members say who have not learned from them."""
    with torch.no_grad():
        parts = noise(
            rows.features,
            rows.mean,
            rows.variance,
            known.gp.kernel.prior_variance,
            rows.counts,
            dealt.rows(rows.square),
        )
    latent = parts.latent_variance + rows.drift_variance
    return replace(parts, location=parts.location + rows.level, latent_variance=latent)


def _warp_of(known: Conditioned, parts: Parts, rows: LeveledRows, kind: Tensor) -> Warp | None:
    """The warp of new observations, of such kinds (N,); None where the options want none."""
    if not known.options.warp:
        return None
    values = rows.value + rows.level
    return learned_warp(parts, values, rows.counts, rows.weight, rows.square, known.options.seed, kind)


def fit_noise_and_calibration(
    known: Conditioned, kinds: list[LeveledRows], validation: Validation, stages: Stages
) -> tuple[SmoothNoise, Calibration, Warp | None]:
    """Let validation rows be a kind of missing data of their own, and calibrate out of fold; the warp is that of these and of the rows
    left out.

    The misses that calibrate come from the members that did not learn from the squares they judge, as what the warp is learned from.
    """
    X, y, n = canonical(*validation, known.frame.space, known.frame.time)
    places = outlook(known, X, n)
    one = torch.ones(len(y), dtype=torch.float64)
    asked = LeveledRows(
        features=places.inputs,
        mean=places.around.mean,
        variance=places.around.variance,
        drift_variance=places.drift_variance,
        counts=places.counts,
        value=y - places.prior_mean,
        level=places.prior_mean,
        weight=one,
        # Not those of the training rows, which are of another size.
        square=-1 - _square(known.frame.coordinates(X), CLUSTER_SPACINGS),
        vote=one,
        beyond=torch.zeros(len(y), dtype=torch.bool),
    )
    dealt = _dealt(known, [*kinds, asked])
    learned = fit_noise(known, kinds, stages, asked, dealt)
    noise, warp = learned.noise, learned.warp
    found = moments_of(known, places, noise, dealt.rows(asked.square))
    miss = found.misses(bent(y, places.counts, warp))
    return noise, fit_calibration(miss, places.group, cluster=squares(known.frame, X)), warp


def bent(y: Tensor, counts: Tensor, warp: Warp | None) -> Tensor:
    """Values (N,) where the distributions of new observations are as the noise says."""
    if warp is None:
        return y
    return torch.from_numpy(warp.forward(y.numpy(), warp.strength(counts.numpy())))


def _dealt(known: Conditioned, tables: list[LeveledRows]) -> Dealt:
    """Which members learn without which squares of all these rows."""
    squares_of = torch.cat([rows.square for rows in tables])
    return Dealt.of(squares_of, known.options.members, known.options.seed)


def _weighted(rows: LeveledRows, factor: float, votes: float = 1.0) -> LeveledRows:
    return replace(rows, weight=rows.weight * factor, vote=rows.vote * factor * votes)


def _square(C: Tensor, spacings: float) -> Tensor:
    """Number (N,) of the square of so many spacings in which each of C (N, D) lies; never negative."""
    cell = torch.floor(C[:, :2] * (SPACINGS / spacings)).long() + 2**30
    return cell[:, 0] * 2**31 + cell[:, 1]


def calibration_of(
    known: Conditioned, noise: SmoothNoise | None, validation: Validation, warp: Warp | None = None
) -> Calibration:
    """Conformal factors of a noise and a warp that are fitted already, from rows these did not learn from."""
    X, y, counts = validation
    X = X.double()
    n = counted(counts, len(X))
    ((said, group),) = moments_at(known, X, [n], noise)
    return fit_calibration(said.misses(bent(y.double(), n, warp)), group, cluster=squares(known.frame, X))


def squares(frame: Frame, X: Tensor) -> NDArray[np.int64]:
    """Number (N,) of the square that each row of X (N, D) lies in; its rows share their luck."""
    cell = np.floor(frame.coordinates(X)[:, :2].numpy() * (SPACINGS / CLUSTER_SPACINGS))
    return distinct(cell)[1]


def _at_most(n_targets: int, rows: LeveledRows, seed: int) -> LeveledRows:
    """So many of the rows, as of every other kind."""
    n = len(rows)
    if n <= n_targets:
        return rows
    keep = np.random.default_rng(seed).choice(n, n_targets, replace=False)
    return rows.at(np.sort(keep))

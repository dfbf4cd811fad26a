"""Which local Gaussian process predicts held-out rows best: candidates, each fitted and judged alike."""

import functools
import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from geogp.field.candidate import Candidate, better, surely_better
from geogp.field.frame import SPACINGS
from geogp.field.kernel import LocalKernel
from geogp.field.left_out import GAPS, HOLD_OUT_FROM, LeftOut, nearest_others
from geogp.field.likelihood.apart import apart_from_places
from geogp.field.likelihood.held_out import divided, held_out_densities, held_out_misses
from geogp.field.likelihood.minibatches import NOISE, Targets, fit_local_gp
from geogp.field.likelihood.repeated import Places, first_of_copies
from geogp.field.likelihood.together import PASSES, fit_all_together, minus_log_likelihoods
from geogp.field.local_gp import LocalGP, count_columns
from geogp.field.noise.rows import ToldNoise
from geogp.field.noise.times import IN_TURN, noise_of_times
from geogp.field.options import ROUGH, SMOOTH_IN_TIME, SMOOTHER, FieldOptions
from geogp.field.stages import Stages
from geogp.field.student import heavy_tailed
from geogp.field.variation import Variation
from geogp.field.variation.crowding import Crowding
from geogp.field.variation.noisiness import Noisiness
from geogp.field.variation.told import Following, Told
from geogp.linalg.threads import side_by_side

#: Fewer rows over space alone say too little about lengths that differ from place to place.
VARY_FROM, VARY_AT = 10_000, 16
#: All rows together teach the kernel where they are between the first and the last: each candidate below the second, else
#: the best alone, which takes longer then. Of fewer they say next to nothing, and that with much confidence.
TOGETHER_FROM, EACH_TOGETHER_BELOW, TOGETHER_BELOW = 12, 1000, 10_000
#: Of more rows nobody asks whether they repeat their places: each weighs by itself, which takes longer than minibatches.
REPEATED_BELOW = 50_000
#: Rows must be likelier by so many nats where something follows the density of places, or noise the time, for that to be believed.
SURELY = 4.0
#: And by so many where the noise differs from place to place (a surface that is rougher in places gains half), or one for each centre.
SURELY_NOISIER = 8.0
#: By how many where terms are smoother than usual, and by how many less where they are rough, of rows so few that they hardly tell:
#: a surface that is rougher than its kernel is held by too narrow intervals, one that is smoother by somewhat wide ones.
SMOOTHLY, ROUGHLY, HARDLY_TELL = 2.0, 1.0, 250
#: What many rows, which have networks for noise, must gain in time: those ahead by smooth terms, all kinds by a noise of places.
WORTH = 0.03
#: Of rows of which some are left out a step sees this share, so that a fit sees each about ten times.
FEW_IN_A_BATCH = 10
#: Rate of a fit by minibatches.
RATE = 0.04
#: Noise variance that few rows begin with where counts do not differ: where it begins far below what it is, tails pass for
#: heavy before it has grown. Of many rows the networks tell the tails.
ALIKE = 0.5
#: Others that each of few rows is given; so many times fewer steps of these, and where all rows together come after each candidate:
#: over space alone still fewer, but of so few rows, whose outliers only steps find.
OTHERS, SHORTER, SHORTEST, SHORTEST_FROM = 32, 2, 4, 100
#: Lengths along covariates that few rows begin with, too, in those they begin with; still fewer tell no waves.
SHORT, SHORT_FROM = 0.125, 300
#: Spacings that the first term of few rows begins with, too: what each place has for itself. Fewer rows know of none.
OF_A_PLACE, OF_A_PLACE_FROM = 0.3, 300
#: Steps with single rows for one with a block, in time.
ROWS_BETWEEN = 2


@dataclass(frozen=True)
class Trials:
    """What candidates are fitted to and judged by: rows X (N, D), y (N,), counts (N,), those left out by kind.

    left_out : of each kind the targets that candidates are fitted to; judges : those that they are judged by, others
        where there are enough
    per_count : whether the counts differ, so that noise and mean may depend on them
    told : how the noise may differ from row to row, None where it may not
    follows, says : what lengthscale and variance may follow, and what all rows say at its centres; None where they may not
    """

    X: Tensor
    y: Tensor
    counts: Tensor
    left_out: dict[str, list[Targets]]
    judges: dict[str, list[Targets]]
    options: FieldOptions
    per_count: bool
    stages: Stages
    told: ToldNoise | None = None
    follows: Following | None = None
    says: Tensor | None = None

    @classmethod
    def of(
        cls,
        X: Tensor,
        y: Tensor,
        counts: Tensor,
        left_out: list[LeftOut],
        options: FieldOptions,
        *,
        per_count: bool,
        stages: Stages,
        device: str = "cpu",
        near: Tensor,
        told: ToldNoise | None = None,
        lengths: Told | None = None,
    ) -> "Trials":
        """On a device, where kernels are fitted; `near` (N, d) says which rows are near each other."""
        kinds: dict[str, list[Targets]] = {"rows": [], "blocks": [], "sides": [], "future": []}
        every = None if lengths is None else lengths.says(torch.arange(len(y))).to(device)
        for out in left_out:
            says = every
            if lengths is not None and out.kind in GAPS:
                says = lengths.says(out.reference).to(device)
            kinds[out.kind].append((out.rows.to(device), out.neighbours.to(device), says))
        if not left_out:
            kinds["rows"].append(
                (torch.arange(len(y)).to(device), nearest_others(near, OTHERS).to(device), None)
            )
        both = {kind: divided(targets) for kind, targets in kinds.items()}
        fitted, judges = ({kind: pair[i] for kind, pair in both.items()} for i in (0, 1))
        X, y, counts = X.to(device), y.to(device), counts.to(device)
        return cls(
            X,
            y,
            counts,
            fitted,
            judges,
            options,
            per_count,
            stages,
            None if told is None else told.to(device),
            None if lengths is None else lengths.start,
            None if every is None else every.cpu(),
        )

    @property
    def few(self) -> bool:
        """Whether each row in turn is left out, and the nearest others tell."""
        return len(self.y) < HOLD_OUT_FROM

    @cached_property
    def distinct(self) -> Tensor:
        """Numbers of rows of which none is a copy of another: copies tell of no noise."""
        table = torch.cat([self.X, self.counts[:, None], self.y[:, None]], dim=1).cpu().numpy()
        return torch.from_numpy(first_of_copies(table)).to(self.X.device)

    @property
    def tell_together(self) -> bool:
        """Whether all rows are taken together: of more, blocks that are left out know better what the kernel should be where it
        is not what the data are like."""
        if bool((self.y == self.y[0]).all()):  # of a noise they say nothing
            return False
        return self.apart < TOGETHER_BELOW and len(self.distinct) >= TOGETHER_FROM

    @cached_property
    def apart(self) -> int:
        """How many rows tell of the kernel: the places, where these are measured again and again at one time."""
        if len(self.y) > REPEATED_BELOW:
            return len(self.y)
        places = Places.of(self.X)
        return len(places.first) if places.repeat else len(self.y)

    @property
    def over_space_alone(self) -> bool:
        """Whether there are neither times nor covariates."""
        return self.X.shape[1] == 2

    @property
    def least_for_rough(self) -> float:
        """Nats that rows must be likelier by where terms are rough; along covariates a surface is seldom."""
        return -ROUGHLY if len(self.y) < HARDLY_TELL and self.over_space_alone else 0.0

    @property
    def on_a_line(self) -> bool:
        """Whether all places lie along the first axis."""
        return bool((self.X[:, 1] == self.X[0, 1]).all())

    @property
    def each_together(self) -> bool:
        """Whether they are for each candidate, and not for the best alone."""
        return self.tell_together and self.apart < EACH_TOGETHER_BELOW

    def fitted(
        self,
        name: str,
        targets: list[Targets],
        start: LocalKernel,
        *,
        weighted: bool,
        follows: Following | None = None,
    ) -> Candidate:
        """A candidate fitted to the target rows given their neighbours; a stage of that name."""
        made = self.stages.once(name, lambda: self._fit(targets, start, weighted, follows).tensors())
        noise = None if self.told is None else self.told.noise
        return self.judged(LocalGP.from_tensors(made, start, noise, follows))

    def rivals(
        self, starts: dict[str, LocalKernel], targets: list[Targets], *, weighted: bool
    ) -> list[Candidate]:
        """Candidates fitted to the same target rows, each a stage of its name: side by side, on a GPU one after the other."""

        def fitted(name: str) -> Candidate:
            with torch.enable_grad():
                return self.fitted(name, targets, starts[name], weighted=weighted)

        if len(starts) == 1 or self.y.device.type != "cpu":
            return [fitted(name) for name in starts]
        return list(side_by_side(fitted, starts))

    def _fit(
        self, targets: list[Targets], start: LocalKernel, weighted: bool, follows: Following | None
    ) -> LocalGP:
        o, alike = self.options, start.variation is None and follows is None
        searched = self.each_together and alike  # over all rows, from where this has come
        times = SHORTER if self.few or searched else 1
        if searched and self.over_space_alone and len(self.y) >= SHORTEST_FROM:
            times = SHORTEST
        steps = 0 if len(self.y) == 1 else -(-o.steps // times)  # one has no others
        made = fit_local_gp(
            self.X,
            self.y,
            self.counts,
            targets,
            start,
            columns=self._columns,
            told=self.told,
            follows=follows,
            weighted=weighted,
            per_count=self.per_count,
            steps=steps,
            learning_rate=RATE * times,
            batch=min(o.batch, len(self.y) if self.few else max(len(self.y) // FEW_IN_A_BATCH, 8)),
            noise=ALIKE if self.each_together and not self.per_count else NOISE,
            seed=o.seed,
            tick=self.stages.tick,
        )
        return self._together(self._read_simply(made)) if searched else made

    def _read_simply(self, gp: LocalGP) -> LocalGP:
        """Its observations read as Gaussian ones, unless held-out rows surely gain by weighing them."""
        if not (gp.weighted and heavy_tailed(gp.degrees_of_freedom)):
            return gp
        plain = replace(gp, weighted=False)
        return surely_better(self.judged(plain), self.judged(gp)).gp

    def likelier(self, gp: LocalGP, stage: str, kernel: LocalKernel, by: float = 0.0) -> LocalGP:
        """A local GP of few rows with a kernel of another smoothness instead, fitted to all rows together, or as it is where
        that does not make the rows likelier by more than so many nats; a stage."""
        other = replace(gp, kernel=kernel)
        made = self.stages.once(stage, lambda: self._together(other).tensors())
        other = LocalGP.from_tensors(made, kernel, gp.rows)
        return other if self.nats(gp, other) > by else gp

    def nats(self, one: LocalGP, other: LocalGP) -> float:
        """By how many the other makes all rows likelier."""
        both, rows = (one, other), self._all_rows  # weights under one of the two flatter it
        losses = [minus_log_likelihoods(both, **rows, weighed_by=by) for by in both]
        return 0.5 * sum(loss - of_other for loss, of_other in losses)

    @property
    def _all_rows(self) -> dict[str, Any]:
        """The rows that are taken together, and how."""
        rows, columns, told = self.distinct, self._columns, self.told
        return {
            "X": self.X[rows],
            "y": self.y[rows],
            "counts": self.counts[rows],
            "columns": None if columns is None else columns[rows],
            "told": None if told is None else replace(told, says=told.says[rows]),
            "per_count": self.per_count,
            "seed": self.options.seed,
        }

    def taken_together(self, gp: LocalGP) -> LocalGP:
        """A local GP whose kernel is the same everywhere, fitted to all rows together; a stage."""
        made = self.stages.once("together", lambda: self._together(gp).tensors())
        return LocalGP.from_tensors(made, gp.kernel, gp.rows)

    def _together(self, gp: LocalGP) -> LocalGP:
        return self._likelier(gp)[0]

    def _likelier(self, gp: LocalGP, **how: Any) -> tuple[LocalGP, float]:
        passes = min(PASSES, self.options.steps)
        return fit_all_together(gp, **self._all_rows, passes=passes, tick=self.stages.tick, **how)

    def of_times(self, gp: LocalGP) -> LocalGP:
        """With a noise that differs from time to time, where rows left out surely gain, fitted anew where rows are few; a stage."""
        made = self.stages.once("times", lambda: self._of_times(gp).tensors())
        return LocalGP.from_tensors(made, gp.kernel, gp.rows, gp.follows)

    def _of_times(self, plain: LocalGP) -> LocalGP:
        gp, together = plain, self.each_together and plain.kernel.variation is None
        for _ in range(IN_TURN):
            rows = held_out_misses(gp, self, self._singly).to("cpu")
            if gp.of_times is not None:
                rows = replace(rows, noise=rows.noise / gp.of_times.factor(rows.time))
            found = noise_of_times(rows, gp.degrees_of_freedom)
            if found is None or found.nats <= SURELY:
                return plain
            tau2, s2 = found.overall * gp.tau2, found.overall * gp.s2
            gp = replace(
                gp, tau2=tau2, s2=s2, degrees_of_freedom=found.degrees_of_freedom, of_times=found.noise
            )
            gp = self._together(gp) if together else gp
        return surely_better(self.judged(plain), self.judged(gp)).gp

    @cached_property
    def _singly(self) -> list[Targets]:
        """Rows left out one by one, each once: of a small table all of them, each given the nearest others."""
        fitted, judges = self.left_out["rows"], self.judges["rows"]
        if self.few or len(self.y) > self.options.n_targets:
            return fitted if judges is fitted else [*fitted, *judges]
        everyone, nearest = torch.arange(len(self.y)), nearest_others(self.X[:, :3], OTHERS)
        return [(everyone.to(self.X.device), nearest.to(self.X.device), self.says)]

    def crowded(self, plain: Candidate) -> Candidate:
        """One whose lengthscale, variance and noise follow how near each other places are, where that makes all rows surely
        likelier, a stage, and loses in no gap: what is learned of places far from each other is carried into gaps and beyond
        the data, and with too small a variance a map is too sure there. Of few rows no gap is left out to tell."""
        gp, enough = plain.gp, len(self.distinct) >= HOLD_OUT_FROM
        may_vary = self.options.varying is None and not self.on_a_line and enough
        crowding = Crowding.over(self.X[self.distinct]) if may_vary else None
        other = self._varied("crowded", gp, crowding, SURELY, dense_below=EACH_TOGETHER_BELOW)
        return other if other is not None and other.never_loses_to(plain, GAPS) else plain

    def noisier(self, plain: Candidate) -> Candidate:
        """One whose noise differs from place to place, where that makes all rows surely likelier, a stage, and rows left out, too."""
        gp, many = plain.gp, self.options.is_smooth(len(self.y))
        varies = gp.kernel.variation is not None or not self.options.smooth
        noisiness = None if varies else Noisiness.over(self.X[self.distinct])
        nats = max(SURELY_NOISIER, 0.0 if noisiness is None else noisiness.n_centres)
        least = WORTH if many and gp.kernel.time_axis is not None else 0.0
        other = self._varied("noisier", gp, noisiness, nats)
        best = plain if other is None else surely_better(plain, other, least)
        if not heavy_tailed(gp.degrees_of_freedom):
            return best
        # A noise of two sizes passes for one with tails, which trusts the noisier half too much where observations are weighed.
        if gp.weighted and (best is other or not many):
            other = self._varied("noisier, without tails", gp.without_tails(), noisiness, nats)
        elif other is not None:
            other = self.judged(other.gp.without_tails())
        return best if other is None else surely_better(best, other, least if best is plain else 0.0)

    def _varied(
        self, stage: str, gp: LocalGP, crowding: Crowding | Noisiness | None, nats: float, **how: Any
    ) -> Candidate | None:
        """A local GP that varies so over space, fitted to all rows together, a stage; None where there is nothing that it
        might follow, or where that gains them no more than so many nats."""
        if crowding is None:
            return None

        def surely() -> dict[str, Tensor]:
            other, gain = self._likelier(gp, crowding=crowding, wanted=nats, **how)
            return (other if gain > nats else gp).tensors()

        made = self.stages.once(stage, surely)
        if "stretch" not in made:
            return None
        bent = replace(gp.kernel, variation=crowding.bumps)
        return self.judged(LocalGP.from_tensors(made, bent, gp.rows))

    @cached_property
    def _columns(self) -> Tensor | None:
        if not self.per_count:
            return None
        columns = count_columns(self.counts)
        return apart_from_places(self.X[:, :2], columns) if self.each_together else columns

    def judged(self, gp: LocalGP) -> Candidate:
        """What held-out rows say of it."""
        judges = {kind: targets for kind, targets in self.judges.items() if targets}
        return Candidate(gp, {kind: held_out_densities(gp, self, t) for kind, t in judges.items()})


def best_local_gp(trials: Trials, start: LocalKernel) -> LocalGP:
    """Kernel and noise that predict held-out rows best, over all kinds of missing data; see `_alike_at_all_times` for what is tried. In
    time the noise may differ from one to the next, and of rows that are taken together from place to place, as over space."""
    gp = _alike_at_all_times(trials, start)
    if start.time_axis is None:
        return gp
    gp = trials.of_times(gp)
    return trials.noisier(trials.judged(gp)).gp if trials.tell_together else gp


def _alike_at_all_times(trials: Trials, start: LocalKernel) -> LocalGP:
    """The best whose noise is the same at all times.

    Weighing observations as Student-t (`student_weights`) helps where outliers are wrong and hurts where they are right. Over space
    alone, rows left out singly ask for short lengths and left-out blocks for long ones: both kernels are tried (rows that are taken
    together tell of both), and rough ones beside smooth ones where no kernel was asked for: of few rows the likelihood tells which, beside
    smoother ones, too, and plain reading is left only where weighing surely gains; they begin with short lengths, too. In time
    one kernel learns from single rows and blocks. Where rows are many or it is asked for, lengths and variance may vary over space, or
    follow what places say, if no missing data speak against it. A mean that shifts with the count must gain more than chance does,
    of few rows by what counts differ from those around, too: a row left out gains by counts that follow the surface.
    """
    rows, blocks = trials.left_out["rows"], trials.left_out["blocks"]
    if start.time_axis is not None and blocks:
        rows = _in_turns(rows, blocks, ROWS_BETWEEN)
    starts, open_smoothness = {"first": start}, start.time_axis is None and trials.options.components is None
    if start.time_axis is not None and len(start.smoothness) > 1:
        # What stays at a place is there only where held-out rows ask for it: else a little of the noise becomes surface.
        starts["wide"] = start.term(len(start.smoothness) - 1)
    if trials.each_together and start.covariate_axes and len(trials.y) >= SHORT_FROM:
        # What goes up and down along a covariate is not found from a length that sees none of it.
        starts["short"] = start.along_covariates(SHORT)
    if trials.each_together and trials.options.components is None and len(trials.y) >= OF_A_PLACE_FROM:
        starts["places"] = start.over_space(0, OF_A_PLACE / SPACINGS)
    if open_smoothness and not trials.each_together:
        starts["rough"] = replace(start, smoothness=(ROUGH,) * len(start.smoothness))
    best, alone = _best_of(trials, rows, starts)
    if open_smoothness:
        if trials.each_together:
            gp = trials.likelier(
                best.gp, "rough", best.gp.kernel.as_smooth_as(ROUGH), by=trials.least_for_rough
            )
            if gp is best.gp:
                gp = trials.likelier(gp, "smooth", gp.kernel.as_smooth_as(SMOOTHER), by=SMOOTHLY)
            if alone is not None and trials.nats(best.gp, alone.gp) > SURELY:
                rough = alone.gp.kernel.as_smooth_as(ROUGH)
                alone = trials.judged(trials.likelier(alone.gp, "places, rough", rough))
            best = trials.noisier(trials.crowded(_or_alone(trials, trials.judged(gp), alone)))
        start = replace(start, smoothness=best.gp.kernel.smoothness)
    else:
        best = _or_alone(trials, best, alone)
        if start.time_axis is not None and trials.options.components is None:
            best = _smooth_in_time(trials, best, rows)
    if blocks and start.time_axis is None and not trials.tell_together:
        mixed = _in_turns(rows, [*blocks, *trials.left_out["sides"]], 1)
        best = better(best, trials.fitted("gaps", mixed, start, weighted=best.gp.weighted))
    if places := _places_to_vary_at(trials, start):
        flat = Variation.flat(trials.X[:, :2], places, trials.options.seed)
        bent = replace(best.gp.kernel, variation=flat.to(trials.X.device))
        best = better(best, trials.fitted("varying", rows, bent, weighted=best.gp.weighted))
    if trials.follows is not None and best.gp.kernel.variation is None:
        # The kernel of every gap a map may have: it must not lose in one of them what it gains in others.
        gaps = [] if start.time_axis is not None else trials.left_out["sides"]
        sets = _in_turns(trials.left_out["rows"], [*blocks, *gaps], ROWS_BETWEEN) if blocks else rows
        following = trials.fitted(
            "following", sets, best.gp.kernel, weighted=best.gp.weighted, follows=trials.follows
        )
        if following.never_loses_to(best):
            best = replace(following, gp=following.gp.told(trials.says))
    gp = best.gp
    if trials.tell_together and not trials.each_together and gp.kernel.variation is None:
        gp = trials.taken_together(gp)
        if open_smoothness:
            gp = trials.noisier(trials.judged(gp)).gp
    if not trials.per_count:
        return gp
    still = replace(gp, count_shift=torch.zeros_like(gp.count_shift))
    if trials.each_together and trials.nats(still, gp) <= SURELY:
        return still
    return surely_better(trials.judged(still), best if gp is best.gp else trials.judged(gp)).gp


def _best_of(
    trials: Trials, rows: list[Targets], starts: dict[str, LocalKernel]
) -> tuple[Candidate, Candidate | None]:
    """The best of candidates with these starts, the first of which says whether observations are weighed; and that of single places."""
    candidates = trials.rivals(starts, rows, weighted=True)
    if heavy_tailed(candidates[0].gp.degrees_of_freedom) and not trials.each_together:
        unweighted = trials.judged(replace(candidates[0].gp, weighted=False))
        if unweighted.density > candidates[0].density:
            again = {f"{name}, unweighted": start for name, start in starts.items()}
            candidates = trials.rivals(again, rows, weighted=False)
    by_name = dict(zip(starts, candidates))
    short, alone = by_name.pop("short", None), by_name.pop("places", None)
    best = functools.reduce(better, by_name.values())
    return best if short is None else surely_better(best, short), alone


def _or_alone(trials: Trials, best: Candidate, alone: Candidate | None) -> Candidate:
    """That which began with single places, where all rows are surely likelier: of few that tells more than what they leave out."""
    if alone is None or trials.nats(best.gp, alone.gp) <= SURELY:
        return best
    return surely_better(alone, best)


def _smooth_in_time(trials: Trials, best: Candidate, rows: list[Targets]) -> Candidate:
    """One whose terms change smoothly over time, where few rows are likelier by it, or of many those ahead of what is known: rows left
    out singly gain by whatever averages more of the noise, which has networks for that."""
    smooth = replace(best.gp.kernel, over_time=SMOOTH_IN_TIME)
    if trials.each_together:
        gp = trials.likelier(best.gp, "smooth in time", smooth, by=SMOOTHLY)
        return best if gp is best.gp else trials.judged(gp)
    if not trials.left_out["future"]:
        return best
    other = trials.fitted("smooth in time", rows, smooth, weighted=best.gp.weighted)
    return surely_better(best, other) if other.surely_gains(best, "future", WORTH) else best


def _in_turns(rows: list[Targets], gaps: list[Targets], between: int) -> list[Targets]:
    """So many sets of single rows, then one of a gap, until each gap has had its turn."""
    turn = itertools.cycle(rows)
    return [s for gap in gaps for s in (*itertools.islice(turn, between), gap)]


def _places_to_vary_at(trials: Trials, start: LocalKernel) -> int:
    if trials.options.varying is not None:
        return trials.options.varying
    return VARY_AT if start.time_axis is None and len(trials.y) >= VARY_FROM else 0

"""Which candidates are tried, in which order, on which rows, and which of them is taken; by candidates that are scripted."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import geogp
from geogp.densities import log_density
from geogp.field import FieldOptions, LocalKernel, choose
from geogp.field.candidate import Candidate, better, surely_better
from geogp.field.choose import Trials, best_local_gp
from geogp.field.frame import SPACINGS
from geogp.field.left_out import LeftOut
from geogp.field.likelihood import held_out
from geogp.field.likelihood.apart import apart_from_places
from geogp.field.likelihood.held_out import divided, held_out_densities
from geogp.field.likelihood.repeated import first_of_copies
from geogp.field.local_gp import LocalGP
from geogp.field.noise.rows import ToldNoise
from geogp.field.options import ROUGH
from geogp.field.solve import conditional_moments
from geogp.field.stages import Stages
from geogp.field.variation import Variation
from geogp.field.variation.told import Told


def kernel_of(in_time=False, terms=2):
    lengths = torch.arange(1.0, 1.0 + terms)[:, None].repeat(1, 3 if in_time else 2).double()
    return LocalKernel(
        lengths.log(), torch.zeros(terms).double(), ("matern32",) * terms, 2 if in_time else None
    )


def targets(*starts, says=None):
    """A set of four rows from each number on, given two others."""
    return [(torch.arange(s, s + 4), torch.tensor([[s, s + 1]] * 4), says) for s in starts]


SETS = {
    "rows": targets(0, 10, 20),
    "blocks": targets(100, 110),
    "sides": targets(200),
    "future": targets(300),
}


def trials_of(n=20_000, in_time=False, cls=Trials, **changes) -> Trials:
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(n, 3 if in_time else 2)))
    y, counts = torch.from_numpy(rng.normal(size=n)), torch.from_numpy(rng.integers(1, 9, n) * 1.0)
    made = cls(
        X, y, counts, dict(SETS), dict(SETS), FieldOptions(varying=0), per_count=False, stages=Stages()
    )
    return replace(made, **changes)


def candidate(**densities):
    gp = LocalGP(kernel_of(), 0.1, 0.0, 5.0, torch.zeros(0).double(), ())
    return Candidate(gp, {kind: torch.as_tensor(each).double() for kind, each in densities.items()})


# -- candidates beside each other -----------------------------------------------------------------------


def test_kinds_count_alike_but_for_sides():
    one = candidate(rows=[1.0, 3.0], blocks=[-1.0], sides=[10.0, 20.0, 30.0])
    assert one.densities == {"rows": 2.0, "blocks": -1.0, "sides": 20.0}
    assert one.density == pytest.approx(2.0 - 1.0 + 0.3 * 20.0)


def test_the_doubt_of_a_gain_is_its_standard_error():
    rng = np.random.default_rng(0)
    a, b = ({"rows": rng.normal(size=50), "sides": rng.normal(size=30)} for _ in range(2))
    rows, sides = (np.var(b[k] - a[k], ddof=1) / len(a[k]) for k in ("rows", "sides"))
    wanted = math.sqrt(rows + 0.3**2 * sides)
    assert candidate(**a).doubt_beside(candidate(**b)) == pytest.approx(wanted)


def test_another_that_is_level_takes_nothing():
    one, level, less = (
        candidate(rows=[1.0], blocks=[2.0]),
        candidate(rows=[1.0], blocks=[2.0]),
        candidate(rows=[1.5], blocks=[1.0]),
    )
    assert one.never_loses_to(level) and not one.never_loses_to(less)
    assert one.never_loses_to(less, ("blocks", "sides")) and not less.never_loses_to(one, ("blocks",))
    assert better(one, level) is one and better(less, one) is one
    assert better(one, candidate(rows=[1.1], blocks=[2.0])) is not one


@pytest.mark.parametrize(("gain", "taken"), [(0.49, False), (0.51, True)])
def test_a_gain_within_its_standard_error_is_none(gain, taken):
    simple = candidate(rows=[0.0, 0.0, 0.0, 0.0])
    spread = math.sqrt(0.75)  # of two above and two below: a variance of 1, a standard error of 1/2
    other = candidate(rows=[gain + spread, gain - spread, gain + spread, gain - spread])
    assert (surely_better(simple, other) is other) == taken
    assert surely_better(simple, candidate(rows=[0.0] * 4)) is simple


def test_two_sets_of_single_rows_then_a_gap():
    order = [int(t[0]) for t, _, _ in choose._in_turns(SETS["rows"], [*SETS["blocks"], *SETS["sides"]], 2)]
    assert order == [0, 10, 100, 20, 0, 110, 10, 20, 200]


@pytest.mark.parametrize(("sets", "rows", "share"), [(1, 1599, 1), (1, 1600, 2), (3, 1000, 3)])
def test_some_rows_judge_and_others_are_fitted_to_where_there_are_enough(sets, rows, share):
    says = torch.zeros(1)
    all_of = [(torch.arange(rows), torch.arange(rows)[:, None], says) for _ in range(sets)]
    fit, judge = divided(all_of)
    if share == 1:
        assert fit is all_of and judge is all_of
        return
    for (t, i, s), (u, j, r) in zip(fit, judge, strict=True):
        assert u.tolist() == list(range(0, rows, share)) and torch.equal(j[:, 0], u) and r is says
        assert t.tolist() == [k for k in range(rows) if k % share] and torch.equal(i[:, 0], t) and s is says
    alone = [(torch.arange(1), torch.zeros(1, 1).long(), None), *all_of]
    assert len(divided(alone)[0]) == sets  # a set whose only row judges is fitted to by none


# -- what is tried on -----------------------------------------------------------------------------------


def left(kind, rows, reference, n=30):
    known = torch.zeros(n, dtype=torch.bool)
    known[reference] = True
    return LeftOut(kind, known, torch.tensor(rows), torch.tensor([[reference[0], -1]] * len(rows)))


def test_rows_left_out_are_told_of_by_kind():
    rng = np.random.default_rng(0)
    X, y, n = (
        torch.from_numpy(rng.normal(size=(30, 2))),
        torch.from_numpy(rng.normal(size=30)),
        torch.ones(30).double(),
    )
    noise = ToldNoise.over(X, y, n)
    lengths = Told.over(X, y, n, noise.noise)
    out = [
        left("rows", [3, 4], [0, 1, 2]),
        left("blocks", [5], [6, 7, 8, 9, 10]),
        left("sides", [9], [1, 2, 3, 4]),
        left("future", [8], [0]),
    ]
    t = Trials.of(
        X, y, n, out, FieldOptions(), per_count=True, stages=Stages(), near=X, told=noise, lengths=lengths
    )
    every = lengths.says(torch.arange(30))
    for one in out:
        ((rows, index, says),) = t.left_out[one.kind]
        assert torch.equal(rows, one.rows) and torch.equal(index, one.neighbours)
        wanted = lengths.says(one.reference) if one.kind in ("blocks", "sides") else every
        torch.testing.assert_close(says, wanted)
    assert t.judges == t.left_out and t.per_count and t.follows is lengths.start
    torch.testing.assert_close(t.says, every)
    assert torch.equal(t.told.says, noise.says)
    plain = Trials.of(X, y, n, out, FieldOptions(), per_count=False, stages=Stages(), near=X)
    assert plain.told is None and plain.follows is None and plain.says is None
    assert all(s is None for sets in plain.left_out.values() for _, _, s in sets)


def test_of_many_rows_left_out_some_judge_what_is_fitted_to_the_others():
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(1700, 2)))
    out = [left("rows", list(range(1600)), [1650], n=1700)]
    t = Trials.of(X, X[:, 0], X[:, 0], out, FieldOptions(), per_count=False, stages=Stages(), near=X)
    ((fitted, _, _),), ((judges, _, _),) = t.left_out["rows"], t.judges["rows"]
    assert judges.tolist() == list(range(0, 1600, 2)) and fitted.tolist() == list(range(1, 1600, 2))


def test_where_none_is_left_out_each_row_has_the_nearest_32():
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 3)))
    y = X[:, 0]
    t = Trials.of(X, y, y, [], FieldOptions(), per_count=False, stages=Stages(), near=X[:, :2])
    ((rows, others, says),) = t.left_out["rows"]
    away = torch.cdist(X[:, :2], X[:, :2]).fill_diagonal_(torch.inf)
    assert rows.tolist() == list(range(50)) and says is None
    assert torch.equal(others.sort(1).values, away.argsort(1)[:, :32].sort(1).values)
    assert t.left_out["blocks"] == t.left_out["sides"] == t.left_out["future"] == []


@pytest.mark.parametrize(
    ("n", "few", "each", "together"),
    [(399, True, True, True), (400, False, True, True), (999, False, True, True), (1000, False, False, True),
     (9999, False, False, True), (10_000, False, False, False), (12, True, True, True), (11, True, False, False)],
)  # fmt: skip
def test_how_many_rows_are_few_and_tell_together(n, few, each, together):
    t = trials_of(n)
    assert (t.few, t.each_together, t.tell_together) == (few, each, together)


def test_copies_tell_of_no_noise_and_constants_of_nothing():
    t = trials_of(20)
    twice = replace(t, X=t.X[[0, 1] * 10], y=t.y[[0, 1] * 10], counts=t.counts[[0, 1] * 10])
    assert twice.distinct.tolist() == [0, 1] and not twice.tell_together
    other = replace(twice, y=t.y)
    assert other.distinct.tolist() == list(range(20)) and other.tell_together
    assert replace(twice, counts=torch.arange(20.0).double()).distinct.tolist() == list(range(20))
    assert not replace(t, y=torch.full((20,), 3.0).double()).tell_together


def test_rounded_readings_that_agree_are_no_copies():
    """A thermometer of whole degrees says the same again and again, and other things between; a table joined from two does not."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(0, 9, (60, 2)), 5, axis=0)
    exact = X[:, 0] + 0.6 * rng.standard_normal(300)
    whole = exact.round()

    def kept(X, y):
        return len(first_of_copies(np.column_stack([X, y])))

    assert kept(X, whole) == kept(X, exact) == 300 > len(np.unique(np.column_stack([X, whole]), axis=0))
    # Whole degrees read once at each place, a third of which come twice; and exact ones read again, all of which do.
    once, third = slice(None, None, 5), slice(None, 100, 5)
    assert kept(np.vstack([X[once], X[third]]), np.r_[whole[once], whole[third]]) == 60
    assert kept(np.vstack([X, X]), np.r_[exact, exact]) == 300
    assert kept(X[:1], whole[:1]) == 1


def test_what_a_place_has_for_itself_is_found_from_there():
    """From a length of five places a wide field and what lasts at each place end as one of neither length."""
    rng = np.random.default_rng(22)
    S = rng.uniform(0, 50, (400, 2))
    waves, at = rng.standard_t(3, (200, 2)) / 10, rng.uniform(0, 2 * np.pi, 200)
    f = np.sqrt(2 / 200) * np.cos(S @ waves.T + at).sum(1) + 0.8 * rng.standard_normal(400)
    i, t = np.repeat(np.arange(200), 2), np.tile([0.0, 0.25], 200)
    y = f[i] + 0.4 * rng.standard_normal(400)
    model = geogp.GPRegressor(time=2, target_transform="identity").fit(np.column_stack([S[i], t]), y)
    new = np.column_stack([S[200:], np.full(200, 0.25)])
    surface = model.distribution(model.moments(new), latent=True)
    low, high = surface.interval(0.95)
    assert ((low < f[200:]) & (f[200:] < high)).mean() > 0.91
    kernel = model.engine_.field.gp.kernel
    lengths, variances = SPACINGS * kernel.log_lengthscale[:, :2].mean(1).exp(), kernel.log_variance.exp()
    assert float(lengths[0]) < 1.0 and 0.2 < float(variances[0]) < 1.0


def test_a_line_has_one_northing():
    t = trials_of(20)
    flat = t.X.clone()
    flat[:, 1] = 4.0
    assert replace(t, X=flat).on_a_line and not t.on_a_line
    flat[7, 1] = 4.1
    assert not replace(t, X=flat).on_a_line


@pytest.fixture
def asked(monkeypatch):
    """What a fit by minibatches was asked for, and what was searched for `together` after; nothing is fitted."""
    out = {"together": []}

    def fit(X, y, counts, sets, start, **how):
        out.update(how, sets=sets)
        return LocalGP(start, 0.3, 0.2, None, torch.zeros(0).double(), (1.0,))

    monkeypatch.setattr(choose, "fit_local_gp", fit)
    monkeypatch.setattr(Trials, "_together", lambda trials, gp: (out["together"].append(gp), gp)[1])
    monkeypatch.setattr(Trials, "judged", lambda trials, gp: Candidate(gp, {}))
    return out


@pytest.mark.parametrize(
    ("n", "bends", "steps"),
    [(1, False, 0), (2, False, 3), (99, False, 3), (100, False, 2), (399, True, 3), (400, True, 5), (999, False, 2), (1000, False, 5)]
)  # fmt: skip
def test_half_or_a_quarter_of_the_steps_where_a_search_comes_after_none_of_one_row(asked, n, bends, steps):
    t, kernel = trials_of(n, options=FieldOptions(steps=5)), kernel_of()
    if bends:
        kernel = replace(kernel, variation=Variation.flat(t.X[:, :2], 4, 0))
    t.fitted("some", SETS["rows"], kernel, weighted=True)
    assert asked["steps"] == steps
    t = replace(t, X=torch.rand(n, 3).double())  # with a covariate
    t.fitted("other", SETS["rows"], kernel, weighted=True)
    assert asked["steps"] == max(steps, 3 * (n > 1))


@pytest.mark.parametrize(
    ("n", "per_count", "rate", "batch", "noise"),
    [(50, False, 0.08, 50, 0.5), (50, True, 0.08, 50, 0.1), (399, False, 0.16, 128, 0.5), (400, False, 0.16, 40, 0.5),
     (1000, False, 0.04, 100, 0.1), (5000, False, 0.04, 128, 0.1)],
)  # fmt: skip
def test_how_a_candidate_is_fitted(asked, monkeypatch, n, per_count, rate, batch, noise):
    t = trials_of(n, per_count=per_count, options=FieldOptions(steps=6, seed=3))
    made = t.fitted("some", SETS["rows"], kernel_of(), weighted=False)
    assert made.gp.tau2 == 0.3 and asked["sets"] is SETS["rows"]
    assert (asked["learning_rate"], asked["batch"], asked["noise"]) == (rate, batch, noise)
    assert asked["seed"] == 3 and asked["weighted"] is False and asked["per_count"] is per_count
    assert (asked["columns"] is not None) == per_count and asked["tick"] == t.stages.tick
    assert len(asked["together"]) == (n < 1000)
    # Kept as a stage of that name.
    again = replace(t, stages=Stages(t.stages.known))
    monkeypatch.setattr(choose, "fit_local_gp", None)
    assert again.fitted("some", [], kernel_of(), weighted=True).gp.tau2 == 0.3


@pytest.fixture
def threads():
    """Sets how many torch has."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_rivals_are_to_the_last_bit_what_they_are_one_after_another(threads):
    starts = {"first": kernel_of(), "rough": replace(kernel_of(), smoothness=("matern12",) * 2)}
    found = []
    for number in (1, 2):
        threads(number)
        t = trials_of(2000, options=FieldOptions(steps=4))
        found.append((t.rivals(starts, SETS["rows"], weighted=True), t.stages.known))
    (alone, known), (beside, of_both) = found
    assert {name.split("/")[0] for name in known} == {"first", "rough"} and set(known) == set(of_both)
    assert all(torch.equal(known[name], of_both[name]) for name in known)
    assert [c.gp.kernel.smoothness for c in beside] == [k.smoothness for k in starts.values()]
    assert [c.densities for c in alone] == [c.densities for c in beside]
    assert not torch.equal(known["first/log_lengthscale"], starts["first"].log_lengthscale)


def test_where_one_rival_fails_the_other_ends_at_its_next_tick(monkeypatch, threads):
    threads(2)
    ticks = []

    def fit(self, targets, start, weighted, follows):
        if start.smoothness[0] == "matern12":
            while not ticks:
                time.sleep(0.005)
            raise ValueError("not this one")
        for _ in range(2000):
            ticks.append(None)
            time.sleep(0.005)
            self.stages.tick()

    monkeypatch.setattr(Trials, "_fit", fit)
    starts = {"rough": replace(kernel_of(), smoothness=("matern12",) * 2), "first": kernel_of()}
    with pytest.raises(ValueError, match="not this one"):
        trials_of(2000).rivals(starts, SETS["rows"], weighted=True)
    assert 0 < len(ticks) < 1000


def test_what_varies_is_not_taken_together(monkeypatch):
    bent = replace(kernel_of(), variation=choose.Variation.flat(torch.rand(9, 2).double(), 3))
    together = []
    monkeypatch.setattr(Trials, "_together", lambda trials, gp: (together.append(gp), gp)[1])
    monkeypatch.setattr(
        choose,
        "fit_local_gp",
        lambda X, y, c, s, start, **how: LocalGP(start, 0.3, 0.2, None, torch.zeros(0).double(), ()),
    )
    t = trials_of(50)
    t._fit(SETS["rows"], bent, True, None)
    t._fit(SETS["rows"], kernel_of(), True, object())
    assert together == []
    t._fit(SETS["rows"], kernel_of(), True, None)
    assert len(together) == 1


@pytest.mark.parametrize(
    ("nu", "gain", "weighted"), [(4.0, 3.0, True), (4.0, 0.0, False), (None, 3.0, True), (1e5, 3.0, True)]
)
def test_few_rows_are_read_simply_unless_weighing_surely_gains(monkeypatch, nu, gain, weighted):
    noise = torch.tensor([0.0, 1.0, 0.0, -1.0]).double()
    monkeypatch.setattr(
        Trials,
        "judged",
        lambda trials, gp: Candidate(gp, {"rows": noise * 0.1 + (gain + noise if gp.weighted else 0.0)}),
    )
    gp = LocalGP(kernel_of(), 0.1, 0.0, nu, torch.zeros(0).double(), (), weighted=True)
    assert trials_of(50)._read_simply(gp).weighted == weighted
    plain = replace(gp, weighted=False)
    assert trials_of(50)._read_simply(plain) is plain


@pytest.mark.parametrize(("losses", "other"), [((1.0, 0.5), True), ((1.0, 1.5), False), ((1.0, 1.0), False)])
def test_another_smoothness_is_taken_where_rows_are_likelier_under_either_weights(monkeypatch, losses, other):
    asked = []

    def of_each(gps, *, weighed_by, **rows):
        kinds = [gp.kernel.smoothness[0] for gp in gps]
        asked.extend((kind, weighed_by.kernel.smoothness[0], len(rows["y"]), rows["seed"]) for kind in kinds)
        return [losses[kind == "matern12"] for kind in kinds]

    monkeypatch.setattr(choose, "minus_log_likelihoods", of_each)
    monkeypatch.setattr(Trials, "_together", lambda trials, gp: replace(gp, tau2=0.7))
    gp = LocalGP(kernel_of(), 0.1, 0.0, None, torch.zeros(0).double(), ())
    t = trials_of(30, options=FieldOptions(seed=4))
    rough = gp.kernel.as_smooth_as("matern12")
    found = t.likelier(gp, "rough", rough)
    gain = 2.0 * (1.0 - losses[1]) / 2.0
    assert t.likelier(gp, "rough", rough, by=gain) is gp
    assert t.likelier(gp, "rough", rough, by=gain - 1e-6) is not gp
    del asked[4:]
    assert (found.kernel.smoothness == ("matern12",) * 2 and found.tau2 == 0.7) == other
    assert (found is gp) != other
    assert sorted(asked) == sorted(
        (a, b, 30, 4) for a in ("matern12", "matern32") for b in ("matern12", "matern32")
    )
    assert any(name.startswith("rough/") for name in t.stages.known)


def test_all_rows_are_the_distinct_ones_and_what_is_said_of_them(monkeypatch):
    asked = {}
    monkeypatch.setattr(choose, "fit_all_together", lambda gp, **how: (asked.update(how), (gp, 0.0))[1])
    t = trials_of(40, per_count=True, options=FieldOptions(steps=3, seed=2))
    t = replace(t, X=t.X[[0, *range(39)]], y=t.y[[0, *range(39)]], counts=t.counts[[0, *range(39)]])
    t = replace(t, told=ToldNoise.over(t.X, t.y, t.counts))
    gp = LocalGP(kernel_of(), 0.1, 0.0, None, torch.zeros(2).double(), ())
    found = t.taken_together(gp)
    keep = t.distinct
    assert len(keep) == 39 and torch.equal(asked["X"], t.X[keep]) and torch.equal(asked["y"], t.y[keep])
    assert torch.equal(asked["counts"], t.counts[keep]) and torch.equal(
        asked["columns"], apart_from_places(t.X[:, :2], choose.count_columns(t.counts))[keep]
    )
    assert torch.equal(asked["told"].says, t.told.says[keep]) and asked["passes"] == 3 and asked["seed"] == 2
    assert asked["per_count"] is True and found.tau2 == 0.1
    replace(t, told=None, per_count=False, options=FieldOptions(steps=999), stages=Stages()).taken_together(
        gp
    )
    assert asked["told"] is None and asked["columns"] is None and asked["passes"] == choose.PASSES


@pytest.mark.parametrize(
    ("gain", "blocks", "taken"), [(4.5, 0.0, True), (4.0, 0.0, False), (4.5, -0.1, False)]
)
def test_crowds_are_followed_where_rows_are_surely_likelier_and_gaps_lose_nothing(
    monkeypatch, gain, blocks, taken
):
    def fit(gp, *, crowding, dense_below, **how):
        assert dense_below == 1000
        bumps = replace(crowding.bumps, noise=crowding.at_centres)
        return replace(gp, kernel=replace(gp.kernel, variation=bumps)), gain

    monkeypatch.setattr(choose, "fit_all_together", fit)
    monkeypatch.setattr(
        Trials,
        "judged",
        lambda trials, gp: Candidate(
            gp,
            {
                "rows": torch.tensor([-9.0]),
                "blocks": torch.tensor([0.0 if gp.kernel.variation is None else blocks]),
            },
        ),
    )
    t = trials_of(500, options=FieldOptions(varying=None))
    t = replace(t, X=torch.sign(t.X) * t.X.abs() ** 3)  # crowded in the middle
    plain = candidate(rows=[0.0], blocks=[0.0])
    assert (t.crowded(plain) is not plain) == taken
    least = replace(t, X=t.X[:400], y=t.y[:400], counts=t.counts[:400], stages=Stages())
    assert (least.crowded(plain) is not plain) == taken
    line = torch.stack([t.X[:, 0], torch.zeros(500).double()], 1)
    for other in (
        replace(t, options=FieldOptions(varying=0)),
        replace(t, X=line),
        replace(t, X=t.X[:399], y=t.y[:399], counts=t.counts[:399]),
    ):
        assert other.crowded(plain) is plain


# -- which is taken -------------------------------------------------------------------------------------


class Scripted(Trials):
    """Whose candidates are as dense as a script says by their name, and which remembers what was asked for."""

    script: dict = {}  # noqa: RUF012
    asked: list = []  # noqa: RUF012

    def _of(self, name, gp):
        each = self.script.get(name, -1.0)
        each = each if isinstance(each, dict) else {"rows": [each, each, each]}
        return Candidate(gp, {kind: torch.tensor(v).double() for kind, v in each.items()})

    def fitted(self, name, targets, start, *, weighted, follows=None):
        self.asked.append((name, [int(t[0]) for t, _, _ in targets], start, weighted, follows))
        shift = torch.full((2,), 0.2).double() if self.per_count else torch.zeros(0).double()
        nu = self.script.get("nu", 5.0)
        return self._of(name, LocalGP(start, 0.1, 0.0, nu, shift, (), weighted=weighted, follows=follows))

    def rivals(self, starts, targets, *, weighted):
        return [self.fitted(name, targets, start, weighted=weighted) for name, start in starts.items()]

    def judged(self, gp):
        if len(gp.count_shift) and bool((gp.count_shift == 0).all()):
            return self._of("still", gp)
        if float(gp.kernel.log_lengthscale[0, 0]) < -1.0:
            return self._of("places", gp)
        return self._of("plain" if not gp.weighted else "again", gp)

    def likelier(self, gp, stage, kernel, by=0.0):
        name = kernel.over_time if "time" in stage else kernel.smoothness[0]
        self.asked.append((stage, name, by) if by else (stage, name))
        return replace(gp, tau2=0.9, kernel=kernel) if self.script.get(stage) else gp

    def crowded(self, plain):
        self.asked.append(("crowded",))
        return plain

    def noisier(self, plain):
        self.asked.append(("noisier",))
        return plain

    def of_times(self, gp):
        return replace(gp, tau2=0.7) if self.script.get("of times") else gp

    def nats(self, one, other):
        return self.script.get("nats", 0.0)

    def taken_together(self, gp):
        self.asked.append(("together",))
        return replace(gp, s2=0.8)


@pytest.fixture
def best():
    def run(script=None, in_time=False, **changes):
        Scripted.script, Scripted.asked = {"first": 0.0} | (script or {}), []
        t = trials_of(in_time=in_time, cls=Scripted, **changes)
        return best_local_gp(t, kernel_of(in_time)), Scripted.asked

    yield run
    Scripted.script, Scripted.asked = {}, []


def names(asked):
    return [name for name, *_ in asked]


def test_over_space_rough_kernels_and_gaps_are_tried(best):
    gp, asked = best()
    assert names(asked) == ["first", "rough", "gaps"]
    (_, rows, start, weighted, _), (_, again, rough, _, _), (_, mixed, last, _, _) = asked
    assert rows == again == [0, 10, 20] and weighted is True
    assert rough.smoothness == ("matern12",) * 2 and start.smoothness == last.smoothness == ("matern32",) * 2
    assert mixed == [0, 100, 10, 110, 20, 200]
    assert gp.kernel is start and gp.weighted
    gp, asked = best({"rough": 0.1})
    assert gp.kernel.smoothness == asked[-1][2].smoothness == ("matern12",) * 2
    gp, asked = best({"gaps": 0.1})
    assert gp.kernel is asked[-1][2]
    o = FieldOptions(varying=0, components=(("matern32", 1.0, 1.0),))
    assert names(best(options=o)[1]) == ["first", "gaps"]
    assert names(best(left_out=SETS | {"blocks": []})[1]) == ["first", "rough"]


class Few(Scripted):
    each_together = True


@pytest.mark.parametrize("in_time", [False, True])
def test_of_few_rows_short_lengths_along_covariates_are_tried_too(in_time, monkeypatch):
    monkeypatch.setattr(choose, "SHORT_FROM", len(trials_of(in_time=in_time, cls=Few).y))
    start, axes = kernel_of(in_time), 3 if in_time else 2
    covariate = torch.full((2, 1), 4.0).double().log()
    start = replace(start, log_lengthscale=torch.cat([start.log_lengthscale, covariate], 1))
    surely, perhaps = {"rows": [0.1, 0.2, 0.3]}, {"rows": [-0.9, 0.2, 1.1]}
    for script, taken in (({}, "first"), ({"short": surely}, "short"), ({"short": perhaps}, "first")):
        Scripted.script, Scripted.asked = {"first": 0.0} | script, []
        gp = best_local_gp(trials_of(in_time=in_time, cls=Few), start)
        asked = {name: kernel for name, _, kernel, *_ in (a for a in Scripted.asked if len(a) == 5)}
        assert "short" in asked and torch.equal(gp.kernel.log_lengthscale, asked[taken].log_lengthscale)
        short = asked["short"].log_lengthscale.exp()
        torch.testing.assert_close(short[:, axes], torch.full((2,), 0.5).double())
        assert torch.equal(asked["short"].log_lengthscale[:, :axes], start.log_lengthscale[:, :axes])
    for cls, kernel in ((Few, kernel_of(in_time)), (Scripted, start)):
        Scripted.script, Scripted.asked = {"first": 0.0}, []
        best_local_gp(trials_of(in_time=in_time, cls=cls), kernel)
        assert "short" not in names(Scripted.asked)
    monkeypatch.setattr(choose, "SHORT_FROM", choose.SHORT_FROM + 1)
    best_local_gp(trials_of(in_time=in_time, cls=Few), start)
    assert "short" not in names(Scripted.asked)
    Scripted.script, Scripted.asked = {}, []


@pytest.mark.parametrize("in_time", [False, True])
def test_of_few_rows_a_first_term_of_single_places_is_begun_with_too(in_time, best):
    surely, perhaps = {"rows": [-0.4, -0.2, -0.3]}, {"rows": [-0.9, 0.2, 0.1]}
    for script, taken in (
        ({"nats": 3.9}, "first"),
        ({"nats": 4.1, "places": perhaps}, "places"),
        ({"nats": 99.0, "places": surely}, "first"),
    ):
        gp, asked = best(script | {"again": 0.0}, in_time, n=600)
        started = {a[0]: a[2] for a in asked if len(a) == 5}
        assert torch.equal(gp.kernel.log_lengthscale, started[taken].log_lengthscale)
        assert ("places, rough" in names(asked)) == (not in_time and script["nats"] > 4.0)
        first, places = started["first"].log_lengthscale, started["places"].log_lengthscale
        torch.testing.assert_close(SPACINGS * places[0, :2].exp(), torch.full((2,), 0.3).double())
        assert torch.equal(places[1], first[1]) and torch.equal(places[:, 2:], first[:, 2:])
    for how in (
        {"n": 299},
        {"n": 1000},
        {"options": FieldOptions(varying=0, components=((ROUGH, 1.0, 1.0),))},
    ):
        assert "places" not in names(best(None, in_time, **({"n": 600} | how))[1])


def test_waves_along_a_covariate_are_found_in_few_rows():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.uniform(0, 100, (900, 2)), rng.uniform(0, 1, 900)])
    f = 1.5 * np.sin(12 * np.pi * X[:, 2]) + np.sin(X[:, 0] / 15)
    y = f + 0.2 * rng.normal(size=900)
    model = geogp.GPRegressor(spatial=(0, 1), random_state=0).fit(X[:450], y[:450])
    assert np.sqrt(np.mean((model.predict(X[450:]) - f[450:]) ** 2)) < 0.3


def test_in_time_single_rows_and_blocks_go_together_and_the_wide_part_alone_is_tried(best):
    gp, asked = best(in_time=True)
    assert names(asked) == ["first", "wide", "smooth in time"]
    assert asked[0][1] == asked[1][1] == [0, 10, 100, 20, 0, 110]
    assert len(asked[1][2].smoothness) == 1 and torch.equal(
        asked[1][2].log_lengthscale, kernel_of(True).log_lengthscale[1:]
    )
    assert len(gp.kernel.smoothness) == 2
    assert len(best({"wide": 0.1}, in_time=True)[0].kernel.smoothness) == 1
    _, asked = best(in_time=True, left_out=SETS | {"blocks": []})
    assert asked[0][1] == [0, 10, 20]


def test_a_single_part_in_time_is_tried_once():
    Scripted.script, Scripted.asked = {"first": 0.0}, []
    best_local_gp(trials_of(in_time=True, cls=Scripted), kernel_of(True, terms=1))
    assert names(Scripted.asked) == ["first", "smooth in time"]


def test_a_surface_may_be_smooth_in_time_where_rows_ahead_surely_gain(best):
    gp, asked = best({"wide": 0.1}, in_time=True)
    (_, rows, first, *_), _, (_, again, start, weighted, _) = asked
    assert first.over_time == gp.kernel.over_time == "matern12" and again == rows and weighted
    assert start.over_time == "matern32" and len(start.smoothness) == 1  # from the best
    for smooth, rows, ahead in (
        (True, [0.0, 0.0, 0.0], [0.1, 0.2, 0.3]),
        (False, [-0.3, -0.3, -0.3], [0.1, 0.2, 0.3]),  # all kinds together lose
        (False, [0.9, 0.9, 0.9], [-0.9, 0.2, 1.1]),
        (False, [0.9, 0.9, 0.9], [0.029, 0.029, 0.029]),
    ):
        script = {
            "first": {"rows": [0.0] * 3, "future": [0.0] * 3},
            "wide": {"rows": [-1.0] * 3, "future": [0.0] * 3},
            "smooth in time": {"rows": rows, "future": ahead},
        }
        gp = best(script, in_time=True)[0]
        assert gp.kernel.over_time == ("matern32" if smooth else "matern12")
    assert names(best(in_time=True, left_out=SETS | {"future": []})[1]) == ["first", "wide"]
    asked_for = FieldOptions(components=(("matern32", 5.0, 4.0),))
    assert names(best(in_time=True, options=asked_for)[1]) == ["first", "wide"]


@pytest.mark.parametrize("smooth", [False, True])
def test_of_few_rows_the_likelihood_tells_how_smooth_they_are_in_time(best, smooth):
    gp, asked = best({"smooth in time": smooth, "plain": 9.0}, in_time=True, n=600)
    # How noisy places are is asked last, as over space.
    assert asked[-2:] == [("smooth in time", "matern32", 2.0), ("noisier",)]
    assert gp.kernel.over_time == ("matern32" if smooth else "matern12")


def test_heavy_tails_are_weighed_where_that_predicts_better(best):
    gp, asked = best({"plain": 0.1, "first, unweighted": 0.05, "rough, unweighted": 0.2})
    assert names(asked) == ["first", "rough", "first, unweighted", "rough, unweighted", "gaps"]
    assert [a[3] for a in asked] == [True, True, False, False, False] and not gp.weighted
    assert gp.kernel.smoothness == ("matern12",) * 2  # of the best
    assert names(best({"plain": 0.0})[1]) == ["first", "rough", "gaps"]
    # Nothing to weigh where tails are not heavy.
    assert names(best({"plain": 0.1, "nu": None})[1]) == ["first", "rough", "gaps"]


@pytest.mark.parametrize("on_a_line", [False, True])
@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("smooth", [False, True])
def test_of_few_rows_the_likelihood_tells_how_rough_a_surface_is(best, on_a_line, rough, smooth):
    t = trials_of(600)
    X = torch.stack([t.X[:, 0], torch.zeros(600).double()], 1) if on_a_line else t.X
    gp, asked = best({"rough": rough, "smooth": smooth, "plain": 9.0}, n=600, X=X)
    wanted = [("rough", "matern12")] + ([] if rough else [("smooth", "matern52", 2.0)])
    assert asked[2:] == [*wanted, ("crowded",), ("noisier",)]
    assert (
        gp.kernel.smoothness == (("matern12",) if rough else ("matern52",) if smooth else ("matern32",)) * 2
    )


@pytest.mark.parametrize(("n", "covariates", "by"), [(249, 0, -1.0), (250, 0, 0.0), (249, 1, 0.0)])
def test_of_very_few_rows_a_surface_may_be_rough_unless_they_say_otherwise(best, n, covariates, by):
    asked = best({"plain": 9.0}, n=n, X=torch.rand(n, 2 + covariates).double())[1]
    assert ("rough", "matern12", *([by] if by else [])) in asked


def test_of_more_rows_the_best_alone_is_taken_together(best):
    gp, asked = best(n=5000)
    assert names(asked) == ["first", "rough", "together", "noisier"] and gp.s2 == 0.8
    bent = best({"varying": 0.1}, n=5000, options=FieldOptions(varying=4))
    assert names(bent[1]) == ["first", "rough", "varying"] and bent[0].kernel.variation is not None


@pytest.mark.parametrize(
    ("n", "in_time", "varying", "places"),
    [(20_000, False, None, 16), (10_000, False, None, 16), (9_999, False, None, 0), (20_000, True, None, 0),
     (20_000, True, 5, 5), (20_000, False, 0, 0)],
)  # fmt: skip
def test_lengths_may_vary_where_rows_are_many_or_it_is_asked_for(best, n, in_time, varying, places):
    gp, asked = best({"varying": 0.1}, n=n, in_time=in_time, options=FieldOptions(varying=varying))
    tried = [a for a in asked if a[0] == "varying"]
    assert bool(tried) == bool(places)
    if places:
        assert tried[0][1] == asked[0][1] and tried[0][2].variation.centres.shape == (places, 2)
        assert gp.kernel.variation is not None
        assert (
            best({}, n=n, in_time=in_time, options=FieldOptions(varying=varying))[0].kernel.variation is None
        )


@pytest.mark.parametrize("in_time", [False, True])
def test_places_are_followed_where_no_kind_loses(best, in_time):
    t = trials_of(300, in_time=in_time)
    lengths = Told.over(t.X, t.y, t.counts, ToldNoise.over(t.X, t.y, t.counts).noise)
    says = lengths.says(torch.arange(300))
    changes = {"follows": lengths.start, "says": says, "in_time": in_time}
    gp, asked = best({"following": 0.0}, **changes)
    _, rows, _, weighted, follows = asked[-1]
    assert asked[-1][0] == "following" and follows is lengths.start and weighted
    assert rows == ([0, 10, 100, 20, 0, 110] if in_time else [0, 10, 100, 20, 0, 110, 10, 20, 200])
    torch.testing.assert_close(gp.kernel.variation.lengthscale, (says @ lengths.start.coefficients)[:, 0])
    gp, _ = best({"following": -0.1}, **changes)
    assert gp.kernel.variation is None
    _, asked = best({}, **changes, left_out=SETS | {"blocks": []})
    assert asked[-1][0] == "following" and asked[-1][1] == [0, 10, 20]
    # What varies already follows nothing.
    _, asked = best({"varying": 0.1}, **changes, options=FieldOptions(varying=3))
    assert "following" not in names(asked)


@pytest.mark.parametrize(("still", "kept"), [(-0.1, True), (0.1, False)])
@pytest.mark.parametrize("n", [5000, 20_000])
def test_a_mean_that_shifts_with_the_count_must_gain(best, still, kept, n):
    script = {"still": still, "again": 0.0}
    gp, _ = best(script, n=n, per_count=True)
    assert bool((gp.count_shift != 0).all()) == kept
    assert len(best(script, n=n)[0].count_shift) == 0
    # What all rows have changed is judged anew, what they have not is as it was judged.
    gp, _ = best({"still": -0.1, "again": -0.2}, n=n, per_count=True)
    assert bool((gp.count_shift != 0).all()) == (n == 20_000)


@pytest.mark.parametrize("nu", [None, 5.0])
@pytest.mark.parametrize(
    ("n", "in_time", "gain", "taken"),
    [
        (1000, True, 0.029, False), (1000, True, 0.031, True), (1000, False, 0.01, True), (999, True, 0.01, True),
        (999, True, -0.01, False),
    ],
)  # fmt: skip
def test_of_many_rows_in_time_a_noise_of_places_must_gain_more(monkeypatch, n, in_time, gain, taken, nu):
    """They have networks that tell it."""

    def of(density):
        gp = LocalGP(kernel_of(in_time), 0.1, 0.0, nu, torch.zeros(0).double(), ())
        return Candidate(gp, {"rows": torch.full((50,), density).double()})

    plain, other = of(-1.0), of(-1.0 + gain)
    monkeypatch.setattr(Trials, "_varied", lambda *_, **__: other)
    monkeypatch.setattr(Trials, "judged", lambda *_: of(-2.0))  # without tails it is worse
    assert trials_of(n, in_time).noisier(plain) is (other if taken else plain)


@pytest.mark.parametrize(("gain", "taken"), [(0.029, False), (0.031, True)])
def test_so_must_one_without_tails(monkeypatch, gain, taken):
    """Where the one with tails is refused."""

    def of(density, nu):
        gp = LocalGP(kernel_of(True), 0.1, 0.0, nu, torch.zeros(0).double(), ())
        return Candidate(gp, {"rows": torch.full((50,), density).double()})

    plain, without = of(-1.0, 5.0), of(-1.0 + gain, None)
    monkeypatch.setattr(Trials, "_varied", lambda *_, **__: of(-1.0, 5.0))
    monkeypatch.setattr(Trials, "judged", lambda *_: without)
    assert trials_of(1000, True).noisier(plain) is (without if taken else plain)


@pytest.mark.parametrize("in_time", [False, True])
def test_the_noise_of_times_is_asked_for_last_and_in_time_alone(in_time):
    Scripted.script, Scripted.asked = {"first": 0.0, "of times": True}, []
    gp = best_local_gp(trials_of(in_time=in_time, cls=Scripted), kernel_of(in_time))
    assert (gp.tau2 == 0.7) is in_time
    Scripted.script, Scripted.asked = {}, []


# -- how held-out rows judge ----------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("nu", [None, 5.0])
def test_densities_are_those_of_rows_given_their_neighbours(monkeypatch, nu, weighted):
    t = trials_of(60, per_count=True)
    told = ToldNoise.over(t.X, t.y, t.counts)
    some = 0.3 * torch.randn(told.noise.coefficients.shape, generator=torch.Generator().manual_seed(0))
    told = replace(told, noise=replace(told.noise, coefficients=some.double()))
    gp = LocalGP(
        kernel_of(), 0.2, 0.4, nu, torch.tensor([0.3, -0.1]).double(), (), weighted=weighted, rows=told.noise
    )
    rng = np.random.default_rng(2)
    sets = [(torch.arange(k, k + 7), torch.from_numpy(rng.integers(20, 60, (7, 5))), None) for k in (0, 10)]
    for at_once in (1000, 3):
        monkeypatch.setattr(held_out, "PLACES_AT_ONCE", at_once)
        found = held_out_densities(gp, replace(t, told=told), sets)
        wanted = []
        for rows, index, _ in sets:
            noise = gp.noise_variance(t.counts, t.X, told.says)
            known = noise if weighted or nu is None else noise * nu / (nu - 2)
            value = t.y - gp.b(t.counts)
            c = conditional_moments(gp.kernel, t.X[rows], t.X, value, known, index, nu if weighted else None)
            df = None if nu is None else torch.tensor(nu).double()
            wanted.append(log_density(value[rows], c.mean, c.variance + noise[rows], df))
        torch.testing.assert_close(found, torch.cat(wanted))
    plain = held_out_densities(replace(gp, rows=None), t, sets)
    assert not torch.allclose(plain, found)
    judged = replace(
        t, judges={"rows": sets[:1], "blocks": [], "sides": sets[1:], "future": []}, told=told
    ).judged(gp)
    assert list(judged.each) == ["rows", "sides"]
    torch.testing.assert_close(torch.cat(list(judged.each.values())), found)

"""What the smooth noise is taught by: rows left out, each kind alike, validation rows as a kind of their own, and squares."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.calibrate import fit_calibration
from geogp.field.left_out import LeftOut
from geogp.field.noise import fit as noise_fit
from geogp.field.noise.fit import (
    calibration_of,
    fit_noise,
    fit_noise_and_calibration,
    fit_noise_and_warp,
    held_out_rows,
    squares,
)  # fmt: skip
from geogp.field.noise.judged import surely_better
from geogp.field.noise.members import Dealt
from geogp.field.noise.rows import ToldNoise
from geogp.field.noise.smooth import new_smooth_noise
from geogp.field.predict.moments import moments_of
from geogp.field.predict.outlook import noise_inputs, outlook
from geogp.field.stages import Stages
from geogp.field.surroundings import NAMES
from geogp.field.variation.told import Told
from geogp.predictive import Peak, Predictive
from geogp.transforms import Warp
from tests.geogp.test_conditioned import ahead, known_of

SMALL = {"smooth": True, "hidden": 6, "members": 3, "epochs": 1, "n_targets": 40, "seed": 3}


def left_out(known, kind, rows):
    inside = torch.ones(len(known.seen), dtype=torch.bool)
    inside[rows] = False
    reference = torch.nonzero(inside)[:, 0]
    near = known.frame.near(known.seen.X)
    order = torch.cdist(near[rows], near[reference]).argsort(1)[:, :12]
    return LeftOut(kind, inside, torch.as_tensor(rows), reference[order])


def world_of(**how):
    known, X = known_of(nu=6.0, **SMALL, **how)
    value, counts = known.seen.value, known.seen.counts
    noise = ToldNoise.over(known.seen.X, value, counts).noise
    lengths = Told.over(known.seen.X, value, counts, noise)
    some = torch.randn(len(noise.center), 2, generator=torch.Generator().manual_seed(0)).double()
    follows = replace(lengths.start, coefficients=0.3 * some)
    gp = replace(known.gp, follows=follows, rows=replace(noise, coefficients=0.4 * some))
    known = replace(known, gp=gp, lengths=lengths, seen=gp.observed(known.seen.X, value, counts))
    out = [
        left_out(known, kind, rows)
        for kind, rows in (
            ("rows", [3, 50, 90]), ("blocks", [7, 8, 9, 10]), ("sides", list(range(100, 125))), ("rows", [4, 5]), ("future", [11, 23]),
        )
    ]  # fmt: skip
    return known, X, out


@pytest.fixture(scope="module")
def world():
    return world_of()


def square_of(C, spacings):
    cell = np.floor(C[:, :2].numpy() * 3.5 / spacings).astype(np.int64) + 2**30
    return cell[:, 0] * 2**31 + cell[:, 1]


def test_rows_are_told_by_what_is_known_without_them():
    known, X, out = world_of(covariate=False)
    tables = dict(
        zip(("rows", "blocks", "sides", "future"), held_out_rows(known, out, X, Stages()), strict=True)
    )
    assert {kind: len(t) for kind, t in tables.items()} == {"rows": 5, "blocks": 4, "sides": 25, "future": 2}
    seen, zero = dict.fromkeys(tables, 0), False
    for one in out:
        start = seen[one.kind]
        seen[one.kind] += len(one.rows)
        t = tables[one.kind].at(slice(start, seen[one.kind]))
        C, reference = known.seen.X[one.rows], one.reference
        near = one.neighbours.unique()
        zero |= bool(near[0] == 0)
        gap = one.kind in ("blocks", "sides")
        around = known.survey(
            C, one.neighbours, known.frame.newest(known.seen.X[reference]),
            given=known.left_given(reference, near), kernel=known.kernel_given(reference) if gap else None,
        )  # fmt: skip
        drift = known.drift_given(reference) if one.kind == "sides" else known.drift
        change, uncertain = known.drift.extra(C, around.leaning, drift)
        torch.testing.assert_close(t.mean, around.mean + change)
        torch.testing.assert_close(t.variance, around.variance)
        torch.testing.assert_close(t.drift_variance, uncertain)
        assert (change.abs() > 1e-6).all() == (one.kind == "sides")
        surface = known.regional_given(reference).at_observations(one.rows)
        inputs = noise_inputs(known, around.moved(change), known.seen.counts[one.rows], X[one.rows], surface)
        torch.testing.assert_close(t.features, inputs)
        assert torch.equal(t.counts, known.seen.counts[one.rows]) and torch.equal(
            t.value, known.left.value[one.rows]
        )
        assert (t.weight == (0.3 if one.kind == "sides" else 1.0)).all()
        assert torch.allclose(t.vote, torch.tensor(0.3 * 10 / 25 if one.kind == "sides" else 1.0).double())
        assert t.square.tolist() == square_of(C, 10.0).tolist() and (t.square >= 0).all()
    assert zero  # the first row of all tells, too


@pytest.mark.parametrize(("kind", "nu"), [("rows", None), ("blocks", None), ("sides", None), ("rows", 6.0)])
def test_with_covariates_rows_are_told_by_as_many_as_predictions_rest_on(kind, nu):
    """Dense algebra given all other rows, of which each row has twelve as neighbours; weighed rows by what a prediction says."""
    known, X = known_of(60, nu=nu, **SMALL | {"neighbours": 60})
    rows = [3, 50, 9, 10, 11]
    out = left_out(known, kind, rows)
    assert out.neighbours.shape == (5, 12) and known.rows_a_cell == 60
    (t,) = held_out_rows(known, [out], X, Stages())
    drift = known.drift_given(out.reference) if kind == "sides" else known.drift
    C, seen = known.seen.X[rows], known.seen.at(out.reference)
    if nu is not None:
        places = outlook(replace(known, seen=seen), X[rows], known.seen.counts[rows])
        torch.testing.assert_close(t.mean, places.around.mean)
        assert (places.around.mean - known.survey(C, out.neighbours, known.latest).mean).abs().max() > 0.01
        return
    K = known.gp.kernel(seen.X, seen.X) + torch.diag(seen.noise_variance)
    c = torch.linalg.solve(K, known.gp.kernel(seen.X, C))
    phi, columns = drift.columns(seen.X), drift.columns(C)
    mean = columns @ (drift.weights - known.drift.weights) + c.T @ (seen.value - phi @ drift.weights)
    torch.testing.assert_close(t.mean, mean)
    torch.testing.assert_close(t.features[:, NAMES.index("mean")], mean)
    left = known.gp.kernel.prior_at(C) - (c * known.gp.kernel(seen.X, C)).sum(0)
    torch.testing.assert_close(t.variance, left)
    open_ = columns - c.T @ phi
    torch.testing.assert_close(t.drift_variance, (open_ @ drift.covariance * open_).sum(-1))


def test_with_covariates_rows_left_out_have_no_say_in_lengths_and_noise(world):
    known, X, out = world
    for one in (out[0], out[1]):
        (t,) = held_out_rows(known, [one], X, Stages())
        gp, seen = known.gp, known.seen.at(one.reference)
        if one.kind == "blocks":
            gp = replace(gp, kernel=known.kernel_given(one.reference))
        seen = gp.observed(seen.X, seen.value, seen.counts)
        there = outlook(replace(known, gp=gp, seen=seen), X[one.rows], known.seen.counts[one.rows])
        torch.testing.assert_close(t.mean, there.around.mean)
        torch.testing.assert_close(t.variance, there.around.variance)
        with_all = outlook(
            replace(known, seen=known.seen.at(one.reference)), X[one.rows], known.seen.counts[one.rows]
        )
        assert (with_all.around.variance - t.variance).abs().max() > 1e-6


def test_a_side_of_few_rows_has_their_votes(world):
    known, X, _ = world
    (table,) = held_out_rows(known, [left_out(known, "sides", list(range(8)))], X, Stages())
    assert (table.vote == 0.3).all() and (table.weight == 0.3).all()
    bare = replace(known, options=replace(known.options, regional=None))
    (other,) = held_out_rows(bare, [left_out(known, "rows", [3, 4])], X, Stages())
    assert other.features.shape[1] == table.features.shape[1] - 4


@pytest.fixture
def taught(monkeypatch):
    """What a fit of the noise is given, instead of the fit."""
    asked = {}

    def fit(model, rows, prior_variance, dealt, **how):
        asked.update(how, model=model, rows=rows, prior=prior_variance, dealt=dealt)
        asked.setdefault("all", []).append(model)
        model.last.bias.data.fill_(0.1)

    monkeypatch.setattr(noise_fit, "fit_smooth_noise", fit)
    return asked


@pytest.mark.parametrize(
    ("n_targets", "heard", "epochs"),
    [(40, 12.0, 13), (161, 12.0, 13), (161, 3.0, 3), (161, 0.2, 1), (161, 99.0, 20)],
)
def test_few_rows_over_and_over_are_gone_through_fewer_times(
    world, taught, monkeypatch, n_targets, heard, epochs
):
    """146 that were left out of 160; never more often than the options say, whatever is asked for of a kind."""
    known, X, out = world
    known = replace(known, options=replace(known.options, n_targets=n_targets, epochs=20))
    monkeypatch.setattr(noise_fit, "HEARD", heard)
    fit_noise(known, held_out_rows(known, [*out, *5 * out[:2], *3 * out[2:3]], X, Stages()), Stages())
    assert taught["epochs"] == epochs and len(taught["rows"]) == 146


@pytest.mark.parametrize(("votes", "share"), [(0.05, 8 / 36), (0.1, 16 / 36), (1.0, 1.0)])
def test_rows_that_are_left_out_often_have_no_more_votes(world, taught, monkeypatch, votes, share):
    """36 of 160 rows were: so many votes a row of the table at most, and what is learned from each stays."""
    known, X, out = world
    kinds = held_out_rows(known, out, X, Stages())
    asked = kinds[0]
    monkeypatch.setattr(noise_fit, "VOTES", votes)
    fit_noise(known, kinds, Stages(), asked)
    rows = taught["rows"]
    vote = torch.cat([t.vote * 9 / len(t) * share for t in kinds] + [asked.vote])
    torch.testing.assert_close(rows.vote, vote)
    torch.testing.assert_close(
        rows.weight, torch.cat([t.weight * 9 / len(t) for t in kinds] + [asked.weight])
    )


def test_each_kind_counts_alike_however_many_rows_it_has(world, taught):
    known, X, out = world
    kinds = held_out_rows(known, out, X, Stages())
    ticks = []
    stages = Stages(report=ticks.append)
    model = fit_noise(known, kinds, stages).noise
    rows, typical = taught["rows"], 36 / 4
    weight = torch.cat([t.weight * typical / len(t) for t in kinds])
    vote = torch.cat([t.vote * typical / len(t) for t in kinds])
    torch.testing.assert_close(rows.weight, weight)
    torch.testing.assert_close(rows.vote, vote)
    assert torch.equal(rows.features, torch.cat([t.features for t in kinds]))
    assert (taught["epochs"], taught["seed"]) == (1, 3)
    told = len(ticks)
    taught["tick"]()
    assert len(ticks) == told + 1
    assert taught["prior"] == known.gp.kernel.prior_variance
    wanted = Dealt.of(rows.square, 3, 3)
    assert torch.equal(taught["dealt"].without, wanted.without) and torch.equal(
        taught["dealt"].square, wanted.square
    )
    fresh = new_smooth_noise(
        rows.features.shape[1], hidden=6, members=3, seed=3, spread=NAMES.index("log_spread")
    )
    assert torch.equal(model.first.weight, fresh.first.weight) and model.spread == fresh.spread
    assert not model.training and (model.last.bias == 0.1).all()
    np.testing.assert_allclose(model.intercept.detach().exp(), [0.1, 0.5, 3.9, 1.0], rtol=1e-5)
    assert any(name.startswith("members of the noises/") for name in stages.known)


def test_where_counts_are_alike_none_is_of_single_tests_and_tails_begin_at_thirty(taught):
    known, X = known_of(counts_differ=False, **SMALL)
    kinds = held_out_rows(known, [left_out(known, "rows", [1, 2])], X, Stages())
    model = fit_noise(known, kinds, Stages()).noise
    np.testing.assert_allclose(model.intercept.detach().exp(), [0.1, 1e-6, 27.9, 1.0], rtol=1e-5)


@pytest.mark.parametrize("n", [30, 100])
def test_validation_rows_are_a_kind_that_cannot_outvote_the_rest(world, taught, n):
    known, X, out = world
    kinds = held_out_rows(known, out, X, Stages())
    new = ahead(X[:n], 0.3)
    new[:, :2] += 1.1
    y, counts = torch.sin(new[:, 0]), torch.arange(1.0, n + 1.0).double()
    noise, calibration, warp = fit_noise_and_calibration(known, kinds, (new, y, counts), Stages())
    order = noise_fit.canonical(new, y, counts, known.frame.space, known.frame.time)
    here = outlook(known, order[0], order[2])
    square = -1 - square_of(known.frame.coordinates(order[0]), 30.0)
    rows = taught["rows"].at(slice(36, None))
    keep = slice(None)
    if n > 40:  # as many as of each other kind
        keep = torch.from_numpy(np.sort(np.random.default_rng(3).choice(n, 40, replace=False)))
    some = min(n, 40)
    assert torch.equal(rows.features, here.inputs[keep]) and torch.equal(rows.counts, here.counts[keep])
    torch.testing.assert_close(rows.value, (order[1] - here.prior_mean)[keep])
    torch.testing.assert_close(rows.mean, here.around.mean[keep])
    torch.testing.assert_close(rows.variance, here.around.variance[keep])
    torch.testing.assert_close(rows.drift_variance, here.drift_variance[keep])
    assert torch.equal(rows.square, torch.from_numpy(square)[keep])
    share = torch.full((some,), min(1.0, 9.0 / some)).double()
    torch.testing.assert_close(rows.weight, share)
    torch.testing.assert_close(rows.vote, share)
    both = torch.cat([*(t.square for t in kinds), torch.from_numpy(square)])
    wanted = Dealt.of(both, 3, 3)
    assert torch.equal(taught["dealt"].square, wanted.square) and torch.equal(
        taught["dealt"].without, wanted.without
    )
    # Calibrated by members that have not learned from the squares they judge.
    miss = moments_of(known, here, noise, wanted.rows(torch.from_numpy(square))).misses(order[1])
    assert calibration == fit_calibration(miss, here.group, cluster=squares(known.frame, order[0]))
    assert warp is None  # so few rows tell of none


def test_few_validation_rows_count_fully(world, taught):
    known, X, out = world
    kinds = held_out_rows(known, out, X, Stages())
    fit_noise_and_calibration(known, kinds, (X[:5] + 0.1, X[:5, 0], None), Stages())
    assert taught["rows"].weight[36:].tolist() == [1.0] * 5


@pytest.mark.parametrize(
    ("n_targets", "n", "weight"), [(161, 1, 6.0), (81, 1, 6.0), (80, 1, 1.0), (161, 5, 9 / 5), (161, 18, 0.5)]
)
def test_those_of_a_small_table_weigh_as_a_kind_but_none_as_more_than_six(
    world, taught, n_targets, n, weight
):
    """As 36 rows of four kinds; where members are judged each has one vote at most."""
    known, X, out = world
    known = replace(known, options=replace(known.options, n_targets=n_targets))
    kinds = held_out_rows(known, out, X, Stages())
    fit_noise_and_calibration(known, kinds, (X[:n] + 0.1, X[:n, 0], None), Stages())
    rows = taught["rows"].at(slice(36, None))
    assert rows.weight.tolist() == pytest.approx([weight] * n)
    assert rows.vote.tolist() == pytest.approx([min(1.0, weight)] * n)


@pytest.mark.parametrize("smooth", [False, True])
def test_a_noise_that_is_there_is_calibrated_by_its_misses(world, smooth):
    known, X, _ = world
    noise = None
    if smooth:
        inputs = outlook(known, X, None).inputs
        noise = new_smooth_noise(inputs.shape[1], hidden=6, members=3)
        noise.start_from(inputs, 0.1, 0.2, 8.0)
    y, counts = torch.sin(X[:, 0]), torch.arange(1.0, 161.0)
    found = calibration_of(known, noise, (X.float(), y, counts))
    here = outlook(known, X.float().double(), counts)
    miss = moments_of(known, here, noise).misses(y)
    assert found == fit_calibration(miss, here.group, cluster=squares(known.frame, X.float().double()))


def test_rows_within_thirty_spacings_share_their_luck(world):
    known, X, _ = world
    wide = 40.0 * X
    found, wanted = squares(known.frame, wide), square_of(known.frame.coordinates(wide), 30.0)
    assert len(np.unique(found)) == len(np.unique(wanted)) > 20
    pairs = {(a, b) for a, b in zip(found.tolist(), wanted.tolist())}
    assert len(pairs) == len(np.unique(wanted))


def test_a_warp_is_learned_of_what_members_say_that_have_not_seen_a_row(world, taught, monkeypatch):
    """Each kind of missing data counts alike, values are those of the target, what is uncertain of the drift counts in."""
    known, X, out = world
    told = {}

    def learn(parts, value, counts, weight, square, seed, kind):
        told.update(
            parts=parts, value=value, counts=counts, weight=weight, square=square, seed=seed, kind=kind
        )
        return Warp(np.array([-1.0, 0.0, 1.0]), np.ones(3), np.array([1.0, 9.0, 1.0]), (0.3, 0.5), 2.0)

    monkeypatch.setattr(noise_fit, "learned_warp", learn)
    kinds = held_out_rows(known, out, X, Stages())
    noise, calibration, warp = fit_noise_and_warp(known, kinds, Stages())
    assert calibration is None and told["seed"] == 3
    rows, dealt = taught["rows"], taught["dealt"]
    C = torch.cat([known.seen.X[one.rows] for kind in ("rows", "blocks", "sides", "future") for one in out if one.kind == kind])  # fmt: skip
    np.testing.assert_allclose(rows.level, known.prior_mean(C, rows.counts))
    assert torch.equal(told["value"], rows.value + rows.level) and torch.equal(told["counts"], rows.counts)
    assert torch.equal(told["square"], rows.square)
    assert torch.bincount(told["kind"]).tolist() == [len(t) for t in kinds] and bool(
        (told["kind"].diff() >= 0).all()
    )
    sums = [float(part.sum()) for part in told["weight"].split([len(t) for t in kinds])]
    np.testing.assert_allclose(sums, [1.0, 1.0, 0.3, 1.0])
    with torch.no_grad():
        own = noise(
            rows.features, rows.mean, rows.variance, known.gp.kernel.prior_variance, rows.counts, dealt.rows(rows.square),
        )  # fmt: skip
    torch.testing.assert_close(told["parts"].location, own.location + rows.level)
    torch.testing.assert_close(told["parts"].latent_variance, own.latent_variance + rows.drift_variance)
    assert torch.equal(told["parts"].noise_variance, own.noise_variance)
    # Calibration looks at misses where the scale is bent.
    y = torch.sin(X[:30, 0])
    validation = (ahead(X[:30], 0.3), y, torch.arange(1.0, 31.0).double())
    _, calibration, warp = fit_noise_and_calibration(known, kinds, validation, Stages())
    assert len(told["value"]) == len(rows) + 30
    order = noise_fit.canonical(*validation, known.frame.space, known.frame.time)
    here = outlook(known, order[0], order[2])
    asked = -1 - torch.from_numpy(square_of(known.frame.coordinates(order[0]), 30.0))
    v = torch.from_numpy(warp.forward(order[1].numpy(), warp.strength(order[2].numpy())))
    miss = moments_of(known, here, noise, taught["dealt"].rows(asked)).misses(v)
    assert calibration == fit_calibration(miss, here.group, cluster=squares(known.frame, order[0]))
    bare = replace(known, options=replace(known.options, warp=False))
    assert fit_noise_and_warp(bare, kinds, Stages())[2] is None


@pytest.mark.parametrize(("better", "kept"), [(True, True), (False, False)])
def test_a_second_peak_is_kept_where_rows_not_learned_from_surely_gain(
    world, taught, monkeypatch, better, kept
):
    known, X, out = world
    kinds, asked = held_out_rows(known, out, X, Stages()), {}
    assert [bool(rows.beyond.any()) for rows in kinds] == [k == "sides" for k in {o.kind: 0 for o in out}]
    kinds[0] = replace(kinds[0], beyond=torch.arange(len(kinds[0])) % 2 == 0)

    def judge(new, old, values, square):
        asked.update(new=new, old=old, values=values, square=square)
        return better

    monkeypatch.setattr(noise_fit, "surely_better", judge)
    assert not fit_noise(known, kinds, Stages()).noise.peak and not asked  # so few rows tell of none
    monkeypatch.setattr(noise_fit, "PEAK_FROM", 10)
    del taught["all"]
    learned = fit_noise(known, kinds, Stages())
    assert learned.noise.peak == kept and sorted(m.peak for m in taught["all"]) == [False, True]
    assert asked["old"].peak is None and asked["new"].peak is not None
    rows = taught["rows"]
    assert set(asked["values"]) <= set((rows.value + rows.level)[~rows.beyond].tolist())
    # By the members that have not seen a row, and what is uncertain of the drift.
    at = [(rows.value + rows.level).tolist().index(v) for v in asked["values"]]
    some = rows.at(torch.tensor(at))
    with torch.no_grad():
        p = taught["all"][1](
            some.features, some.mean, some.variance, known.gp.kernel.prior_variance, some.counts,
            taught["dealt"].rows(some.square),
        )  # fmt: skip
    np.testing.assert_allclose(asked["new"].location, p.location + some.level)
    np.testing.assert_allclose(
        asked["new"].scale ** 2, p.latent_variance + p.noise_variance + some.drift_variance
    )
    assert torch.equal(some.square, torch.from_numpy(asked["square"]))
    monkeypatch.setattr(noise_fit, "surely_better", lambda *_: pytest.fail("asked for one peak"))
    bare = replace(known, options=replace(known.options, peak=False))
    assert not fit_noise(bare, kinds, Stages()).noise.peak
    alone = replace(known, options=replace(known.options, members=1))  # each row is learned from
    assert not fit_noise(alone, kinds, Stages()).noise.peak


def test_what_is_surely_better_gains_more_than_its_error_and_loses_no_crps():
    rng = np.random.default_rng(0)
    y, zero = rng.standard_normal(400), np.zeros(400)
    square = np.arange(400) // 4
    right, wide = Predictive(zero, zero + 1.0), Predictive(zero, zero + 1.5)
    assert surely_better(right, wide, y, square) and not surely_better(wide, right, y, square)
    assert not surely_better(right, right, y, square)
    barely = Predictive(zero, zero + 1.04)
    assert 0 < (right.log_density(y) - barely.log_density(y)).mean() < 0.003
    assert not surely_better(right, barely, y, square)
    # Likelier, but only by what one square says.
    one = Predictive(np.where(square == 0, y, 0.0), np.where(square == 0, 1e-9, 1.2))
    assert (one.log_density(y) - right.log_density(y)).mean() > 0.1
    assert not surely_better(one, right, y, square)
    # Likelier, but its CRPS is worse: mass far away.
    far = Predictive(zero, zero + 1.0, peak=Peak(np.full(400, 0.2), zero + 200.0, zero + 1.0))
    assert not surely_better(far, wide, y, square)
    odd = Predictive(zero, zero + 9.0)
    assert (far.log_density(y) - odd.log_density(y)).mean() > 1.0 and not surely_better(far, odd, y, square)


@pytest.mark.parametrize("flat", [True, False])
def test_the_noise_with_two_peaks_begins_where_rows_left_out_say(world, taught, monkeypatch, flat):
    """As far apart as their moments say where they lie at either of two values; where they lie where they are predicted, at one."""
    known, X, out = world
    monkeypatch.setattr(noise_fit, "PEAK_FROM", 10)
    monkeypatch.setattr(noise_fit, "surely_better", lambda *_: True)
    kinds = held_out_rows(known, out, X, Stages())
    sides = [2.0 * (torch.arange(len(rows)) % 2) - 1.0 for rows in kinds]
    away = [(3.0 if flat else 0.0) * side for side in sides]
    kinds = [replace(rows, value=rows.mean + d) for rows, d in zip(kinds, away, strict=True)]
    fit_noise(known, kinds, Stages())
    one, two = taught["all"]
    assert float(one.below) == 0.0
    assert float(two.below) == pytest.approx(3.0, rel=0.1) if flat else float(two.below) == 0.0

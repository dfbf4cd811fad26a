"""A local field put together by hand: what its answers are made of, and what a fit does in which order."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.calibrate import Calibration
from geogp.field import FieldOptions, LocalField
from geogp.field import fit as fit_module
from geogp.field import local_field as module
from geogp.field.frame import ISOTROPIC, frame_of
from geogp.field.joint import FieldJoint
from geogp.field.local_gp import LocalGP
from geogp.field.mean.drift import Drift, Whitened
from geogp.field.mean.trend import fit_trend
from geogp.field.noise.rows import ToldNoise
from geogp.field.noise.smooth import new_smooth_noise
from geogp.field.observations import canonical, canonical_order, typical_precision
from geogp.field.predict.moments import moments_of
from geogp.field.predict.outlook import outlook, outlooks
from geogp.field.predict.pairs import correlation
from geogp.field.stages import Stages
from geogp.field.student import left_open
from geogp.transforms import Warp
from tests.geogp.test_conditioned import ahead, known_of

CALIBRATION = Calibration(1.2, (1.1, 1.3, 0.9, 1.0, 1.4, 0.8), (900,) * 6, 0.95)


@pytest.fixture(scope="module")
def fields():
    """Without and with a smooth noise (whose prior is e^.3 as large), and raw places."""
    known, X = known_of(smooth=True, regional=None, nu=6.0, hidden=6, members=3)
    inputs = outlook(known, X, None).inputs
    noise = new_smooth_noise(inputs.shape[1], hidden=6, members=3, scales_surface=True)
    noise.start_from(inputs, 0.1, 0.2, 8.0)
    with torch.no_grad():
        noise.intercept[0] = 0.3
    at = ahead(X[:40], 0.9)
    at[:, :2] += 0.8
    return LocalField(known), LocalField(known, noise, CALIBRATION), at


def test_moments_are_those_of_the_outlook_calibrated_by_group(fields):
    for field in fields[:2]:
        at, counts = fields[2], [torch.full((40,), 2.0).double(), None]
        here = outlooks(field.known, at, [counts[0], torch.ones(40).double()])
        for places, n, found in zip(here, counts, field.moments_by_count(at, counts)):
            wanted = moments_of(field.known, places, field.noise).calibrated(field.calibration, places.group)
            for a, b, c in zip(
                vars(found).values(), vars(wanted).values(), vars(field.moments(at, n)).values()
            ):
                torch.testing.assert_close(a, b)
                torch.testing.assert_close(a, c)
        torch.testing.assert_close(
            field.moments(at.float()).location.float(),
            field.moments(at).location.float(),
            rtol=1e-3,
            atol=1e-3,
        )


def test_the_prior_is_the_kernels_by_its_factor_and_the_drifts(fields):
    bare, full, at = fields
    C = bare.frame.coordinates(at)
    drift = bare.known.drift
    for field, factor in ((bare, 1.0), (full, float(np.exp(0.3)))):
        own = factor * field.gp.kernel(C, C[:7]) + drift.covariance_of(C, C[:7])
        torch.testing.assert_close(field.prior_covariance(at, at[:7]), own, rtol=1e-6, atol=1e-9)
        each = factor * field.gp.kernel.prior_at(C) + drift.covariance_of(C, C, diagonal=True)
        torch.testing.assert_close(field.prior_variance(at), each, rtol=1e-6, atol=1e-9)


def test_errors_together_have_the_variances_of_the_moments(fields):
    _, field, at = fields
    counts = torch.full((40,), 5.0).double()
    latent = field.moments(at, counts).latent_variance
    C = field.frame.coordinates(at)
    index = field.known.neighbours_of(C)
    made = field.known.predictors(C, index)
    common = field.known.common_factor(C, made.of(field.known.columns, index))
    wanted = FieldJoint(
        field.gp.kernel, field.known.left, C, index, made, variance=latent.numpy(), common=common
    ).dense()
    np.testing.assert_allclose(field.joint(at, latent.float().double()).dense(), wanted, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(field.posterior_covariance(at, counts), wanted)
    np.testing.assert_allclose(np.diag(wanted), latent)


@pytest.mark.parametrize("at_once", [7, 2**16])
def test_two_times_of_a_place_are_asked_in_pieces(fields, monkeypatch, at_once):
    _, field, at = fields
    monkeypatch.setattr(module, "PLACES_AT_ONCE", at_once)
    later = ahead(at, 0.5)
    variance = torch.stack([field.moments(x).latent_variance for x in (at, later)])
    C = [field.frame.coordinates(x) for x in (at, later)]
    torch.testing.assert_close(field.correlation(at, later, variance), correlation(field.known, *C, variance))


def test_observations_are_less_trend_and_count_shift(fields):
    field, _, at = fields
    y, n = at[:, 0], torch.arange(1.0, 41.0)
    seen = field.observations(at.float(), y.float(), n)
    C = field.frame.coordinates(at.float().double())
    torch.testing.assert_close(seen.X, C)
    torch.testing.assert_close(seen.value, y.float().double() - field.known.level(C, n.double()))
    assert torch.equal(seen.counts, n.double())
    assert field.observations(at, y, None).counts.tolist() == [1.0] * 40
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    told, again = field.conditioned_on(seen), field.conditioned_on(seen.at(order))
    rank = canonical_order(seen.X, seen.value, seen.counts)
    assert torch.equal(told.seen.X, seen.X[torch.from_numpy(rank)]) and torch.equal(
        again.seen.value, told.seen.value
    )
    torch.testing.assert_close(
        told.seen.noise_variance,
        field.gp.observed(told.seen.X, told.seen.value, told.seen.counts).noise_variance,
    )
    assert torch.equal(told.known.drift.weights, field.known.told(told.seen).drift.weights)


def test_times_are_as_they_were_given(fields):
    field, _, _ = fields
    known, X = known_of()
    np.testing.assert_allclose(np.sort(LocalField(known).observed_times()), np.sort(X[:, 2]))
    assert field.knows_time and field.space == (0, 1) and field.seen is field.known.seen
    still = LocalField(replace(known, frame=replace(known.frame, time=None)))
    assert still.observed_times() is None and not still.knows_time


def test_its_state_is_that_of_what_it_knows(fields):
    _, field, at = fields
    again = LocalField.from_state(*field.state())
    assert again.calibration == CALIBRATION
    for a, b in zip(vars(again.moments(at)).values(), vars(field.moments(at)).values()):
        torch.testing.assert_close(a, b)


def test_calibrated_on_other_rows_nothing_else_changes(fields):
    field, _, at = fields
    found = field.calibrated_on(at, at[:, 0], None)
    assert (
        found.calibration == module.calibration_of(field.known, None, (at, at[:, 0], None))
        and found.known is field.known
    )
    # On the scale that is bent, where there is one.
    warp = Warp(np.array([-1.0, 0.0, 1.0]), np.ones(3), np.array([1.0, 9.0, 1.0]), (0.3, 0.5), 2.0)
    other = replace(field, warp=warp).calibrated_on(at, at[:, 0], None)
    v = torch.from_numpy(warp.forward(at[:, 0].numpy(), 1.0))
    assert other.calibration == field.calibrated_on(at, v, None).calibration and other.warp is warp


# -- fitting --------------------------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch):
    """What is called, with what, instead of doing it."""
    calls = {}

    def say(name, answer):
        def called(*given, **named):
            calls[name] = (given, named)
            return answer

        monkeypatch.setattr(module, name, called)

    say("leave_out", ["left"])
    say("leave_out_again", ["again"])
    say("fit_conditioned", "known")
    say("held_out_rows", ["kinds"])
    say("fit_noise_and_warp", ("noise", None, "warp"))
    say("fit_noise_and_calibration", ("both", "calibration", "bent"))
    say("calibration_of", "calibrated")
    say("learned_metric", (1.2, 0.0, 0.0, 1 / 1.2))
    say("learned_pace", 0.25)
    return calls


def rows(n):
    g = torch.Generator().manual_seed(0)
    X = torch.rand(n, 4, generator=g)
    return X, X[:, 0] * 3.0, torch.arange(n) % 5 + 1


VALIDATION = {n: (torch.zeros(n, 4), torch.zeros(n), None) for n in (199, 200)}


@pytest.mark.parametrize(
    ("n", "validation", "called", "made"),
    [
        (1000, None, "fit_noise_and_warp", ("noise", None, "warp")),
        (1000, 200, "fit_noise_and_calibration", ("both", "calibration", "bent")),
        (1000, 199, "fit_noise_and_warp", ("noise", None, "warp")),
        (999, None, None, (None, None, None)),
        (999, 200, "calibration_of", (None, "calibrated", None)),
        (999, 199, None, (None, None, None)),
    ],
)
def test_many_rows_teach_a_noise_and_enough_validation_rows_calibrate(steps, n, validation, called, made):
    X, y, counts = rows(n)
    given = None if validation is None else VALIDATION[validation]
    stages = Stages()
    field = LocalField.fit(
        X, y, counts, time=2, options=FieldOptions(seed=5), validation=given, device="cpu", stages=stages
    )
    assert field.known == "known" and (field.noise, field.calibration, field.warp) == made
    late = {"fit_noise_and_warp", "fit_noise_and_calibration", "calibration_of"} & set(steps)
    assert late == ({called} if called else set())
    (C, value, n_, left), how = steps["fit_conditioned"]
    P, v, c = canonical(X, y, counts, (0, 1), 2)
    assert torch.equal(value, v) and torch.equal(n_, c) and left == ["left"]
    frame = how["frame"]
    assert (
        torch.equal(C, frame.coordinates(P))
        and frame.metric[0] == 1.2
        and frame.time == 2
        and frame.space == (0, 1)
    )
    assert how["has_counts"] is True and how["stages"] is stages and how["device"] == "cpu"
    assert steps["leave_out"][0] == (C, frame, how["options"], stages) or torch.equal(
        steps["leave_out"][0][0], C
    )
    if n == 1000:
        _, heard, at, whom = steps["held_out_rows"][0]
        # The kernel is fitted without those that are left out again.
        assert heard == ["left", "again"] and torch.equal(at, P) and whom is stages
        assert steps["leave_out_again"][0][1:] == (frame, how["options"], stages)
    if called == "fit_noise_and_calibration":
        assert steps[called][0][2] is given


@pytest.mark.parametrize("counts", [None, torch.full((1000,), 7)])
def test_counts_that_are_alike_tell_nothing(steps, counts):
    X, y, _ = rows(1000)
    LocalField.fit(X, y, counts)
    assert steps["fit_conditioned"][1]["has_counts"] is False


def test_the_metric_is_learned_of_what_a_plane_and_a_line_over_time_leave(steps):
    X, y, counts = rows(600)
    LocalField.fit(X, y + 5 * X[:, 2] - 2 * X[:, 3], counts, time=2, options=FieldOptions(seed=5))
    (P, left, seed), _ = steps["learned_metric"]
    assert seed == 5 and P.shape == (600, 2)
    assert float(left.abs().max()) < 1e-5  # y is linear in all of these
    rough = torch.randn(600, generator=torch.Generator().manual_seed(2)).double()
    LocalField.fit(X, rough, counts, time=2)
    (P, left, _), _ = steps["learned_metric"]
    Z = torch.cat([torch.ones(600, 1).double(), canonical(X, rough, counts, (0, 1), 2)[0]], 1)
    assert float((Z.T @ left).abs().max()) < 1e-8 and float(left.std()) > 0.9


def test_the_pace_is_learned_in_the_metric_and_times_are_measured_by_it(steps):
    X, y, counts = rows(600)
    LocalField.fit(X, y, counts, time=2, options=FieldOptions(seed=5))
    frame = steps["fit_conditioned"][1]["frame"]
    (C, left, seed), _ = steps["learned_pace"]
    P, value, _ = canonical(X, y, counts, (0, 1), 2)
    usual = frame_of(P.numpy(), (0, 1), 2, frame.metric)
    assert frame == replace(usual, time_unit=0.25 * usual.time_unit)
    torch.testing.assert_close(C, usual.coordinates(P)[:, :3])
    assert seed == 5 and left is steps["learned_metric"][0][1] and left.shape == value.shape
    for how in ({"time": None}, {"time": 2, "options": FieldOptions(metric=False)}):
        steps.pop("learned_pace", None)
        LocalField.fit(X, y, counts, **how)
        frame = steps["fit_conditioned"][1]["frame"]
        assert "learned_pace" not in steps
        assert frame.time_unit == (1.0 if how["time"] is None else usual.time_unit)


def test_a_plane_is_taken_away_whatever_the_units(steps):
    X, _, counts = rows(600)
    X = X.double() * torch.tensor([1e9, 1e-15, 1.0, 1e-9], dtype=torch.float64)
    rough = torch.randn(600, generator=torch.Generator().manual_seed(2)).double()
    LocalField.fit(X, rough + 2e-9 * X[:, 0] + 3e15 * X[:, 1], counts, time=2)
    (_, left, _), _ = steps["learned_metric"]
    P = canonical(X, rough, counts, (0, 1), 2)[0]
    Z = (P - P.mean(0)) / P.std(0)
    assert float((Z.T @ left).abs().max()) < 1e-6 and 0.9 < float(left.std()) < 1.1


def test_a_plane_is_taken_away_where_a_place_is_in_the_middle_of_all(steps):
    X = torch.cartesian_prod(torch.arange(-10.0, 11.0), torch.arange(-10.0, 11.0)).double()
    rough = torch.randn(441, generator=torch.Generator().manual_seed(2)).double()
    LocalField.fit(X, rough + 3 * X[:, 0] - X[:, 1], torch.ones(441).double())
    (_, left, _), _ = steps["learned_metric"]
    Z = torch.cat([torch.ones(441, 1).double(), canonical(X, rough, torch.ones(441), (0, 1), None)[0]], 1)
    assert float((Z.T @ left).abs().max()) < 1e-8 and 0.9 < float(left.std()) < 1.1


@pytest.mark.parametrize(("space", "metric"), [((0, 1), False), ((0,), True)])
def test_on_a_line_or_unasked_no_metric_is_learned(steps, space, metric):
    X, y, counts = rows(600)
    LocalField.fit(X, y, counts, space=space, options=FieldOptions(metric=metric))
    assert "learned_metric" not in steps and steps["fit_conditioned"][1]["frame"].metric == ISOTROPIC


@pytest.mark.parametrize(
    ("n", "row_noise", "following", "few"),
    [
        (1200, True, True, False),
        (1200, True, False, False),
        (1200, False, True, False),
        (300, True, True, True),
    ],
)
def test_the_kernel_is_fitted_to_what_a_first_trend_and_plane_leave(
    monkeypatch, n, row_noise, following, few
):
    g = torch.Generator().manual_seed(0)
    X = torch.rand(n, 3, generator=g).double() * torch.tensor([9.0, 7.0, 1.0])
    X[:, 2] = (6 * X[:, 2]).floor() / 4
    counts = torch.randint(1, 9, (n,), generator=g).double()
    y = X[:, 0] + 2 * X[:, 2] + torch.randn(n, generator=g).double()
    frame, o = (
        frame_of(X.numpy(), (0, 1), 2),
        FieldOptions(row_noise=row_noise, following=following, seed=2, neighbours=10),
    )
    C = frame.coordinates(X)
    asked = {}
    gp = LocalGP(o.starting_kernel(frame), 0.2, 0.3, 5.0, torch.tensor([0.5, -0.2]).double(), ())

    def best(trials, start):
        asked.update(trials=trials, start=start)
        return replace(gp, follows=trials.follows)

    monkeypatch.setattr(fit_module, "best_local_gp", best)
    stages = Stages()
    known = fit_module.fit_conditioned(
        C, y, counts, [], frame=frame, options=o, has_counts=True, stages=stages
    )
    t, weight = frame.times(C), typical_precision(counts)
    left = y - fit_trend(t, y, weight)(t, n)
    plane = Drift.over(C, 2).least_squares(C, left, weight)
    trials = asked["trials"]
    torch.testing.assert_close(trials.y, left - plane(C))
    assert torch.equal(trials.X, C) and trials.per_count and trials.stages is stages and trials.few == few
    told = row_noise and n >= 1000
    assert (trials.told is not None) == told and (trials.follows is not None) == (told and following)
    assert (known.lengths is not None) == (told and following)
    if told:
        assert torch.equal(trials.told.says, ToldNoise.over(C, left, counts).says)
    fitted = gp.less_sure(left_open(n, 3)) if few else gp
    assert known.gp.tau2 == pytest.approx(fitted.tau2) and (fitted.tau2 > 0.2) == few
    value = y - gp.b(counts)
    trend = fit_trend(t, value, weight)
    assert known.trend == trend
    torch.testing.assert_close(known.seen.value, value - trend(t, n))
    drift = Whitened.of(frame.near(C), 2).drift(plane, known.gp, known.seen)
    torch.testing.assert_close(known.drift.weights, drift.doubting_beyond().weights)
    torch.testing.assert_close(known.drift.slopes, drift.weights[1:])
    assert known.horizon == 0.0 and known.learned_until == C[:, 2].max() and known.has_counts
    assert torch.equal(asked["start"].log_lengthscale, o.starting_kernel(frame).log_lengthscale)


def test_along_a_line_the_plane_is_one(monkeypatch):
    X = torch.rand(50, 1, generator=torch.Generator().manual_seed(0)).double()
    frame, o = frame_of(X.numpy(), (0,), None), FieldOptions()
    gp = LocalGP(o.starting_kernel(frame), 0.2, 0.3, None, torch.zeros(0).double(), ())
    monkeypatch.setattr(fit_module, "best_local_gp", lambda trials, start: gp)
    C = frame.coordinates(X)
    known = fit_module.fit_conditioned(
        C, X[:, 0], torch.ones(50).double(), [], frame=frame, options=o, has_counts=False, stages=Stages()
    )
    assert (
        known.drift.axes == (0,) and not known.has_counts and known.device == "cpu" and known.lengths is None
    )

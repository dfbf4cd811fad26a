"""What a field is conditioned on, put together by hand: prior means, what errs together, cells, what is left without some."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.calibrate import Calibration
from geogp.field import FieldOptions, neighbours
from geogp.field.conditioned import Conditioned
from geogp.field.frame import SPACINGS, frame_of
from geogp.field.joint import FieldJoint
from geogp.field.local_gp import LocalGP
from geogp.field.mean.drift import Drift
from geogp.field.mean.trend import Trend
from geogp.field.noise.rows import ToldNoise
from geogp.field.noise.smooth import SecondPeak, new_smooth_noise
from geogp.field.predict import pairs
from geogp.field.predict.moments import FieldMoments, by_pieces, moments_of
from geogp.field.predict.outlook import noise_inputs, outlook, outlooks
from geogp.field.predict.pairs import correlation
from geogp.field.state import restored, state_of
from geogp.field.surroundings import NAMES, survey
from geogp.field.variation import Variation
from geogp.field.variation.told import Told
from geogp.predictive import Predictive, standard_moments
from geogp.transforms import Identity, Warp

LINE = Trend(0.3, 0.2, 0.4, 0.7, newest=1.0, span=2.0)


def known_of(
    n=160, places=None, nu=None, counts_differ=True, covariate=True, **options
) -> tuple[Conditioned, torch.Tensor]:
    """Rows at places (n of them, or fewer that come again) and times, given a kernel, a drift and a trend; and their raw inputs."""
    rng = np.random.default_rng(0)
    at = rng.uniform(0, 100.0, (places or n, 2))[np.arange(n) % (places or n)]
    X = np.column_stack([at, np.arange(n) * 7 % 12 / 4.0, rng.normal(size=n)])[:, : 3 + covariate]
    frame = frame_of(X, (0, 1), 2)
    o = FieldOptions(**({"neighbours": 12, "smooth": False} | options))
    kernel = o.starting_kernel(frame)
    gp = LocalGP(kernel, 0.1, 0.5, nu, torch.tensor([0.4, -0.2]).double(), ())
    C = frame.coordinates(torch.from_numpy(X))
    counts = (
        torch.from_numpy(rng.integers(1, 30, n).astype(float)) if counts_differ else torch.ones(n).double()
    )
    value = torch.from_numpy(np.sin(X[:, 0] / 9) + 0.4 * rng.normal(size=n))
    q = 3 + covariate
    root = torch.from_numpy(0.2 * rng.normal(size=(q, q)))
    drift = Drift.over(C, 2)
    drift = replace(drift, weights=torch.from_numpy(0.5 * rng.normal(size=q)), covariance=root @ root.T)
    seen = gp.observed(C, value, counts)
    known = Conditioned(o, frame, counts_differ, LINE, drift, gp, seen, horizon=0.25, learned_until=0.5)
    return known, torch.from_numpy(X)


def ahead(X: torch.Tensor, years: float) -> torch.Tensor:
    out = X.clone()
    out[:, 2] += years
    return out


def test_the_mean_before_neighbours_is_trend_and_drift_and_count_shift():
    known, X = known_of()
    C, n = known.frame.coordinates(X[:9]), torch.arange(1.0, 10.0).double()
    shift = 0.4 / n - 0.2 / n.sqrt()
    level = 0.3 + 0.2 * LINE.levelled(C[:, 2]) + shift
    torch.testing.assert_close(known.level(C, n), level)
    torch.testing.assert_close(known.prior_mean(C, n), level + known.drift.columns(C) @ known.drift.weights)
    torch.testing.assert_close(known.left.value, known.seen.value - known.drift(known.seen.X))


def test_the_mean_walks_only_beyond_what_was_played_through():
    known, X = known_of()
    assert known.latest == known.seen.X[:, 2].max()
    doubt = known.trend.doubt
    for years in (0.0, 0.2, 0.5, 2.0):
        C = known.frame.coordinates(ahead(X, years))
        gap = (C[:, 2] - known.latest - 0.25).clamp_min(0.0)
        levelled = doubt(C[:, 2].clamp_min(known.latest), known.latest)
        assert bool(levelled.any()) == (years > 0)
        torch.testing.assert_close(known.time_variance(C), 0.4 * gap + 0.7 * gap.square() + levelled)
    assert known.earliest == known.seen.X[:, 2].min()
    for years in (0.2, 2.0):
        C = known.frame.coordinates(ahead(X, -years))
        gap = (known.earliest - C[:, 2]).clamp_min(0.0)
        levelled = doubt(C[:, 2].clamp_max(known.earliest), known.earliest)
        assert (gap > 0.0).any() and (levelled > 0.0).any()
        torch.testing.assert_close(known.time_variance(C), 0.4 * gap + 0.7 * gap.square() + levelled)
    still = replace(known, frame=replace(known.frame, time=None))
    assert still.time_variance(C).tolist() == [0.0] * len(C)


def test_what_errs_together_is_the_drifts_doubt_and_the_walk():
    known, X = known_of()
    C = known.frame.coordinates(ahead(X[:30], 1.5))
    leaning = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).double()
    F = known.common_factor(C, leaning)
    open_ = known.drift.columns(C) - leaning
    walk = known.time_variance(C).sqrt()
    assert (walk > 0).any()
    torch.testing.assert_close(F @ F.T, open_ @ known.drift.covariance @ open_.T + torch.outer(walk, walk))
    torch.testing.assert_close(F[:, :-2].square().sum(-1), known.drift.extra(C, leaning)[1])
    # What is long before the data errs by itself.
    C[0, 2] = known.earliest - 3.0
    F = known.common_factor(C, leaning)
    walk = known.time_variance(C)
    assert walk[0] > 0 and F[0, -1] == walk[0].sqrt() and F[0, -2] == 0 and not F[1:, -1].any()


@pytest.mark.parametrize(
    ("n", "places", "rows", "nth"),
    [
        (160, None, 32, 32),
        (160, 20, 24, 4),
        (160, 80, 24, 8),
        (40, 5, 24, 2),
        (40, 2, 24, 2),
        (96, 12, 24, 4),
        (40, 1, 40, 0),
        (20, None, 20, 0),
    ],
)
def test_cells_rest_on_more_rows_where_places_are_seen_once(n, places, rows, nth):
    known, _ = known_of(n, places)
    assert known.rows_a_cell == rows
    assert known.cells.nth == nth and known.cells.tree.n == (places or n)


def test_neighbours_are_as_many_as_there_are():
    known, X = known_of(10)
    index = known.neighbours_of(known.frame.coordinates(X[:3]))
    assert index.shape == (3, 10) and (index.sort(1).values == torch.arange(10)).all()


@pytest.mark.parametrize("nu", [None, 5.0])
def test_those_left_out_have_no_say_in_how_noisy_others_are(nu):
    known, _ = known_of(nu=nu)
    odd = replace(known, seen=replace(known.seen, noise_variance=known.seen.noise_variance + 3.0))
    rows = torch.arange(0, 160, 2)
    given = odd.left_given(rows, rows[5:9])
    noise = odd.seen.noise_variance.clone()
    noise[rows[5:9]] -= 3.0
    torch.testing.assert_close(given.noise_variance, noise)
    torch.testing.assert_close(given.value, odd.left.value)


@pytest.mark.parametrize(
    ("variance", "of_places"), [((0.2, 0.1, 0.6), 0.3), ((0.01, 0.02, 0.6), 0.15), ((0.6,), 0.15)]
)
def test_what_is_regional_is_what_the_widest_part_carries(monkeypatch, variance, of_places):
    from geogp.field import conditioned

    components = tuple(("matern32", 5.0 * k, 4.0) for k in range(1, 1 + len(variance)))
    known, _ = known_of(smooth=True, components=components)
    kernel = replace(known.gp.kernel, log_variance=torch.tensor(variance).double().log())
    known = replace(known, gp=replace(known.gp, kernel=kernel))
    asked = {}
    monkeypatch.setattr(conditioned, "fit_regional", lambda region, rows, *a, **k: asked.update(k, rows=rows))
    assert known.regional is None and torch.equal(asked["rows"], torch.arange(160))
    assert asked["prior_variance"] == pytest.approx(0.6) and asked["place_variance"] == pytest.approx(
        of_places
    )
    assert known._region.lengthscale == 100.0 / SPACINGS and len(known._region.site) == 160
    assert known._region.centres.shape[1] == 2
    for options in ({"smooth": False}, {"smooth": True, "regional": None}):
        assert known_of(**options)[0]._region is None


def test_neighbours_are_surveyed_as_they_are_or_as_they_would_be_without_some():
    known, X = known_of(smooth=True)
    C = known.frame.coordinates(X[:20] + 0.5)
    index = known.neighbours_of(C)
    other = replace(known.gp.kernel, log_variance=known.gp.kernel.log_variance + 1.0)
    fewer = replace(known.left, value=known.left.value + 2.0)
    for said, kernel, seen in (
        ({}, known.gp.kernel, known.left),
        ({"given": fewer}, known.gp.kernel, fewer),
        ({"kernel": other}, other, known.left),
    ):
        found = known.survey(C, index, 0.7, **said)
        wanted = survey(
            kernel, seen, C, index, spacing=1 / 3.5, latest=0.7, columns=known.columns, in_detail=True
        )
        for a, b in zip(vars(found).values(), vars(wanted).values()):
            torch.testing.assert_close(a, b)


def test_a_kernel_follows_what_some_rows_say_where_it_follows_anything():
    known, _ = known_of()
    rows = torch.arange(30)
    assert known.kernel_given(rows) is known.gp.kernel
    value, counts = known.seen.value, known.seen.counts
    noise = ToldNoise.over(known.seen.X, value, counts).noise
    told = Told.over(known.seen.X, value, counts, noise)
    p = len(noise.center)
    follows = replace(told.start, coefficients=torch.full((p, 2), 0.3).double())
    known = replace(known, lengths=told, gp=replace(known.gp, follows=follows))
    found = known.kernel_given(rows).variation
    torch.testing.assert_close(found.lengthscale, told.says(rows).sum(1) * 0.3)
    assert not torch.equal(found.lengthscale, known.kernel_given(torch.arange(160)).variation.lengthscale)


def test_neighbours_tell_in_detail_where_the_noise_asks_for_it():
    said = {
        (smooth, testimony): known_of(smooth=smooth, testimony=testimony)[0].hears_in_detail
        for smooth in (True, False)
        for testimony in (True, False)
    }
    assert [key for key, hears in said.items() if hears] == [(True, True)]


# -- the outlook at places, and their moments -----------------------------------------------------------


def test_an_outlook_is_that_of_each_count():
    known, X = known_of()
    n = [torch.full((40,), 3.0).double(), torch.full((40,), 60.0).double()]
    found = outlooks(known, ahead(X[:40], 1.0), n)
    alone = outlook(known, ahead(X[:40], 1.0), n[1])
    for name in ("counts", "prior_mean", "drift_variance", "time_variance", "open_variance", "inputs"):
        assert torch.equal(getattr(found[1], name), getattr(alone, name))
    C = known.frame.coordinates(ahead(X[:40], 1.0))
    here = found[0]
    assert torch.equal(here.coordinates, C) and torch.equal(here.counts, n[0])
    torch.testing.assert_close(here.prior_mean, known.prior_mean(C, n[0]))
    phi = known.drift.columns(C)
    torch.testing.assert_close(here.open_variance, ((phi @ known.drift.covariance) * phi).sum(-1))
    torch.testing.assert_close(here.drift_variance, known.drift.extra(C, here.around.leaning)[1])
    torch.testing.assert_close(here.time_variance, known.time_variance(C))
    torch.testing.assert_close(here.prior_variance, torch.full((40,), 0.3).double())
    assert outlook(known, X[:4], None).counts.tolist() == [1.0] * 4


def test_what_the_noise_is_told_stands_in_one_order():
    known, X = known_of(smooth=True, regional=None)
    later = ahead(X[:20], 1.0)
    here = outlook(known, later, torch.full((20,), 4.0).double())
    extra = here.inputs.shape[1] - here.around.features.shape[1] - here.around.testimony.shape[1]
    time, *count, covariate = here.inputs[:, -extra:].unbind(1)
    assert extra == 2 + len(count) and len(count) >= 1
    torch.testing.assert_close(time, known.frame.coordinates(later)[:, 2].clamp_max(0.5))
    assert torch.equal(covariate, X[:20, 3]) and all((c == c[0]).all() for c in count)
    alike, _ = known_of(smooth=True, regional=None, counts_differ=False)
    assert outlook(alike, later, None).inputs.shape[1] == here.inputs.shape[1] - len(count)
    wider = torch.cat([later, later[:, :1]], 1)
    assert torch.equal(noise_inputs(known, here.around, here.counts, wider), here.inputs)
    g, v = here.around.mean + 0.7, torch.full((20,), 0.2).double()
    more = noise_inputs(known, here.around, here.counts, later, (g, v))
    at = here.around.features.shape[1] + here.around.testimony.shape[1]
    gap = torch.full((20,), 0.7).double()
    unknown = here.around.variance / 0.3
    torch.testing.assert_close(more[:, at : at + 4], torch.stack([g, gap, gap * unknown, v.log()], 1))


def test_what_is_regional_is_read_at_the_places():
    known, X = known_of(smooth=True)
    later = ahead(X[:20], 1.0)
    here = outlook(known, later, torch.full((20,), 4.0).double())
    g, v = known.regional.between_nodes(known.frame.coordinates(later)[:, :2])
    wanted = noise_inputs(known, here.around, here.counts, later, (g, v))
    torch.testing.assert_close(here.inputs, wanted)
    assert float(g.std()) > 0.01
    nothing = noise_inputs(known, here.around, here.counts, later, (g, torch.zeros_like(v)))
    assert torch.isfinite(nothing).all()


@pytest.mark.parametrize("nu", [None, 6.0])
def test_moments_are_those_of_the_field_its_drift_and_its_walk(nu):
    known, X = known_of(nu=nu)
    n = torch.full((30,), 5.0).double()
    here = outlook(known, ahead(X[:30], 1.0), n)
    m = moments_of(known, here, None)
    torch.testing.assert_close(m.location, here.prior_mean + here.around.mean)
    latent = here.around.variance + here.drift_variance
    torch.testing.assert_close(m.latent_variance, latent + here.time_variance)
    prior = torch.maximum(here.prior_variance + here.open_variance, latent) + here.time_variance
    torch.testing.assert_close(m.prior_variance, prior)
    torch.testing.assert_close(m.noise_variance, torch.full((30,), 0.1 + 0.5 / 5.0).double())
    assert (m.degrees_of_freedom == (nu or 1e6)).all() and (m.log_skewness == 0).all()


def test_a_smooth_noise_has_its_say_about_all_but_the_drift():
    known, X = known_of(smooth=True, regional=None)
    n = torch.full((30,), 5.0).double()
    here = outlook(known, ahead(X[:30], 1.0), n)
    noise = new_smooth_noise(here.inputs.shape[1], hidden=6, members=3, scales_surface=True)
    noise.start_from(here.inputs, 0.2, 0.3, 7.0)
    with torch.no_grad():
        noise.intercept[0] = 0.4
        noise.last.weight.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(0))
    known = replace(known, gp=replace(known.gp, degrees_of_freedom=7.0))
    without = torch.arange(3)[:, None] == torch.arange(30)[None] % 3
    far = known.gp.kernel.prior_variance
    for who in (None, without):
        m = moments_of(known, here, noise, who)
        with torch.no_grad():
            p = noise(here.inputs, here.around.mean, here.around.variance, far, n, who)
        torch.testing.assert_close(m.location, here.prior_mean + p.location)
        latent = p.latent_variance + here.drift_variance
        torch.testing.assert_close(m.latent_variance, latent + here.time_variance)
        prior = torch.maximum(np.exp(0.4) * here.prior_variance + here.open_variance, latent)
        torch.testing.assert_close(m.prior_variance, prior + here.time_variance, rtol=1e-6, atol=1e-9)
        for name in ("noise_variance", "degrees_of_freedom", "log_skewness"):
            torch.testing.assert_close(getattr(m, name), getattr(p, name))


def moments(**changes) -> FieldMoments:
    one = torch.ones(4).double()
    m = FieldMoments(
        2.0 * one, 0.3 * one, 0.5 * one, one, 5.0 * one, torch.tensor([0.0, 0.2, -0.2, 0.6]).double()
    )
    return replace(m, **changes)


def test_the_mean_of_a_new_observation_leans_with_its_skewness():
    m = moments()
    shift, _ = standard_moments(m.degrees_of_freedom.numpy(), m.log_skewness.numpy())
    np.testing.assert_allclose(m.mean, 2.0 + 0.8**0.5 * shift)
    np.testing.assert_allclose(m.scale, 0.8**0.5)
    assert m.mean[0] == 2.0 and m.mean[1] > 2.0 > m.mean[2]


def test_calibration_moves_the_noise_alone_and_never_all_of_it():
    m, group = moments(), np.zeros(4, dtype=np.int64)
    assert m.calibrated(None, group) is m

    class Factor(Calibration):
        def __init__(self, value):
            self.value = value

        def factor(self, group):
            return np.full(len(group), self.value)

    wider = m.calibrated(Factor(1.5), group)
    torch.testing.assert_close(wider.scale, 1.5 * m.scale)
    assert torch.equal(wider.latent_variance, m.latent_variance)
    torch.testing.assert_close(m.calibrated(Factor(0.1), group).noise_variance, 0.05 * m.noise_variance)


def test_misses_are_one_at_the_ends_of_an_interval():
    m = moments(log_skewness=torch.zeros(4).double())
    half = 2.570581835636314 * 0.8**0.5  # the 97.5% quantile of a t with 5 degrees of freedom
    miss = m.misses(torch.tensor([2.0 + half, 2.0 - half, 2.0, 2.0 + 2 * half]).double())
    np.testing.assert_allclose(miss, [1.0, 1.0, 0.0, 2.0], atol=1e-9)


def test_a_second_peak_counts_in_the_mean_the_misses_and_the_calibration():
    """Stretched by 1.5 about its location every quantile is 1.5 times as far; latent variance does not move."""
    share, offset = torch.tensor([0.0, 0.1, 0.3, 0.5]).double(), torch.tensor([1.0, 3.0, -2.0, 0.2]).double()
    m = moments(peak=SecondPeak(share, offset, torch.full((4,), 0.2).double()))

    def told(m):
        peak = m.peak.of(m.location, m.latent_variance)
        shape = m.degrees_of_freedom.numpy(), Identity(), m.log_skewness.numpy()
        return Predictive(m.location.numpy(), m.scale.numpy(), *shape, peak=peak)

    np.testing.assert_allclose(m.mean, told(m).mean())
    for p in (0.025, 0.975):
        np.testing.assert_allclose(m.misses(torch.from_numpy(told(m).quantile(p))), 1.0)
    wider = m.calibrated(Calibration(1.5), np.full(4, -1))
    for p in (0.025, 0.4, 0.975):
        np.testing.assert_allclose(told(wider).quantile(p) - 2.0, 1.5 * (told(m).quantile(p) - 2.0))
    assert torch.equal(wider.latent_variance, m.latent_variance)
    least = m.calibrated(Calibration(0.1), np.full(4, -1))
    torch.testing.assert_close(least.peak.noise_variance, 0.05 * m.peak.noise_variance)


@pytest.mark.parametrize("at_once", [7, 30, 400])
def test_places_told_in_pieces_come_back_in_order(monkeypatch, at_once):
    from geogp.field.predict import moments as module

    monkeypatch.setattr(module, "PLACES_AT_ONCE", at_once)
    places = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)).double()

    def told(rows):
        x = places[rows, 0]
        peak = SecondPeak(x + 6, x + 7, x + 8)
        return [FieldMoments(*(x + k for k in range(6)), peak), FieldMoments(*(x - k for k in range(6)))]

    one, other = by_pieces(told, places)
    *names, _ = FieldMoments.__dataclass_fields__
    for k, name in enumerate(names):
        torch.testing.assert_close(getattr(one, name), places[:, 0] + k)
        torch.testing.assert_close(getattr(other, name), places[:, 0] - k)
    for k, name in enumerate(SecondPeak.__dataclass_fields__):
        torch.testing.assert_close(getattr(one.peak, name), places[:, 0] + 6 + k)
    assert other.peak is None


# -- one place at two times -----------------------------------------------------------------------------


@pytest.mark.parametrize("nu", [None, 5.0])
def test_errors_at_two_times_go_together_as_in_the_exact_process(nu):
    known, X = known_of(90, neighbours=90, nu=nu)
    before, after = X[:25].clone(), ahead(X[:25], 1.0)
    before[:, :2] += 1.3
    after[:, :2] += 1.3
    both = torch.cat([before, after])
    C, n = known.frame.coordinates(both), torch.full((50,), 3.0).double()
    latent = moments_of(known, outlook(known, both, n), None).latent_variance
    index = known.neighbours_of(C)
    made = known.predictors(C, index)
    common = known.common_factor(C, made.of(known.columns, index))
    joint = FieldJoint(known.gp.kernel, known.left, C, index, made, variance=latent.numpy(), common=common)
    dense = joint.dense()
    wanted = dense[np.arange(25), 25 + np.arange(25)]
    sd = latent.sqrt().numpy()
    found = correlation(known, C[:25], C[25:], torch.stack([latent[:25], latent[25:]]))
    np.testing.assert_allclose(found, wanted / (sd[:25] * sd[25:]), atol=1e-6)
    assert correlation(known, C[:0], C[:0], torch.zeros(2, 0).double()).shape == (0,)


def test_it_rests_on_what_each_time_rests_on_alone():
    known, X = known_of(240)
    C = known.frame.coordinates(X[:30] + 0.1)
    times = np.concatenate([C[:, 2:3].numpy(), C[:, 2:3].numpy() + 0.8], axis=1)
    asked, _ = pairs.asked_of(known, C, times)
    found = pairs._of_both(known, asked)
    for centre, rows in zip(asked.centre.numpy(), found.rows):
        each = [neighbours.query(known.search, np.append(centre[:2], t)[None], 12)[0] for t in centre[2:]]
        wanted = set(each[0]) | set(each[1])
        assert sorted(rows[rows >= 0].tolist()) == sorted(wanted) and len(rows) == 24


def test_a_place_goes_together_with_itself():
    known, X = known_of()
    C = known.frame.coordinates(X[:30] + 0.1)
    latent = moments_of(known, outlook(known, X[:30] + 0.1, None), None).latent_variance
    found = correlation(known, C, C, torch.stack([latent, latent]))
    np.testing.assert_allclose(found, 1.0, atol=1e-9)
    assert (found <= 1.0).all()


# -- as tensors and facts, and back ---------------------------------------------------------------------


def with_everything():
    """A field with a kernel that varies, rows as noisy as places say, a smooth noise and a calibration."""
    known, _ = known_of(smooth=True, nu=5.0, components=(("matern32", 5.0, 4.0), ("matern12", 26.0, 4.0)))
    rng = np.random.default_rng(3)
    bumps = replace(
        Variation.flat(known.seen.X[:, :2], 4), blended=True, noise=torch.from_numpy(rng.normal(size=4)),
        lengthscale=torch.from_numpy(rng.normal(size=4)), variance=torch.from_numpy(rng.normal(size=4)),
    )  # fmt: skip
    rows = ToldNoise.over(known.seen.X, known.seen.value, known.seen.counts).noise
    kernel = replace(known.gp.kernel, variation=bumps, over_time="matern32")
    gp = replace(known.gp, kernel=kernel, rows=rows, loss=(3.0, 2.0), variances=True, weighted=True)
    known = replace(known, gp=gp, seen=gp.observed(known.seen.X, known.seen.value, known.seen.counts))
    noise = new_smooth_noise(11, hidden=known.options.hidden, members=3, spread=3)
    with torch.no_grad():
        noise.intercept += 0.3
        noise.trust.fill_(0.4)
        noise.gaps.fill_(0.2)
        noise.below.fill_(0.3)
    return known, noise, Calibration(1.1, (1.0, 1.2), (30, 40), 0.95)


def through_json(tensors, facts):
    return tensors, json.loads(json.dumps(facts))


def test_all_of_a_field_comes_back():
    known, noise, calibration = with_everything()
    warp = Warp(np.array([-1.0, 0.0, 1.0]), np.ones(3), np.array([1.0, 9.0, 1.0]), (0.3, 0.5), 2.0)
    stored = through_json(*state_of(known, noise, calibration, warp))
    again, noise_again, calibration_again, warp_again = restored(*stored)
    assert warp_again.to_dict() == warp.to_dict()
    for name in ("options", "frame", "trend", "has_counts", "horizon", "learned_until", "device"):
        assert getattr(again, name) == getattr(known, name)
    for part in ("seen", "drift"):
        for name, value in vars(getattr(known, part)).items():
            other = getattr(getattr(again, part), name)
            assert torch.equal(other, value) if isinstance(value, torch.Tensor) else other == value
    assert again.gp.kernel.smoothness == ("matern32", "matern12") and again.gp.kernel.time_axis == 2
    assert again.gp.kernel.over_time == "matern32"
    del stored[1]["over_time"]  # absent in runs of before
    assert restored(*stored)[0].gp.kernel.over_time == "matern12"
    for name in ("tau2", "s2", "degrees_of_freedom", "loss", "weighted", "variances"):
        assert getattr(again.gp, name) == getattr(known.gp, name)
    for name, value in vars(known.gp.kernel.variation).items():
        other = getattr(again.gp.kernel.variation, name)
        assert torch.equal(other, value) if isinstance(value, torch.Tensor) else other == value
    for a, b in zip(vars(again.gp.rows).values(), vars(known.gp.rows).values()):
        assert torch.equal(a, b)
    for name, value in noise.state_dict().items():
        assert torch.equal(noise_again.state_dict()[name], value)
    assert noise_again.spread == NAMES.index("log_spread") and not noise_again.training
    assert calibration_again == calibration


def test_a_bare_field_comes_back_bare():
    known, _ = known_of()
    tensors, facts = through_json(*state_of(known, None, None))
    again, noise, calibration, warp = restored(tensors, facts, device="cpu")
    assert noise is None and calibration is None and warp is None
    assert again.gp.kernel.variation is None and again.gp.rows is None and facts["blended"] is False
    assert torch.equal(again.seen.noise_variance, known.seen.noise_variance)


def test_a_field_along_a_line_and_one_without_time_come_back():
    known, _ = known_of()
    for space, others in (((0,), (1, 3)), ((0, 1), (3,))):
        frame = replace(known.frame, space=space, time=None, others=others, other_units=(1.0,) * len(others))
        C = torch.randn(160, frame.n_axes, generator=torch.Generator().manual_seed(0)).double()
        kernel = known.options.starting_kernel(frame)
        gp = replace(known.gp, kernel=kernel)
        seen = gp.observed(C, known.seen.value, known.seen.counts)
        field = replace(known, frame=frame, gp=gp, seen=seen, drift=Drift.over(C, None))
        again, _, _, _ = restored(*through_json(*state_of(field, None, None)))
        assert again.frame == frame and again.drift.axes == tuple(range(frame.n_axes))
        assert again.gp.kernel.time_axis is None and torch.equal(again.seen.X, C)


def test_what_runs_of_before_do_not_say_is_as_it_was_then():
    known, noise, _ = with_everything()
    tensors, facts = through_json(*state_of(known, noise, None))
    for name in ("learned_until", "weighted", "variances", "blended", "warp"):
        del facts[name]
    for name in ("regional", "metric", "testimony", "row_noise", "members"):
        del facts["options"][name]
    del tensors["kernel.width"], tensors["drift.axes"], tensors["kernel.noisier"]
    facts["width"] = 0.7
    again, _, _, _ = restored(tensors, facts)
    assert again.learned_until == known.latest and not again.gp.weighted and not again.gp.variances
    o = again.options
    assert (o.regional, o.metric, o.testimony, o.row_noise, o.members) == (None, False, False, False, 1)
    assert o.components == (("matern32", 5.0, 4.0), ("matern12", 26.0, 4.0)) and o.block_sizes == (10.0, 30.0)
    assert again.drift.axes == (0, 1, 3)
    bumps = again.gp.kernel.variation
    assert bumps.width.tolist() == [0.7] * 4 and not bumps.blended and bumps.noise is None


def test_a_noise_of_one_member_is_one_of_several_then():
    known, _, _ = with_everything()
    alone = new_smooth_noise(11, hidden=48, members=1, scales_surface=True)
    tensors, facts = state_of(known, alone, None)
    for name in [name for name in tensors if name.startswith("noise.") and tensors[name].dim() == 3]:
        tensors[name] = tensors[name][0, 0] if name.endswith("bias") else tensors[name][0].T.contiguous()
    del tensors["noise.trust"], tensors["noise.gaps"], tensors["noise.below"]
    _, again, _, _ = restored(tensors, facts)
    assert again.members == 1 and again.scales_surface
    for name, value in alone.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"space": [0, 1, 3]}, "which columns are places"),
        ({"space": [0, 1.0]}, "which columns are places"),
        ({"time": True}, "which columns are places"),
        ({"others": ["3"]}, "which columns are places"),
    ],
)
def test_a_frame_whose_columns_are_none_is_refused(changes, words):
    known, _ = known_of()
    tensors, facts = through_json(*state_of(known, None, None))
    facts["frame"] |= changes
    with pytest.raises(ValueError, match=words):
        restored(tensors, facts)


@pytest.mark.parametrize("axes", [[0, 1], [0, 1, 9], [0, 1, 4]])
def test_a_drift_with_other_columns_than_weights_is_refused(axes):
    known, _ = known_of()
    tensors, facts = through_json(*state_of(known, None, None))
    tensors["drift.axes"] = torch.tensor(axes)
    with pytest.raises(ValueError, match="other weights than columns"):
        restored(tensors, facts)

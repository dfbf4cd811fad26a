"""The local field: order, units and chunks do not matter; honest coverage on simulated truth; a round trip."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.field import FieldOptions, LocalField, choose
from geogp.field.mean.trend import fit_trend
from geogp.field.predict.outlook import noise_inputs
from geogp.holdout import left_out_kinds
from geogp.scores import binomial_band
from tests.quick import in_parts

QUICK = FieldOptions(neighbours=24, n_targets=700, members=3, steps=40, batch=64, epochs=8, hidden=32)
#: For what does not hang on the metric, nor on how well the kernel is learned.
QUICKER = replace(QUICK, metric=False, n_targets=500, steps=16, epochs=6)
#: Rows of the world that `fitted` is fitted to; 400 more are new to it.
N = 1000


def world(n=N + 400, seed=0, quarters=10):
    """Places measured in several quarters: a smooth surface, a trend, averages of 1 to 50 measurements."""
    rng = np.random.default_rng(seed)
    P = rng.uniform(0, 20_000, (n // 6, 2))
    X = np.column_stack([P[rng.integers(0, len(P), n)], 2020 + rng.integers(0, quarters, n) / 4])
    counts = np.ceil(rng.pareto(1.0, n)).clip(max=50)
    surface = np.sin(X[:, 0] / 2500) + np.cos(X[:, 1] / 3500) + 0.3 * (X[:, 2] - 2021)
    y = surface + rng.standard_t(5.0, n) * np.sqrt((0.02 + 0.5 / counts) * 0.6)
    return (torch.from_numpy(a) for a in (X, (y - y.mean()) / y.std(), counts))


@pytest.fixture(scope="module")
def fitted():
    X, y, n = world()
    with in_parts():
        return LocalField.fit(X[:N], y[:N], n[:N], time=2, options=QUICK), X, y, n


def test_explains_and_covers_new_rows(fitted):
    field, X, y, n = fitted
    m = field.moments(X[N:], n[N:])
    inside = (y[N:] - m.mean).abs() <= 2.3 * (m.latent_variance + m.noise_variance).sqrt()
    assert np.corrcoef(m.mean, y[N:])[0, 1] > 0.6
    low, high = binomial_band(400, 0.95)
    assert low - 0.03 < inside.double().mean() <= max(high, 0.99)
    busy, single = n[N:] > 10, n[N:] == 1
    assert m.noise_variance[single].mean() > 2 * m.noise_variance[busy].mean()


def test_far_from_data_the_surface_is_the_prior(fitted):
    field, X, _, n = fitted
    far = X[:5].clone()
    far[:, :2] += 1e7
    at, away = field.moments(X[:5], n[:5]), field.moments(far, n[:5])
    assert torch.allclose(away.latent_variance, away.prior_variance)
    assert (at.latent_variance <= away.latent_variance).all()
    assert torch.isfinite(away.mean).all()


def test_rows_do_not_interact(fitted):
    field, X, _, n = fitted
    whole = field.moments(X[N : N + 60], n[N : N + 60])
    parts = [field.moments(X[i : i + 7], n[i : i + 7]) for i in range(N, N + 60, 7)]
    assert torch.allclose(whole.mean[:56], torch.cat([p.mean for p in parts])[:56], atol=1e-6)
    backwards = field.moments(X[N : N + 60].flip(0), n[N : N + 60].flip(0))
    assert torch.allclose(whole.noise_variance, backwards.noise_variance.flip(0), rtol=1e-5)


def test_row_order_and_units_do_not_matter(fitted, kernels_in_parts):
    field, X, y, n = fitted
    p = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    scaled = X.clone()
    scaled[:, :2] *= 1024
    other = LocalField.fit(scaled[:N][p], y[:N][p], n[:N][p], time=2, options=QUICK)
    a, b = field.moments(X[N : N + 100], n[N : N + 100]), other.moments(scaled[N : N + 100], n[N : N + 100])
    assert torch.allclose(a.mean, b.mean, atol=1e-5)
    assert torch.allclose(a.latent_variance, b.latent_variance, rtol=1e-4)


def test_state_goes_through_json_and_back(fitted):
    field, X, y, n = fitted
    field = field.calibrated_on(X[N:], y[N:], n[N:])
    assert field.calibration is not None
    tensors, facts = field.state()
    again = LocalField.from_state(tensors, json.loads(json.dumps(facts)))
    a, b = field.moments(X[:50], n[:50]), again.moments(X[:50], n[:50])
    for name in ("mean", "latent_variance", "noise_variance", "prior_variance", "degrees_of_freedom"):
        assert torch.equal(getattr(a, name), getattr(b, name))


def test_a_saved_field_keeps_the_names_of_every_run_folder_written(fitted):
    tensors, facts = fitted[0].state()
    parts = [
        f"{layer}.{part}"
        for layer in ("first", "layers.0", "layers.1", "last")
        for part in ("weight", "bias")
    ]
    noise = {f"noise.{name}" for name in ("level", "center", "scale", "trust", "gaps", "below", *parts)}
    kernel = {"kernel.log_lengthscale", "kernel.log_variance"}
    drift = {f"drift.{name}" for name in ("axes", "center", "scale", "weights", "covariance", "slopes")}
    rows = {f"row_noise.{name}" for name in ("center", "scale", "coefficients")}
    assert set(tensors) == kernel | noise | drift | rows | {"shift", "seen.X", "seen.value", "seen.counts"}
    assert set(facts["trend"]) == {"level", "slope", "drift", "slope_variance", "newest", "span"}
    assert set(facts) == {
        "options", "frame", "season", "trend", "has_counts", "horizon", "learned_until", "smoothness", "over_time", "tau2", "s2",
        "degrees_of_freedom", "loss", "weighted", "variances", "calibration", "blended", "warp",
    }  # fmt: skip
    # Before there were updates nothing said until when the field had learned.
    del facts["learned_until"]
    assert LocalField.from_state(tensors, facts).known.learned_until == fitted[0].known.latest


def test_it_says_when_its_observations_were_made(fitted):
    field, X, *_ = fitted
    assert field.knows_time
    np.testing.assert_allclose(np.sort(field.observed_times()), np.sort(X[:N, 2].numpy()), rtol=1e-12)
    flat = LocalField.fit(X[:60, :2].contiguous(), X[:60, 2] - 2021, None, options=QUICK)
    assert not flat.knows_time and flat.observed_times() is None


def test_told_other_observations_a_field_gives_another_and_stays_what_it_was(fitted):
    field, X, _, n = fitted
    before = field.moments(X[N : N + 30], n[N : N + 30]).latent_variance
    told = field.conditioned_on(field.seen.at(slice(0, 400)))
    assert len(told.seen) == 400 and len(field.seen) == N and told.gp is field.gp
    assert torch.equal(field.moments(X[N : N + 30], n[N : N + 30]).latent_variance, before)
    # Its observations are the western quarter: to the east of it the surface is not known any more.
    east = X[N : N + 30, 0] > 10_000
    assert (told.moments(X[N : N + 30], n[N : N + 30]).latent_variance > 2 * before)[east].all()


def test_joint_covariance_has_the_marginals_of_the_moments(fitted):
    field, X, _, _n = fitted
    S = field.posterior_covariance(X[N : N + 30])
    latent = field.moments(X[N : N + 30]).latent_variance
    assert torch.allclose(S.diagonal(), latent, rtol=1e-6)
    assert torch.linalg.eigvalsh(S).min() > -1e-9
    assert field.prior_covariance(X[:3], X[:3]).diagonal().allclose(field.moments(X[:3]).prior_variance)


def test_ahead_of_few_distant_quarters_the_surface_widens():
    X, y, n = world(600, quarters=3)
    field = LocalField.fit(X, y, n, time=2, options=QUICKER)
    soon, late = X[:20].clone(), X[:20].clone()
    soon[:, 2], late[:, 2] = 2020.5, 2023.0
    assert (field.moments(late).latent_variance > field.moments(soon).latent_variance).all()


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_handful_of_rows_is_enough(n):
    X, y, counts = world(60)
    field = LocalField.fit(X[:n], y[:n], counts[:n], time=2, options=QUICK)
    m = field.moments(X[:9], counts[:9])
    for name in ("mean", "latent_variance", "noise_variance"):
        assert torch.isfinite(getattr(m, name)).all()
    assert (m.noise_variance > 0).all()


def test_no_target_is_in_its_own_reference():
    X, _, _ = world()
    held = left_out_kinds(X[:, :2].numpy(), X[:, 2].numpy(), n_targets=600, sides=True)
    assert {h.kind for h in held} == {"rows", "blocks", "sides", "future"}
    for h in held:
        assert not np.isin(h.target, h.reference).any()
        if h.kind == "future":
            assert X[h.reference, 2].max() < X[h.target, 2].min()


def test_trend_of_few_periods_has_no_slope_but_drifts():
    t = torch.tensor([0.0, 1.0, 2.0]).double().repeat(20)
    trend = fit_trend(t, 2 * t, torch.ones(60).double())
    assert trend.slope == 0.0
    assert trend.extra_variance(torch.tensor([1.0]).double()).item() >= 4.0


def held_out_world(long, n=1000):
    """Rows of a rough field of lengthscale `long` in a square of side 40."""
    rng = np.random.default_rng(0)
    P = rng.uniform(0, 40.0, (n, 2))
    distance = np.linalg.norm(P[:, None] - P[None], axis=-1)
    L = np.linalg.cholesky(np.exp(-distance / long) + 1e-8 * np.eye(n))
    y = L @ rng.normal(size=n) + 0.3 * rng.normal(size=n)
    return torch.from_numpy(P), torch.from_numpy((y - y.mean()) / y.std())


def test_the_kernel_is_the_one_that_predicts_held_out_rows_and_blocks_best(monkeypatch):
    seen = []
    density = choose.held_out_densities

    def spy(gp, *arguments, **named):
        value = density(gp, *arguments, **named)
        seen.append((gp, float(value.mean())))
        return value

    monkeypatch.setattr(choose, "held_out_densities", spy)
    monkeypatch.setattr(choose, "TOGETHER_BELOW", 0)
    X, y = held_out_world(12.0)
    fitted = LocalField.fit(X, y, None, options=replace(QUICKER, smooth=False))
    quality: dict[int, float] = {}
    for gp, value in seen:
        quality[id(gp)] = quality.get(id(gp), 0.0) + value
    best = max(seen, key=lambda pair: quality[id(pair[0])])[0]
    assert len(quality) >= 2
    # A candidate without weights is fitted anew before it is taken.
    assert fitted.gp is best or fitted.gp.weighted is False


@pytest.mark.parametrize("in_time", [False, True])
@pytest.mark.parametrize("blocks_win", [False, True])
@pytest.mark.parametrize("weights_win", [False, True])
def test_each_choice_of_the_kernel_goes_to_the_better_held_out_density(
    monkeypatch, in_time, blocks_win, weights_win
):
    X, y, n = world(600) if in_time else (*held_out_world(6.0, 600), None)
    honest = choose.fit_local_gp

    def fit(*arguments, weighted, **named):
        targets = arguments[3]
        result = honest(*arguments, weighted=weighted, **{**named, "steps": 2})
        return replace(result, degrees_of_freedom=4.0, loss=(float(len(targets)),))

    def density(gp, *_, **__):
        mixed = gp.loss[0] > 2.0  # both sets of single rows, and the blocks
        return torch.full((9,), float(gp.weighted == weights_win) + 0.5 * float(mixed == blocks_win))

    monkeypatch.setattr(choose, "fit_local_gp", fit)
    monkeypatch.setattr(choose, "held_out_densities", density)
    monkeypatch.setattr(choose, "TOGETHER_BELOW", 0)
    chosen = LocalField.fit(X, y, n, time=2 if in_time else None, options=replace(QUICKER, smooth=False)).gp
    assert chosen.weighted is weights_win
    # In time blocks are among the sets of every fit.
    assert (chosen.loss[0] > 2.0) is (blocks_win or in_time)


@pytest.mark.parametrize(("gain", "taken"), [(0.5, False), (2.0, True)])
def test_a_shift_with_the_count_must_gain_more_than_chance_does(monkeypatch, gain, taken):
    X, y, n = world(600)
    honest = choose.fit_local_gp

    def fit(*arguments, **named):
        found = honest(*arguments, **{**named, "steps": 2})
        return replace(found, count_shift=torch.tensor([1.0, 0.0]).double())

    def densities(gp, trials, targets):
        # Differences of sd 1 where there is a shift, whose mean gains so many standard errors over all kinds.
        share = [0.3 if kind == "sides" else 1.0 for kind, some in trials.judges.items() if some]
        chance = torch.linspace(-1.0, 1.0, 100).double()
        error = math.sqrt(sum(s**2 for s in share) / 100)
        return (chance / chance.std() + gain * error / sum(share)) * float(gp.count_shift[0])

    monkeypatch.setattr(choose, "fit_local_gp", fit)
    monkeypatch.setattr(choose, "TOGETHER_BELOW", 0)
    monkeypatch.setattr(choose, "held_out_densities", densities)
    fitted = LocalField.fit(X, y, n, time=2, options=replace(QUICKER, smooth=False))
    assert bool(fitted.gp.count_shift[0]) is taken


@pytest.mark.parametrize("true", [0.0, 1.0])
def test_a_shift_with_the_count_stays_only_where_it_predicts(monkeypatch, true):
    X, y, n = world(600)
    honest = choose.fit_local_gp

    def fit(*arguments, **named):
        found = honest(*arguments, **{**named, "steps": 20})
        return replace(found, count_shift=torch.tensor([1.0, 0.0]).double())

    monkeypatch.setattr(choose, "fit_local_gp", fit)
    monkeypatch.setattr(choose, "TOGETHER_BELOW", 0)
    chosen = LocalField.fit(X, y + true / n, n, time=2, options=replace(QUICKER, smooth=False)).gp
    assert chosen.count_shift[0] == true


def test_gaussian_noise_leaves_the_observations_unweighted_or_nearly_so():
    X, y = held_out_world(6.0)
    fitted = LocalField.fit(X, y, None, options=replace(QUICKER, smooth=False, steps=60))
    nu = fitted.gp.tails
    assert nu is None or nu > 8.0


def test_the_noise_knows_no_time_after_the_newest_observation(fitted):
    field, X, _, n = fitted
    late = X[:5].clone()
    late[:, 2] = X[:N, 2].max() + 3.0
    now = late.clone()
    now[:, 2] = X[:N, 2].max()
    known = field.known
    around = known.survey(field.frame.coordinates(now), torch.arange(24).expand(5, 24), known.latest)
    alike = replace(
        known, gp=replace(known.gp, of_times=None)
    )  # a noise of times knows of none beyond, either

    def inputs(X):
        return noise_inputs(alike, around, n[:5], X)

    # With the same surroundings a later year changes nothing: the network never saw it.
    assert torch.equal(inputs(late), inputs(now))
    early = X[:5].clone()
    early[:, 2] = X[:N, 2].min()
    assert not torch.equal(inputs(early), inputs(now))


def gapped(seed=0, n=1000, validation=600):
    """Places with noise 1, and validation rows of the same surface whose noise is three times that."""
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(rng.uniform(0, 10_000, (n, 2)))
    y = torch.sin(X[:, 0] / 2000) + 0.3 * torch.from_numpy(rng.normal(size=n))
    V = torch.from_numpy(rng.uniform(0, 10_000, (validation, 2)))
    v = torch.sin(V[:, 0] / 2000) + 0.9 * torch.from_numpy(rng.normal(size=validation))
    return X, y, V, v


def test_validation_rows_teach_the_noise_and_are_never_conditioned_on(kernels_in_parts):
    X, y, V, v = gapped()
    options = replace(QUICKER, smooth=True)
    alone = LocalField.fit(X, y, None, options=options)
    taught = LocalField.fit(X, y, None, options=options, validation=(V, v, None))
    torch.testing.assert_close(taught.seen.X, alone.seen.X)
    torch.testing.assert_close(taught.seen.value, alone.seen.value)
    at = V[:200]
    wide = taught.moments(at).noise_variance.sqrt().mean() / alone.moments(at).noise_variance.sqrt().mean()
    # A third of what it learned from (rows, blocks, validation) has sd .9 instead of .3, then calibration.
    assert wide > 1.3
    order = torch.randperm(len(v), generator=torch.Generator().manual_seed(1))
    again = LocalField.fit(X, y, None, options=options, validation=(V[order], v[order], None))
    torch.testing.assert_close(again.moments(at).noise_variance, taught.moments(at).noise_variance)
    kept = LocalField.from_state(*taught.state())
    torch.testing.assert_close(kept.moments(at).location, taught.moments(at).location)
    torch.testing.assert_close(kept.moments(at).noise_variance, taught.moments(at).noise_variance)


def test_a_field_saved_before_there_was_a_regional_surface_still_predicts(kernels_in_parts):
    X, y, V, _ = gapped()
    field = LocalField.fit(X, y, None, options=replace(QUICKER, smooth=True, regional=None))
    tensors, facts = field.state()
    del facts["options"]["regional"]
    torch.testing.assert_close(
        LocalField.from_state(tensors, facts).moments(V[:50]).location, field.moments(V[:50]).location
    )


def test_a_few_validation_rows_do_not_outvote_the_rest(kernels_in_parts):
    X, y, V, v = gapped(n=2000)
    options = replace(QUICKER, smooth=True)
    alone = LocalField.fit(X, y, None, options=options).moments(X[:300]).noise_variance

    def louder(copies):
        told = V[:210].repeat(copies, 1), v[:210].repeat(copies), None
        field = replace(LocalField.fit(X, y, None, options=options, validation=told), calibration=None)
        return float((field.moments(X[:300]).noise_variance.mean() / alone.mean()).sqrt())

    # Each is three times as noisy and counts as a row does; so many copies of them are a kind like the others.
    assert 1.0 < louder(1) < 0.72 * louder(5)


def test_a_handful_of_steps_is_enough_to_run():
    X, y, _, _ = gapped(n=300)
    for steps in (1, 5):
        field = LocalField.fit(X, y, None, options=replace(QUICKER, smooth=False, steps=steps))
        assert (
            len(field.gp.loss) == (steps + 3) // 4
        )  # a search comes after: a quarter as many, four times as long


def test_the_trend_levels_off_long_after_the_data():
    t = torch.linspace(0.0, 4.0, 9).double().repeat(30)
    trend = fit_trend(t, 0.5 * t, torch.ones(len(t)).double())
    soon, late = trend(torch.tensor([5.0, 40.0]).double(), 2)
    assert 2.3 < soon < 2.5 and late < 2.0 + 0.5 * 4.0 + 1e-9


@pytest.mark.parametrize("walk", [0.0, 0.3])
def test_ahead_of_few_distant_quarters_intervals_hold_what_they_promise(walk, kernels_in_parts):
    """95% intervals a quarter ahead of three, over levels that rise, and that walk beside."""
    held = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        n, quarter = 600, rng.integers(0, 4, 600).astype(float)
        P = rng.uniform(0, 30_000, (n, 2))
        level = np.cumsum(np.append(0.0, 0.3 + walk * rng.standard_normal(3)))
        y = np.sin(P[:, 0] / 3000) + level[quarter.astype(int)] + 0.5 * rng.standard_normal(n)
        X = torch.from_numpy(np.column_stack([P, 2020 + quarter]))
        past = quarter < 3
        mean, sd = y[past].mean(), y[past].std()
        z = torch.from_numpy((y - mean) / sd)
        m = LocalField.fit(X[past], z[past], None, time=2, options=QUICKER).moments(X[~past])
        half = 1.96 * (m.latent_variance + m.noise_variance).sqrt()
        held.append(float(((z[~past] - m.mean).abs() < half).double().mean()))
    assert 0.88 < np.mean(held) <= 0.98

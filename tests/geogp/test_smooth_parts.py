"""The smooth noise number by number: networks, parts, belief, and the steps that it is learned by."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from geogp.field.noise import smooth
from geogp.field.noise.gaps import log_factor
from geogp.field.noise.members import Dealt
from geogp.field.noise.smooth import HeldOutRows, Parts, SmoothNoise, fit_smooth_noise, new_smooth_noise


def f64(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def lively(n_inputs=5, members=3, seed=1, **what) -> SmoothNoise:
    """One whose last layer says something."""
    model = new_smooth_noise(n_inputs, members=members, hidden=7, **what)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in (model.last.weight, model.last.bias):
            p.copy_(1.5 * torch.randn(p.shape, generator=g))
    return model


# -- the density ----------------------------------------------------------------------------------------


def test_the_density_is_two_halves_of_a_students_t():
    one = torch.ones(6).double()
    location, value = f64(6), f64(6, seed=1)
    log_skewness = torch.tensor([0.0, 0.4, -0.4, 0.7, 0.1, -0.7]).double()
    p = Parts(location, 0.3 * one, 0.6 * one, 5.0 * one, log_skewness)
    gamma, away = np.exp(log_skewness.numpy()), (value - location).numpy()
    stretched = np.where(away < 0, away * gamma, away / gamma)
    density = 2.0 / (gamma + 1 / gamma) * stats.t(5.0, scale=0.9**0.5).pdf(stretched)
    np.testing.assert_allclose(p.log_density(value), np.log(density))


# -- the networks ---------------------------------------------------------------------------------------


def test_networks_are_two_residual_layers_of_standardised_and_clipped_inputs():
    model, x = lively(), 3.0 * f64(9, 5) + 1.0
    x[0, 0] = 1e9
    x[1, 0] = -1e9
    model.start_from(x[2:], 0.1, 0.2, 7.0)
    torch.testing.assert_close(model.center, x[2:].mean(0))
    torch.testing.assert_close(model.scale, x[2:].std(0, unbiased=False))
    z = ((x - model.center) / model.scale).clamp(-4.0, 4.0).float()
    assert torch.equal(model.standardised(x), z) and z[0, 0] == 4.0 and z[1, 0] == -4.0
    with torch.no_grad():
        out = model.outputs(x)
        for e in range(3):
            silu = nn.functional.silu
            h = silu(z @ model.first.weight[e] + model.first.bias[e])
            for layer in model.layers:
                h = h + silu(h @ layer.weight[e] + layer.bias[e])
            said = h @ model.last.weight[e] + model.last.bias[e]
            torch.testing.assert_close(out[e], said.double(), rtol=1e-5, atol=1e-5)
    each = torch.stack([x, x + 1, x - 1])
    with torch.no_grad():
        torch.testing.assert_close(model.outputs(each)[0], out[0], rtol=1e-5, atol=1e-5)
    assert out.dtype == torch.float64 and model.members == 3 and len(model.layers) == 2


def test_an_input_that_stands_still_is_not_stretched():
    model, x = lively(2), f64(9, 2)
    x[:, 1] = 5.0
    model.start_from(x, 0.1, 0.2, 7.0)
    assert model.scale[1] == 1.0 and model.scale[0] != 1.0


def test_nothing_said_a_network_is_48_wide_alone_and_says_nothing():
    model = new_smooth_noise(3)
    assert model.first.weight.shape == (1, 3, 48) and model.last.weight.shape == (1, 48, 5)
    assert (model.last.weight == 0).all() and (model.last.bias == 0).all() and model.spread is None
    assert model.trust.tolist() == [1.0] * 5 and model.gaps == 0.0
    assert model.center.tolist() == [0.0] * 3 and model.scale.tolist() == [1.0] * 3
    assert (
        not model.scales_surface
        and model.intercept.tolist() == [-4.0, 0.0, 1.0, 0.0]
        and model.prior_factor() == 1.0
    )
    with_factor = SmoothNoise(3, scales_surface=True)
    assert with_factor.intercept.tolist() == [0.0, -4.0, 0.0, 1.0, 0.0] and with_factor.last.weight.shape == (
        1,
        48,
        6,
    )
    assert SmoothNoise(3).first.weight.shape == (1, 3, 48) and not SmoothNoise(3).scales_surface
    with torch.no_grad():
        with_factor.intercept[0] = 0.7
    assert with_factor.prior_factor() == pytest.approx(math.exp(0.7))


def test_weights_begin_as_the_seed_says_and_leave_all_else_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = new_smooth_noise(3), new_smooth_noise(3, seed=0), new_smooth_noise(3, seed=1)
    assert torch.equal(one.first.weight, same.first.weight) and not torch.equal(
        one.first.weight, other.first.weight
    )
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((0.1, 0.2, 7.0), (0.1, 0.2, 4.9)),
        ((0.0, 0.0, 2.0), (1e-6, 1e-6, 0.1)),
        ((1e-7, 3.0, 2.15), (1e-6, 3.0, 0.1)),
    ],
)
def test_it_starts_from_a_constant_noise_within_bounds(given, wanted):
    for model in (new_smooth_noise(2), new_smooth_noise(2, scales_surface=True)):
        model.start_from(f64(9, 2), *given)
        np.testing.assert_allclose(model.intercept[-4:].detach().exp(), [*wanted, 1.0], rtol=1e-5)


# -- parts ----------------------------------------------------------------------------------------------


def test_outputs_are_bounded_logarithms():
    model = new_smooth_noise(2)
    model.start_from(f64(9, 2), 0.1, 0.4, 7.0)
    out = torch.tensor(
        [[0.5, 0.3, -0.2, 0.7, 0.4], [-1.0, 9.0, 9.0, 9.0, 9.0], [0.0, -9.0, -9.0, -9.0, -9.0]]
    ).double()
    mean, variance = f64(3), torch.tensor([0.2, 0.5, 0.9]).double()
    counts = torch.tensor([1.0, 4.0, 20.0]).double()
    with torch.no_grad():
        p = model.parts(out, mean, variance, torch.tensor(1.0).double(), counts)
    np.testing.assert_allclose(p.location, mean + out[:, 0] * torch.sqrt(variance + 0.1))
    assert torch.equal(p.latent_variance, variance)
    tau2 = 0.1 * np.exp([0.3, 6.0, -6.0])
    s2 = 0.4 * np.exp([-0.2, 4.0, -4.0])
    np.testing.assert_allclose(p.noise_variance, tau2 + s2 / counts.numpy(), rtol=1e-6)
    np.testing.assert_allclose(p.degrees_of_freedom, 2.1 + 4.9 * np.exp([0.7, 3.0, -2.0]), rtol=1e-6)
    np.testing.assert_allclose(p.log_skewness, 0.75 * np.tanh([0.4, 9.0, -9.0]), rtol=1e-6)


def test_the_factor_of_earlier_runs_shrinks_or_grows_the_surface_where_it_is_known():
    model = new_smooth_noise(2, scales_surface=True)
    with torch.no_grad():
        model.intercept[0] = 0.2
    out = torch.zeros(4, 6).double()
    out[:, 1] = torch.tensor([0.0, 0.0, 50.0, -50.0]).double()
    variance = torch.tensor([0.5, 2.0, 0.5, 0.5]).double()
    one = torch.ones(4).double()
    with torch.no_grad():
        p = model.parts(out, 0 * one, variance, 2.0 * one, one)
    log_a = 0.2 + np.array([0.0, 0.0, 1.0, -3.0]) * [0.75, 0.0, 0.75, 0.75]
    np.testing.assert_allclose(p.latent_variance, variance.numpy() * np.exp(log_a), rtol=1e-5)
    np.testing.assert_allclose(p.noise_variance, math.exp(-4.0) + 1.0, rtol=1e-6)


def believed(model, said, known, trust):
    """What each output counts for, by hats at v/v0 of 0, 1/2 and 1 for the shift."""
    out = said.clone()
    for i, k in enumerate(known.clamp(0, 1).tolist()):
        hats = [max(1 - 2 * k, 0.0), 1 - abs(2 * k - 1), max(2 * k - 1, 0.0)]
        out[i, 0] *= sum(h * t for h, t in zip(hats, trust[:3].tolist()))
    out[:, -4:-2] *= trust[3]
    out[:, -2:] *= trust[4]
    return out


@pytest.mark.parametrize("scales_surface", [False, True])
def test_what_is_said_counts_as_far_as_it_is_believed(scales_surface):
    model = lively(scales_surface=scales_surface)
    said, known = f64(6, 6 if scales_surface else 5), torch.tensor([0.0, 0.2, 0.5, 0.8, 1.0, 1.7]).double()
    trust = torch.tensor([0.9, 0.5, 0.2, 0.7, 0.4]).double()
    torch.testing.assert_close(model._believed(said, known, trust), believed(model, said, known, trust))


@pytest.mark.parametrize("gaps", [0.0, 0.6])
@pytest.mark.parametrize("who", [False, True])
def test_a_prediction_is_the_members_mean_their_disagreement_and_the_gap(gaps, who):
    model, x, mean = lively(spread=2), f64(8, 5), f64(8, seed=3)
    model.start_from(x, 0.1, 0.4, 7.0)
    variance, counts = torch.linspace(0.1, 1.9, 8).double(), torch.arange(1.0, 9.0).double()
    prior = torch.tensor(2.0).double()
    with torch.no_grad():
        model.trust.copy_(torch.tensor([0.9, 0.5, 0.2, 0.7, 0.4]))
        model.gaps.fill_(gaps)
        without = torch.arange(3)[:, None] == torch.arange(8)[None] % 4 if who else None
        p = model(x, mean, variance, prior, counts, without)
        out = model.outputs(x)
        said = out.mean(0)
        if who:
            for i in range(8):
                own = without[:, i]
                said[i] = out[own, i].mean(0) if own.any() else out[:, i].mean(0)
        share = believed(model, torch.ones(8, 5).double(), variance / 2.0, model.trust)[:, 0]
        wanted = model.parts(
            believed(model, said, variance / 2.0, model.trust), mean, variance, prior, counts
        )
        apart = (out[..., 0] - said[:, 0]).square().mean(0)
        more = 2.0 * (share * apart.sqrt()).square() * (variance + 0.1)
        if gaps:
            spread = x[:, 2] / model.scale[2]
            more = more + variance * torch.expm1(log_factor(model.gaps, variance / 2.0, spread))
    torch.testing.assert_close(p.latent_variance, variance + more)
    for name in ("location", "noise_variance", "degrees_of_freedom", "log_skewness"):
        torch.testing.assert_close(getattr(p, name), getattr(wanted, name))


def test_a_single_member_has_no_disagreement():
    model, x, one = lively(members=1), f64(4, 5), torch.ones(4).double()
    with torch.no_grad():
        p = model(x, 0 * one, 0.5 * one, one, one)
        wanted = model.parts(model.outputs(x)[0], 0 * one, 0.5 * one, one, one)
    assert torch.equal(p.latent_variance, 0.5 * one)
    torch.testing.assert_close(p.location, wanted.location)


# -- learning -------------------------------------------------------------------------------------------


def world(N=90, F=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    square = torch.arange(N) // 6
    return HeldOutRows(
        features=f64(N, F, seed=seed) * 2 + 1,
        mean=0.3 * f64(N, seed=seed + 1),
        variance=torch.rand(N, generator=g).double() * 0.5 + 0.1,
        drift_variance=torch.rand(N, generator=g).double() * 0.1,
        counts=torch.randint(1, 9, (N,), generator=g).double(),
        value=f64(N, seed=seed + 2),
        weight=torch.rand(N, generator=g).double() + 0.5,
        square=square,
        vote=torch.rand(N, generator=g).double() + 0.5,
    )


@pytest.mark.parametrize(("members", "batch"), [(3, 16), (1, 16), (3, 4096)])
def test_steps_are_adams_on_rows_that_each_member_may_see(monkeypatch, members, batch):
    rows, prior = world(), torch.tensor(0.8).double()
    monkeypatch.setattr(SmoothNoise, "believe", lambda *_: None)
    model = lively(members=members)
    model.start_from(rows.features, 0.1, 0.4, 7.0)
    plain = copy.deepcopy(model)
    dealt = Dealt.of(rows.square, members, 2)
    ticks = []
    history = fit_smooth_noise(
        model,
        rows,
        prior,
        dealt,
        epochs=3,
        batch=batch,
        learning_rate=0.01,
        weight_decay=0.2,
        seed=4,
        tick=lambda: ticks.append(1),
    )
    assert len(history) == len(ticks) == 3
    # The same, written out.
    own = [torch.nonzero(~w)[:, 0] for w in dealt.rows(rows.square)]
    n = max(map(len, own))
    batch = min(batch, n)
    other = [p for name, p in plain.named_parameters() if name != "intercept"]
    adam = torch.optim.AdamW(
        [{"params": other, "weight_decay": 0.2}, {"params": [plain.intercept], "weight_decay": 0.0}],
        lr=0.01,
        betas=(0.95, 0.999),
    )
    total = 3 * (n // batch)
    cycle = torch.optim.lr_scheduler.OneCycleLR(adam, 0.01, total_steps=total, pct_start=0.15)
    g = torch.Generator().manual_seed(4)
    losses = []
    for _ in range(3):
        order = []
        for some in own:
            times = -(-n // len(some))
            order.append(torch.cat([some[torch.randperm(len(some), generator=g)] for _ in range(times)])[:n])
        order, sums = torch.stack(order), []
        for i in range(n // batch):
            j = order[:, i * batch : (i + 1) * batch]
            out = plain.outputs(rows.features[j])
            p = plain.parts(out, rows.mean[j], rows.variance[j], prior, rows.counts[j])
            scale2 = p.latent_variance + rows.drift_variance[j] + p.noise_variance
            own_density = Parts(p.location, scale2, 0 * scale2, p.degrees_of_freedom, p.log_skewness)
            loss = -(rows.weight[j] * own_density.log_density(rows.value[j])).mean(1)
            adam.zero_grad()
            loss.sum().backward()
            adam.step()
            if cycle.last_epoch < total - 1:
                cycle.step()
            sums.append(loss.mean().item())
        losses.append(np.mean(sums))
    np.testing.assert_allclose(history, losses, rtol=1e-6)
    for a, b in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_nothing_said_it_learns_for_fifteen_epochs_of_batches_of_512(monkeypatch):
    asked = {}

    class Spied(smooth.Steps):
        def __init__(self, groups, **how):
            asked.update(how, groups=groups)
            super().__init__(groups, **how)

    monkeypatch.setattr(smooth, "Steps", Spied)
    believed_by = []
    monkeypatch.setattr(SmoothNoise, "believe", lambda model, *_: believed_by.append(model.members))
    rows = world(1400)
    results = []
    for said in ({}, {"seed": 0}, {"seed": 1}):
        model = lively()
        fit_smooth_noise(model, rows, torch.tensor(0.8).double(), Dealt.of(rows.square, 3), epochs=1, **said)
        results.append(model.last.weight.detach().clone())
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    assert asked["rise"] == 0.15 and [(g.rate, g.weight_decay) for g in asked["groups"]] == [
        (1.2e-2, 0.3),
        (1.2e-2, 0.0),
    ]
    few = world(30)
    fit_smooth_noise(lively(members=1), few, torch.tensor(0.8).double(), Dealt.of(few.square, 1))
    assert asked["total"] == 15 and believed_by == [3, 3, 3]
    many = world(1024)
    fit_smooth_noise(lively(members=1), many, torch.tensor(0.8).double(), Dealt.of(many.square, 1), epochs=3)
    assert asked["total"] == 3 * 2


def objective(model, rows, prior, without, trust):
    """Minus what rows say for members that have not seen them, and what believing costs; a row of them."""
    with torch.no_grad():
        out = model.outputs(rows.features)
    share = without.double() / without.sum(0)
    said = (out * share[..., None]).sum(0)
    p = model.parts(
        believed(model, said, rows.variance / prior, trust), rows.mean, rows.variance, prior, rows.counts
    )
    p = Parts(
        p.location,
        p.latent_variance + rows.drift_variance,
        p.noise_variance,
        p.degrees_of_freedom,
        p.log_skewness,
    )
    likely = (rows.vote * p.log_density(rows.value)).sum()
    return float((3.0 * trust.sum() - likely).detach() / len(rows))


def test_belief_and_the_level_of_the_noise_are_the_likeliest():
    rows, prior = world(1500, seed=7), torch.tensor(0.8).double()
    rows = replace(rows, variance=1.3 * rows.variance)
    model = lively(seed=3)
    with torch.no_grad():
        model.last.weight.mul_(0.6)
        model.last.bias.mul_(0.6)
    model.start_from(rows.features, 0.2, 0.5, 7.0)
    start = model.intercept.detach().clone()
    with torch.no_grad():  # what the members say is mostly so
        p = model.parts(
            0.5 * model.outputs(rows.features).mean(0), rows.mean, rows.variance, prior, rows.counts
        )
        sd = (p.latent_variance + rows.drift_variance + 0.9 * p.noise_variance).sqrt()
        rows = replace(rows, value=p.location + sd * f64(1500, seed=11))
    dealt = Dealt.of(rows.square, 3)
    without = dealt.rows(rows.square)
    without[:, :50] = False  # rows that all have learned from say nothing
    before = copy.deepcopy(model)
    model.believe(rows, prior, without)
    seen, own = rows.at(slice(50, None)), without[:, 50:]
    assert ((model.trust > 0.02) & (model.trust < 0.98)).sum() >= 4
    best = objective(before, seen, prior, own, model.trust)
    for k in range(5):
        for step in (-0.05, 0.05):
            moved = torch.sigmoid(torch.logit(model.trust.clamp(1e-4, 1 - 1e-4)) + step * torch.eye(5)[k])
            assert best <= objective(before, seen, prior, own, moved.double()) + 1e-7
    level = (model.intercept.detach() - start)[0]
    torch.testing.assert_close(model.intercept.detach() - start, torch.tensor([1.0, 1.0, 0.0, 0.0]) * level)
    assert 0.01 < abs(float(level)) < 1.0

    def at(more):
        with torch.no_grad():
            out = before.outputs(seen.features)
            said = (out * (own.double() / own.sum(0))[..., None]).sum(0)
            share = believed(model, torch.ones(len(seen), 5).double(), seen.variance / prior, model.trust)[
                :, 0
            ]
            p = before.parts(
                believed(model, said, seen.variance / prior, model.trust),
                seen.mean,
                seen.variance,
                prior,
                seen.counts,
            )
            doubt = 2.0 * share.square() * out[..., 0].var(0, unbiased=False) * (seen.variance + 0.1)
            latent = p.latent_variance + seen.drift_variance + doubt
            p = Parts(
                p.location, latent, p.noise_variance * math.exp(more), p.degrees_of_freedom, p.log_skewness
            )
            return -float((seen.vote * p.log_density(seen.value)).sum())

    assert at(float(level)) <= min(at(float(level) - 0.03), at(float(level) + 0.03))


def test_what_gaps_teach_is_kept_beside_the_level(monkeypatch):
    asked = {}

    def learned(say, known, spread, fold, square):
        asked.update(say=say, known=known, spread=spread, fold=fold, square=square)
        return torch.tensor([0.7, 0.2]).double()

    monkeypatch.setattr(smooth, "learned_in_gaps", learned)
    rows, prior = world(120), torch.tensor(0.8).double()
    model = lively(spread=2)
    with torch.no_grad():
        model.last.weight.mul_(0.3)
    model.start_from(rows.features, 0.2, 0.5, 7.0)
    start, without = model.intercept.detach().clone(), Dealt.of(rows.square, 3).rows(rows.square)
    before = copy.deepcopy(model)
    model.believe(rows, prior, without)
    assert float(model.gaps) == pytest.approx(0.7)
    torch.testing.assert_close(model.intercept.detach() - start, torch.tensor([0.2, 0.2, 0.0, 0.0]))
    torch.testing.assert_close(asked["known"], rows.variance / 0.8)
    torch.testing.assert_close(asked["spread"], rows.features[:, 2] / model.scale[2])
    assert asked["fold"].tolist() == [int(torch.nonzero(own)[0]) for own in without.T]
    assert torch.equal(asked["square"], rows.square)
    with torch.no_grad():
        out = before.outputs(rows.features)
        said = (out * without.double()[..., None]).sum(0)
        trust, known = model.trust, rows.variance / prior
        share = believed(model, torch.ones(120, 5).double(), known, trust)[:, 0]
        p = before.parts(believed(model, said, known, trust), rows.mean, rows.variance, prior, rows.counts)
        doubt = 2.0 * share.square() * out[..., 0].var(0, unbiased=False) * (rows.variance + 0.1)
        log_a = 0.3 * f64(120, seed=5)
        latent = p.latent_variance + rows.drift_variance + doubt + rows.variance * (log_a.exp() - 1.0)
        p = Parts(p.location, latent, p.noise_variance * math.exp(0.4), p.degrees_of_freedom, p.log_skewness)
        wanted = rows.vote * p.log_density(rows.value)
        torch.testing.assert_close(asked["say"](log_a, 0.4), wanted, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(smooth, "learned_in_gaps", lambda *_: None)
    other = copy.deepcopy(before)
    other.believe(rows, prior, without)
    assert other.gaps == 0.0 and not torch.equal(other.intercept, before.intercept)


def test_where_no_row_is_unseen_all_is_believed():
    rows = world(60)
    model = lively()
    before = copy.deepcopy(model.state_dict())
    model.believe(rows, torch.tensor(0.8).double(), torch.zeros(3, 60, dtype=torch.bool))
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


@pytest.mark.parametrize(("noise", "level"), [(1e-4, 1.0), (1e4, -1.0)])
def test_the_level_stays_within_bounds(noise, level):
    rows = world(300)
    model = new_smooth_noise(5, members=3)
    model.start_from(rows.features, noise, noise, 30.0)
    start = model.intercept.detach().clone()
    model.believe(rows, torch.tensor(0.8).double(), Dealt.of(rows.square, 3).rows(rows.square))
    assert float((model.intercept.detach() - start)[0]) == pytest.approx(level, abs=1e-5)

"""Smooth noise: bounded latent factor, recovers tau, s and the shift, believes what unseen rows bear out."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.errors import InvalidInput
from geogp.field import FieldOptions
from geogp.field.noise.members import Dealt, SideBySide, mean_of_those
from geogp.field.noise.peaks import LARGEST_SHARE, beside, even_peaks
from geogp.field.noise.smooth import (
    AT_ONCE,
    HeldOutRows,
    Parts,
    SecondPeak,
    fit_smooth_noise,
    new_smooth_noise,
)
from geogp.predictive import Predictive


def parts(model, features, variance, counts, prior=2.0):
    zero = torch.zeros(len(features)).double()
    with torch.no_grad():
        return model(features, zero, variance, torch.tensor(prior).double(), counts)


def fitted(model, features, variance, counts, y, **settings):
    """Fitted to rows of mean zero in squares of ten, that are left to members by threes; the losses."""
    zero, one = torch.zeros(len(y)).double(), torch.ones(len(y)).double()
    square = torch.arange(len(y)) // 10
    rows = HeldOutRows(features, zero, variance, zero, counts, y, one, square, one)
    dealt = Dealt.of(square, model.members)
    return fit_smooth_noise(model, rows, torch.tensor(1.0).double(), dealt, **settings)


def test_starts_at_the_constant_noise():
    model = new_smooth_noise(3)
    features = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double()
    model.start_from(features, 0.04, 0.9, 5.0)
    v, n = torch.linspace(0, 2, 50).double(), torch.arange(1, 51).double()
    p = parts(model, features, v, n)
    assert torch.allclose(p.noise_variance, 0.04 + 0.9 / n, rtol=1e-5)
    assert torch.allclose(p.latent_variance, v, rtol=1e-6)
    assert torch.allclose(p.degrees_of_freedom, torch.full((50,), 5.0).double(), rtol=1e-5)
    assert torch.equal(p.location, torch.zeros(50).double())


def test_latent_variance_never_exceeds_the_prior_whatever_the_weights():
    model = new_smooth_noise(4)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(3 * torch.randn(p.shape, generator=generator))
    features = 10 * torch.randn(2000, 4, generator=generator).double()
    variance = 2.0 * torch.rand(2000, generator=generator).double()
    variance[:20] = 2.0
    got = parts(model, features, variance, torch.ones(2000).double())
    prior = 2.0 * model.prior_factor()
    assert (got.latent_variance <= prior * (1 + 1e-9)).all()
    assert torch.allclose(got.latent_variance[:20], torch.full((20,), prior).double())
    assert (got.noise_variance > 0).all() and (got.degrees_of_freedom > 2.1 - 1e-9).all()


def test_recovers_tau_s_and_the_level_shift():
    # 20,000 rows; the noise doubles from west to east and the level falls with 1/n.
    g = torch.Generator().manual_seed(0)
    N = 20_000
    x = torch.rand(N, generator=g).double()
    n = torch.tensor([1.0, 3.0, 10.0, 100.0]).double()[torch.randint(4, (N,), generator=g)]
    features = torch.stack([x, n.log(), n.rsqrt()], dim=-1)
    variance = torch.full((N,), 0.05).double()
    truth = 0.02 * (1 + x) + 0.5 * (1 + x) / n
    y = -0.3 / n + (0.05 + truth).sqrt() * torch.randn(N, generator=g).double()
    model = new_smooth_noise(3)
    model.start_from(features, 0.1, 0.3, 8.0)
    zero = torch.zeros(N).double()
    history = fitted(model, features, variance, n, y, epochs=12)
    assert history[-1] < history[0]
    with torch.no_grad():
        p = model(features, zero, variance, torch.tensor(1.0).double(), n)
    scale2 = (p.latent_variance + p.noise_variance) * p.degrees_of_freedom / (p.degrees_of_freedom - 2)
    for count in (1.0, 10.0, 100.0):
        for west in (True, False):
            m = (n == count) & ((x < 0.5) == west)
            # About 2,500 rows a cell: sd of the log variance ~ sqrt(2 / 2500) = .03; the network smooths across.
            assert abs((scale2[m].mean() / (0.05 + truth[m]).mean()).log().item()) < 0.15
    single = n == 1.0
    shift = p.location[single].mean().item() - p.location[n == 100.0].mean().item()
    assert abs(shift + 0.297) < 4 * math.sqrt(0.8 / single.sum().item())


def test_the_same_seed_gives_the_same_network():
    a, b, c = new_smooth_noise(3, seed=1), new_smooth_noise(3, seed=1), new_smooth_noise(3, seed=2)
    assert torch.equal(a.first.weight, b.first.weight)
    assert not torch.equal(a.first.weight, c.first.weight)


def test_recovers_skewness_that_differs_from_place_to_place():
    # 20,000 rows of two-piece Gaussians: gamma 0.6 in the west, 1 in the east. The sd of an estimated log gamma
    # from n rows is about .75 / sqrt(n) ~ .01 a half; the network smooths across the border.
    g = torch.Generator().manual_seed(0)
    N = 20_000
    x = torch.rand(N, generator=g).double()
    log_gamma = torch.where(x < 0.5, math.log(0.6), 0.0)
    gamma = log_gamma.exp()
    right = torch.rand(N, generator=g).double() < gamma**2 / (1 + gamma**2)
    size = torch.randn(N, generator=g).double().abs()
    y = 0.4 * torch.where(right, gamma, -1 / gamma) * size
    model = new_smooth_noise(1)
    model.start_from(x[:, None], 0.1, 0.1, 10.0)
    zero, one = torch.zeros(N).double(), torch.ones(N).double()
    fitted(model, x[:, None], zero + 1e-4, one, y, epochs=12)
    p = parts(model, x[:, None], zero + 1e-4, one, 1.0)
    for west in (True, False):
        half = (x < 0.4) if west else (x > 0.6)
        assert abs(p.log_skewness[half].mean() - log_gamma[half].mean()) < 0.06
        assert p.location[half].mean().abs() < 0.04  # the mode stays where it was


def test_recovers_a_second_peak_where_there_is_one():
    # 20,000 rows: three in ten of the west lie 2 above the others. The share's standard error is .3 / sqrt(8,000) ~ .004.
    g = torch.Generator().manual_seed(0)
    N = 20_000
    x = torch.rand(N, generator=g).double()
    second = (x < 0.5) & (torch.rand(N, generator=g).double() < 0.3)
    y = torch.where(
        second, 2.0 + 0.5 * torch.randn(N, generator=g), 0.3 * torch.randn(N, generator=g)
    ).double()
    model = new_smooth_noise(1, members=3, peak=True)
    model.start_from(x[:, None], 0.1, 0.1, 10.0)
    zero, one = torch.zeros(N).double(), torch.ones(N).double()
    fitted(model, x[:, None], zero + 1e-4, one, y, epochs=12)
    p = parts(model, x[:, None], zero + 1e-4, one, 1.0)
    west, east = x < 0.4, x > 0.6
    assert abs(p.peak.share[west].mean() - 0.3) < 0.03 and p.peak.share[east].max() < 0.02
    assert abs(p.peak.offset[west].mean() - 2.0) < 0.1
    assert abs((p.latent_variance + p.peak.noise_variance)[west].sqrt().mean() - 0.5) < 0.06
    assert p.location[west].mean().abs() < 0.04 and p.noise_variance[west].sqrt().mean() < 0.35


def split(share=0.5, apart=0.8, own=0.15, n=3000, seed=0):
    """Rows of two hills ±apart about a mean known up to a variance of .04, of 1 in the other half, in squares of ten."""
    rng = np.random.default_rng(seed)
    known = np.where(np.arange(n) % 2, 1.0, 0.04)
    noise = np.where(rng.random(n) < share, apart, -apart) + own * rng.normal(size=n)
    y = torch.from_numpy(np.sqrt(known) * rng.normal(size=n) + noise)
    zero, one = torch.zeros(n).double(), torch.ones(n).double()
    features, square = torch.from_numpy(rng.normal(size=(n, 3))), torch.arange(n) // 10
    return HeldOutRows(features, zero, torch.from_numpy(known), zero, one, y, one, square, one)


def test_starts_at_two_peaks_where_half_of_the_rows_lie_at_either():
    rows = split()
    model = new_smooth_noise(3, members=3, peak=True)
    model.start_from(rows.features, 0.66, 1e-6, 30.0)
    model.start_apart(rows)
    v, one = torch.full((3000,), 0.04).double(), torch.ones(3000).double()
    with torch.no_grad():
        p = model(rows.features, rows.mean, v, torch.tensor(1.0).double(), one)
    assert torch.allclose(p.location, torch.tensor(-0.8).double(), atol=0.03)
    assert torch.allclose(p.location + p.peak.offset, torch.tensor(0.8).double(), atol=0.03)
    assert torch.allclose(p.noise_variance, torch.tensor(0.15**2).double(), atol=0.02)
    assert torch.allclose(p.peak.noise_variance, torch.tensor(0.15**2).double(), atol=0.02)
    assert ((p.peak.share > 0.4) & (p.peak.share < 0.5)).all()


@pytest.mark.parametrize("share", [0.5, 0.35])
def test_learns_two_peaks_of_about_equal_height(share):
    """By symmetry nothing draws a second peak away from the first: begun there, it stays."""
    rows, unseen = split(share), split(share, seed=1)
    oracle = -float(split_density(unseen, share).mean())
    found = []
    for apart in (False, True):
        model = new_smooth_noise(3, members=3, peak=True)
        model.start_from(rows.features, 0.66, 1e-6, 30.0)
        if apart:
            model.start_apart(rows)
        fit_smooth_noise(model, rows, torch.tensor(1.0).double(), Dealt.of(rows.square, 3), epochs=4)
        with torch.no_grad():
            p = model(
                unseen.features, unseen.mean, unseen.variance, torch.tensor(1.0).double(), unseen.counts
            )
        found.append(-float(p.log_density(unseen.value).mean()) - oracle)
    assert found[1] < 0.03 and found[0] > 2.0 * found[1]


def split_density(rows, share, apart=0.8, own=0.15):
    sd = (rows.variance + own**2).sqrt()
    hills = [
        np.log(part) + torch.distributions.Normal(at, sd).log_prob(rows.value)
        for part, at in ((share, apart), (1.0 - share, -apart))
    ]
    return torch.logaddexp(*hills)


@pytest.mark.parametrize("noise", ["normal", "student", "few"])
def test_one_hill_starts_as_one(noise):
    rows, rng = split(), np.random.default_rng(3)
    y = {
        "normal": rng.normal(size=3000),
        "student": rng.standard_t(4.0, size=3000),
        "few": np.where(rng.random(3000) < 0.06, 2.0, 0.0) + 0.3 * rng.normal(size=3000),
    }[noise]
    model = new_smooth_noise(3, members=3, peak=True)
    model.start_from(rows.features, 1.0, 1e-6, 30.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rows = replace(rows, value=torch.from_numpy(y))
    assert even_peaks(rows.value, rows.variance, rows.weight) is None
    model.start_apart(rows)
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if name != "intercept")
    assert torch.equal(before["intercept"][:-3], after["intercept"][:-3])  # the first hill's


def test_a_second_peak_is_sought_where_rows_have_one():
    """On the side where it lies, so that all members begin beside it: those of two sides would say neither together."""
    for side, share, wide, seed in ((-1.7, 0.08, 0.6, 0), (1.4, 0.15, 0.3, 1), (2.5, 0.03, 0.4, 2)):
        rng = np.random.default_rng(seed)
        known, noise = rng.uniform(0.02, 0.2, 8000), rng.uniform(0.5, 1.5, 8000) * 0.15
        second = rng.random(8000) < share
        own = np.where(
            second, side + wide * rng.normal(size=8000), np.sqrt(noise) * rng.standard_t(8.0, size=8000)
        )
        away = np.sqrt(known) * rng.normal(size=8000) + own
        told = (torch.from_numpy(v) for v in (away, known, 2.0 * noise))
        logit, offset, log_sd = beside(*told, 8.0, torch.ones(8000).double()).tolist()
        assert offset == pytest.approx(side, abs=0.15) and math.exp(log_sd) == pytest.approx(wide, rel=0.25)
        assert LARGEST_SHARE / (1.0 + math.exp(-logit)) == pytest.approx(share, rel=0.3)
        model = new_smooth_noise(3, members=3, peak=True)
        rows = replace(split(n=8000), value=torch.from_numpy(away), variance=torch.from_numpy(known))
        model.start_from(rows.features, 0.15, 1e-6, 8.0)
        model.start_apart(rows)
        assert float(model.intercept[-2].detach()) == pytest.approx(side, abs=0.3)


@pytest.mark.parametrize("peaks", [1, 2])
def test_its_density_is_that_of_the_predictive_distribution(peaks):
    g = torch.Generator().manual_seed(2)
    location, value, skew = torch.randn(3, 40, generator=g).double()
    latent, noise, df = (torch.rand(3, 40, generator=g).double() + 0.1).unbind()
    share, offset, wide = torch.rand(3, 40, generator=g).double().unbind()
    peak = SecondPeak(0.5 * share, 6.0 * offset - 3.0, wide) if peaks == 2 else None
    p = Parts(location, latent, noise, df + 2.0, skew.clamp(-0.7, 0.7), peak)
    of = p.predictive()
    if peak is not None:
        np.testing.assert_allclose(of.peak.location, p.location + peak.offset)
        np.testing.assert_allclose(of.peak.scale**2, latent + wide)
    predictive = Predictive(
        location.numpy(),
        (latent + noise).sqrt().numpy(),
        p.degrees_of_freedom.numpy(),
        log_skewness=p.log_skewness.numpy(),
        peak=of.peak,
    )
    np.testing.assert_array_equal(of.quantile(0.3), predictive.quantile(0.3))
    np.testing.assert_allclose(
        p.log_density(value).numpy(), predictive.log_density(value.numpy()), rtol=1e-10
    )


def test_members_side_by_side_are_linear_layers():
    layers = SideBySide(3, 4, 2)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        got = layers(x)
        for member in range(3):
            want = torch.nn.functional.linear(x, layers.weight[member].T, layers.bias[member, 0])
            # numbers of size one in float32, where each processor sums in an order of its own
            assert torch.allclose(got[member], want, atol=1e-6)
            assert torch.allclose(layers(x.expand(3, 5, 4))[member], want, atol=1e-6)


def test_each_square_is_unknown_to_one_member_of_three():
    square = torch.tensor([5, 5, 2, 9, 9, 9, 11, 30, 31])
    dealt = Dealt.of(square, members=6, seed=3)
    without = dealt.rows(square)
    assert torch.equal(without[:3].sum(0), torch.ones(9).long())
    assert torch.equal(without[3:].sum(0), torch.ones(9).long())
    assert torch.equal(without[:, 0], without[:, 1]) and torch.equal(without[:, 3], without[:, 5])
    assert not Dealt.of(square, members=1).without.any()
    three = Dealt.of(square[2:5], members=3), Dealt.of(square[1:], members=3)
    assert not three[0].without.any()  # two squares are too few to deal
    assert torch.equal(three[1].without, Dealt.of(square[1:], members=3, seed=0).without)
    few = Dealt.of(torch.tensor([4, 7, 9]), members=3).without
    assert few.sum(0).tolist() == few.sum(1).tolist() == [1, 1, 1]
    outputs = torch.arange(54.0).reshape(6, 9, 1)
    alone = mean_of_those(outputs, without)
    for row in range(9):
        assert alone[row, 0] == outputs[without[:, row], row, 0].mean()


def test_members_learn_nothing_from_the_squares_they_are_left_without():
    # Rows of the squares that one member is left without tell of a level of 1, all others of 0.
    g = torch.Generator().manual_seed(0)
    N = 3000
    features = torch.randn(N, 3, generator=g).double()
    square = torch.arange(N) // 10
    dealt = Dealt.of(square, members=3)
    without = dealt.rows(square)
    zero, one = torch.zeros(N).double(), torch.ones(N).double()
    y = torch.where(without[1], 1.0, 0.1 * torch.randn(N, generator=g).double())
    model = new_smooth_noise(3, members=3)
    model.start_from(features, 0.1, 0.1, 8.0)
    rows = HeldOutRows(features, zero, one, zero, one, y, one, square, one)
    fit_smooth_noise(model, rows, torch.tensor(1.0).double(), dealt, epochs=6)
    with torch.no_grad():
        shift = model.outputs(features)[..., 0].mean(1)
    assert shift[1].abs() < 0.05
    assert shift[0] > 0.2 and shift[2] > 0.2


def test_believes_a_shift_that_unseen_rows_bear_out_and_no_other():
    # 3,000 rows in squares; in one world the level follows a feature, in the other nothing does.
    g = torch.Generator().manual_seed(0)
    N = 3000
    features = torch.randn(N, 20, generator=g).double()
    noise, one = torch.randn(N, generator=g).double(), torch.ones(N).double()
    variance = 0.1 * one
    believed, error, doubt = [], [], []
    for size in (0.0, 1.0):
        truth = size * torch.tanh(features[:, 0])
        model = new_smooth_noise(20, members=6)
        model.start_from(features, 0.5, 0.5, 30.0)
        fitted(model, features, variance, one, truth + noise)
        p = parts(model, features, variance, one, prior=1.0)
        believed.append(model.trust[0].item())
        error.append((p.location - truth).square().mean().sqrt().item())
        doubt.append((p.latent_variance - variance).mean().item())
    assert believed[0] < 0.2 and believed[1] > 0.8
    # As if it were believed in full the level that is not there errs by .25.
    assert error[0] < 0.05 and error[1] < 0.4
    assert 0.0 <= doubt[0] < 0.01 < doubt[1]


@pytest.mark.parametrize("seed", range(3))
def test_noise_that_members_learned_by_heart_is_not_believed(seed):
    """800 rows whose noise follows none of twelve features: rows that a member has learned from look less noisy to it than
    new ones are, and so, before, did all places (by an eighth of the variance)."""
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(800, 12, generator=g).double()
    one, y = torch.ones(800).double(), 0.7 * torch.randn(800, generator=g).double()
    model = new_smooth_noise(12, members=6, seed=seed)
    model.start_from(features, 0.4, 1e-6, 30.0)
    fitted(model, features, 0 * one, one, y)
    p = parts(model, torch.randn(800, 12, generator=g).double(), 0 * one, one)
    df = p.degrees_of_freedom
    variance = p.noise_variance * df / (df - 2.0)
    assert float(variance.mean() / y.square().mean()) == pytest.approx(1.0, abs=0.03)
    assert float(variance.std() / variance.mean()) < 0.05


def test_many_rows_go_through_the_networks_in_pieces():
    model = new_smooth_noise(5, members=3)
    model.last.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    features = torch.randn(2 * AT_ONCE + 7, 5, generator=torch.Generator().manual_seed(1)).double()
    at_once = model.outputs(features)  # as where something is learned
    with torch.no_grad():
        in_pieces = model.outputs(features)
    assert at_once.requires_grad and not in_pieces.requires_grad
    # A product of other sizes may add in another order.
    torch.testing.assert_close(in_pieces, at_once.detach(), rtol=1e-5, atol=1e-5)


def test_rows_are_judged_by_those_who_have_not_seen_them():
    # Each member says another constant; what is said without some of them is the mean of those alone.
    model = new_smooth_noise(2, members=3)
    with torch.no_grad():
        model.last.bias[:, 0, 0] = torch.tensor([0.3, 0.6, 0.9])
    one = torch.ones(2).double()
    without = torch.tensor([[True, False], [False, False], [True, True]])
    alone = model(torch.zeros(2, 2).double(), 0 * one, one, one, one, without)
    both = model(torch.zeros(2, 2).double(), 0 * one, one, one, one)
    root = math.sqrt(1.1)
    np.testing.assert_allclose(alone.location.detach(), [0.6 * root, 0.9 * root], rtol=1e-6)
    np.testing.assert_allclose(both.location.detach(), [0.6 * root] * 2, rtol=1e-6)
    # Three estimates without a third each: twice the mean square of their differences.
    np.testing.assert_allclose(both.latent_variance.detach(), 1.0 + 2 * 0.06 * 1.1, rtol=1e-6)


def test_where_all_rows_lie_together_all_members_learn_from_them():
    square = torch.zeros(40).long()
    assert not Dealt.of(square, members=6).without.any()
    outputs = torch.arange(12.0).reshape(3, 2, 2)
    assert torch.equal(mean_of_those(outputs, torch.zeros(3, 2, dtype=torch.bool)), outputs.mean(0))
    g = torch.Generator().manual_seed(0)
    model, one = new_smooth_noise(1, members=3), torch.ones(40).double()
    x = torch.randn(40, 1, generator=g).double()
    rows = HeldOutRows(x, 0 * one, one, 0 * one, one, x[:, 0], one, square, one)
    fit_smooth_noise(model, rows, torch.tensor(1.0).double(), Dealt.of(square, 3), epochs=2)
    assert torch.equal(model.trust, torch.ones(5).double())
    assert torch.isfinite(parts(model, x, one, one).location).all()


@pytest.mark.parametrize("members", [0, 2, 4, -3])
def test_members_come_in_threes(members):
    with pytest.raises(InvalidInput, match="multiple of 3"):
        FieldOptions(members=members)

"""The surface's variance in gaps: the formula, what rows bear out of it, and what they do not."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize

from geogp.field import FieldOptions, LocalField
from geogp.field.noise.gaps import MOST, STEEPEST, learned_in_gaps, log_factor
from geogp.field.noise.least import least
from geogp.field.noise.members import Dealt
from geogp.field.noise.smooth import HeldOutRows, fit_smooth_noise, new_smooth_noise
from geogp.field.options import SMOOTH_FROM
from geogp.field.predict.outlook import outlook
from geogp.field.surroundings import NAMES

N = 4000


def test_known_places_and_those_where_nothing_is_known_keep_the_kernels_own_variance():
    k, b = torch.linspace(0.0, 1.0, 301).double(), torch.tensor(0.9).double()
    weight = log_factor(b, k, torch.full_like(k, -0.5)) / -0.45
    assert weight[0] == 0.0 and weight[-1] == 0.0
    assert float(weight.max()) == pytest.approx(1.0) and int(weight.argmax()) == 200
    torch.testing.assert_close(weight, 6.75 * k**2 * (1 - k))
    assert (log_factor(b, k, 0 * k) == 0.0).all()
    rough = log_factor(b, k, torch.full_like(k, 2.0))
    torch.testing.assert_close(rough, torch.minimum((1.8 * weight).clamp(max=MOST), -k.clamp_min(1e-9).log()))


@pytest.mark.parametrize("b", [0.0, 0.5, STEEPEST])
def test_the_variance_never_exceeds_that_before_any_data(b):
    g = torch.Generator().manual_seed(0)
    k, s = torch.rand(500, generator=g).double(), 4 * torch.randn(500, generator=g).double()
    log_a = log_factor(torch.tensor(b).double(), k, s)
    assert (k * log_a.exp() <= 1.0 + 1e-12).all()
    assert (log_a.abs() <= MOST + 1e-12).all()


def rows(b, seed, n=N):
    """Values whose variance is a v + noise, with v / v₀ and the spread known; squares of 20 rows."""
    g = torch.Generator().manual_seed(seed)
    k = torch.rand(n, generator=g).double()
    s = torch.randn(n, generator=g).double()
    noise = 1.0 / torch.randint(1, 30, (n,), generator=g).double()
    a = log_factor(torch.tensor(b).double(), k, s).exp()
    y = (a * k + noise).sqrt() * torch.randn(n, generator=g).double()

    def say(log_a, level):
        total = k * torch.as_tensor(log_a).exp() + noise * torch.as_tensor(level).exp()
        return -0.5 * (y.square() / total + total.log())

    square = torch.arange(n) // 20
    return say, k, s, square % 3, square


def test_rows_tell_how_the_variance_follows_the_spread():
    at = learned_in_gaps(*rows(0.6, seed=0, n=20_000))
    assert at is not None
    b, level = at.tolist()
    assert b == pytest.approx(0.6, abs=0.04)
    assert level == pytest.approx(0.0, abs=0.08)


def test_what_is_not_so_is_believed_by_chance_alone():
    believed = [learned_in_gaps(*rows(0.0, seed)) for seed in range(20)]
    some = [at for at in believed if at is not None]
    assert len(some) <= 2
    assert all(at[0] < 0.2 for at in some)


def test_less_variance_where_neighbours_disagree_is_not_believed():
    at = learned_in_gaps(*rows(0.6, seed=1))
    assert at is not None and at[0] > 0.4
    say, k, s, fold, square = rows(0.6, seed=1)
    assert learned_in_gaps(say, k, -s, fold, square) is None


def test_it_follows_no_steeper_than_its_bound():
    at = learned_in_gaps(*rows(4.0, seed=0, n=20_000))
    assert at is not None and float(at[0]) == 1.5


def by_hand(y, k, s, noise, rows, share=1.0):
    """b and the log of the factor on the noise, and that factor without b, by another search."""

    def cost(at):
        log_a = np.minimum(np.clip(at[0] * 6.75 * k**2 * (1 - k) * s, -1.5, 1.5), -np.log(k))
        total = k * np.exp(log_a) + noise * np.exp(at[1])
        return 0.5 * (at[0] / 0.5) ** 2 + 0.5 * share * (y**2 / total + np.log(total))[rows].sum()

    def density(at):
        log_a = np.minimum(np.clip(at[0] * 6.75 * k**2 * (1 - k) * s, -1.5, 1.5), -np.log(k))
        total = k * np.exp(log_a) + noise * np.exp(at[1])
        return -0.5 * share * (y**2 / total + np.log(total))

    exact = {"xatol": 1e-6, "fatol": 1e-10}
    bounds = [(0.0, 1.5), (-1.5, 1.5)]
    with_b = minimize(cost, [0.3, 0.0], bounds=bounds, method="Nelder-Mead", options=exact).x
    level = minimize(lambda at: cost([0.0, at[0]]), [0.0], method="Nelder-Mead", options=exact).x[0]
    return with_b, level, density


def few(seed, n=600):
    """As `rows`, beside what they are made of."""
    say, k, s, fold, square = rows(0.9, seed, n)
    y2_and_log = -2.0 * say(0.0, 0.0)
    g = torch.Generator().manual_seed(seed)
    torch.rand(n, generator=g), torch.randn(n, generator=g)
    noise = 1.0 / torch.randint(1, 30, (n,), generator=g).double()
    total = k + noise
    y = ((y2_and_log - total.log()) * total).clamp_min(0.0).sqrt()
    return say, k, s, fold, square, (y.numpy(), k.numpy(), s.clamp(-3.0, 3.0).numpy(), noise.numpy())


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_likeliest_under_its_prior(seed):
    say, k, s, fold, square, made = few(seed)
    at = learned_in_gaps(say, k, s, fold, square)
    assert at is not None
    expected, _, _ = by_hand(*made, slice(None))
    np.testing.assert_allclose(at.numpy(), expected, atol=8e-3)  # as near as its search goes


@pytest.mark.parametrize("seed", range(3))
def test_it_is_believed_from_three_nats_on_that_unseen_rows_gain(seed):
    """Rows that say the same, but less loudly; each judged by what was learned of the other folds."""
    say, k, s, fold, square, made = few(seed)

    def gain(share):
        each = np.zeros(len(fold))
        for part in range(3):
            seen, unseen = (fold != part).numpy(), (fold == part).numpy()
            with_b, level, density = by_hand(*made, seen, share)
            each[unseen] = (density(with_b) - density([0.0, level]))[unseen]
        return each.sum()

    just = brentq(lambda share: gain(share) - 3.0, 0.01, 1.0, xtol=1e-3)
    for share, believed in ((0.97 * just, False), (1.03 * just, True)):
        at = learned_in_gaps(lambda a, level, c=share: c * say(a, level), k, s, fold, square)
        assert (at is not None) == believed


def test_the_spread_counts_up_to_three_sd_and_what_is_known_up_to_all():
    k, far, further = (
        torch.full((1,), 0.1).double(),
        torch.tensor([3.0]).double(),
        torch.tensor([9.0]).double(),
    )
    b = torch.tensor(0.4).double()
    assert torch.equal(log_factor(b, k, far), log_factor(b, k, further))
    assert torch.equal(log_factor(b, k, -far), log_factor(b, k, -further))
    assert float(log_factor(b, torch.tensor([1.2]).double(), far)) == 0.0
    assert float(
        log_factor(torch.tensor(1.5).double(), torch.tensor([0.2]).double(), -further)
    ) == pytest.approx(max(-1.5 * 6.75 * 0.04 * 0.8 * 3.0, -1.5))
    assert float(log_factor(torch.tensor(9.0).double(), torch.tensor([0.2]).double(), -further)) == -1.5


def test_rows_of_one_fold_say_nothing():
    say, k, s, fold, square = rows(0.6, seed=0)
    assert learned_in_gaps(say, k, s, torch.zeros_like(fold), square) is None


def test_a_few_nats_are_not_enough():
    say, k, s, fold, square = rows(0.6, seed=1)
    assert learned_in_gaps(lambda a, level: 0.1 * say(a, level), k, s, fold, square) is not None
    assert learned_in_gaps(lambda a, level: 0.01 * say(a, level), k, s, fold, square) is None


def test_one_square_that_speaks_for_it_is_not_enough():
    """All of the gain comes from a thirtieth of the rows: in one square, which shares its luck, or all over the map."""
    say, k, s, _, _ = rows(0.0, seed=2)
    odd = torch.zeros(N).double()
    odd[: N // 30] = 3.0

    def louder(log_a, level):
        return say(log_a, level) + odd * torch.as_tensor(log_a)

    k, s = k.clamp(0.2, 0.8), torch.ones_like(s)
    apart, together = (
        torch.arange(N),
        torch.cat([torch.zeros(N // 30), torch.arange(1, N - N // 30 + 1)]).long(),
    )
    assert learned_in_gaps(louder, k, s, apart % 3, apart) is not None
    assert learned_in_gaps(louder, k, s, apart % 3, together) is None


def test_a_smooth_noise_learns_it_beside_the_noise():
    """Two features, the second of them the spread; a surface twice as variable where it is high than where it is low."""
    g = torch.Generator().manual_seed(3)
    s, other = torch.randn(2, N, generator=g).double()
    k, one = 0.9 * torch.rand(N, generator=g).double(), torch.ones(N).double()
    counts = torch.randint(1, 40, (N,), generator=g).double()
    truth = k * log_factor(torch.tensor(0.5).double(), k, s).exp()
    y = (truth + 0.3 / counts).sqrt() * torch.randn(N, generator=g).double()
    features = torch.stack([other, 2.0 * s], 1)
    square = torch.arange(N) // 10
    table = HeldOutRows(features, 0 * one, k, 0 * one, counts, y, one, square, one)
    error = {}
    for spread in (None, 1):
        model = new_smooth_noise(2, members=3, spread=spread)
        model.start_from(features, 0.02, 0.3, 30.0)
        fit_smooth_noise(model, table, one[0], Dealt.of(square, 3), epochs=5)
        with torch.no_grad():
            p = model(features, 0 * one, k, one[0], counts)
        error[spread] = float((p.latent_variance / truth).log().abs().mean())
        assert (p.latent_variance <= 1.1).all()
    assert error[1] < 0.5 * error[None]
    assert float(model.gaps) == pytest.approx(0.5, abs=0.1)
    # Untrained, with half of the noise there is: the level is learned beside it.
    model = new_smooth_noise(2, members=3, spread=1)
    model.start_from(features, 1e-6, 0.15, 1000.0)  # what is drawn is Gaussian
    model.believe(table, one[0], Dealt.of(square, 3).rows(square))
    with torch.no_grad():
        p = model(features, 0 * one, k, one[0], counts)
    assert float(model.gaps) == pytest.approx(0.5, abs=0.1)
    assert float((p.noise_variance * counts / 0.3).mean()) == pytest.approx(1.0, abs=0.15)


def test_a_field_asks_how_far_its_neighbours_deviate_and_keeps_what_it_learned(kernels_in_parts):
    g = torch.Generator().manual_seed(0)
    X = torch.rand(SMOOTH_FROM + 200, 2, generator=g).double()
    y = torch.sin(9 * X[:, 0]) + 0.4 * torch.randn(len(X), generator=g).double()
    options = FieldOptions(steps=10, n_targets=600, epochs=2, members=3, metric=False)
    field = LocalField.fit(X, y, None, options=options)
    new = 1.4 * torch.rand(300, 2, generator=g).double()
    assert field.noise.spread is not None
    with torch.no_grad():
        field.noise.gaps.fill_(0.0)
        before = field.moments(new)
        field.noise.gaps.fill_(0.7)
        after = field.moments(new)
    here = outlook(field.known, new, None).around
    s = here.features[:, NAMES.index("log_spread")] / field.noise.scale[field.noise.spread]
    k = here.variance / field.gp.kernel.prior_variance
    more = here.variance * torch.expm1(log_factor(torch.tensor(0.7).double(), k, s))
    assert more.abs().max() > 0.01
    torch.testing.assert_close(after.latent_variance - before.latent_variance, more)
    for name in {f.name for f in fields(after)} - {"latent_variance", "prior_variance", "peak"}:
        assert torch.equal(getattr(after, name), getattr(before, name))
    again = LocalField.from_state(*field.state()).moments(new)
    torch.testing.assert_close(again.latent_variance, after.latent_variance)


def test_least_stays_within_its_bounds():
    def far(at):
        return (at - 5.0).square().sum()

    assert least(far, 2).tolist() == pytest.approx([5.0, 5.0])
    assert least(far, 2, [(0.0, 1.0), (-1.0, 9.0)]).tolist() == pytest.approx([1.0, 5.0])
